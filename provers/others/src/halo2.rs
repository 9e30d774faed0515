//! A circuit of columns, gates, lookups and copies, proved by halo2 with inner products over the Pasta curves.
//!
//! Why it is here: this arithmetisation is what many rollups prove with. Its columns are vectors of their own, which it
//! transforms one by one into an extended domain and keeps there until their quotient is formed. The keys are made once, as in
//! earnest; a proof includes its witness.

use halo2_proofs::circuit::{AssignedCell, Layouter, Region, SimpleFloorPlanner, Value};
use halo2_proofs::pasta::{EqAffine, Fp};
use halo2_proofs::plonk::{
    Advice, Circuit, Column, ConstraintSystem, Error as PlonkError, Instance, ProvingKey, Selector,
    SingleVerifier, TableColumn, create_proof, keygen_pk, keygen_vk, verify_proof,
};
use halo2_proofs::poly::{Rotation, commitment::Params};
use halo2_proofs::transcript::{Blake2bRead, Blake2bWrite, Challenge255};
use prove_harness::{Error, Prover, Rows};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

/// Chains side by side, each of a column of numbers and one of digits.
const CHAINS: usize = 4;
/// Rows left free for those that hide the witness, and for the number behind the last step.
const SPARE_ROWS: usize = 8;
/// Digits are bytes where the table has room for all of them.
const DIGITS_MAX: usize = 256;
/// The same statement every time: only the allocator may make a difference.
const SEED: u64 = 1;

/// The columns of one chain.
#[derive(Clone, Copy, Debug)]
struct Chain {
    numbers: Column<Advice>,
    digits: Column<Advice>,
    step: Selector,
}

#[derive(Clone, Debug)]
struct Columns {
    chains: [Chain; CHAINS],
    ends: Column<Instance>,
    table: TableColumn,
}

/// Each number of a chain is the cube of the one before, plus a digit; a chain begins with the end of the one before it, and the
/// end of the last one is public.
#[derive(Clone, Copy, Debug)]
struct Cubes {
    steps: usize,
    digits: usize,
    /// The first number, where there is a witness.
    start: Value<Fp>,
}

/// The number that follows one.
fn next(number: Fp, digit: u64) -> Fp {
    number.square() * number + Fp::from(digit)
}

impl Cubes {
    fn with_rows(rows: usize, start: Value<Fp>) -> Self {
        Self { steps: rows - SPARE_ROWS, digits: (rows / 2).min(DIGITS_MAX), start }
    }

    const fn digit(&self, step: usize) -> u64 {
        (step % self.digits) as u64
    }

    fn end(&self) -> Value<Fp> {
        let step = |number, step| next(number, self.digit(step % self.steps));
        self.start.map(|start| (0..CHAINS * self.steps).fold(start, step))
    }

    /// Writes a chain from the top of its columns on; gives its ends.
    fn assign(
        &self,
        mut region: Region<'_, Fp>,
        chain: &Chain,
        start: Value<Fp>,
    ) -> Result<[AssignedCell<Fp, Fp>; 2], PlonkError> {
        let mut number = start;
        let first = region.assign_advice(|| "start", chain.numbers, 0, || number)?;
        let mut last = first.clone();
        for step in 0..self.steps {
            let digit = self.digit(step);
            chain.step.enable(&mut region, step)?;
            region.assign_advice(|| "digit", chain.digits, step, || Value::known(Fp::from(digit)))?;
            number = number.map(|number| next(number, digit));
            last = region.assign_advice(|| "number", chain.numbers, step + 1, || number)?;
        }
        Ok([first, last])
    }
}

impl Circuit<Fp> for Cubes {
    type Config = Columns;
    type FloorPlanner = SimpleFloorPlanner;

    fn without_witnesses(&self) -> Self {
        Self { start: Value::unknown(), ..*self }
    }

