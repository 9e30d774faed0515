//! How long it takes to make and drop a secret, and to open one: nanoseconds, median and minimum of rounds
//! in A B B A order, so that drift hits all alike. Prints a Markdown table.

use std::hint::black_box;
use std::time::Instant;

use bench_secrets::{Keeper, keepers};

/// Rounds of each direction, and how long one of them takes at least.
const ROUNDS: usize = 15;
const ROUND_NS: u128 = 4_000_000;

fn one_round(keeper: &Keeper, len: usize, times: usize, open: bool) -> f64 {
    let mut kept = open.then(|| (keeper.make)(len).unwrap());
    let start = Instant::now();
    for _ in 0..times {
        match &mut kept {
            Some(secret) => secret.read(&mut |bytes| {
                black_box(bytes.first());
            }),
            None => drop(black_box((keeper.make)(len).unwrap())),
        }
    }
    start.elapsed().as_nanos() as f64 / times as f64
}

fn times(keeper: &Keeper, len: usize, open: bool) -> usize {
    let mut times = 1;
    loop {
        let start = Instant::now();
        one_round(keeper, len, times, open);
        if start.elapsed().as_nanos() > ROUND_NS {
            return times;
        }
        times *= 2;
    }
}

fn main() {
    let keepers = keepers();
    let rows = [(32, false), (4096, false), (65_536, false), (1 << 20, false), (4096, true)];
    println!(
        "| | {} |",
        rows.map(|(len, open)| format!("{} {len} B", if open { "open" } else { "make, drop" })).join(" | ")
    );
    println!("|---|{}", "---|".repeat(rows.len()));
    let mut cells = vec![Vec::new(); keepers.len()];
    for (len, open) in rows {
        let counts: Vec<_> = keepers.iter().map(|keeper| times(keeper, len, open)).collect();
        let mut seen = vec![Vec::new(); keepers.len()];
        for _ in 0..ROUNDS {
            for n in (0..keepers.len()).chain((0..keepers.len()).rev()) {
                seen[n].push(one_round(&keepers[n], len, counts[n], open));
            }
        }
        for (seen, cells) in seen.iter_mut().zip(&mut cells) {
            seen.sort_by(f64::total_cmp);
            cells.push(format!("{:.0} ({:.0})", seen[seen.len() / 2], seen[0]));
        }
    }
    for (keeper, cells) in keepers.iter().zip(cells) {
        println!("| {} | {} |", keeper.name, cells.join(" | "));
    }
}
