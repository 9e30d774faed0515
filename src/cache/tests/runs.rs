//! Free runs of shards, and fresh memory that is taken for more than one block.

use std::alloc::Layout;

use super::model::{Live, Model};
use super::ops::finish;
use super::{fake, fake_in_short};
use crate::cache::SHARD_BYTES_MAX;
use crate::cache::shard::Stacks;
use crate::cache::shards::SHARD;
use crate::config::Config;
use crate::heap::Unit;
use crate::os::fake::{Call, Fake, When, errno};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

pub(super) fn take(model: &Model<Fake>, size: usize) -> Live {
    model.allocate(layout(size), false, 1).unwrap()
}

pub(super) fn as_thread_of<T>(shard: usize, body: impl FnOnce() -> T) -> T {
    SHARD.with(|mine| mine.set(shard + 1));
    body()
}

pub(super) fn pages(len: usize) -> Layout {
    Layout::from_size_align(len, 4 * KIB).unwrap()
}

/// Blocks of 8 MiB over several mappings, and the last of one mapping and the first of the next, which touch.
pub(super) fn two_mappings() -> (Model<Fake>, Vec<Live>, Live, Live) {
    let model = Model::new(fake_in_short(2 << 30, 0), 4 << 30, Config::new());
    let mut blocks: Vec<_> = (0..16).filter_map(|_| model.allocate(pages(8 * MIB), false, 1)).collect();
    blocks.sort_by_key(|block| block.p);
    assert_eq!(model.cache.heap.regions(), (0, 4));
    let end = blocks.iter().position(|b| model.cache.heap.is_last_of_region(b.block())).unwrap();
    let (before, behind) = (blocks.remove(end), blocks.remove(end));
    assert_eq!(before.block().end(), behind.block().start);
    (model, blocks, before, behind)
}

/// Nine turns are nine colours, whether a block was at hand or not.
#[test]
fn colours_go_on_from_request_to_request_however_it_is_served() {
    let model = Model::new(fake(1 << 30), 4 << 30, Config::new());
    let sizes = [MIB, 3 * MIB, MIB, MIB, 3 * MIB, 3 * MIB, MIB, MIB, MIB];
    let mut colours = sizes.map(|size| {
        let block = take(&model, size);
        let colour = block.p % (4 * KIB);
        model.free(block);
        colour
    });
    let counted = model.cache.snapshot();
    assert!((2..=7).contains(&counted.stack_hits), "{counted:?}");
    colours.sort_unstable();
    assert!(colours.windows(2).all(|two| two[0] < two[1]), "{colours:?}");
}

#[test]
fn runs_of_a_shard_do_not_merge_over_the_end_of_a_mapping() {
    let (model, mut blocks, before, behind) = two_mappings();
    // A block of a class at the end of one mapping, and one at the beginning of the next.
    model.free(before);
    blocks.extend(model.allocate(pages(7 * MIB - 4 * KIB), false, 1));
    let last = model.allocate(layout(MIB - 64), false, 1).unwrap();
    model.free(behind);
    let mut short: Vec<_> = (0..7).map(|_| model.allocate(layout(MIB - 64), false, 1).unwrap()).collect();
    assert_eq!(last.block().end(), short[0].block().start);
    // The others, which lie elsewhere than at the front of the hot run, push them off the stacks.
    let first = short.remove(0);
    model.free(last);
    model.free(first);
    short.drain(..5).for_each(|block| model.free(block));
    model.audit(true);
    blocks.extend(short);
    blocks.extend((0..3).filter_map(|_| model.allocate(layout(MIB + 600 * KIB), false, 1)));
    model.audit(true);
    finish(&model, blocks, true);
}

/// How many of the blocks that two threads take in turn lie right behind their thread's last one.
fn behind_the_last(live: usize) -> usize {
    let model = Model::new(fake(2 << 30), 1 << 30, Config::new());
    let held = [0, 1].map(|shard| as_thread_of(shard, || take(&model, live)));
    let mut blocks: [Vec<Live>; 2] = Default::default();
    for _ in 0..40 {
        for (shard, blocks) in blocks.iter_mut().enumerate() {
            blocks.push(as_thread_of(shard, || take(&model, 100 * KIB)));
        }
    }
    let pairs = blocks.iter().flat_map(|blocks| blocks.windows(2));
    let behind = pairs.filter(|pair| pair[0].block().end() == pair[1].block().start).count();
    model.audit(true);
    finish(&model, blocks.into_iter().flatten().chain(held).collect(), true);
    behind
}

#[test]
fn fresh_blocks_of_a_thread_that_has_much_in_use_lie_together() {
    let behind = behind_the_last(128 * MIB);
    assert!(behind >= 70, "{behind} of 78");
    // Of a thread that has little those do that are cut from its first hot run.
    let behind = behind_the_last(MIB);
    assert!((60..=76).contains(&behind), "{behind} of 78");
}

