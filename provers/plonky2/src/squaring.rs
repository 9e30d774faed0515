//! The circuit: a secret number, squared again and again until the rows are full; the result is public.
//!
//! Why it is here: it is the smallest circuit of which every row is full, and its size is chosen freely. The circuit
//! is built once, as in earnest; a proof includes the computation of its witness.

use plonky2::field::types::Field;
use plonky2::iop::target::Target;
use plonky2::iop::witness::{PartialWitness, WitnessWrite};
use plonky2::plonk::circuit_builder::CircuitBuilder;
use plonky2::plonk::circuit_data::{CircuitConfig, CircuitData};
use plonky2::plonk::config::{GenericConfig, PoseidonGoldilocksConfig};
use plonky2::plonk::proof::ProofWithPublicInputs;
use prove_harness::{Error, Prover, Rows};

/// Degree of the extension field.
const D: usize = 2;
type C = PoseidonGoldilocksConfig;
type F = <C as GenericConfig<D>>::F;

/// Rows left free for what plonky2 adds by itself: it hashes the public inputs, holds the constants, and rounds up.
const SPARE_ROWS: usize = 8;

/// The number squared. Any other than 0 and 1 keeps the multiplier busy; the same one every time.
const SEED: u64 = 3;

/// A circuit with the place of its one input.
pub(crate) struct Squaring {
    circuit: CircuitData<F, C, D>,
    input: Target,
}

impl Squaring {
    /// Builds the circuit of exactly `rows` rows.
    pub(crate) fn build(rows: Rows) -> Self {
        let mut builder = CircuitBuilder::<F, D>::new(CircuitConfig::standard_recursion_config());
        let input = builder.add_virtual_target();
        let mut power = input;
        while builder.num_gates() < rows.count() - SPARE_ROWS {
            power = builder.square(power);
        }
        builder.register_public_input(power);
        let circuit = builder.build::<C>();
        debug_assert_eq!(circuit.common.degree(), rows.count(), "SPARE_ROWS is wrong");
        Self { circuit, input }
    }
}

impl Prover for Squaring {
    type Proof = ProofWithPublicInputs<F, C, D>;

    fn prove(&self) -> Result<Self::Proof, Error> {
        let mut witness = PartialWitness::new();
        witness
            .set_target(self.input, F::from_canonical_u64(SEED))
            .and_then(|()| self.circuit.prove(witness))
            .map_err(|cause| Error::doing("proving", cause))
    }

    fn verify(&self, proof: &Self::Proof) -> Result<(), Error> {
        self.circuit.verify(proof.clone()).map_err(|cause| Error::doing("verifying", cause))
    }
}

#[cfg(test)]
mod tests {
    use super::{F, Prover, Rows, SEED, Squaring};
    use plonky2::field::types::{Field, PrimeField64};

    #[test]
    fn the_circuit_fills_its_rows_and_a_wrong_result_is_refused() {
        for rows in ["2^5", "2^6", "2^9"] {
            let rows: Rows = rows.parse().expect("a power of two");
            let squaring = Squaring::build(rows);
            assert_eq!(squaring.circuit.common.degree(), rows.count());
            if rows.log2() == 6 {
                let mut proof = squaring.prove().expect("proves");
                squaring.verify(&proof).expect("holds");
                assert_ne!(proof.public_inputs[0].to_canonical_u64(), SEED);
                proof.public_inputs[0] += F::ONE;
                assert!(squaring.verify(&proof).is_err());
            }
        }
    }
}
