//! Faulting memory in before it is needed, on all CPUs.
//!
//! Why it is here: the first proof of a process faults its memory in, mostly one thread at a time and in the middle of its
//! work; a prover that loads a proving key for seconds can have that done meanwhile, and by all CPUs at once.
//! Threads are std's: nothing here is on the allocation path. Invariant: every run that is taken is given back; where a
//! callback panics or memory runs out, as memory that nobody has touched.

use std::alloc::{self, Layout};
use std::hint::black_box;
use std::iter;
use std::num::NonZero;
use std::thread;

use crate::config::{LARGE_FROM, LARGE_FROM_MAX};
use crate::global::{ENGINE, has_served};
use crate::heap::Span;
use crate::sync::process::{AtomicUsize, Ordering};

/// What one thread faults in at a time, in bytes: 1.6 ms with huge pages and 13 without, so that progress is seen and
/// threads end together.
const UNIT: usize = 32 << 20;

/// Threads at most: faults of one address space stop getting faster long before.
const THREADS_MAX: usize = 32;

/// Runs at most that a kernel which refuses long ones is asked for.
const RUNS: usize = 16;

/// Sees to it that `bytes` of free memory are resident, so that requests for as much fault nothing in, whatever
/// their sizes. Gives the bytes that were faulted in. 0 is given, too, where as much was cached already, which
/// [`cached_bytes`](crate::cached_bytes) tells. How much to ask for: what [`Stats::peak_live_bytes`](crate::Stats::peak_live_bytes) says
/// after a proof, or what was resident at most if that is less, as the page of `ZK_NALLOC_REPORT` does.
///
/// Bounded: by a ceiling ([`Config::cache_bytes`](crate::Config::cache_bytes)), and by what the container and the host have left
/// but for 5 %. What is cached already counts. To the limits it is a peak like any other: what is not used is forgotten as a
/// peak is that does not come back. If memory runs out all the same, everything goes back and 0 is given.
///
/// Uses as many threads as there are CPUs, 32 at most, for about 25 ms a GiB with huge pages and four CPUs, 200 without;
/// returns when it is done. Call it on a thread of its own while the proving key loads. Does nothing, and gives 0, where
/// [`NAlloc`](crate::NAlloc) is not the global allocator, or one that wraps it for long blocks alone has not asked it for any yet.
///
/// ```
/// use zk_nalloc::NAlloc;
///
/// #[global_allocator]
/// static GLOBAL: NAlloc = NAlloc::new();
///
/// std::thread::scope(|scope| {
///     scope.spawn(|| zk_nalloc::prefault(64 << 20));
///     // … load the proving key here
/// });
/// let trace = vec![1_u64; 4 << 20]; // faults nothing in
/// # drop(trace);
/// ```
pub fn prefault(bytes: usize) -> usize {
    prefault_with(bytes, |_, _| {})
}

/// As [`prefault`], calling `progress` with the bytes done and the bytes to do: every few milliseconds, on this thread. If that
/// panics, the memory goes back and the panic goes on.
///
/// ```
/// zk_nalloc::prefault_with(256 << 20, |done, of| eprint!("\r{} %", done * 100 / of));
/// ```
pub fn prefault_with(bytes: usize, mut progress: impl FnMut(usize, usize)) -> usize {
    start();
    if !ENGINE.has_started() {
        return 0;
    }
    let wanted = ENGINE.ahead_of(bytes);
    let mut ahead = Ahead { runs: [Span::new(0, 0); RUNS], count: 0, is_in: false };
    while ahead.bytes() < wanted && ahead.count < RUNS {
        let Some(run) = ENGINE.take_ahead(wanted - ahead.bytes()) else { break };
        ahead.runs[ahead.count] = run;
        ahead.count += 1;
    }
    ahead.fault_in(&mut progress)
}

/// Has the engine start, which the first large request does: only that knows the configuration of the program.
fn start() {
    // A short block tells who serves it. Long ones that another allocator served would change it: glibc keeps more for good.
    if !ENGINE.has_started() {
        request(Layout::new::<u8>());
    }
    if !has_served() {
        return;
    }
    let longer = |bytes: &usize| (*bytes < LARGE_FROM_MAX).then(|| (*bytes * 16).min(LARGE_FROM_MAX));
    for bytes in iter::successors(Some(LARGE_FROM), longer) {
        if !ENGINE.has_started()
            && let Ok(layout) = Layout::from_size_align(bytes, 8)
        {
            request(layout);
        }
    }
}