#[test]
fn zeroed_blocks_that_were_taken_one_by_one_stay_untouched() {
    let model = Model::new(fake(2 << 30), 1 << 30, Config::new());
    let quiet = (0..).find(|&seed| model.writes_nothing(seed)).unwrap();
    let mut blocks = vec![take(&model, 128 * MIB)];
    blocks.extend((0..100).map(|_| model.allocate(layout(MIB - 64), true, quiet).unwrap()));
    let snapshot = model.cache.snapshot();
    assert_eq!(snapshot.zeroed_here, 0, "what the kernel would have zeroed at its first touch");
    finish(&model, blocks, true);
}

/// Takes a block that fits into zero memory that is there, where more would need what the kernel refuses from `refuse` on:
/// what is cached must stay.
fn with_room_for_one(os: &Fake, reserve: usize, refuse: impl Fn(&Fake)) {
    let mut model = Model::new(os.clone(), reserve, Config::new());
    let mut kept = [64, 12].map(|mib| take(&model, mib * MIB)).into_iter().collect::<Vec<_>>();
    refuse(os);
    model.may_refuse = true;
    let sizes = [MIB - 64, 70 * KIB, 512 * KIB, 70 * KIB];
    let mut all: Vec<Live> =
        sizes.iter().cycle().map_while(|&size| model.allocate(layout(size), false, 1)).collect();
    model.may_refuse = false;
    // Every other one of what is long, since neighbours would merge.
    all.sort_by_key(|block| block.p);
    let (mut long, mut short) = (Vec::new(), Vec::new());
    let mut last_went = false;
    for block in all {
        let size = block.layout.size();
        let goes = size > 70 * KIB && !last_went;
        last_went = goes;
        match size {
            _ if !goes => kept.push(block),
            size if size <= MIB / 2 => short.push(block),
            _ => long.push(block),
        }
    }
    assert!(long.len() > 1 && short.len() > 1, "{} and {}", long.len(), short.len());
    long.into_iter().for_each(|block| model.free(block));
    model.cache.drain();
    model.cache.heap.purge(usize::MAX, Unit::Pages);
    short.into_iter().for_each(|block| model.free(block));
    let (cached, purges) = (model.cache.cached_bytes(), os.calls(Call::Purge));
    kept.push(take(&model, MIB - 64));
    assert_eq!(os.calls(Call::Purge), purges, "nothing of {cached} bytes had to go");
    finish(&model, kept, true);
}

#[test]
fn what_is_cached_stays_where_more_could_not_be_mapped() {
    with_room_for_one(&fake_in_short(2 << 30, 0), 4 << 30, |os| os.limit_mapped_bytes(os.mapped_bytes()));
}

#[test]
fn what_is_cached_stays_where_more_could_not_be_opened() {
    with_room_for_one(&fake(2 << 30), 512 * MIB, |os| os.fail(Call::Open, When::Every(1), errno::ENOMEM));
}

/// Each of these turns leaves a rest of a hot run that fits none of the next blocks.
#[test]
fn rests_of_hot_runs_leave_a_shard_that_holds_as_much_as_it_may() {
    // Under a ceiling, however much is in use; else no more rests than there is a place for would be as much.
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new().cache_bytes(512 * MIB));
    let long = take(&model, 320 * MIB);
    model.os().touch(long.p, 320 * MIB);
    model.free(long);
    let mut blocks = Vec::new();
    let mut most = 0;
    for _ in 0..70 {
        blocks.extend([1000, 1250, 1300].map(|kib| take(&model, kib * KIB)));
        for shard in model.cache.shards() {
            let stacks = shard.lock(model.os());
            most = most.max(stacks.bytes() - stacks.hot.rest().len);
        }
    }
    let bound = SHARD_BYTES_MAX;
    assert!(most <= bound && most > bound - 2 * MIB, "{most} of {bound}");
    finish(&model, blocks, true);
}

#[test]
fn where_blocks_are_wiped_stacks_hold_all_that_a_shard_may() {
    for (config, least) in [(Config::new(), 3 * MIB), (Config::new().wipe_on_free(true), 11 * MIB)] {
        let model = Model::new(fake(2 << 30), 512 * MIB, config);
        let sizes = (0..16).map(|nth| 512 * KIB + nth * 32 * KIB);
        let blocks: Vec<_> = sizes.map(|size| take(&model, size)).collect();
        let mut most = 0;
        for block in blocks {
            model.free(block);
            let shards = model.cache.shards().iter();
            let stacked =
                shards.map(|shard| shard.lock(model.os()).blocks().iter().map(|b| b.len).sum::<usize>());
            most = most.max(stacked.sum());
        }
        assert!((least..least + MIB + MIB / 8).contains(&most), "{most}");
        finish(&model, Vec::new(), true);
    }
}

