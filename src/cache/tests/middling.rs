//! Blocks without a class of less than 16 MiB: whose memory they lie on.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::fake_in_short;
use super::homes::draws;
use super::model::{Live, Model};
use super::ops::finish;
use super::runs::{as_thread_of, take, with_free};
use crate::cache::hot::TOKENS;
use crate::config::Config;
use crate::heap::Span;
use crate::os::GRANULE;
use crate::os::fake::Fake;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// With memory free, and so many threads alive: those of the first shards.
fn model(free: usize, threads: usize) -> Model<Fake> {
    let model = with_free(free);
    (1..=threads).for_each(|number| model.cache.given.add(number));
    model
}

/// What threads have, each for itself.
struct Load {
    threads: usize,
    /// The lengths of their blocks, in bytes.
    lengths: RangeInclusive<usize>,
    /// Any is freed once more than that would be in use, in bytes.
    alive: usize,
    /// Of so many that are freed one is by another thread; 0 for none.
    passed: usize,
}

/// Of a hundred granules that threads are given, so many they had been given the last time, too.
fn own(load: &Load) -> usize {
    let model = model(load.threads * (load.alive + load.lengths.end()) * 2, load.threads);
    let mut draw = draws();
    let mut held: Vec<Vec<Live>> = (0..load.threads).map(|_| Vec::new()).collect();
    let mut last = BTreeMap::new();
    let (mut all, mut same) = (0, 0);
    for round in 0..300 * load.threads {
        let thread = round % load.threads;
        let size = load.lengths.start() + draw(load.lengths.end() - load.lengths.start());
        while !held[thread].is_empty()
            && held[thread].iter().map(|block| block.layout.size()).sum::<usize>() + size > load.alive
        {
            let nth = draw(held[thread].len());
            let block = held[thread].swap_remove(nth);
            let is_passed = load.passed > 0 && draw(load.passed) == 0;
            let by = if is_passed { (thread + 1) % load.threads } else { thread };
            as_thread_of(by, || model.free(block));
        }
        let block = as_thread_of(thread, || take(&model, size));
        for granule in block.block().start / GRANULE..block.block().end() / GRANULE {
            let before = last.insert(granule, thread);
            if round >= 100 * load.threads {
                all += 1;
                same += usize::from(before == Some(thread));
            }
        }
        held[thread].push(block);
    }
    model.audit(true);
    finish(&model, held.into_iter().flatten().collect(), true);
    100 * same / all
}

/// The heap gave each what the others had written.
#[test]
fn threads_go_on_with_what_they_have_freed() {
    let few = 2200 * KIB..=6600 * KIB;
    let loads = [
        Load { threads: 2, lengths: few.clone(), alive: 10 * MIB, passed: 0 },
        Load { threads: 2, lengths: few.clone(), alive: 20 * MIB, passed: 0 },
        Load { threads: 2, lengths: 5 * MIB..=15 * MIB, alive: 18 * MIB, passed: 0 },
        // One at a time, of classes among them.
        Load { threads: 4, lengths: 100 * KIB..=9 * MIB, alive: 0, passed: 0 },
        // Those that others free go home.
        Load { threads: 2, lengths: few, alive: 10 * MIB, passed: 2 },
    ];
    let own = loads.each_ref().map(own);
    assert!(own.iter().all(|&own| own >= 80), "{own:?} of 100");
}

/// What is free of a shard, in bytes, and in how many pieces.
fn at_hand(model: &Model<Fake>, shard: usize) -> (usize, usize) {
    let stacks = model.cache.shards()[shard].lock(model.os());
    (stacks.bytes(), stacks.runs.count())
}

/// They would leave little by little for the heap, where the other thread's lie.
#[test]
fn what_is_in_pieces_is_traded_for_as_much_that_is_in_one() {
    let model = model(96 * MIB, 2);
    let between: Vec<_> =
        as_thread_of(0, || [4, 1, 4, 1, 4, 1].map(|mib| take(&model, mib * MIB - 64 * KIB)).into());
    let (longer, shorter): (Vec<_>, Vec<_>) =
        between.into_iter().partition(|block| block.layout.size() > 2 * MIB);
    as_thread_of(0, || longer.into_iter().for_each(|block| model.free(block)));
    let (held, pieces) = at_hand(&model, 0);
    assert!(held >= 11 * MIB && pieces >= 3, "{held} bytes in {pieces} pieces");
    let block = as_thread_of(0, || take(&model, 6 * MIB));
    let (rest, pieces) = at_hand(&model, 0);
    assert!(rest + block.block().len >= held - MIB && pieces == 1, "{rest} bytes in {pieces} pieces");
    model.audit(true);
    finish(&model, shorter.into_iter().chain([block]).collect(), true);
}

