//! Whether the threads of a program touch a long zeroed block together, so that they had better have it zeroed, each what it
//! touches, than wait for the one that asks for it.
//!
//! Why it is here: one core zeroes 10 to 50 GB/s, and proofs ask for gigabytes of zeros while all their threads wait. What is
//! given back as it is handed out is zeroed by the kernel in each thread's fault, a huge page at a time: slower for one thread,
//! and faster for many (docs/EXPERIMENTS.md, "Zeros by all threads").
//!
//! Who touched a block is told by the page faults of the thread that asked for it: where it took few of those that the block
//! took, others took the rest.

use super::WHOLE;
use super::lessons::{blend, share};
use crate::os::{CHUNK, GRANULE, Os};
use crate::sync::process::{AtomicU8, Ordering::Relaxed};

/// From this length on, in bytes: the `memset` of a shorter block takes a millisecond or two, and from half of it on proofs gained no
/// more (measured, docs/EXPERIMENTS.md, "Zeros by all threads").
pub(crate) const PARALLEL_MIN: usize = 32 << 20;

/// On fewer processors than this, or with fewer threads, the kernel's zeros are no faster: its fault takes two to four times as
/// long as to zero as much; four threads lost by it on AMD, and gained a twentieth on Intel (measured).
pub(crate) const CPUS_MIN: usize = 8;

/// Page faults so far, as one thread sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Faults {
    thread: u64,
    own: u64,
    all: u64,
}

impl Faults {
    /// The calling thread's, and its process's.
    pub(crate) fn now(os: &impl Os) -> Self {
        Self { thread: os.thread(), own: os.own_faults(), all: os.faults() }
    }

    /// What share of `bytes` that were faulted in since then this thread did by itself; all of it where that was in small
    /// pages. `None` if it is another thread that asks, or hardly anything was.
    pub(super) fn alone(self, now: Self, bytes: usize) -> Option<usize> {
        let chunks = bytes / CHUNK;
        if now.thread != self.thread || bytes < PARALLEL_MIN / 2 {
            return None;
        }
        // A child has counters of its own.
        let (own, all) =
            (now.own.saturating_sub(self.own) as usize, now.all.saturating_sub(self.all) as usize);
        let in_small = all >= chunks * (CHUNK / GRANULE / 2);
        Some(if in_small { WHOLE } else { share(own, chunks) })
    }
}

/// What share of blocks like it the thread that took one touched by itself. Relaxed: as the other lessons, a hint.
#[derive(Debug)]
pub(super) struct Alone(AtomicU8);

impl Alone {
    /// That others touch it. What it costs to find out that they do not is three blocks; the other way round it would be as
    /// many of every [`super::lessons::LOOK_AGAIN`].
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Whether others are expected to touch most of it.
    pub(super) fn is_little(&self) -> bool {
        usize::from(self.0.load(Relaxed)) <= WHOLE / 2
    }

    pub(super) fn learn(&self, share: usize) {
        blend(&self.0, share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::fake::Fake;
    use crate::zeroing::{Kind, Way, Zeroing};

    const LEN: usize = 256 << 20;
    const CHUNKS: u64 = (LEN / CHUNK) as u64;

    /// As if blocks like it had been touched densely.
    fn dense(cpus: usize, is_huge: bool, len: usize) -> (Zeroing, Kind) {
        let zeroing = Zeroing::new();
        zeroing.start(cpus, is_huge);
        let kind = zeroing.enter(len);
        zeroing.learn_chunks(kind, len, len);
        zeroing.learn_pages(kind, 64, 64);
        (zeroing, kind)
    }

    #[test]
    fn long_blocks_are_zeroed_by_all_threads_where_there_are_many_processors_and_huge_pages() {
        for (cpus, is_huge, len, way) in [
            (CPUS_MIN, true, PARALLEL_MIN, Way::Parallel),
            (CPUS_MIN, true, PARALLEL_MIN - 4096, Way::Written),
            (CPUS_MIN - 1, true, PARALLEL_MIN, Way::Written),
            (CPUS_MIN, false, PARALLEL_MIN, Way::Written),
        ] {
            let (zeroing, kind) = dense(cpus, is_huge, len);
            assert_eq!(zeroing.way(kind, len), way, "{cpus} processors, {is_huge}, {len}");
        }
    }

    #[test]
    fn what_one_thread_touches_alone_is_written_after_three_such_blocks_and_tried_again() {
        let (zeroing, kind) = dense(64, true, LEN);
        let os = Fake::new(CHUNK);
        let mut ways = Vec::new();
        // The thread that takes it touches all of it, and then a sixteenth.
        for own in [[CHUNKS; 200], [CHUNKS / 16; 200]].as_flattened() {
            let way = zeroing.way(kind, LEN);
            let before = Faults::now(&os);
            os.add_faults(*own, CHUNKS - *own);
            if way == Way::Parallel {
                zeroing.learn_alone(kind, before, Faults::now(&os), LEN);
            }
            let _ = zeroing.samples(kind);
            ways.push(way == Way::Parallel);
        }
        let (alone, together) = ways.split_at(200);
        assert_eq!(alone[..4], [true, true, true, false]);
        assert!((6..=9).contains(&alone.iter().filter(|&&parallel| parallel).count()), "one in 32 is tried");
        assert!(together[100..].iter().all(|&parallel| parallel), "and shows that others touch it again");
    }

    #[test]
    fn faults_tell_who_touched_a_block_of_which_much_was_faulted_in_by_the_thread_that_asks() {
        let os = Fake::new(CHUNK);
        let before = Faults::now(&os);
        os.add_faults(CHUNKS / 4, CHUNKS / 4 * 3);
        let now = Faults::now(&os);
        assert_eq!(before.alone(now, LEN), Some(WHOLE / 4));
        assert_eq!(before.alone(now, PARALLEL_MIN / 2 - 1), None, "too little to tell");
        assert_eq!(
            before.alone(Faults { thread: now.thread + 1, ..now }, LEN),
            None,
            "somebody else's counters"
        );
        assert_eq!(now.alone(before, LEN), Some(0), "a child's counters begin anew");
        os.add_faults(0, CHUNKS * 512);
        assert_eq!(before.alone(Faults::now(&os), LEN), Some(WHOLE), "in small pages it is a loss");
    }
}