/// Leaves so much resident memory free.
pub(super) fn with_free(bytes: usize) -> Model<Fake> {
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new());
    let long = take(&model, bytes);
    model.os().touch(long.p, bytes);
    model.free(long);
    model
}

/// What the second thread's shard holds, once it has freed some blocks.
fn at_hand_elsewhere(model: &Model<Fake>) -> impl Fn() -> usize {
    as_thread_of(1, || {
        let blocks = [80, 96, 112, 200].map(|kib| take(model, kib * KIB));
        blocks.into_iter().for_each(|block| model.free(block));
    });
    || model.cache.shards()[1].lock(model.os()).bytes()
}

/// Each time it grew, all threads gave back what they had at hand, and it was copied or found what it lay before free.
#[test]
fn a_vector_that_is_pushed_to_alone_grows_where_it_is_and_bothers_nobody() {
    let model = with_free(128 * MIB);
    let held = at_hand_elsewhere(&model);
    let before = held();
    as_thread_of(0, || {
        let mut starts = Vec::new();
        for _ in 0..3 {
            let mut vector = take(&model, 64 * KIB);
            starts.push(vector.block().start);
            while vector.layout.size() < 4 * MIB {
                let longer = vector.layout.size() * 2;
                assert!(model.resize(&mut vector, longer, 0));
                assert_eq!((vector.block().start, held()), (starts[0], before), "at {longer} bytes");
            }
            model.audit(true);
            model.free(vector);
        }
    });
    assert_eq!(model.cache.snapshot().copied, 0);
    finish(&model, Vec::new(), true);
}

/// Has a thread push to a vector after it has taken another's place each time, and gives how often it lay elsewhere.
fn moves_of_vectors(model: &Model<Fake>) -> usize {
    let mut moves = 0;
    let mut start = None;
    for _ in 0..3 {
        let mut vector = take(model, 64 * KIB);
        while vector.layout.size() < 512 * KIB {
            moves +=
                usize::from(start.replace(vector.block().start).is_some_and(|s| s != vector.block().start));
            let longer = vector.layout.size() * 2;
            assert!(model.resize(&mut vector, longer, 0));
        }
        model.audit(true);
        model.free(vector);
    }
    moves
}

/// Threads that had little in use never had a hot run, and copied each vector from one block of a class to the next.
#[test]
fn vectors_of_a_thread_that_has_little_in_use_grow_where_they_are() {
    // In fresh memory, each in its own.
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new());
    let kept = [0, 1].map(|shard| as_thread_of(shard, || take(&model, 3 * MIB)));
    let moves = [0, 1].map(|shard| as_thread_of(shard, || moves_of_vectors(&model)));
    let snapshot = model.cache.snapshot();
    assert_eq!((moves, snapshot.copied), ([0, 0], 0));
    assert_eq!(snapshot.misses, 4, "one for each thread's vectors, and one for what it keeps");
    // In a free piece that is too short for a hot run of others.
    let short = with_free(MIB - 64 * KIB);
    short.cache.drain();
    assert_eq!((moves_of_vectors(&short), short.cache.snapshot().misses), (0, 1));
    finish(&model, kept.into(), true);
    finish(&short, Vec::new(), true);
}

#[test]
fn a_short_block_that_grows_elsewhere_bothers_nobody() {
    let model = with_free(128 * MIB);
    let held = at_hand_elsewhere(&model);
    let before = held();
    as_thread_of(0, || {
        let mut short = take(&model, 64 * KIB);
        let behind = take(&model, 64 * KIB);
        for size in [128, 256, 500].map(|kib| kib * KIB) {
            assert!(model.resize(&mut short, size, 0));
            assert_eq!(held(), before, "at {size} bytes");
        }
        [short, behind].into_iter().for_each(|block| model.free(block));
    });
    finish(&model, Vec::new(), true);
}

/// Blocks that lay in two mappings, which had come to touch where a run had been, were put back as one.
#[test]
fn a_hot_run_that_was_used_up_is_forgotten_before_anything_is_unmapped() {
    let model = with_free(128 * MIB);
    let hot = |is: fn(&Stacks) -> bool| model.cache.shards().iter().any(|shard| is(&shard.lock(model.os())));
    let mut blocks = vec![take(&model, 64 * KIB)];
    while !hot(|stacks| stacks.hot.is_begun() && stacks.hot.rest().is_empty()) {
        blocks.push(take(&model, 64 * KIB));
        assert!(blocks.len() < 1000, "a run is cut to whole blocks");
    }
    model.cache.release();
    assert!(!hot(|stacks| stacks.hot.is_begun()));
    model.audit(true);
    finish(&model, blocks, true);
}
