//! What a prover computes: a transform on a fresh buffer, and the low-degree extension of a table with a pass over its
//! rows. Real arithmetic, checked against Horner's rule outside the time that counts.

use rayon::prelude::*;

use super::field::{MODULUS, add, evaluate, inverse, mul, pow, powers, root, shift, transform};
use super::{Case, Pattern};
use crate::block::Random;
use crate::scale::Scale;

/// Columns of the table that is extended.
const COLUMNS: usize = 32;
/// The extension has so many times the rows, as a power of two.
const BLOWUP_LOG: u32 = 1;

pub(super) fn list() -> Vec<Pattern> {
    let lde = "32 columns of 2^17 rows extended to 2^18 on all threads, then combined row by row";
    vec![
        Pattern::new("fft/16M", "a transform of 2^21 values of a 64-bit field in a fresh buffer", fft),
        Pattern::new("extension", lde, extension),
        Pattern::new(
            "transpose",
            "a table of 2^15 rows and 1312 columns of 32 bits transposed into a fresh buffer and back, on all threads",
            transpose,
        ),
    ]
}

fn log(scale: Scale, full: u32) -> u32 {
    if scale.quick { full - 6 } else { full }
}

fn numbers(seed: u64, count: usize) -> impl Iterator<Item = u64> {
    let mut random = Random::new(seed);
    (0..count).map(move |_| random.next_word() % MODULUS)
}

fn fft(scale: Scale) -> Case {
    let log = log(scale, 21);
    let table = powers(root(log), 1 << (log - 1));
    let mut round = 0;
    Case::new(scale.rounds(10), move |watch| {
        round += 1;
        let values = watch.timed(|| {
            let mut values: Vec<u64> = numbers(round, 1 << log).collect();
            transform(&mut values, &table);
            values
        });
        let coefficients: Vec<u64> = numbers(round, 1 << log).collect();
        for place in [1, 3 + round % 1000, (1 << log) - 1] {
            let wanted = evaluate(&coefficients, pow(root(log), place));
            assert_eq!(nth(&values, place), wanted, "value {place} of a transform");
        }
        drop(coefficients);
        watch.timed(|| drop(values));
        16 << log
    })
}

fn nth(values: &[u64], place: u64) -> u64 {
    usize::try_from(place).map_or(0, |place| values[place])
}

/// The tables that a transform of a size needs in both directions; a prover keeps them from proof to proof.
struct Domain {
    log: u32,
    back: Vec<u64>,
    forth: Vec<u64>,
}

fn extension(scale: Scale) -> Case {
    let log = log(scale, 17);
    let long = log + BLOWUP_LOG;
    let back = powers(inverse(root(log)), 1 << (log - 1));
    let domain = Domain { log, back, forth: powers(root(long), 1 << (long - 1)) };
    let mut round = 0;
    Case::new(scale.rounds(8), move |watch| {
        round += 1;
        let columns = || (0..COLUMNS as u64).map(|c| numbers(round << 8 | c, 1 << log).collect::<Vec<u64>>());
        let (trace, extended, rows) = watch.timed(|| {
            let trace: Vec<Vec<u64>> = columns().collect();
            let extended: Vec<Vec<u64>> = trace.par_iter().map(|column| extend(column, &domain)).collect();
            let rows = combine(&extended);
            (trace, extended, rows)
        });
        verify(&trace[round as usize % COLUMNS], &extended[round as usize % COLUMNS], &domain, round);
        let row = (77 * round as usize) % rows.len();
        let wanted = extended.iter().fold(0, |sum, column| add(mul(sum, shift()), column[row]));
        assert_eq!(rows[row], wanted, "row {row} of the combination");
        watch.timed(|| drop((trace, extended, rows)));
        COLUMNS * 8 * ((1 << log) + (1 << long)) + (8 << long)
    })
}

/// Columns of the table that is transposed: those of a Poseidon2 trace.
const WIDTH: usize = 1312;
/// Columns that one task transposes, and the side of the squares that are copied at a time, in values.
const BAND: usize = 32;
const TILE: usize = 16;
/// Rows that a task goes through before it comes to its next columns, so that what it reads stays in the cache.
const STRIP: usize = 128;

