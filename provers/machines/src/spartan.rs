//! A random system of constraints, proved by Spartan over Curve25519.
//!
//! Why it is here: it proves by sum-checks, whose tables are made anew at twice the length of what they are bound to, and halve
//! from round to round.

use libspartan::{
    ComputationCommitment, ComputationDecommitment, InputsAssignment, Instance, SNARK, SNARKGens,
    VarsAssignment,
};
use merlin::Transcript;
use prove_harness::{Error, Prover, Rows};

/// Public numbers of the system.
const INPUTS: usize = 10;

/// A system that is satisfied, with its keys.
pub(crate) struct Sums {
    system: Instance,
    keys: SNARKGens,
    commitment: ComputationCommitment,
    opening: ComputationDecommitment,
    witness: VarsAssignment,
    inputs: InputsAssignment,
}

impl Sums {
    /// A system of `rows` constraints.
    pub(crate) fn new(rows: Rows) -> Self {
        let count = rows.count();
        let (system, witness, inputs) = Instance::produce_synthetic_r1cs(count, count, INPUTS);
        let keys = SNARKGens::new(count, count, INPUTS, count);
        let (commitment, opening) = SNARK::encode(&system, &keys);
        Self { system, keys, commitment, opening, witness, inputs }
    }
}

impl Prover for Sums {
    type Proof = SNARK;

    fn prove(&self) -> Result<Self::Proof, Error> {
        Ok(SNARK::prove(
            &self.system,
            &self.commitment,
            &self.opening,
            self.witness.clone(),
            &self.inputs,
            &self.keys,
            &mut Transcript::new(b"sums"),
        ))
    }

    fn verify(&self, proof: &Self::Proof) -> Result<(), Error> {
        proof
            .verify(&self.commitment, &self.inputs, &mut Transcript::new(b"sums"), &self.keys)
            .map_err(|cause| Error::doing("verifying", format!("{cause:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::{Prover, Sums};

    #[test]
    fn a_proof_of_another_system_is_refused() {
        let rows = "2^6".parse().expect("a power of two");
        let (mine, other) = (Sums::new(rows), Sums::new(rows));
        let proof = mine.prove().expect("proves");
        mine.verify(&proof).expect("holds");
        assert!(other.verify(&proof).is_err());
    }
}
