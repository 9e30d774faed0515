//! The two statements, and a mix of them, in the configuration of Plonky3's own benchmark example.
//!
//! What it is: Keccak-256 Merkle trees of arity 2, FRI with blow-up 2, 100 queries, 16 bits of grinding and high
//! folding arity (`FriParameters::new_benchmark_high_arity`), a challenge field of degree 4, either DFT. Why it is
//! here: times say something only for the setting that people benchmark. A proof includes its trace, because a
//! prover allocates it anew each time; the twiddles of the DFT are made once, before the first proof.

use std::cell::Cell;

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
use rand::seq::SliceRandom;
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

/// Both statements with several numbers of rows.
pub(crate) struct Mixed<D> {
    keccak: Vec<Statement<KeccakAir, D>>,
    poseidon2: Vec<Statement<Poseidon2Air, D>>,
    /// Rounds so far: each has an order of its own.
    rounds: Cell<u64>,
}

/// A proof of one of them, and of which.
pub(crate) enum MixedProof<D: TwoAdicSubgroupDft<Val>> {
    Keccak(usize, Proof<Config<D>>),
    Poseidon2(usize, Proof<Config<D>>),
}

/// How often the number of rows is halved for the smallest of the mixed statements.
const HALVED_AT_MOST: u32 = 3;

/// Makes both statements with all the rows, with half of them, and so on.
pub(crate) fn mixed<D: Clone>(rows: Rows, dft: &D) -> Mixed<D> {
    let sizes = || (0..=HALVED_AT_MOST).filter_map(|times| rows.halved(times));
    Mixed {
        keccak: sizes().map(|rows| keccak(rows, dft.clone())).collect(),
        poseidon2: sizes().map(|rows| poseidon2(rows, dft.clone())).collect(),
        rounds: Cell::new(0),
    }
}

impl<D: TwoAdicSubgroupDft<Val>> Prover for Mixed<D> {
    type Proof = Vec<MixedProof<D>>;

    fn prove(&self) -> Result<Self::Proof, Error> {
        let count = self.keccak.len();
        let mut order: Vec<usize> = (0..count + self.poseidon2.len()).collect();
        order.shuffle(&mut SmallRng::seed_from_u64(SEED + self.rounds.replace(self.rounds.get() + 1)));
        let prove = |nth: usize| match nth.checked_sub(count) {
            None => self.keccak[nth].prove().map(|proof| MixedProof::Keccak(nth, proof)),
            Some(nth) => self.poseidon2[nth].prove().map(|proof| MixedProof::Poseidon2(nth, proof)),
        };
        order.into_iter().map(prove).collect()
    }

    fn verify(&self, proofs: &Self::Proof) -> Result<(), Error> {
        proofs.iter().try_for_each(|proof| match proof {
            MixedProof::Keccak(nth, proof) => self.keccak[*nth].verify(proof),
            MixedProof::Poseidon2(nth, proof) => self.poseidon2[*nth].verify(proof),
        })
    }
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

    use super::{Challenge, MixedProof, Prover, keccak, mixed};

    #[test]
    fn a_proof_with_one_wrong_value_is_refused() {
        let statement = keccak("2^5".parse().expect("a power of two"), Radix2DitParallel::default());
        let mut proof = statement.prove().expect("proves");
        statement.verify(&proof).expect("holds");
        proof.opened_values.trace_local[0] += Challenge::ONE;
        assert!(statement.verify(&proof).is_err());
    }

    #[test]
    fn each_round_of_the_mix_proves_all_of_it_in_another_order() {
        let statement = mixed("2^6".parse().expect("a power of two"), &Radix2DitParallel::default());
        let mut orders = Vec::new();
        for _ in 0..4 {
            let proofs = statement.prove().expect("proves");
            statement.verify(&proofs).expect("holds");
            let order: Vec<usize> = proofs
                .iter()
                .map(|proof| match proof {
                    MixedProof::Keccak(nth, _) => *nth,
                    MixedProof::Poseidon2(nth, _) => 2 + nth,
                })
                .collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3], "two sizes of each");
            orders.push(order);
        }
        orders.dedup();
        assert!(orders.len() > 1, "{orders:?}");
        let mut proofs = statement.prove().expect("proves");
        proofs.iter_mut().for_each(|proof| match proof {
            MixedProof::Keccak(_, proof) | MixedProof::Poseidon2(_, proof) => {
                proof.opened_values.trace_local[0] += Challenge::ONE;
            }
        });
        assert!(statement.verify(&proofs).is_err());
    }
}
