//! Phases: what they measure, and that nothing which outlives one is harmed, whoever allocated it.
//!
//! The libraries here are those whose memory phase arenas have overwritten: queues that grow in blocks and keep them,
//! spans in pooled pages, statics that are built when they are first used.

use std::panic;
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use rayon::prelude::*;
use tracing_subscriber::layer::SubscriberExt;
use zk_nalloc::{
    NAlloc, Phase, PhaseGuard, Trim, begin_phase, begin_phase_named, end_phase, phase, phase_named, phases,
};

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const MIB: usize = 1 << 20;

/// Buffers of a prover's round, each filled.
fn churn(seed: u64) -> u64 {
    let columns: Vec<Vec<u64>> = (0..12).map(|i| vec![seed + i; (1 << 14) << (i % 5)]).collect();
    let mut sum = 0_u64;
    for column in &columns {
        sum = sum.wrapping_add(column.iter().sum());
    }
    sum
}

#[test]
fn a_phase_gives_what_its_closure_gives_and_counts_it() {
    assert_eq!(phase(|| 41) + 1, 42);
    let before = Phase::named("counted").report().count();
    for i in 0..5 {
        assert_eq!(phase_named("counted", || i), i);
    }
    let report = Phase::named("counted").report();
    assert_eq!((report.name(), report.count() - before), ("counted", 5));
    assert!(report.longest() <= report.wall_time());
}

#[test]
fn faults_and_the_peak_of_a_phase_are_its_own() {
    let kept = phase_named("peak: outer", || {
        let kept = vec![1_u8; 16 * MIB];
        phase_named("peak: inner", || drop(vec![2_u8; 64 * MIB]));
        kept
    });
    let (outer, inner) = (Phase::named("peak: outer").report(), Phase::named("peak: inner").report());
    for report in [outer, inner] {
        assert!(report.peak_live_bytes() >= 80 * MIB, "{report:?}");
        assert!(report.faults() > 0, "{report:?}");
    }
    assert!(outer.faults() >= inner.faults() && outer.wall_time() >= inner.wall_time());
    assert!(outer.peak_resident_bytes().is_none_or(|bytes| bytes >= 80 * MIB), "{outer:?}");
    assert_eq!(kept[5], 1);
    phase_named("peak: after", || ());
    // Other tests of this process allocate too, but not as much.
    let table = phases().to_string();
    assert!(
        table.contains("peak: inner") && table.lines().next().is_some_and(|l| l.contains("faults")),
        "{table}"
    );
}

#[test]
fn memory_is_freed_kept_and_moved_across_phases() {
    let mut kept: Vec<Vec<u64>> = Vec::new();
    for round in 0..20_u64 {
        begin_phase();
        let mut fresh = vec![round; 3 << 15];
        fresh.extend(std::iter::repeat_n(round, 1 << round.min(16)));
        kept.push(fresh);
        if round % 3 == 2 {
            // Of earlier phases.
            kept.remove(0);
        }
        end_phase();
        churn(round);
    }
    for column in &kept {
        assert!(column.iter().all(|&x| x == column[0]));
    }
}

#[test]
fn a_panic_ends_its_phases_and_no_others() {
    let name = "panics";
    let outer = PhaseGuard::named("panics: outer");
    let thrown = panic::catch_unwind(|| {
        phase_named(name, || {
            let _inner = PhaseGuard::named("panics: inner");
            let _buffer = vec![7_u8; MIB];
            panic::resume_unwind(Box::new("thrown"));
        })
    });
    assert_eq!(thrown.unwrap_err().downcast_ref(), Some(&"thrown"));
    let count = |name| Phase::named(name).report().count();
    assert_eq!((count(name), count("panics: inner"), count("panics: outer")), (1, 1, 0));
    drop(outer);
    assert_eq!(count("panics: outer"), 1);
}

#[test]
fn a_phase_may_end_on_another_thread() {
    let guard = PhaseGuard::named("passed on");
    thread::spawn(move || drop(guard)).join().unwrap();
    assert_eq!(Phase::named("passed on").report().count(), 1);
    // Begun here, ended there: by a thread that has begun none itself. Other tests of this process have some open for
    // moments, each ended by the thread that began it.
    let begun = begin_phase_named("begun here");
    let own = thread::spawn(move || {
        begin_phase_named("begun there");
        end_phase();
        begun.report().count()
    });
    assert_eq!(own.join().unwrap(), 0);
    end_phase();
    assert_eq!(begun.report().count(), 1);
}

#[test]
fn every_thread_of_a_pool_nests_phases_at_once() {
    let rounds = 200_u64;
    let sum: u64 = (0..rounds)
        .into_par_iter()
        .map(|i| {
            phase_named("pool: outer", || {
                let guard = PhaseGuard::named("pool: inner");
                let column = vec![i; 1 << 14];
                let sum = column.par_iter().sum::<u64>() >> 14;
                drop(guard);
                sum
            })
        })
        .sum();
    assert_eq!(sum, (0..rounds).sum());
    for name in ["pool: outer", "pool: inner"] {
        assert_eq!(Phase::named(name).report().count(), rounds);
    }
}

