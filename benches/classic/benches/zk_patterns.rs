//! Three things that a prover does round after round, under the allocator that a feature names.
//!
//! `cargo bench --bench zk_patterns [--features bench-jemalloc | bench-mimalloc | bench-global]`; with `-- --test`
//! every one of them runs once, which takes a moment. Every group checks what it gets: a filled block at its ends, a
//! zeroed one where it is about to be used.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const MIB: usize = 1 << 20;
/// A point of an elliptic curve in projective coordinates.
type Point = [u64; 12];

/// The buffer of a transform: filled with something that is not zero, and dropped.
fn fft_rounds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fft_rounds");
    for mib in [8, 32, 128] {
        group.throughput(Throughput::Bytes((mib * MIB) as u64));
        group.bench_function(BenchmarkId::from_parameter(format!("{mib}MB")), |bencher| {
            bencher.iter(|| {
                let buffer = black_box(vec![0x9e37_79b9_7f4a_7c15_u64; mib * MIB / 8]);
                assert_eq!(buffer[0], buffer[buffer.len() - 1]);
            });
        });
    }
    group.finish();
}

/// The buckets of a multi-scalar multiplication with windows of `c` bits: an array of 2^c points for each window of
/// a scalar of 256 bits, zeroed, and few of them used.
fn msm_buckets(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("msm_buckets");
    for c in [12, 14, 16, 18] {
        let windows = 256_usize.div_ceil(c);
        group.throughput(Throughput::Bytes(((windows * size_of::<Point>()) << c) as u64));
        group.bench_function(BenchmarkId::from_parameter(format!("c{c}")), |bencher| {
            bencher.iter(|| {
                let mut arrays: Vec<Vec<Point>> = (0..windows).map(|_| vec![[0; 12]; 1 << c]).collect();
                for (array, seed) in arrays.iter_mut().zip(1_usize..) {
                    for i in 1..=16 {
                        let bucket =
                            &mut array[seed.wrapping_mul(i).wrapping_mul(0x9e37_79b1) >> 7 & ((1 << c) - 1)];
                        assert!(bucket[11] == 0 || bucket[11] == seed as u64, "a bucket was not empty");
                        bucket[11] = seed as u64;
                    }
                }
                black_box(&mut arrays);
            });
        });
    }
    group.finish();
}

/// The burst of a phase: zeroed buffers of mixed sizes, allocated, hardly touched, and freed together.
fn mixed_phase(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mixed_phase");
    for (name, buffers) in [("24_buffers", 24), ("96_buffers", 96)] {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| {
                let size = |i: usize| [1, 4, 2, 16, 8, 32][i % 6] * MIB / 8;
                let mut burst: Vec<Vec<u64>> = (0..buffers).map(|i| vec![0; size(i)]).collect();
                for buffer in &mut burst {
                    let middle = buffer.len() / 2;
                    assert_eq!((buffer[0], buffer[middle]), (0, 0), "a buffer was not empty");
                    buffer[0] = 1;
                    buffer[middle] = 2;
                }
                black_box(&mut burst);
            });
        });
    }
    group.finish();
}

/// Says under which allocator all of this runs.
fn name(_: &mut Criterion) {
    println!("allocator: {}", zk_classic::NAME);
}

criterion_group!(benches, name, fft_rounds, msm_buckets, mixed_phase);
criterion_main!(benches);
