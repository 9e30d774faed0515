//! The statement: each row holds a sequence in which every number is the sum of the squares of the two before it.
//!
//! Why it is here: it is the trace that Stwo's own benchmarks call wide Fibonacci, in a hundred columns. The twiddles,
//! which depend on the number of rows alone, are computed once, as in earnest; a proof includes its trace.

use num_traits::{One, Zero};
use prove_harness::{Error, Prover, Rows};
use stwo::core::air::Component;
use stwo::core::channel::Blake2sChannel;
use stwo::core::fields::FieldExpOps;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::{CommitmentSchemeVerifier, PcsConfig};
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::proof::StarkProof;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sMerkleChannel, Blake2sMerkleHasher};
use stwo::core::verifier::verify;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::simd::m31::{LOG_N_LANES, N_LANES, PackedBaseField};
use stwo::prover::backend::{Col, Column};
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleEvaluation, PolyOps};
use stwo::prover::poly::twiddles::TwiddleTree;
use stwo::prover::{CommitmentSchemeProver, prove};
use stwo_constraint_framework::{EvalAtRow, FrameworkComponent, FrameworkEval, TraceLocationAllocator};

/// Numbers in a sequence, which is columns of the trace.
const COLUMNS: usize = 100;

/// Queries: 80 bits for a blowup of two, and 16 of work make 96. Ten more of work, for ten queries, took longer than all the
/// rest of a proof of 2^18 rows, and take no memory.
const QUERIES: usize = 80;
const WORK_BITS: u32 = 16;

type Channel = Blake2sMerkleChannel;
type Evaluation = CircleEvaluation<SimdBackend, BaseField, BitReversedOrder>;

/// What holds of each row.
struct Rule {
    log_rows: u32,
}

impl FrameworkEval for Rule {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    fn evaluate<E: EvalAtRow>(&self, mut row: E) -> E {
        let (mut first, mut second) = (row.next_trace_mask(), row.next_trace_mask());
        for _ in 2..COLUMNS {
            let next = row.next_trace_mask();
            row.add_constraint(next.clone() - (first.square() + second.square()));
            (first, second) = (second, next);
        }
        row
    }
}

/// So many sequences, with what all their proofs share.
pub(crate) struct Sequences {
    log_rows: u32,
    config: PcsConfig,
    twiddles: TwiddleTree<SimdBackend>,
}

impl Sequences {
    /// One for each of `rows`, which are never fewer than a vector's lanes.
    pub(crate) fn of(rows: Rows) -> Self {
        let config = PcsConfig {
            pow_bits: WORK_BITS,
            fri_config: FriConfig::new(0, 1, QUERIES, 1),
            lifting_log_size: None,
        };
        // The constraints are of the second degree, and are evaluated over twice the rows, extended.
        let log_largest = rows.log2() + 1 + config.fri_config.log_blowup_factor;
        let domain = CanonicCoset::new(log_largest).circle_domain();
        Self { log_rows: rows.log2(), config, twiddles: SimdBackend::precompute_twiddles(domain.half_coset) }
    }

    /// The columns. The rows start with one and their own number.
    fn trace(&self) -> Vec<Evaluation> {
        let mut columns: Vec<Col<SimdBackend, BaseField>> =
            (0..COLUMNS).map(|_| Col::<SimdBackend, BaseField>::zeros(1 << self.log_rows)).collect();
        for lanes in 0..1 << (self.log_rows - LOG_N_LANES) {
            let row_numbers = std::array::from_fn(|lane| BaseField::from(lanes * N_LANES + lane));
            let (mut first, mut second) = (PackedBaseField::one(), PackedBaseField::from_array(row_numbers));
            for column in &mut columns {
                column.data[lanes] = first;
                (first, second) = (second, first.square() + second.square());
            }
        }
        let domain = CanonicCoset::new(self.log_rows).circle_domain();
        columns.into_iter().map(|column| Evaluation::new(domain, column)).collect()
    }

    fn component(&self) -> FrameworkComponent<Rule> {
        let rule = Rule { log_rows: self.log_rows };
        FrameworkComponent::new(&mut TraceLocationAllocator::default(), rule, SecureField::zero())
    }
}

impl Prover for Sequences {
    type Proof = StarkProof<Blake2sMerkleHasher>;

    fn prove(&self) -> Result<Self::Proof, Error> {
        let channel = &mut Blake2sChannel::default();
        let mut scheme = CommitmentSchemeProver::<SimdBackend, Channel>::new(self.config, &self.twiddles);
        // First what does not depend on the witness, of which there is nothing here; then the trace.
        for columns in [Vec::new(), self.trace()] {
            let mut tree = scheme.tree_builder();
            tree.extend_evals(columns);
            tree.commit(channel);
        }
        prove::<SimdBackend, Channel>(&[&self.component()], channel, scheme)
            .map_err(|cause| Error::doing("proving", cause))
    }

    fn verify(&self, proof: &Self::Proof) -> Result<(), Error> {
        let channel = &mut Blake2sChannel::default();
        let mut scheme = CommitmentSchemeVerifier::<Channel>::new(self.config);
        let component = self.component();
        for (commitment, sizes) in proof.commitments.iter().zip(component.trace_log_degree_bounds().iter()) {
            scheme.commit(*commitment, sizes, channel);
        }
        verify(&[&component], channel, &mut scheme, proof.clone())
            .map_err(|cause| Error::doing("verifying", cause))
    }
}

#[cfg(test)]
mod tests {
    use super::{Prover, Rows, Sequences};

    #[test]
    fn sequences_are_proved_and_others_refused() {
        let of = |rows: &str| Sequences::of(rows.parse::<Rows>().expect("a power of two"));
        let (few, more) = (of("2^5"), of("2^6"));
        let proof = few.prove().expect("proves");
        few.verify(&proof).expect("holds");
        assert!(more.verify(&proof).is_err());
    }
}
