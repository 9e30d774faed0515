//! The two statements, in the configuration of Plonky3's own benchmark example.
//!
//! What it is: Keccak-256 Merkle trees of arity 2, FRI with blow-up 2, 100 queries, 16 bits of grinding and high
//! folding arity (`FriParameters::new_benchmark_high_arity`), a challenge field of degree 4, either DFT. Why it is
//! here: times say something only for the setting that people benchmark. A proof includes its trace, because a
//! prover allocates it anew each time; the twiddles of the DFT are made once, before the first proof.

use p3_challenger::{HashChallenger, SerializingChallenger32};
use p3_commit::ExtensionMmcs;
use p3_dft::TwoAdicSubgroupDft;
use p3_field::extension::BinomialExtensionField;
use p3_fri::{FriParameters, TwoAdicFriPcs};
use p3_keccak::{Keccak256Hash, KeccakF};
use p3_keccak_air::KeccakAir;
use p3_koala_bear::{
    GenericPoseidon2LinearLayersKoalaBear, KOALABEAR_POSEIDON2_HALF_FULL_ROUNDS,
    KOALABEAR_POSEIDON2_PARTIAL_ROUNDS_16, KOALABEAR_S_BOX_DEGREE, KoalaBear,
};
use p3_matrix::dense::RowMajorMatrix;
use p3_merkle_tree::MerkleTreeMmcs;
use p3_poseidon2_air::{RoundConstants, VectorizedPoseidon2Air};
use p3_symmetric::{CompressionFunctionFromHasher, PaddingFreeSponge, SerializingHasher};
use p3_uni_stark::{Proof, StarkConfig};
use prove_harness::{Error, Prover, Rows};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

type Val = KoalaBear;
type Challenge = BinomialExtensionField<Val, 4>;
type Sponge = PaddingFreeSponge<KeccakF, 25, 17, 4>;
type Compress = CompressionFunctionFromHasher<Sponge, 2, 4>;
type Leaf = [Val; p3_keccak::VECTOR_LEN];
type Digest = [u64; p3_keccak::VECTOR_LEN];
type ValMmcs = MerkleTreeMmcs<Leaf, Digest, SerializingHasher<Sponge>, Compress, 2, 4>;
type ChallengeMmcs = ExtensionMmcs<Val, Challenge, ValMmcs>;
type Pcs<D> = TwoAdicFriPcs<Val, D, ValMmcs, ChallengeMmcs>;
type Challenger = SerializingChallenger32<Val, HashChallenger<u8, Keccak256Hash, 32>>;
type Config<D> = StarkConfig<Pcs<D>, Challenge, Challenger>;

/// Permutations in one row of the Poseidon2 AIR.
const PERMUTATIONS_PER_ROW: usize = 8;
/// State of one such permutation, in field elements.
const WIDTH: usize = 16;
/// The S-box is cubed in one constraint: no column holds a part of it.
const SBOX_REGISTERS: usize = 0;

type Poseidon2Air = VectorizedPoseidon2Air<
    Val,
    GenericPoseidon2LinearLayersKoalaBear,
    WIDTH,
    KOALABEAR_S_BOX_DEGREE,
    SBOX_REGISTERS,
    KOALABEAR_POSEIDON2_HALF_FULL_ROUNDS,
    KOALABEAR_POSEIDON2_PARTIAL_ROUNDS_16,
    PERMUTATIONS_PER_ROW,
>;

/// Levels of the Merkle tree that are sent whole, as in Plonky3's examples.
const CAP_HEIGHT: usize = 3;
/// The same statement every time: only the allocator may make a difference.
const SEED: u64 = 1;

/// Makes the trace of an AIR for so many rows, with room to grow by so many bits.
type MakeTrace<A> = Box<dyn Fn(&A, Rows, usize) -> RowMajorMatrix<Val>>;

/// An AIR with what it takes to prove it by the DFT `D`.
pub(crate) struct Statement<A, D> {
    config: Config<D>,
    air: A,
    rows: Rows,
    trace: MakeTrace<A>,
    log_blowup: usize,
}

