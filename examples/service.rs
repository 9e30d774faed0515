//! A prover as a service: memory is faulted in while the key is read, each stage is accounted for, and what is cached is
//! offered to the kernel in pauses.
//!
//! A line of standard input is a job: the binary logarithm of its rows. An empty line is a pause. What stands for a prover here
//! makes a trace, extends it, and folds it into a number.
//!
//! `printf '18\n18\n\n20\n' | cargo run --release --example service`

use std::io;

use zk_nalloc::{Config, NAlloc, phase_named, phases, prefault, release_cache, soften_cache, stats};

// Nothing needs to be set. `background` is for pauses that the program does not know of.
#[global_allocator]
static GLOBAL: NAlloc = NAlloc::with_config(Config::new().background(true));

/// Bytes that a usual job takes, as `ZK_NALLOC_REPORT=1` advises after a few of them.
const USUAL: usize = 96 << 20;

/// Columns of a trace.
const COLUMNS: usize = 16;

/// The most rows of a job, as a binary logarithm.
const LOG2_MAX: u32 = 22;

fn main() -> io::Result<()> {
    // Before the first job, which would otherwise fault its memory in.
    let warmed = std::thread::spawn(|| prefault(USUAL));
    let key = phase_named("read the key", || (0..1_u64 << 16).map(|i| i | 1).collect::<Vec<u64>>());
    println!("ready, {} MiB faulted in", warmed.join().unwrap_or(0) >> 20);

    for line in io::stdin().lines() {
        let line = line?;
        match line.trim().parse() {
            _ if line.trim().is_empty() => {
                println!("pause: {} MiB offered to the kernel", soften_cache() >> 20);
            }
            Ok(log2 @ 1..=LOG2_MAX) => println!("2^{log2} rows: {:016x}", prove(&key, 1 << log2)),
            _ => eprintln!("{line:?} is no number from 1 to {LOG2_MAX}: no job is done for it"),
        }
    }
    println!("no more jobs: {} MiB given back", release_cache() >> 20);
    print!("{}\n{}", phases(), stats());
    Ok(())
}

fn prove(key: &[u64], rows: usize) -> u64 {
    let trace: Vec<Vec<u64>> = phase_named("trace", || {
        let column = |c: usize| (0..rows).map(|row| key[(row * c) % key.len()]).collect();
        (0..COLUMNS).map(column).collect()
    });
    let extended: Vec<Vec<u64>> = phase_named("extend", || {
        let twice = |column: &Vec<u64>| column.iter().flat_map(|&x| [x, x.wrapping_mul(x)]).collect();
        trace.iter().map(twice).collect()
    });
    phase_named("fold", || {
        let mut folded = vec![0_u64; 2 * rows];
        for column in extended {
            folded.iter_mut().zip(column).for_each(|(sum, x)| *sum = sum.rotate_left(7) ^ x);
        }
        folded.iter().fold(0, |all: u64, x| all.rotate_left(3) ^ x)
    })
}
