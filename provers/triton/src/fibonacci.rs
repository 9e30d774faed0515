//! The statement: a Fibonacci number of Triton VM's field, by as many turns of a loop as fill the rows.
//!
//! Why it is here: it is the smallest program that grows with its input. Its cycles are what the rows are padded to.

use prove_harness::{Error, Prover, Rows};
use triton_vm::prelude::{
    BFieldElement, Claim, NonDeterminism, Program, Proof, PublicInput, Stark, triton_program,
};

/// Cycles of a turn of the loop below.
const TURN: u64 = 14;
/// Left free for those around it.
const AROUND: u64 = 40;

/// A program, and how many turns it is to make.
pub(crate) struct Fibonacci {
    program: Program,
    turns: PublicInput,
}

impl Fibonacci {
    /// As many turns as `rows` rows hold, and one at least.
    pub(crate) fn of(rows: Rows) -> Self {
        let turns = ((1_u64 << rows.log2()).saturating_sub(AROUND) / TURN).max(1);
        let program = triton_program!(
            read_io 1 push 0 push 1 call turn   // 0 second-to-last last
            write_io 1 halt
            turn:                               // n a b
                dup 2 push 0 eq skiz return
                dup 1 dup 1 add                 // n a b a+b
                pick 2 pop 1                    // n b a+b
                pick 2 push -1 add place 2      // n-1 b a+b
                recurse
        );
        Self { program, turns: PublicInput::new(vec![BFieldElement::new(turns)]) }
    }
}

impl Prover for Fibonacci {
    /// With what is claimed, the number among it.
    type Proof = (Stark, Claim, Proof);

    fn prove(&self) -> Result<Self::Proof, Error> {
        triton_vm::prove_program(self.program.clone(), self.turns.clone(), NonDeterminism::default())
            .map_err(|cause| Error::doing("proving", cause))
    }

    fn verify(&self, (stark, claim, proof): &Self::Proof) -> Result<(), Error> {
        stark.verify(claim, proof).map_err(|cause| Error::doing("verifying", cause))
    }
}

#[cfg(test)]
mod tests {
    use super::{BFieldElement, Fibonacci, Prover};

    #[test]
    fn a_trace_is_as_long_as_was_asked_for_and_a_wrong_number_is_refused() {
        for log2 in [9, 10] {
            let run = Fibonacci::of(format!("2^{log2}").parse().expect("a power of two"));
            let (stark, mut claim, proof) = run.prove().expect("proves");
            assert_eq!(proof.padded_height().expect("says so"), 1 << log2);
            let verified = run.verify(&(stark, claim.clone(), proof.clone()));
            verified.expect("holds");
            claim.output[0] += BFieldElement::new(1);
            assert!(run.verify(&(stark, claim, proof)).is_err());
        }
    }
}
