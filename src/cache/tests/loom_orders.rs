//! The engine in every order of a few threads, as far as two preemptions go: the very code, over the fake kernel in its
//! short form, with the atomics and locks of loom.
//!
//! Each model is a handful of operations, since orders multiply. A thread of its own, with a stack that the engine fits
//! on, sets each model up.

use std::alloc::Layout;
use std::sync::atomic::{AtomicU64, Ordering};

use loom::sync::Arc;
use loom::thread::{Builder, JoinHandle};

use super::fake_in_short;
use super::model::{Live, Model};
use crate::cache::shards::SHARD;
use crate::config::Config;
use crate::os::fake::Fake;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Room for a reservation, which begins at a multiple of 1 GiB.
const RESERVED: usize = 3 << 30;

/// No room for one: plain mappings serve.
const PLAIN: usize = 256 * MIB;

/// Words: the engine is built on the stack, where it takes a hundred KiB or so.
const STACK: usize = 1 << 17;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("a layout")
}

fn spawn<T: Send + 'static>(shard: usize, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let body = move || {
        SHARD.with(|mine| mine.set(shard + 1));
        body()
    };
    Builder::new().stack_size(STACK).spawn(body).expect("a thread of loom's")
}

/// As many as find what two threads can do to each other's locks; `LOOM_MAX_PREEMPTIONS` says otherwise.
const PREEMPTIONS: usize = 2;

type Shared = Arc<Model<Fake>>;

fn take(model: &Shared, size: usize, zeroed: bool) -> Live {
    model.allocate(layout(size), zeroed, 1).expect("memory")
}

/// Explores what two threads, of the shards 0 and 1, do with a model, which `prepare` gives each something of. At the end
/// the books are walked, and all is freed.
fn explore<A: Send + 'static, B: Send + 'static>(
    prepare: impl Fn(&Shared) -> (A, B) + Send + Sync + Copy + 'static,
    first: impl Fn(&Shared, A) -> Vec<Live> + Send + Sync + Copy + 'static,
    second: impl Fn(&Shared, B) -> Vec<Live> + Send + Sync + Copy + 'static,
) {
    explore_in(RESERVED, PREEMPTIONS, prepare, first, second, |_| ());
}

/// As [`explore`], in so much address space, with so many preemptions unless the environment says, and with a look at what is left
/// before it is freed.
fn explore_in<A: Send + 'static, B: Send + 'static>(
    space: usize,
    preemptions: usize,
    prepare: impl Fn(&Shared) -> (A, B) + Send + Sync + Copy + 'static,
    first: impl Fn(&Shared, A) -> Vec<Live> + Send + Sync + Copy + 'static,
    second: impl Fn(&Shared, B) -> Vec<Live> + Send + Sync + Copy + 'static,
    look: impl Fn(&[Live]) + Send + Sync + Copy + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    let orders = std::sync::Arc::new(AtomicU64::new(0));
    let counted = orders.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let setup = spawn(0, move || {
            let os = fake_in_short(space, 0);
            os.set_facts(|facts| facts.cpus = 1);
            let model: Shared = Arc::new(Model::new(os, 64 * MIB, Config::new()));
            let (mine, theirs) = prepare(&model);
            let other = {
                let model = model.clone();
                spawn(1, move || second(&model, theirs))
            };
            let mut left = first(&model, mine);
            left.extend(other.join().expect("the other thread"));
            model.audit(false);
            look(&left);
            left.into_iter().for_each(|live| model.free(live));
            model.audit_empty(false);
        });
        setup.join().expect("a model that holds");
    });
    eprintln!("{} orders, {:?} preemptions", orders.load(Ordering::Relaxed), builder.preemption_bound);
}

#[test]
fn loom_a_thief_and_an_owner_never_get_one_block() {
    explore(
        |model| {
            // One block in the stack of shard 0.
            let (block, kept) = (take(model, 1900 * KIB, false), take(model, 1900 * KIB, false));
            model.free(block);
            (vec![kept], ())
        },
        |model, mut left| {
            left.push(take(model, 1900 * KIB, false));
            left
        },
        |model, ()| vec![take(model, 1900 * KIB, false)],
    );
}

#[test]
fn loom_a_thief_cuts_a_free_run_that_its_owner_cuts_and_adds_to() {
    explore(
        |model| {
            let blocks = [1900, 1900, 1900, 1900].map(|kib| take(model, kib * KIB, false));
            let long = take(model, 12 * MIB, false);
            model.free(long);
            // The second of them has more paid for, which a cut needs.
            let short = [64, 64].map(|kib| take(model, kib * KIB, false));
            let [a, b, c, d] = blocks;
            // Two fit on the stack; the third makes a free run of the first.
            [a, b, c].into_iter().for_each(|block| model.free(block));
            ((d, short), ())
        },
        |model, (block, short)| {
            model.free(block);
            short.into_iter().chain([take(model, 1500 * KIB, false)]).collect()
        },
        |model, ()| vec![take(model, 1500 * KIB, false)],
    );
}

