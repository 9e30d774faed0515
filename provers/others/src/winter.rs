//! 32 columns, each the cube of itself plus its neighbour, proved by winterfell over its 64-bit field.
//!
//! What it is: blow-up 8, 32 queries, a quadratic extension, Blake3. Why it is here: winterfell keeps each column in a
//! vector of its own, and makes and frees these in each step of a proof. A proof includes its trace.

use prove_harness::{Error, Rows};
use winterfell::crypto::hashers::Blake3_256;
use winterfell::crypto::{DefaultRandomCoin, MerkleTree};
use winterfell::math::fields::f64::BaseElement;
use winterfell::math::{FieldElement, ToElements};
use winterfell::matrix::ColMatrix;
use winterfell::{
    AcceptableOptions, Air, AirContext, Assertion, AuxRandElements, BatchingMethod, CompositionPoly,
    CompositionPolyTrace, ConstraintCompositionCoefficients, DefaultConstraintCommitment,
    DefaultConstraintEvaluator, DefaultTraceLde, EvaluationFrame, FieldExtension, PartitionOptions, Proof,
    ProofOptions, Prover as _, StarkDomain, Trace, TraceInfo, TracePolyTable, TraceTable,
    TransitionConstraintDegree,
};

const COLUMNS: usize = 32;
const QUERIES: usize = 32;
const BLOWUP: usize = 8;
const FOLDING: usize = 8;
const REMAINDER_MAX: usize = 31;

type Hasher = Blake3_256<BaseElement>;

/// First and last row.
#[derive(Clone)]
pub(crate) struct Ends {
    first: Vec<BaseElement>,
    last: Vec<BaseElement>,
}

impl ToElements<BaseElement> for Ends {
    fn to_elements(&self) -> Vec<BaseElement> {
        [self.first.as_slice(), &self.last].concat()
    }
}

struct WorkAir {
    context: AirContext<BaseElement>,
    ends: Ends,
}

impl Air for WorkAir {
    type BaseField = BaseElement;
    type PublicInputs = Ends;

    fn new(trace: TraceInfo, ends: Ends, options: ProofOptions) -> Self {
        let degrees = vec![TransitionConstraintDegree::new(3); COLUMNS];
        Self { context: AirContext::new(trace, degrees, 2 * COLUMNS, options), ends }
    }

    fn evaluate_transition<E: FieldElement<BaseField = BaseElement>>(
        &self,
        frame: &EvaluationFrame<E>,
        _periodic: &[E],
        result: &mut [E],
    ) {
        let (now, then) = (frame.current(), frame.next());
        for (column, value) in result.iter_mut().enumerate() {
            *value = then[column] - (now[column].cube() + now[(column + 1) % COLUMNS]);
        }
    }

    fn get_assertions(&self) -> Vec<Assertion<BaseElement>> {
        let last = self.trace_length() - 1;
        let of = |column: usize| {
            [
                Assertion::single(column, 0, self.ends.first[column]),
                Assertion::single(column, last, self.ends.last[column]),
            ]
        };
        (0..COLUMNS).flat_map(of).collect()
    }

    fn context(&self) -> &AirContext<BaseElement> {
        &self.context
    }
}

struct WorkProver {
    options: ProofOptions,
}

impl winterfell::Prover for WorkProver {
    type BaseField = BaseElement;
    type Air = WorkAir;
    type Trace = TraceTable<BaseElement>;
    type HashFn = Hasher;
    type VC = MerkleTree<Hasher>;
    type RandomCoin = DefaultRandomCoin<Hasher>;
    type TraceLde<E: FieldElement<BaseField = BaseElement>> = DefaultTraceLde<E, Hasher, Self::VC>;
    type ConstraintCommitment<E: FieldElement<BaseField = BaseElement>> =
        DefaultConstraintCommitment<E, Hasher, Self::VC>;
    type ConstraintEvaluator<'a, E: FieldElement<BaseField = BaseElement>> =
        DefaultConstraintEvaluator<'a, WorkAir, E>;

