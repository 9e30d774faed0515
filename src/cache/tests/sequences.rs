//! Sequences of one thread, drawn and shrunk by proptest, over the fake kernel and over the real one.

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, FileFailurePersistence, TestError, TestRunner};

use super::draw::{failing_ops, ops};
use super::model::Model;
use super::ops::{Drive, Op, drive, finish, one};
use super::{fake, times};
use crate::config::{Config, Moves};
use crate::os::Linux;

const MIB: usize = 1 << 20;

/// Sequences that a test draws, and their longest length.
const CASES: u32 = 24;
const LENGTH: usize = 160;

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Runs {
        cases: times(cases),
        max_shrink_iters: 2_000,
        max_shrink_time: 20_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Runs::default()
    })
}

/// Every configuration that the same sequences must pass in.
pub(super) fn configs() -> impl Strategy<Value = Config> {
    let moves = prop_oneof![3 => Just(Moves::Auto), 1 => Just(Moves::Never)];
    let ceiling = prop_oneof![
        4 => Just(None),
        1 => Just(Some(0)),
        1 => (1..64_usize).prop_map(|m| Some(m * MIB)),
        1 => Just(Some(1 << 40)),
    ];
    (moves, ceiling).prop_map(|(moves, ceiling)| {
        let config = Config::new().moves(moves);
        ceiling.map_or(config, |bytes| config.cache_bytes(bytes))
    })
}

fn sequences(max: usize, align_max: usize, fork: bool) -> impl Strategy<Value = (Config, Vec<Op>, u64)> {
    (configs(), prop::collection::vec(ops(max, align_max, fork), 1..LENGTH), any::<u64>())
}

/// Shows a sequence that failed, an operation a line.
fn run<T: Debug>(result: Result<(), TestError<T>>, ops: impl Fn(&T) -> &[Op]) {
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, drawn)) => {
            let lines: String = ops(&drawn).iter().map(|op| format!("\n    {op:?},")).collect();
            panic!("{reason}\n{drawn:?}\noperations: {lines}");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn sequences_over_the_fake_kernel_match_the_model() {
    let result = runner(CASES).run(&sequences(256 * MIB, 64 * MIB, true), |(config, ops, seed)| {
        let model = Model::new(fake(2 << 30), 512 * MIB, config);
        let left = drive(&model, &ops, Drive { live_max: 300 * MIB, audit_every: 16, seed });
        finish(&model, left, true);
        Ok(())
    });
    run(result, |(_, ops, _)| ops);
}

#[test]
fn sequences_of_large_blocks_over_the_fake_kernel_match_the_model() {
    let result = runner(CASES / 4).run(&sequences(1 << 30, 1 << 30, false), |(config, ops, seed)| {
        // Room for two reservations of the heap, one of small pages, and what aligning each to a gigabyte takes.
        let model = Model::new(fake(10 << 30), 2 << 30, config);
        let left = drive(&model, &ops, Drive { live_max: 1 << 30, audit_every: 16, seed });
        finish(&model, left, true);
        Ok(())
    });
    run(result, |(_, ops, _)| ops);
}

#[test]
fn sequences_in_plain_mappings_match_the_model() {
    let result = runner(CASES).run(&sequences(64 * MIB, 64 * MIB, true), |(config, ops, seed)| {
        // More than there is: the reservation is refused, and memory is mapped outright.
        let model = Model::new(fake(2 << 30), 4 << 30, config);
        let left = drive(&model, &ops, Drive { live_max: 300 * MIB, audit_every: 16, seed });
        assert_eq!(model.cache.heap.regions().0, 0);
        finish(&model, left, true);
        Ok(())
    });
    run(result, |(_, ops, _)| ops);
}

#[test]
fn sequences_over_kernels_of_larger_pages_match_the_model() {
    let pages = prop_oneof![Just(16_usize << 10), Just(64 << 10)];
    let drawn = (sequences(128 * MIB, 64 * MIB, true), pages, any::<bool>());
    let result = runner(CASES).run(&drawn, |((config, ops, seed), page, plain)| {
        let os = fake(2 << 30);
        os.set_facts(|facts| facts.page = page);
        let model = Model::new(os, if plain { 4 << 30 } else { 512 * MIB }, config);
        let left = drive(&model, &ops, Drive { live_max: 300 * MIB, audit_every: 16, seed });
        finish(&model, left, true);
        Ok(())
    });
    run(result, |((_, ops, _), ..)| ops);
}

#[test]
fn sequences_over_a_kernel_that_refuses_now_and_then_match_the_model() {
    let sequences =
        (configs(), prop::collection::vec(failing_ops(64 * MIB, 8 * MIB), 1..LENGTH), any::<u64>());
    let result = runner(CASES * 2).run(&sequences, |(config, ops, seed)| {
        let os = fake(2 << 30);
        let mut model = Model::new(os.clone(), 512 * MIB, config);
        model.may_refuse = true;
        let left = drive(&model, &ops, Drive { live_max: 200 * MIB, audit_every: 16, seed });
        one(&model, Op::Relent, &mut Vec::new(), 0, 0);
        finish(&model, left, true);
        Ok(())
    });
    run(result, |(_, ops, _)| ops);
}

#[test]
fn sequences_over_the_real_kernel_match_the_model() {
    // One cache for all: its address space is not given back.
    let model = Model::new(Linux, 1 << 36, Config::new());
    let result = runner(CASES / 2).run(&sequences(1 << 30, 1 << 30, false), |(_, ops, seed)| {
        let left = drive(&model, &ops, Drive { live_max: 1 << 30, audit_every: 64, seed });
        finish(&model, left, true);
        Ok(())
    });
    run(result, |(_, ops, _)| ops);
}

#[test]
fn sequences_over_the_real_kernel_match_the_model_without_moves() {
    let model = Model::new(Linux, 1 << 36, Config::new().moves(Moves::Never));
    let result = runner(CASES / 4).run(&sequences(512 * MIB, 1 << 30, false), |(_, ops, seed)| {
        let left = drive(&model, &ops, Drive { live_max: 1 << 30, audit_every: 64, seed });
        finish(&model, left, true);
        Ok(())
    });
    run(result, |(_, ops, _)| ops);
}
