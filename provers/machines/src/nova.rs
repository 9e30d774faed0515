//! A chain of multiplications, folded step by step by Nova over the Pasta curves, and what is folded proved by Spartan.
//!
//! Why it is here: folding keeps its instances from step to step and replaces them, in multi-exponentiations and sums of
//! vectors that are made anew.

use nova_snark::frontend::num::AllocatedNum;
use nova_snark::frontend::{ConstraintSystem, SynthesisError};
use nova_snark::nova::{CompressedSNARK, ProverKey, PublicParams, RecursiveSNARK, VerifierKey};
use nova_snark::provider::{PallasEngine, VestaEngine, ipa_pc};
use nova_snark::spartan::snark::RelaxedR1CSSNARK;
use nova_snark::traits::Engine;
use nova_snark::traits::circuit::StepCircuit;
use nova_snark::traits::snark::RelaxedR1CSSNARKTrait;
use prove_harness::{Error, Prover, Rows};

type First = PallasEngine;
type Second = VestaEngine;
type Outer = RelaxedR1CSSNARK<First, ipa_pc::EvaluationEngine<First>>;
type Inner = RelaxedR1CSSNARK<Second, ipa_pc::EvaluationEngine<Second>>;
type Scalar = <First as Engine>::Scalar;

/// Steps that are folded.
const STEPS: usize = 3;

/// Squares a number so many times and adds where it began.
#[derive(Clone, Debug)]
pub(crate) struct Squares {
    times: usize,
}

impl StepCircuit<Scalar> for Squares {
    fn arity(&self) -> usize {
        1
    }

    fn synthesize<CS: ConstraintSystem<Scalar>>(
        &self,
        system: &mut CS,
        from: &[AllocatedNum<Scalar>],
    ) -> Result<Vec<AllocatedNum<Scalar>>, SynthesisError> {
        let mut last = from[0].clone();
        for time in 0..self.times {
            last = last.square(system.namespace(|| format!("square {time}")))?;
        }
        Ok(vec![last.add(system.namespace(|| "sum"), &from[0])?])
    }
}

/// A circuit with its keys.
pub(crate) struct Folded {
    circuit: Squares,
    parameters: PublicParams<First, Second, Squares>,
    key: ProverKey<First, Second, Squares, Outer, Inner>,
    verifying_key: VerifierKey<First, Second, Squares, Outer, Inner>,
}

impl Folded {
    /// Makes the keys of a circuit of `rows` constraints, beside those that Nova adds.
    ///
    /// # Panics
    /// When Nova refuses the circuit, which is always the same but for its length.
    pub(crate) fn new(rows: Rows) -> Self {
        let circuit = Squares { times: rows.count() - 1 };
        let parameters = PublicParams::setup(&circuit, &*Outer::ck_floor(), &*Inner::ck_floor())
            .expect("the circuit has parameters");
        let (key, verifying_key) = CompressedSNARK::setup(&parameters).expect("the circuit has keys");
        Self { circuit, parameters, key, verifying_key }
    }
}

impl Prover for Folded {
    type Proof = CompressedSNARK<First, Second, Squares, Outer, Inner>;

    fn prove(&self) -> Result<Self::Proof, Error> {
        let from = [Scalar::from(2)];
        let mut folded = RecursiveSNARK::new(&self.parameters, &self.circuit, &from)
            .map_err(|cause| Error::doing("beginning", cause))?;
        for _ in 0..STEPS {
            folded
                .prove_step(&self.parameters, &self.circuit)
                .map_err(|cause| Error::doing("folding", cause))?;
        }
        CompressedSNARK::prove(&self.parameters, &self.key, &folded)
            .map_err(|cause| Error::doing("proving", cause))
    }

    fn verify(&self, proof: &Self::Proof) -> Result<(), Error> {
        let ends = proof
            .verify(&self.verifying_key, STEPS, &[Scalar::from(2)])
            .map_err(|cause| Error::doing("verifying", cause))?;
        let mut expected = Scalar::from(2);
        for _ in 0..STEPS {
            let from = expected;
            for _ in 0..self.circuit.times {
                expected = expected.square();
            }
            expected += from;
        }
        if ends == [expected] { Ok(()) } else { Err(Error::new("verifying: another end was proved")) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Folded, Prover};

    #[test]
    fn a_proof_of_a_longer_chain_is_refused() {
        let rows = |text: &str| text.parse().expect("a power of two");
        let (short, long) = (Folded::new(rows("2^5")), Folded::new(rows("2^6")));
        let proof = short.prove().expect("proves");
        short.verify(&proof).expect("holds");
        assert!(long.verify(&proof).is_err());
    }
}