#[test]
fn trimming_at_the_end_of_a_phase_harms_nothing() {
    let kept = vec![5_u64; 1 << 17];
    for trim in [Trim::Soften, Trim::Release, Trim::Keep] {
        let phase = Phase::named("trims").trim(trim);
        let fresh = phase.run(|| {
            churn(3);
            vec![6_u64; 1 << 17]
        });
        churn(4);
        assert!(kept.iter().all(|&x| x == 5) && fresh.iter().all(|&x| x == 6));
    }
}

/// Work for a pool that is made in one phase, used in others and outlives them all.
#[test]
fn the_queues_of_a_pool_outlive_the_phase_they_grew_in() {
    let pool = phase(|| rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap());
    let results = Arc::new(Mutex::new(Vec::new()));
    for round in 0..6_u64 {
        phase_named("pool", || {
            pool.scope(|scope| {
                // More than a block of the injector holds, so that blocks are begun here and finished elsewhere.
                for i in 0..300 {
                    let results = results.clone();
                    scope.spawn(move |_| results.lock().unwrap().push(round * 1000 + i));
                }
            });
        });
        churn(round);
        pool.install(|| (0..100_000_u64).into_par_iter().map(|x| x * x).sum::<u64>());
    }
    let mut results = std::mem::take(&mut *results.lock().unwrap());
    results.sort_unstable();
    let expected: Vec<u64> = (0..6).flat_map(|round| (0..300).map(move |i| round * 1000 + i)).collect();
    assert_eq!(results, expected);
}

#[test]
fn crossbeams_blocks_and_buffers_outlive_the_phase_they_grew_in() {
    let (sender, receiver) = crossbeam_channel::unbounded();
    let queue = crossbeam_queue::SegQueue::new();
    let worker = crossbeam_deque::Worker::new_fifo();
    let stealer = worker.stealer();
    for round in 0..6_u64 {
        phase(|| {
            for i in 0..5000 {
                sender.send([round, i]).unwrap();
                queue.push(round + i);
                // Grows its buffer beyond 64 KiB, and leaves old ones to be collected in a later epoch.
                worker.push(vec![i; 3]);
            }
        });
        churn(round);
        for i in 0..2500 {
            assert!(receiver.recv().is_ok() && queue.pop().is_some(), "{round} {i}");
            assert!(stealer.steal().success().is_none_or(|v| v.len() == 3));
        }
    }
    let left: Vec<_> = receiver.try_iter().collect();
    assert_eq!(left.len(), 15_000);
    assert!(left.windows(2).all(|w| w[0] < w[1]), "in the order that they were sent");
    while let Some(v) = worker.pop() {
        assert!(v.len() == 3 && v[0] == v[2]);
    }
}

#[test]
fn spans_outlive_the_phase_they_were_opened_in() {
    let subscriber = tracing_subscriber::registry().with(Fields);
    tracing::subscriber::with_default(subscriber, || {
        let outer = phase(|| tracing::info_span!("outer", rows = 1 << 15));
        let held: Vec<_> = (0..6_u64)
            .flat_map(|round| {
                let spans = phase_named("spans", || {
                    let _entered = outer.enter();
                    // More than one page of the pool that spans lie in.
                    (0..200).map(|i| tracing::info_span!("inner", round, i)).collect::<Vec<_>>()
                });
                churn(round);
                for span in spans.iter().step_by(3) {
                    span.in_scope(|| tracing::info!("at work"));
                }
                spans.into_iter().skip(100)
            })
            .collect();
        for span in &held {
            assert!(span.id().is_some_and(|id| span.in_scope(|| tracing::Span::current().id() == Some(id))));
        }
    });
}

/// Keeps a large block with every span, as layers that collect fields do.
#[derive(Debug)]
struct Fields;

impl<S> tracing_subscriber::Layer<S> for Fields
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fn on_new_span(
        &self,
        _: &tracing::span::Attributes<'_>,
        id: &tracing::span::Id,
        context: tracing_subscriber::layer::Context<'_, S>,
    ) {
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(vec![id.into_u64(); 1 << 13]);
        }
    }

    fn on_close(&self, id: tracing::span::Id, context: tracing_subscriber::layer::Context<'_, S>) {
        if let Some(span) = context.span(&id) {
            let extensions = span.extensions();
            let kept = extensions.get::<Vec<u64>>().expect("inserted when the span was opened");
            assert!(kept.iter().all(|&x| x == id.into_u64()));
        }
    }
}

#[test]
fn statics_that_are_built_in_a_phase_are_whole_after_it() {
    static TWIDDLES: LazyLock<Vec<u64>> = LazyLock::new(|| (0..1 << 17).collect());
    thread_local! {
        static SCRATCH: Vec<u64> = (0..1 << 15).collect();
    }
    let sum = phase(|| TWIDDLES.iter().sum::<u64>() + SCRATCH.with(|s| s.iter().sum::<u64>()));
    for round in 0..10 {
        phase(|| churn(round));
        churn(round);
    }
    assert_eq!(TWIDDLES.iter().sum::<u64>() + SCRATCH.with(|s| s.iter().sum::<u64>()), sum);
}
