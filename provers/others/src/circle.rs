//! Plonky3's circle STARK over Mersenne-31, of the Keccak AIR.
//!
//! What it is: the setting of Plonky3's own benchmark example: Keccak-256 Merkle trees, FRI by
//! `FriParameters::new_benchmark`, a challenge field of degree 3. Why it is here: it extends the trace into a buffer
//! that it begins with half of, while the trace, which has room for an extension that is never put there, is still alive.

use std::marker::PhantomData;

use p3_challenger::{HashChallenger, SerializingChallenger32};
use p3_circle::CirclePcs;
use p3_commit::ExtensionMmcs;
use p3_field::extension::BinomialExtensionField;
use p3_fri::FriParameters;
use p3_keccak::{Keccak256Hash, KeccakF};
use p3_keccak_air::{KeccakAir, NUM_ROUNDS, generate_trace_rows};
use p3_merkle_tree::MerkleTreeMmcs;
use p3_mersenne_31::Mersenne31;
use p3_symmetric::{CompressionFunctionFromHasher, PaddingFreeSponge, SerializingHasher};
use p3_uni_stark::{Proof, StarkConfig};
use prove_harness::{Error, Prover, Rows};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

type Val = Mersenne31;
type Challenge = BinomialExtensionField<Val, 3>;
type Sponge = PaddingFreeSponge<KeccakF, 25, 17, 4>;
type Compress = CompressionFunctionFromHasher<Sponge, 2, 4>;
type Leaf = [Val; p3_keccak::VECTOR_LEN];
type Digest = [u64; p3_keccak::VECTOR_LEN];
type ValMmcs = MerkleTreeMmcs<Leaf, Digest, SerializingHasher<Sponge>, Compress, 2, 4>;
type ChallengeMmcs = ExtensionMmcs<Val, Challenge, ValMmcs>;
type Pcs = CirclePcs<Val, ValMmcs, ChallengeMmcs>;
type Challenger = SerializingChallenger32<Val, HashChallenger<u8, Keccak256Hash, 32>>;
type Config = StarkConfig<Pcs, Challenge, Challenger>;

/// Levels of the Merkle tree that are sent whole, as in Plonky3's examples.
const CAP_HEIGHT: usize = 3;
/// The same statement every time: only the allocator may make a difference.
const SEED: u64 = 1;

/// Permutations, and how they are proved.
pub(crate) struct Circle {
    config: Config,
    blowup_bits: usize,
    permutations: usize,
}

impl Circle {
    /// As many permutations as `rows` hold, but one at least.
    pub(crate) fn new(rows: Rows) -> Self {
        let sponge = Sponge::new(KeccakF {});
        let mmcs = ValMmcs::new(SerializingHasher::new(sponge), Compress::new(sponge), CAP_HEIGHT);
        let fri_params = FriParameters::new_benchmark(ChallengeMmcs::new(mmcs.clone()));
        let blowup_bits = fri_params.log_blowup;
        let challenger = Challenger::from_hasher(Vec::new(), Keccak256Hash {});
        let config = Config::new(Pcs { mmcs, fri_params, _phantom: PhantomData }, challenger);
        Self { config, blowup_bits, permutations: (rows.count() / NUM_ROUNDS).max(1) }
    }
}

impl Prover for Circle {
    type Proof = Proof<Config>;

    fn prove(&self) -> Result<Self::Proof, Error> {
        let mut random = SmallRng::seed_from_u64(SEED);
        let inputs = (0..self.permutations).map(|_| random.random()).collect();
        let trace = generate_trace_rows::<Val>(inputs, self.blowup_bits);
        p3_uni_stark::prove(&self.config, &KeccakAir {}, trace, &[])
            .map_err(|cause| Error::new(format!("proving: {cause:?}")))
    }

    fn verify(&self, proof: &Self::Proof) -> Result<(), Error> {
        p3_uni_stark::verify(&self.config, &KeccakAir {}, proof, &[])
            .map_err(|cause| Error::new(format!("verifying: {cause:?}")))
    }
}