/// Makes the configuration for a DFT, and says by how many bits a trace is extended.
pub(crate) fn config<D: Clone>(dft: D) -> (Config<D>, usize) {
    let sponge = Sponge::new(KeccakF {});
    let val_mmcs = ValMmcs::new(SerializingHasher::new(sponge), Compress::new(sponge), CAP_HEIGHT);
    let fri = FriParameters::new_benchmark_high_arity(ChallengeMmcs::new(val_mmcs.clone()));
    let log_blowup = fri.log_blowup;
    let pcs = Pcs::new(dft, val_mmcs, fri);
    let challenger = Challenger::from_hasher(Vec::new(), Keccak256Hash {});
    (Config::new(pcs, challenger), log_blowup)
}

impl<A, D: Clone> Statement<A, D> {
    fn new(
        air: A,
        dft: D,
        rows: Rows,
        trace: impl Fn(&A, Rows, usize) -> RowMajorMatrix<Val> + 'static,
    ) -> Self {
        let (config, log_blowup) = config(dft);
        let trace = Box::new(trace);
        Self { config, air, rows, trace, log_blowup }
    }
}

/// Makes the Keccak statement: as many Keccak-f permutations as fit into the rows, 24 rows each.
pub(crate) fn keccak<D: Clone>(rows: Rows, dft: D) -> Statement<KeccakAir, D> {
    keccak_of(rows, dft, |rows| {
        let mut rng = SmallRng::seed_from_u64(SEED);
        (0..rows.count() / p3_keccak_air::NUM_ROUNDS).map(|_| rng.random()).collect()
    })
}

/// Makes the same statement for the states that `inputs` gives, as many as fit into the rows or fewer.
pub(crate) fn keccak_of<D: Clone>(
    rows: Rows,
    dft: D,
    inputs: impl Fn(Rows) -> Vec<[u64; 25]> + 'static,
) -> Statement<KeccakAir, D> {
    Statement::new(KeccakAir {}, dft, rows, move |_, rows, spare_bits| {
        p3_keccak_air::generate_trace_rows(inputs(rows), spare_bits)
    })
}

/// Makes the Poseidon2 statement: 8 permutations of width 16 in each row.
pub(crate) fn poseidon2<D: Clone>(rows: Rows, dft: D) -> Statement<Poseidon2Air, D> {
    let constants = RoundConstants::from_rng(&mut SmallRng::seed_from_u64(SEED));
    Statement::new(Poseidon2Air::new(constants), dft, rows, |air, rows, spare_bits| {
        air.generate_vectorized_trace_rows(rows.count() * PERMUTATIONS_PER_ROW, spare_bits)
    })
}

/// The proof system is generic over the AIR by a long list of bounds: one impl per AIR says less.
macro_rules! impl_prover {
    ($air:ty) => {
        impl<D: TwoAdicSubgroupDft<Val>> Prover for Statement<$air, D> {
            type Proof = Proof<Config<D>>;

            fn prove(&self) -> Result<Self::Proof, Error> {
                let trace = (self.trace)(&self.air, self.rows, self.log_blowup);
                p3_uni_stark::prove(&self.config, &self.air, trace, &[])
                    .map_err(|cause| Error::doing("proving", format!("{cause:?}")))
            }

            fn verify(&self, proof: &Self::Proof) -> Result<(), Error> {
                p3_uni_stark::verify(&self.config, &self.air, proof, &[])
                    .map_err(|cause| Error::doing("verifying", format!("{cause:?}")))
            }
        }
    };
}

impl_prover!(KeccakAir);
impl_prover!(Poseidon2Air);

#[cfg(test)]
mod tests {
    use p3_dft::Radix2DitParallel;
    use p3_field::PrimeCharacteristicRing;

    use super::{Challenge, Prover, keccak};

    #[test]
    fn a_proof_with_one_wrong_value_is_refused() {
        let statement = keccak("2^5".parse().expect("a power of two"), Radix2DitParallel::default());
        let mut proof = statement.prove().expect("proves");
        statement.verify(&proof).expect("holds");
        proof.opened_values.trace_local[0] += Challenge::ONE;
        assert!(statement.verify(&proof).is_err());
    }
}
