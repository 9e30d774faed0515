//! OpenVM's prover backend on the processor, of the Keccak AIR over BabyBear.
//!
//! What it is: what OpenVM's zkVM proves its segments with: a commitment to multilinear polynomials stacked upon each
//! other, sum-checks over them, WHIR to open it, Poseidon2 Merkle trees, with the parameters for 100 bits of security less
//! their proof of work, which allocates nothing and takes as long as chance will have it. Why it is here: a feature of it
//! installs jemalloc, whose setting for OpenVM is one of the peers; and each round of a sum-check folds tables into new ones
//! of half the length.

use std::sync::Arc;

use openvm_keccak_air::{KeccakAir, NUM_ROUNDS, generate_trace_rows};
use openvm_stark_backend::keygen::types::MultiStarkVerifyingKey;
use openvm_stark_backend::p3_air::{Air, AirBuilder, BaseAir, BaseAirWithPublicValues};
use openvm_stark_backend::p3_field::Field;
use openvm_stark_backend::proof::Proof;
use openvm_stark_backend::prover::{
    AirProvingContext, DeviceDataTransporter, DeviceMultiStarkProvingKey, ProvingContext,
};
use openvm_stark_backend::{PartitionedBaseAir, StarkEngine};
use openvm_stark_sdk::config::app_params_with_100_bits_security;
use openvm_stark_sdk::config::baby_bear_poseidon2::{BabyBearPoseidon2Config, BabyBearPoseidon2CpuEngine};
use openvm_stark_sdk::p3_baby_bear::BabyBear;
use prove_harness::{Error, Prover, Rows};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

type Engine = BabyBearPoseidon2CpuEngine;
type Key = DeviceMultiStarkProvingKey<<Engine as StarkEngine>::PB>;

/// The stacked columns are as high as this where that is less than [`HEIGHT`]: so many times the rows, as a power of two.
const ROWS_SHARE: usize = 6;
/// The height of the stacked columns that OpenVM proves its segments with, as a power of two.
const HEIGHT: usize = 21;
/// The greatest that its parameters are sound for.
const HEIGHT_MAX: usize = 24;
/// The same statement every time: only the allocator may make a difference.
const SEED: u64 = 1;

/// Keccak-f, as the backend wants to have it.
struct Permutations(KeccakAir);

impl<F> BaseAir<F> for Permutations {
    fn width(&self) -> usize {
        BaseAir::<F>::width(&self.0)
    }
}

impl<F: Field> BaseAirWithPublicValues<F> for Permutations {}
impl<F: Field> PartitionedBaseAir<F> for Permutations {}

impl<AB: AirBuilder> Air<AB> for Permutations {
    fn eval(&self, builder: &mut AB) {
        self.0.eval(builder);
    }
}

/// Permutations, and how they are proved.
pub(crate) struct Stacked {
    engine: Engine,
    key: Key,
    verifying_key: MultiStarkVerifyingKey<BabyBearPoseidon2Config>,
    permutations: usize,
}

impl Stacked {
    /// As many permutations as `rows` hold, but one at least.
    pub(crate) fn new(rows: Rows) -> Self {
        // A row is 2633 cells wide, the stack 2048 columns.
        let log_rows = rows.log2() as usize;
        let height = (log_rows + ROWS_SHARE).min(HEIGHT).max(log_rows + 1).min(HEIGHT_MAX);
        let mut parameters = app_params_with_100_bits_security(height);
        parameters.logup.pow_bits = 0;
        parameters.whir.mu_pow_bits = 0;
        parameters.whir.query_phase_pow_bits = 0;
        parameters.whir.folding_pow_bits = 0;
        let engine = Engine::new(parameters);
        let (key, verifying_key) = engine.keygen(&[Arc::new(Permutations(KeccakAir {}))]);
        let key = engine.device().transport_pk_to_device(&key);
        Self { engine, key, verifying_key, permutations: (rows.count() / NUM_ROUNDS).max(1) }
    }
}

impl Prover for Stacked {
    type Proof = Proof<BabyBearPoseidon2Config>;

    fn prove(&self) -> Result<Self::Proof, Error> {
        let mut random = SmallRng::seed_from_u64(SEED);
        let inputs = (0..self.permutations).map(|_| random.random()).collect();
        let trace = AirProvingContext::simple_no_pis(generate_trace_rows::<BabyBear>(inputs, 0));
        self.engine
            .prove(&self.key, ProvingContext::new(vec![(0, trace)]))
            .map_err(|cause| Error::new(format!("proving: {cause:?}")))
    }

    fn verify(&self, proof: &Self::Proof) -> Result<(), Error> {
        self.engine
            .verify(&self.verifying_key, proof)
            .map_err(|cause| Error::new(format!("verifying: {cause:?}")))
    }
}
