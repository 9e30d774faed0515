//! Fibonacci numbers, proved by Miden VM: a whole zkVM over a 64-bit field, whose program becomes a tree of blocks that are hashed.
//!
//! Why it is here: it runs a program, builds the trace of that in fragments, and proves it, as whoever uses a zkVM does.

use miden_core_lib::CoreLibrary;
use miden_vm::advice::AdviceInputs;
use miden_vm::{
    Assembler, DefaultHost, ExecutionOptions, ExecutionProof, Program, ProgramInfo, ProvingOptions,
    StackInputs, StackOutputs, prove_sync,
};
use prove_harness::{Error, Prover, Rows};

/// More rows than a turn of the loop below takes, and less than twice as many: the trace is padded to a power of two.
const TURN: usize = 16;
/// Left free for what lies around it.
const SPARE_ROWS: usize = 24;

/// A program that makes so many turns.
pub(crate) struct Fibonacci {
    program: Program,
}

impl Fibonacci {
    /// A run of as many turns as `rows` rows hold.
    ///
    /// # Panics
    /// When the assembler refuses the program, which is always the same but for the number.
    pub(crate) fn new(rows: Rows) -> Self {
        let turns = rows.count().saturating_sub(SPARE_ROWS).max(TURN) / TURN;
        let source = format!(
            "begin
                push.1 push.0 push.{turns} push.1
                while.true
                    movdn.2 swap dup.1 add movup.2
                    sub.1 dup neq.0
                end
                drop movdn.3 drop drop
            end"
        );
        let mut assembler = Assembler::default();
        assembler.link_dynamic_library(CoreLibrary::default()).expect("the library is there");
        Self { program: assembler.assemble_program(source).expect("the program is sound") }
    }
}

impl Prover for Fibonacci {
    /// With what was computed.
    type Proof = (StackOutputs, ExecutionProof);

    fn prove(&self) -> Result<Self::Proof, Error> {
        prove_sync(
            &self.program,
            StackInputs::default(),
            AdviceInputs::default(),
            &mut DefaultHost::default(),
            ExecutionOptions::default(),
            ProvingOptions::default(),
        )
        .map_err(|cause| Error::doing("proving", cause))
    }

    fn verify(&self, (outputs, proof): &Self::Proof) -> Result<(), Error> {
        let program = ProgramInfo::from(self.program.clone());
        miden_vm::verify(program, StackInputs::default(), *outputs, proof.clone())
            .map(drop)
            .map_err(|cause| Error::doing("verifying", cause))
    }
}

#[cfg(test)]
mod tests {
    use miden_vm::advice::AdviceInputs;
    use miden_vm::{DefaultHost, ExecutionOptions, FastProcessor, StackInputs, StackOutputs, trace};

    use super::{Fibonacci, Prover};

    #[test]
    fn a_trace_is_as_long_as_was_asked_for() {
        for log2 in [8, 12, 14] {
            let run = Fibonacci::new(format!("2^{log2}").parse().expect("a power of two"));
            let processor = FastProcessor::new_with_options(
                StackInputs::default(),
                AdviceInputs::default(),
                ExecutionOptions::default(),
            );
            let inputs = processor
                .expect("starts")
                .execute_trace_inputs_sync(&run.program, &mut DefaultHost::default())
                .expect("runs");
            let trace = trace::build_trace(inputs).expect("has a trace");
            assert_eq!(trace.trace_len_summary().padded_trace_len(), 1 << log2);
        }
    }

    #[test]
    fn a_wrong_number_is_refused() {
        let run = Fibonacci::new("2^6".parse().expect("a power of two"));
        let (outputs, proof) = run.prove().expect("proves");
        run.verify(&(outputs, proof.clone())).expect("holds");
        assert!(run.verify(&(StackOutputs::default(), proof)).is_err());
    }
}