/// Its thread, which has much more in use, would have none of it any more, and of the heap's piece no more than the block.
#[test]
fn next_to_nothing_is_not_traded() {
    for (free, is_traded) in [(3, false), (8, true)] {
        let model = model(96 * MIB, 2);
        let mut kept = as_thread_of(0, || {
            let [freed, beside, much] =
                [free * MIB - 64 * KIB, 300 * KIB, 40 * MIB].map(|bytes| take(&model, bytes));
            model.free(freed);
            vec![beside, much]
        });
        model.cache.drain_hot(&model.cache.shards()[0]);
        let (held, _) = at_hand(&model, 0);
        assert!(held >= (free - 1) * MIB, "{held} bytes");
        kept.push(as_thread_of(0, || take(&model, 15 * MIB)));
        let (rest, _) = at_hand(&model, 0);
        assert_eq!(rest == held, !is_traded, "{held} bytes, and {rest}");
        model.audit(true);
        finish(&model, kept, true);
    }
}

/// Kept without a look, each of them would be written all over.
#[test]
fn zeroed_ones_that_are_barely_touched_are_seen_to_be() {
    let model = Model::new(fake_in_short(4 << 30, 0), 256 * MIB, Config::new());
    let layout = Layout::from_size_align(3 * MIB, 8).unwrap();
    let is_thin = |_| {
        let p = model.cache.allocate_zeroed(layout, &Config::new(), |_| ());
        model.os().sow(p.addr(), GRANULE, 1);
        let is_thin = model.cache.is_thin(Span::new(p.addr(), 3 * MIB));
        model.cache.deallocate(p, layout);
        is_thin
    };
    assert!(as_thread_of(0, || (0..100).any(is_thin)));
    finish(&model, Vec::new(), true);
}

/// Else what one thread has for bursts would be all threads' at the end of each.
#[test]
fn what_a_burst_was_stays_for_the_next_one() {
    let model = model(128 * MIB, 2);
    let burst = |shard: usize, count: usize| {
        as_thread_of(shard, || {
            let blocks: Vec<_> = (0..count).map(|nth| take(&model, (300 + 17 * (nth % 20)) * KIB)).collect();
            blocks.into_iter().for_each(|block| model.free(block));
        });
    };
    let count = 18 * MIB / (460 * KIB);
    for _ in 0..8 {
        burst(0, count);
    }
    let (held, _) = at_hand(&model, 0);
    assert!(held >= 16 * MIB, "{held} bytes");
    // Not for ever, be it at work or idle, and not for the next thread.
    let shard = &model.cache.shards()[0];
    let more = || shard.lock(model.os()).more;
    let before = more();
    for by in [0, 1] {
        shard.lock(model.os()).more = before;
        for _ in 0..160 * 64 {
            burst(by, 2);
            burst(by, 2);
        }
        assert!(more() < MIB, "{} bytes where thread {by} goes on", more());
    }
    shard.lock(model.os()).more = before;
    shard.counts.note_taken_over();
    let block = as_thread_of(0, || take(&model, 3 * MIB));
    assert_eq!(more(), 0);
    finish(&model, vec![block], true);
}

/// The heap had it each time.
#[test]
fn one_that_is_all_a_thread_has_is_kept_too() {
    let model = model(96 * MIB, 2);
    as_thread_of(0, || {
        let block = take(&model, 14 * MIB);
        model.free(block);
    });
    let (held, _) = at_hand(&model, 0);
    assert!(held >= 14 * MIB, "{held} bytes");
    finish(&model, Vec::new(), true);
}