fn transpose(scale: Scale) -> Case {
    let rows = 1_usize << log(scale, 15);
    let mut round = 0;
    Case::new(scale.rounds(8), move |watch| {
        round += 1_usize;
        let value = |row: usize, column: usize| (row * WIDTH + column).wrapping_mul(round) as u32;
        let (table, columns, again) = watch.timed(|| {
            let table: Vec<u32> = (0..rows * WIDTH).into_par_iter().map(|at| value(0, at)).collect();
            let mut columns = vec![0; table.len()];
            transposed(&table, &mut columns, WIDTH, rows);
            let mut again = vec![0; table.len()];
            transposed(&columns, &mut again, rows, WIDTH);
            (table, columns, again)
        });
        for row in (round % 7..rows).step_by(if scale.quick { 1 } else { 61 }) {
            for column in (round % 5..WIDTH).step_by(if scale.quick { 1 } else { 17 }) {
                assert_eq!(columns[column * rows + row], value(row, column), "row {row} of column {column}");
            }
        }
        assert!(table == again, "a table that was transposed twice is another");
        watch.timed(|| drop((table, columns, again)));
        3 * 4 * rows * WIDTH
    })
}

/// Writes the columns of `from`, `height` rows of `width` values, as rows of `to`, on all threads.
///
/// # Panics
/// When one of them is shorter than that.
pub fn transposed(from: &[u32], to: &mut [u32], width: usize, height: usize) {
    to.par_chunks_mut(BAND * height).enumerate().for_each(|(band, to)| {
        let columns = to.len() / height;
        for strip in (0..height).step_by(STRIP) {
            for x in (0..columns).step_by(TILE) {
                for y in (strip..(strip + STRIP).min(height)).step_by(TILE) {
                    for column in x..(x + TILE).min(columns) {
                        let rows = y..(y + TILE).min(height);
                        for (to, row) in to[column * height..][rows.clone()].iter_mut().zip(rows) {
                            *to = from[row * width + band * BAND + column];
                        }
                    }
                }
            }
        }
    });
}

/// Interpolates a column and evaluates it on a coset that has more points.
fn extend(column: &[u64], domain: &Domain) -> Vec<u64> {
    let mut values = vec![0; column.len() << BLOWUP_LOG];
    values[..column.len()].copy_from_slice(column);
    let coefficients = &mut values[..column.len()];
    transform(coefficients, &domain.back);
    let mut factor = inverse(column.len() as u64);
    for coefficient in coefficients {
        *coefficient = mul(*coefficient, factor);
        factor = mul(factor, shift());
    }
    transform(&mut values, &domain.forth);
    values
}

/// Combines the columns row by row, as a commitment to rows reads them.
fn combine(columns: &[Vec<u64>]) -> Vec<u64> {
    let rows = columns.first().map_or(0, Vec::len);
    let combined = (0..rows)
        .into_par_iter()
        .with_min_len(4096)
        .map(|row| columns.iter().fold(0, |sum, column| add(mul(sum, shift()), column[row])));
    combined.collect()
}

/// Checks that one polynomial runs through the column and its extension.
fn verify(column: &[u64], extended: &[u64], domain: &Domain, seed: u64) {
    let mut coefficients = column.to_vec();
    transform(&mut coefficients, &domain.back);
    let factor = inverse(column.len() as u64);
    for coefficient in &mut coefficients {
        *coefficient = mul(*coefficient, factor);
    }
    let place = (31 * seed) % column.len() as u64;
    assert_eq!(
        evaluate(&coefficients, pow(root(domain.log), place)),
        nth(column, place),
        "row {place} of a column"
    );
    for place in [place, extended.len() as u64 - 1] {
        let at = mul(shift(), pow(root(domain.log + BLOWUP_LOG), place));
        assert_eq!(evaluate(&coefficients, at), nth(extended, place), "row {place} of an extension");
    }
}
