//! Installs `NAlloc` and runs rounds as a prover does: columns filled and dropped, bucket arrays barely touched, a
//! vector that grows; then prints what the allocator did.
//!
//! `cargo run --release --example global -- [rounds] [MiB a column]`

use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |name: &str, default: usize| match arguments.next() {
        None => default,
        Some(text) => text.parse().unwrap_or_else(|_| {
            eprintln!("{name}: {text:?} is not a number, {default} is taken instead");
            default
        }),
    };
    let rounds = number("rounds", 8);
    let mib = number("MiB a column", 16).clamp(1, 4096);
    for round in 0..rounds {
        let checksum = columns(16, mib << 20, round as u64) ^ buckets(16, round) ^ growth(mib << 17);
        let stats = zk_nalloc::stats();
        println!(
            "round {round}: checksum {checksum:016x}, hit rate so far {:5.1} %, cached {} MiB",
            stats.hit_rate() * 100.0,
            stats.cached_bytes() >> 20
        );
    }
    println!("\n{}", zk_nalloc::stats());
}

/// The columns of a trace, each written once and read once.
fn columns(count: usize, bytes: usize, seed: u64) -> u64 {
    let columns: Vec<Vec<u64>> =
        (0..count).map(|c| (0..bytes as u64 / 8).map(|i| (i ^ seed) * (c as u64 + 1)).collect()).collect();
    columns.iter().flatten().fold(0, |sum, &x| sum.rotate_left(1) ^ x)
}

/// The bucket arrays of a multi-scalar multiplication: large, zero, and hardly touched.
fn buckets(count: usize, round: usize) -> u64 {
    let mut arrays: Vec<Vec<[u64; 12]>> = (0..count).map(|_| vec![[0; 12]; 1 << 16]).collect();
    for (a, array) in arrays.iter_mut().enumerate() {
        for i in 0..16 {
            array[(i * 4097 + a * 31 + round) % (1 << 16)][0] += 1;
        }
    }
    arrays.iter().map(|a| a.iter().step_by(4097).map(|b| b[0]).sum::<u64>()).sum()
}

/// A vector that nobody knew the length of.
fn growth(count: usize) -> u64 {
    let mut grown = Vec::new();
    for i in 0..count as u64 {
        grown.push(i);
    }
    grown.iter().step_by(512).sum()
}