/// They went to whoever had had that memory before.
#[test]
fn those_that_a_vector_grew_into_are_of_the_thread_that_grew_it() {
    let model = model(96 * MIB, 2);
    let all = as_thread_of(0, || take(&model, 90 * MIB));
    let span = all.block();
    as_thread_of(0, || model.free(all));
    model.cache.note_home(&model.cache.shards()[0], span);
    let [mut vector, beside] = as_thread_of(1, || [(); 2].map(|()| take(&model, 3 * MIB)));
    for size in [5, 9] {
        as_thread_of(1, || assert!(model.resize(&mut vector, size * MIB, 0)));
        let home = model.cache.homes(&model.cache.shards()[0]).of(vector.block().start);
        assert_eq!(home, Some(2), "{size} MiB");
    }
    finish(&model, vec![vector, beside], true);
}

/// With so many blocks of so many bytes free in the second shard, beside which nothing is free, in as many runs.
fn with_runs_of_another(count: usize, len: usize, free: usize) -> (Model<Fake>, Vec<Live>) {
    let model = model(free + count * 2 * len, 2);
    let (freed, kept): (Vec<_>, Vec<_>) = as_thread_of(1, || {
        (0..2 * count).map(|nth| (nth, take(&model, len))).partition(|(nth, _)| nth % 2 == 0)
    });
    as_thread_of(1, || freed.into_iter().for_each(|(_, block)| model.free(block)));
    model.cache.drain_hot(&model.cache.shards()[1]);
    (model, kept.into_iter().map(|(_, block)| block).collect())
}

/// It took all that the first shard had which had anything, and that one's thread did the same then.
#[test]
fn who_finds_nothing_takes_one_run_of_another() {
    let (model, mut kept) = with_runs_of_another(3, 8 * MIB - 64 * KIB, 0);
    let (held, _) = at_hand(&model, 1);
    kept.push(as_thread_of(0, || take(&model, 8 * MIB - 64 * KIB)));
    let (rest, _) = at_hand(&model, 1);
    assert!(held >= 23 * MIB && rest == held - kept.last().unwrap().block().len, "{held} bytes, and {rest}");
    model.audit(true);
    finish(&model, kept, true);
}

/// All threads gave up what they had for each block that grew and had none of it behind it.
#[test]
fn what_is_copied_to_grow_takes_from_others_what_lies_behind_it_alone() {
    for (mib, longer) in [(1, 2), (3, 6), (6, 12)] {
        let (model, mut kept) = with_runs_of_another(2, 3 * MIB, 96 * MIB);
        let (held, _) = at_hand(&model, 1);
        let (mut vector, beside) = as_thread_of(0, || (take(&model, mib * MIB), take(&model, mib * MIB)));
        model.cache.drain_shard(&model.cache.shards()[0]);
        as_thread_of(0, || assert!(model.resize(&mut vector, longer * MIB, 0)));
        let (rest, _) = at_hand(&model, 1);
        assert_eq!(rest, held, "{mib} MiB");
        kept.extend([vector, beside]);
        model.audit(true);
        finish(&model, kept, true);
    }
}

#[test]
fn what_another_has_behind_a_block_is_where_it_grows_to() {
    let model = model(96 * MIB, 2);
    let (mut vector, behind) = as_thread_of(1, || (take(&model, 3 * MIB), take(&model, 5 * MIB)));
    assert_eq!(vector.block().end(), behind.block().start);
    as_thread_of(1, || model.free(behind));
    let start = vector.block().start;
    as_thread_of(0, || assert!(model.resize(&mut vector, 6 * MIB, 0)));
    assert_eq!(vector.block().start, start);
    finish(&model, vec![vector], true);
}

/// It was whoever comes first, who was at work.
#[test]
fn it_is_one_that_has_less_in_use_than_at_hand() {
    let model = model(100 * MIB, 3);
    let len = 8 * MIB - 64 * KIB;
    let with_free = |shard: usize, freed: &[usize]| {
        let blocks: Vec<_> = as_thread_of(shard, || (0..6).map(|_| take(&model, len)).collect());
        let (freed, kept): (Vec<_>, Vec<_>) =
            blocks.into_iter().enumerate().partition(|(nth, _)| freed.contains(nth));
        as_thread_of(shard, || freed.into_iter().for_each(|(_, block)| model.free(block)));
        kept.into_iter().map(|(_, block)| block).collect::<Vec<_>>()
    };
    let mut kept = with_free(1, &[0, 3]);
    kept.extend(with_free(2, &[0, 1, 2, 3]));
    let before = [1, 2].map(|shard| at_hand(&model, shard).0);
    assert!(before.iter().all(|&held| held >= 15 * MIB), "{before:?}");
    kept.push(as_thread_of(0, || take(&model, len)));
    let after = [1, 2].map(|shard| at_hand(&model, shard).0);
    assert!(after[0] == before[0] && after[1] < before[1], "{before:?}, then {after:?}");
    finish(&model, kept, true);
}