/// Asks the global allocator for a block, and gives it back.
#[expect(unsafe_code, reason = "a block without content, whatever its size")]
fn request(layout: Layout) {
    // SAFETY: the layout is not of size 0; the block goes back as it came, untouched.
    unsafe {
        // Or the compiler sees that it is for nothing.
        let p = black_box(alloc::alloc(layout));
        if !p.is_null() {
            alloc::dealloc(p, layout);
        }
    }
}

/// Runs that are ours while they are faulted in.
struct Ahead {
    runs: [Span; RUNS],
    count: usize,
    /// Whether all of them are faulted in.
    is_in: bool,
}

impl Ahead {
    fn runs(&self) -> &[Span] {
        &self.runs[..self.count]
    }

    fn bytes(&self) -> usize {
        self.runs().iter().map(|run| run.len).sum()
    }

    /// The `index`-th unit of all runs.
    fn unit(&self, index: usize) -> Option<Span> {
        let mut left = index;
        for run in self.runs() {
            let units = run.len.div_ceil(UNIT);
            if left < units {
                return Some(Span::new(run.start + left * UNIT, UNIT).common(*run));
            }
            left -= units;
        }
        None
    }

    /// Faults everything in, on this thread and others. Gives the bytes that are in: all or, where memory runs out, none.
    fn fault_in(&mut self, progress: &mut impl FnMut(usize, usize)) -> usize {
        let work = Work { ahead: self, next: AtomicUsize::new(0), done: AtomicUsize::new(0) };
        let units: usize = self.runs().iter().map(|run| run.len.div_ceil(UNIT)).sum();
        let cpus = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
        thread::scope(|scope| {
            // The others stop where this thread is thrown out of its callback.
            let _stop = Stop(&work.next);
            for _ in 1..cpus.min(units) {
                // Where no more threads are to be had, fewer do.
                let spawned = thread::Builder::new()
                    .name("zk-nalloc".to_owned())
                    .spawn_scoped(scope, || while work.one().is_some() {});
                if spawned.is_err() {
                    break;
                }
            }
            while let Some(done) = work.one() {
                progress(done, self.bytes());
            }
        });
        let done = work.done.into_inner();
        self.is_in = done == self.bytes();
        if !self.is_in || done == 0 {
            return 0;
        }
        // The last units may have been others'.
        progress(done, done);
        done
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.runs().iter().for_each(|&run| ENGINE.give_ahead(run, self.is_in));
    }
}

/// What the threads share.
struct Work<'a> {
    ahead: &'a Ahead,
    next: AtomicUsize,
    done: AtomicUsize,
}

impl Work<'_> {
    /// Faults the next unit in, and gives the bytes done so far; `None` if there is none, or memory has run out.
    fn one(&self) -> Option<usize> {
        // Relaxed: each number stands for itself, and the scope's end orders what was written.
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let unit = self.ahead.unit(index)?;
        if !ENGINE.fault_in(unit) {
            stop(&self.next);
            return None;
        }
        Some(self.done.fetch_add(unit.len, Ordering::Relaxed) + unit.len)
    }
}

/// Lets no thread take another unit.
fn stop(next: &AtomicUsize) {
    next.store(usize::MAX / 2, Ordering::Relaxed);
}

struct Stop<'a>(&'a AtomicUsize);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        stop(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_allocator_is_not_installed_nothing_happens() {
        let mut called = false;
        assert_eq!((prefault(1 << 30), prefault_with(64 << 20, |_, _| called = true)), (0, 0));
        assert!(!called);
    }

    #[test]
    fn units_cover_all_runs_and_end_with_them() {
        let mut ahead = Ahead { runs: [Span::new(0, 0); RUNS], count: 2, is_in: false };
        ahead.runs[0] = Span::new(1 << 30, UNIT + (2 << 20));
        ahead.runs[1] = Span::new(3 << 30, UNIT);
        let units: Vec<Span> = (0..).map_while(|i| ahead.unit(i)).collect();
        assert_eq!(
            units,
            [Span::new(1 << 30, UNIT), Span::new((1 << 30) + UNIT, 2 << 20), Span::new(3 << 30, UNIT)]
        );
        assert_eq!(ahead.unit(usize::MAX), None);
        // The engine never had them.
        std::mem::forget(ahead);
    }
}