    fn configure(meta: &mut ConstraintSystem<Fp>) -> Columns {
        let ends = meta.instance_column();
        meta.enable_equality(ends);
        let table = meta.lookup_table_column();
        let chains = [(); CHAINS].map(|()| {
            let chain =
                Chain { numbers: meta.advice_column(), digits: meta.advice_column(), step: meta.selector() };
            meta.enable_equality(chain.numbers);
            meta.create_gate("cube and digit", |meta| {
                let step = meta.query_selector(chain.step);
                let number = meta.query_advice(chain.numbers, Rotation::cur());
                let digit = meta.query_advice(chain.digits, Rotation::cur());
                let next = meta.query_advice(chain.numbers, Rotation::next());
                [step * (number.clone().square() * number + digit - next)]
            });
            meta.lookup(|meta| vec![(meta.query_advice(chain.digits, Rotation::cur()), table)]);
            chain
        });
        Columns { chains, ends, table }
    }

    fn synthesize(&self, columns: Columns, mut layouter: impl Layouter<Fp>) -> Result<(), PlonkError> {
        let Columns { chains, ends, table } = columns;
        layouter.assign_table(
            || "digits",
            |mut cells| {
                let mut assign = |digit| {
                    let value = || Value::known(Fp::from(digit as u64));
                    cells.assign_cell(|| "digit", table, digit, value)
                };
                (0..self.digits).try_for_each(&mut assign)
            },
        )?;
        let mut before: Option<AssignedCell<Fp, Fp>> = None;
        for chain in &chains {
            let start = before.as_ref().map_or(self.start, |end| end.value().copied());
            let [first, last] =
                layouter.assign_region(|| "chain", |region| self.assign(region, chain, start))?;
            if let Some(before) = before {
                layouter.assign_region(
                    || "joint",
                    |mut region| region.constrain_equal(before.cell(), first.cell()),
                )?;
            }
            before = Some(last);
        }
        before.map_or(Ok(()), |end| layouter.constrain_instance(end.cell(), ends, 0))
    }
}

/// A circuit with its keys.
pub(crate) struct Plonkish {
    rows: usize,
    params: Params<EqAffine>,
    key: ProvingKey<EqAffine>,
}

impl Plonkish {
    /// Makes the keys of a circuit of `rows` rows.
    ///
    /// # Panics
    /// When halo2 refuses the circuit, which is always the same but for its length.
    pub(crate) fn new(rows: Rows) -> Self {
        let params = Params::new(rows.log2());
        let circuit = Cubes::with_rows(rows.count(), Value::unknown());
        let verifying_key = keygen_vk(&params, &circuit).expect("the circuit has a verifying key");
        let key = keygen_pk(&params, verifying_key, &circuit).expect("the circuit has a proving key");
        Self { rows: rows.count(), params, key }
    }
}

impl Prover for Plonkish {
    /// With the end of the last chain.
    type Proof = (Vec<u8>, Fp);

    fn prove(&self) -> Result<Self::Proof, Error> {
        let circuit = Cubes::with_rows(self.rows, Value::known(Fp::from(2)));
        let mut end = None;
        circuit.end().map(|number| end = Some(number));
        let end = end.ok_or_else(|| Error::new("the witness is missing"))?;
        let random = ChaCha20Rng::seed_from_u64(SEED);
        let mut transcript = Blake2bWrite::<_, _, Challenge255<_>>::init(Vec::new());
        create_proof(&self.params, &self.key, &[circuit], &[&[&[end]]], random, &mut transcript)
            .map_err(|cause| Error::doing("proving", cause))?;
        Ok((transcript.finalize(), end))
    }

    fn verify(&self, (proof, end): &Self::Proof) -> Result<(), Error> {
        let strategy = SingleVerifier::new(&self.params);
        let mut transcript = Blake2bRead::<_, _, Challenge255<_>>::init(proof.as_slice());
        verify_proof(&self.params, self.key.get_vk(), strategy, &[&[&[*end]]], &mut transcript)
            .map_err(|cause| Error::doing("verifying", cause))
    }
}

#[cfg(test)]
mod tests {
    use super::{Fp, Plonkish, Prover};

    #[test]
    fn a_wrong_end_is_refused() {
        let plonkish = Plonkish::new("2^6".parse().expect("a power of two"));
        let (proof, end) = plonkish.prove().expect("proves");
        plonkish.verify(&(proof.clone(), end)).expect("holds");
        assert!(plonkish.verify(&(proof, end + Fp::from(1))).is_err());
    }
}
