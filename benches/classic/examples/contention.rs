//! Threads that all allocate a buffer, touch every page of it and free it, again and again.
//!
//! `cargo run --release --example contention [--features bench-jemalloc | bench-mimalloc | bench-global] -- [MB] [s]`:
//! buffers of so many MB (64), so many seconds (3) for each number of threads: 1, 2, 4 and so on up to the processors.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Touched is one byte in each of these, the smallest page of any processor.
const PAGE: usize = 4096;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(mib), Some(seconds)) = (number(&arguments, 0, 64.0), number(&arguments, 1, 3.0)) else {
        eprintln!("error: expected two numbers: MB of a buffer and seconds, such as 64 3");
        return ExitCode::from(2);
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a size that can be allocated fits"
    )]
    let bytes = (mib * f64::from(1 << 20)) as usize;
    println!("{}: {mib} MB allocated, every page touched, freed; {seconds} s each\n", zk_classic::NAME);
    println!("{:>8} {:>12} {:>10}", "threads", "ops/s", "GB/s");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let powers =
        std::iter::successors(Some(1), |threads| Some(threads * 2)).take_while(|&threads| threads < cpus);
    for threads in powers.chain([cpus]) {
        let rate = run(threads, bytes.max(1), Duration::from_secs_f64(seconds));
        #[expect(clippy::cast_precision_loss, reason = "a rate is an estimate")]
        let gigabytes = rate * bytes as f64 / 1e9;
        println!("{threads:>8} {rate:>12.1} {gigabytes:>10.2}");
    }
    ExitCode::SUCCESS
}

/// Reads an argument that is a number above zero; `None` when it is something else.
fn number(arguments: &[String], place: usize, default: f64) -> Option<f64> {
    let Some(text) = arguments.get(place) else { return Some(default) };
    text.parse().ok().filter(|number: &f64| number.is_finite() && (0.001..=1e6).contains(number))
}

/// Returns how many buffers a second all threads together got through.
fn run(threads: usize, bytes: usize, time: Duration) -> f64 {
    let start = Barrier::new(threads);
    let rates: Vec<f64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(&start, bytes, time))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker ends")).collect()
    });
    rates.iter().sum()
}

fn work(start: &Barrier, bytes: usize, time: Duration) -> f64 {
    start.wait();
    let begin = Instant::now();
    let mut buffers = 0_u32;
    while begin.elapsed() < time || buffers == 0 {
        let mut buffer: Vec<u8> = Vec::with_capacity(bytes);
        for page in buffer.spare_capacity_mut()[..bytes].chunks_mut(PAGE) {
            page[0].write(1);
        }
        black_box(&mut buffer);
        drop(buffer);
        buffers += 1;
    }
    f64::from(buffers) / begin.elapsed().as_secs_f64()
}