/// What they held counted as handed out, and what was untouched came on top of it.
#[test]
fn what_idle_threads_have_at_hand_does_not_add_to_what_others_need() {
    let model = Model::new(fake_in_short(4 << 30, 0), 256 * MIB, Config::new());
    (1..=4).for_each(|number| model.cache.given.add(number));
    for _ in 0..2 {
        let burst = |shard| as_thread_of(shard, || (0..5).map(|_| take(&model, 5 * MIB)).collect::<Vec<_>>());
        let bursts: Vec<_> = (0..4).map(burst).collect();
        bursts.iter().flatten().for_each(|block| model.os().touch(block.p, block.layout.size()));
        for (shard, blocks) in bursts.into_iter().enumerate() {
            as_thread_of(shard, || blocks.into_iter().for_each(|block| model.free(block)));
        }
    }
    let held: usize = (0..4).map(|shard| at_hand(&model, shard).0).sum();
    assert!(held >= 90 * MIB, "{held}");
    let layout = Layout::from_size_align(120 * MIB, 8).unwrap();
    as_thread_of(0, || {
        let p = model.cache.allocate_zeroed(layout, &Config::new(), |_| ());
        let level = model.cache.heap.level();
        assert!(level.out + level.dirty <= 124 * MIB, "{level:?}");
        model.cache.deallocate(p, layout);
    });
    finish(&model, Vec::new(), true);
}

/// They went to the heap with each zeroed block, and from there to the kernel.
#[test]
fn what_threads_have_at_hand_that_are_at_work_stays_with_them() {
    let model = model(240 * MIB, 2);
    let mut kept = Vec::new();
    for shard in 0..2 {
        let mut blocks: Vec<_> = as_thread_of(shard, || (0..12).map(|_| take(&model, 5 * MIB)).collect());
        let freed = blocks.split_off(8);
        as_thread_of(shard, || freed.into_iter().for_each(|block| model.free(block)));
        kept.extend(blocks);
    }
    let before = [0, 1].map(|shard| at_hand(&model, shard).0);
    assert!(before.iter().all(|&held| held >= 15 * MIB), "{before:?}");
    let layout = Layout::from_size_align(120 * MIB, 8).unwrap();
    as_thread_of(0, || {
        let p = model.cache.allocate_zeroed(layout, &Config::new(), |_| ());
        assert_eq!([0, 1].map(|shard| at_hand(&model, shard).0), before);
        model.cache.deallocate(p, layout);
    });
    finish(&model, kept, true);
}

/// A block that grows into a whole run leaves that one's node behind, and where nothing had to leave the shard none of them did.
#[test]
fn what_a_shard_has_too_many_nodes_of_goes_with_the_next_block_that_is_freed() {
    let model = model(96 * MIB, 2);
    let shard = &model.cache.shards()[0];
    let block = as_thread_of(0, || take(&model, 3 * MIB));
    assert!(model.cache.heap.hold_nodes(8 * TOKENS));
    shard.lock(model.os()).tokens += 8 * TOKENS;
    as_thread_of(0, || model.free(block));
    let tokens = shard.lock(model.os()).tokens;
    assert!(tokens < 4 * TOKENS, "{tokens}");
    model.audit(true);
    finish(&model, Vec::new(), true);
}

/// Each brought a node, those that merged left with one, and the next came from the heap, with others.
#[test]
fn no_more_nodes_are_set_aside_however_many_are_freed() {
    for (mib, count) in [(3, 14), (5, 9), (8, 8), (15, 4)] {
        let model = model(256 * MIB, 2);
        as_thread_of(0, || {
            for _ in 0..200 {
                let blocks: Vec<_> = (0..count).map(|_| take(&model, mib * MIB)).collect();
                blocks.into_iter().for_each(|block| model.free(block));
            }
        });
        let tokens = model.cache.shards()[0].lock(model.os()).tokens;
        assert!(tokens < 4 * TOKENS, "{tokens} for {count} of {mib} MiB");
        finish(&model, Vec::new(), true);
    }
}
