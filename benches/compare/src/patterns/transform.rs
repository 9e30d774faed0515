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
        Pattern::new(
            "constraints/100x2M",
            "100 columns of 2^19 rows of 32 bits, each computed from the two before, then constraints over 32 rows of all \
             columns at a time, on all threads",
            constraints,
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

/// Columns of a table over the field of 2^31 - 1 elements, and so many rows as vectors hold of them.
const WIDE: usize = 100;
const PACKED: usize = 32;
const MERSENNE: u32 = (1 << 31) - 1;

fn constraints(scale: Scale) -> Case {
    let rows = 1_usize << log(scale, 19);
    let powers: Vec<u32> = (0..WIDE as u32 - 2).map(|k| 7 * k + 1).collect();
    // Each constraint is 0; with 1 added to it, the sum is that of the powers.
    let wanted: u32 = powers.iter().sum();
    let mut round = 0;
    Case::new(scale.rounds(8), move |watch| {
        round += 1_u32;
        let (table, sums) = watch.timed(|| {
            let table = squares(rows, round);
            let sums = evaluated(&table, &powers);
            (table, sums)
        });
        assert!(sums.len() == rows && sums.iter().all(|&sum| sum == wanted), "a constraint does not hold");
        watch.timed(|| drop((table, sums)));
        4 * rows * (WIDE + 1)
    })
}

/// A table in which each column but the first two is the sum of the squares of the two before it.
fn squares(rows: usize, seed: u32) -> Vec<Vec<u32>> {
    let mut table: Vec<Vec<u32>> = Vec::with_capacity(WIDE);
    table.push(vec![seed % MERSENNE; rows]);
    table.push((0..rows as u32).collect());
    for column in 2..WIDE {
        let before = table[column - 2].par_chunks(4096).zip(table[column - 1].par_chunks(4096));
        let mut next = vec![0; rows];
        next.par_chunks_mut(4096).zip(before).for_each(|(next, (a, b))| {
            for ((next, &a), &b) in next.iter_mut().zip(a).zip(b) {
                *next = sum_of_squares(a, b);
            }
        });
        table.push(next);
    }
    table
}

/// For each row the sum of its constraints, each with 1 added and times its power.
fn evaluated(table: &[Vec<u32>], powers: &[u32]) -> Vec<u32> {
    let mut sums = vec![0; table[0].len()];
    let columns: Vec<&[[u32; PACKED]]> = table.iter().map(|column| column.as_chunks().0).collect();
    sums.as_chunks_mut().0.par_iter_mut().enumerate().with_min_len(64).for_each(|(at, sums)| {
        *sums = rows_of(&columns, powers, at);
    });
    sums
}

/// A function of its own, like the other loops that are compared.
#[inline(never)]
fn rows_of(columns: &[&[[u32; PACKED]]], powers: &[u32], at: usize) -> [u32; PACKED] {
    let mut sums = [0; PACKED];
    let (mut a, mut b) = (columns[0][at], columns[1][at]);
    for (column, power) in columns[2..].iter().zip(powers) {
        let c = column[at];
        for row in 0..PACKED {
            let constraint = reduced(u64::from(c[row] + MERSENNE - sum_of_squares(a[row], b[row])) + 1);
            sums[row] = reduced(u64::from(constraint) * u64::from(*power) + u64::from(sums[row]));
        }
        (a, b) = (b, c);
    }
    sums
}

/// `a² + b²`.
const fn sum_of_squares(a: u32, b: u32) -> u32 {
    let (a, b) = (a as u64, b as u64);
    reduced(a * a + b * b)
}

/// The remainder of a number below 2^63 by 2^31 - 1.
const fn reduced(x: u64) -> u32 {
    let folded = (x & MERSENNE as u64) + (x >> 31);
    let again = (folded & MERSENNE as u64) + (folded >> 31);
    if again >= MERSENNE as u64 { (again - MERSENNE as u64) as u32 } else { again as u32 }
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