#[test]
fn loom_a_release_beside_frees_loses_nothing() {
    release_beside_frees(RESERVED);
}

#[test]
fn loom_a_release_beside_frees_unmaps_nothing_that_is_used() {
    release_beside_frees(PLAIN);
}

fn release_beside_frees(space: usize) {
    explore_in(
        space,
        PREEMPTIONS,
        |model| {
            let long = take(model, 5 * MIB, false);
            let (first, second) = (take(model, 1900 * KIB, false), take(model, 3 * MIB, false));
            model.free(long);
            ([first, second], ())
        },
        |model, blocks| {
            blocks.into_iter().for_each(|block| model.free(block));
            vec![take(model, 3 * MIB, true)]
        },
        |model, ()| {
            model.cache.release();
            Vec::new()
        },
        |_| (),
    );
}

#[test]
fn loom_two_threads_purge_and_take_what_a_third_of_the_books_holds() {
    explore(
        |model| {
            let blocks = [3, 5, 4, 6].map(|mib| take(model, mib * MIB, false));
            let [a, b, c, d] = blocks;
            model.free(a);
            model.free(c);
            (b, d)
        },
        |model, block| {
            model.free(block);
            vec![take(model, 9 * MIB, false)]
        },
        |model, block| {
            model.cache.soften();
            model.free(block);
            vec![take(model, 4 * MIB, true)]
        },
    );
}

#[test]
fn loom_a_hot_run_that_is_drained_while_another_is_begun() {
    explore(
        |model| {
            let long = take(model, 12 * MIB, false);
            model.free(long);
            (take(model, 64 * KIB, false), ())
        },
        |model, block| {
            // What is left of the run is too short for the third of these.
            let blocks =
                [1300 * KIB, 1300 * KIB, 1300 * KIB, 1300 * KIB].map(|size| take(model, size, false));
            [block].into_iter().chain(blocks).collect()
        },
        |model, ()| {
            model.cache.drain();
            Vec::new()
        },
    );
}

#[test]
fn loom_two_threads_of_one_shard_begin_a_hot_run_each() {
    explore(
        |model| {
            let long = take(model, 12 * MIB, false);
            model.free(long);
            ((), ())
        },
        |model, ()| vec![take(model, 300 * KIB, false)],
        |model, ()| {
            SHARD.with(|mine| mine.set(1));
            vec![take(model, 400 * KIB, false)]
        },
    );
}

#[test]
fn loom_counters_add_up_and_are_read_meanwhile() {
    // Two snapshots are hundreds of loads, each of which stands for itself: with two preemptions they take three minutes.
    explore_in(
        RESERVED,
        1,
        |model| (take(model, 100 * KIB, false), take(model, 200 * KIB, false)),
        |model, block| {
            model.free(block);
            vec![take(model, 100 * KIB, true)]
        },
        |model, block| {
            let before = model.cache.snapshot();
            model.free(block);
            let after = model.cache.snapshot();
            assert!(after.frees > before.frees && after.allocations >= before.allocations);
            assert!(before.live <= 300 * KIB as u64 && after.live <= 200 * KIB as u64);
            Vec::new()
        },
        |_| (),
    );
}

#[test]
fn loom_a_hot_run_that_is_drained_while_more_blocks_are_paid_for() {
    explore(
        |model| {
            let long = take(model, 12 * MIB, false);
            model.free(long);
            // As many short blocks as are paid for: one with the run, then a run's worth.
            let blocks: Vec<_> = (0..65).map(|_| take(model, 5 * KIB, false)).collect();
            (blocks, ())
        },
        |model, mut blocks| {
            blocks.push(take(model, 5 * KIB, false));
            blocks
        },
        |model, ()| {
            model.cache.drain();
            Vec::new()
        },
    );
}

#[test]
fn loom_two_threads_that_open_address_space_get_neighbouring_blocks() {
    explore_in(
        RESERVED,
        PREEMPTIONS,
        |_| ((), ()),
        |model, ()| vec![take(model, 5 * MIB, false)],
        |model, ()| vec![take(model, 5 * MIB, false)],
        |left| {
            let [a, b] = left else { panic!("two blocks") };
            assert_eq!(a.block().start.abs_diff(b.block().start), a.block().len);
        },
    );
}
