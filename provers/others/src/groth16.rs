//! A chain of multiplications, proved by arkworks' Groth16 over BN254.
//!
//! Why it is here: its time goes into multi-exponentiations and a few transforms, so it computes, and what is to be seen
//! is that nothing is lost. The keys are made once, as in earnest; a proof includes its witness.

use ark_bn254::{Bn254, Fr};
use ark_groth16::{Groth16, PreparedVerifyingKey, Proof, ProvingKey, prepare_verifying_key};
use ark_relations::gr1cs::{ConstraintSynthesizer, ConstraintSystemRef, SynthesisError, Variable};
use ark_relations::lc;
use ark_snark::{CircuitSpecificSetupSNARK, SNARK};
use ark_std::rand::SeedableRng;
use ark_std::rand::rngs::StdRng;
use prove_harness::{Error, Prover, Rows};

/// Constraints left free for those that are no multiplication.
const SPARE_ROWS: usize = 10;
/// The same keys and the same statement every time: only the allocator may make a difference.
const SEED: u64 = 1;

/// Each number of the chain is the one before the last times the sum of the last two; the end is public.
#[derive(Clone)]
struct Circuit {
    multiplications: usize,
    /// The first two numbers, where there is a witness.
    start: Option<(Fr, Fr)>,
}

/// The number that follows two.
fn next(a: Fr, b: Fr) -> Fr {
    a * (a + b)
}

impl Circuit {
    fn end(&self) -> Option<Fr> {
        let (mut a, mut b) = self.start?;
        for _ in 0..self.multiplications {
            (a, b) = (b, next(a, b));
        }
        Some(b)
    }
}

impl ConstraintSynthesizer<Fr> for Circuit {
    fn generate_constraints(self, system: ConstraintSystemRef<Fr>) -> Result<(), SynthesisError> {
        let there = |value: Option<Fr>| value.ok_or(SynthesisError::AssignmentMissing);
        let end = self.end();
        let (mut a, mut b) = (self.start.map(|(a, _)| a), self.start.map(|(_, b)| b));
        let mut a_variable = system.new_witness_variable(|| there(a))?;
        let mut b_variable = system.new_witness_variable(|| there(b))?;
        for _ in 0..self.multiplications {
            let c = a.zip(b).map(|(a, b)| next(a, b));
            let c_variable = system.new_witness_variable(|| there(c))?;
            system.enforce_r1cs_constraint(
                || lc!() + a_variable,
                || lc!() + a_variable + b_variable,
                || lc!() + c_variable,
            )?;
            (a, b) = (b, c);
            (a_variable, b_variable) = (b_variable, c_variable);
        }
        let public = system.new_input_variable(|| there(end))?;
        system.enforce_r1cs_constraint(|| lc!() + b_variable, || lc!() + Variable::One, || lc!() + public)
    }
}

/// A circuit with its keys.
pub(crate) struct Chain {
    multiplications: usize,
    key: ProvingKey<Bn254>,
    verifying_key: PreparedVerifyingKey<Bn254>,
}

impl Chain {
    /// Makes the keys of a circuit of `rows` constraints, but of one multiplication at least.
    ///
    /// # Panics
    /// When arkworks refuses the circuit, which is always the same but for its length.
    pub(crate) fn new(rows: Rows) -> Self {
        let multiplications = rows.count().saturating_sub(SPARE_ROWS).max(1);
        let circuit = Circuit { multiplications, start: None };
        let mut random = StdRng::seed_from_u64(SEED);
        let (key, verifying_key) =
            Groth16::<Bn254>::setup(circuit, &mut random).expect("the circuit has keys");
        Self { multiplications, verifying_key: prepare_verifying_key(&verifying_key), key }
    }
}

impl Prover for Chain {
    /// With the end of the chain.
    type Proof = (Proof<Bn254>, Fr);

    fn prove(&self) -> Result<Self::Proof, Error> {
        let mut random = StdRng::seed_from_u64(SEED);
        let circuit =
            Circuit { multiplications: self.multiplications, start: Some((Fr::from(2), Fr::from(3))) };
        let end = circuit.end().ok_or_else(|| Error::new("the witness is missing"))?;
        let proof = Groth16::<Bn254>::prove(&self.key, circuit, &mut random)
            .map_err(|cause| Error::doing("proving", cause))?;
        Ok((proof, end))
    }

    fn verify(&self, (proof, end): &Self::Proof) -> Result<(), Error> {
        match Groth16::<Bn254>::verify_with_processed_vk(&self.verifying_key, &[*end], proof) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::new("verifying: the proof does not hold")),
            Err(cause) => Err(Error::doing("verifying", cause)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Chain, Fr, Prover};

    #[test]
    fn a_wrong_end_is_refused() {
        let chain = Chain::new("2^6".parse().expect("a power of two"));
        let (proof, end) = chain.prove().expect("proves");
        chain.verify(&(proof.clone(), end)).expect("holds");
        assert!(chain.verify(&(proof, end + Fr::from(1))).is_err());
    }
}