    fn get_pub_inputs(&self, trace: &Self::Trace) -> Ends {
        let row = |at: usize| (0..COLUMNS).map(|column| trace.get(column, at)).collect();
        Ends { first: row(0), last: row(trace.length() - 1) }
    }

    fn options(&self) -> &ProofOptions {
        &self.options
    }

    fn new_trace_lde<E: FieldElement<BaseField = BaseElement>>(
        &self,
        info: &TraceInfo,
        trace: &ColMatrix<BaseElement>,
        domain: &StarkDomain<BaseElement>,
        partition: PartitionOptions,
    ) -> (Self::TraceLde<E>, TracePolyTable<E>) {
        DefaultTraceLde::new(info, trace, domain, partition)
    }

    fn build_constraint_commitment<E: FieldElement<BaseField = BaseElement>>(
        &self,
        trace: CompositionPolyTrace<E>,
        columns: usize,
        domain: &StarkDomain<BaseElement>,
        partition: PartitionOptions,
    ) -> (Self::ConstraintCommitment<E>, CompositionPoly<E>) {
        DefaultConstraintCommitment::new(trace, columns, domain, partition)
    }

    fn new_evaluator<'a, E: FieldElement<BaseField = BaseElement>>(
        &self,
        air: &'a WorkAir,
        auxiliary: Option<AuxRandElements<E>>,
        coefficients: ConstraintCompositionCoefficients<E>,
    ) -> Self::ConstraintEvaluator<'a, E> {
        DefaultConstraintEvaluator::new(air, auxiliary, coefficients)
    }
}

/// The columns, of so many rows.
pub(crate) struct Work {
    rows: usize,
    prover: WorkProver,
}

impl Work {
    /// As many rows as `rows`, but those at least without which winterfell has no trace.
    pub(crate) fn new(rows: Rows) -> Self {
        let options = ProofOptions::new(
            QUERIES,
            BLOWUP,
            0,
            FieldExtension::Quadratic,
            FOLDING,
            REMAINDER_MAX,
            BatchingMethod::Linear,
            BatchingMethod::Linear,
        );
        Self { rows: rows.count().max(TraceInfo::MIN_TRACE_LENGTH), prover: WorkProver { options } }
    }

    fn trace(&self) -> TraceTable<BaseElement> {
        let mut trace = TraceTable::new(COLUMNS, self.rows);
        trace.fill(
            |row| (3..).zip(row).for_each(|(number, value)| *value = BaseElement::new(number)),
            |_, row| {
                let first = row[0];
                for column in 0..COLUMNS {
                    let neighbour = if column + 1 < COLUMNS { row[column + 1] } else { first };
                    row[column] = row[column].cube() + neighbour;
                }
            },
        );
        trace
    }
}

impl prove_harness::Prover for Work {
    type Proof = (Proof, Ends);

    fn prove(&self) -> Result<Self::Proof, Error> {
        let trace = self.trace();
        let ends = self.prover.get_pub_inputs(&trace);
        let proof = self.prover.prove(trace).map_err(|cause| Error::doing("proving", cause))?;
        Ok((proof, ends))
    }

    fn verify(&self, (proof, ends): &Self::Proof) -> Result<(), Error> {
        let accepted = AcceptableOptions::OptionSet(vec![proof.options().clone()]);
        winterfell::verify::<WorkAir, Hasher, DefaultRandomCoin<Hasher>, MerkleTree<Hasher>>(
            proof.clone(),
            ends.clone(),
            &accepted,
        )
        .map_err(|cause| Error::doing("verifying", cause))
    }
}

#[cfg(test)]
mod tests {
    use prove_harness::Prover;
    use winterfell::math::FieldElement;

    use super::{BaseElement, Work};

    #[test]
    fn a_wrong_last_row_is_refused() {
        let work = Work::new("2^6".parse().expect("a power of two"));
        let (proof, mut ends) = work.prove().expect("proves");
        work.verify(&(proof.clone(), ends.clone())).expect("holds");
        ends.last[0] += BaseElement::ONE;
        assert!(work.verify(&(proof, ends)).is_err());
    }
}
