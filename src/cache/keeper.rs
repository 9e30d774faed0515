//! The thread that applies decay and pressure while nobody allocates, where the program or the environment asks for it.
//!
//! Why it is here: all that the cache does, it does in somebody's request; a process that falls silent makes none. The
//! thread does nothing that a request could not do, with the same functions. What it does once it is awake is
//! [`Cache::keep_once`], which tests drive over the fake kernel; that it is a thread is `global`'s and `os`'s business.
//!
//! Invariants: it is started, once in a process, by a request that holds no lock; while nothing is handed out and nothing
//! is cached it sleeps until memory is faulted in; it keeps no lock while it sleeps. A forked child has none, and
//! starts one as its parent did.

use super::told::LOOK_AFTER;
use super::{Cache, Hooks};
use crate::os::Os;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Nobody asked for the thread.
const OFF: u32 = 0;
/// Somebody did, and it does not run.
const WANTED: u32 = 1;
const RUNS: u32 = 2;

/// The thread does something, or sleeps for a while.
const AWAKE: u32 = 0;
/// It sleeps until it is woken.
const ASLEEP: u32 = 1;

/// Nanoseconds between two looks of a process in which nothing happens.
const IDLE: u64 = 1_000_000_000;

/// Nanoseconds without an allocation or a free after which a peak counts as one window older. A prover's round takes
/// seconds, and the pause between two of its proofs as a service is seconds to minutes: twice this, and faulting
/// the memory in again (20 GB/s with huge pages) is a part of a percent of the pause.
const SILENT: u64 = 10_000_000_000;

pub(super) struct Keeper {
    state: AtomicU32,
    word: AtomicU32,
}

/// What the thread remembers from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Allocations and frees so far.
    activity: u64,
    /// When they last were others, and when a window was last ended for silence since.
    since: u64,
    aged: u64,
    /// Whether the C library has been asked for what it keeps, since.
    asked: bool,
}

/// How long the thread may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// So many nanoseconds.
    For(u64),
    UntilWoken,
}

impl Keeper {
    crate::sync::constant! {
        pub(super) const fn new() -> Self {
            Self { state: AtomicU32::new(OFF), word: AtomicU32::new(AWAKE) }
        }
    }

    /// Before the shards are published.
    pub(super) fn ask_for(&self) {
        // Relaxed: the state stands for itself, and one exchange decides who starts the thread.
        self.state.store(WANTED, Ordering::Relaxed);
    }

    /// Starts the thread if it is wanted and does not run. Called without any lock: `pthread_create` allocates.
    pub(super) fn see_to(&self, hooks: Option<&Hooks>) {
        // Relaxed: as in `ask_for`.
        if self.state.load(Ordering::Relaxed) == WANTED
            && let Some(hooks) = hooks
            && self.state.compare_exchange(WANTED, RUNS, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            && !(hooks.start_keeper)()
        {
            // Whoever comes by next tries again.
            self.state.store(WANTED, Ordering::Relaxed);
        }
    }

    /// Wakes the thread if it sleeps until then: memory has been handed out.
    pub(super) fn wake<O: Os>(&self, os: &O) {
        // Acquire: pairs with nothing but the heap's lock, see `keep`; the word alone decides.
        if self.word.load(Ordering::Acquire) == ASLEEP && self.word.swap(AWAKE, Ordering::AcqRel) == ASLEEP {
            os.wake_one(&self.word);
        }
    }

    /// Whether it sleeps until it is woken, or as if it did from now on.
    #[cfg(all(test, not(loom)))]
    pub(super) fn sleeps(&self, from_now_on: bool) -> bool {
        if from_now_on {
            self.word.store(ASLEEP, Ordering::Relaxed);
        }
        self.word.load(Ordering::Relaxed) == ASLEEP
    }

    pub(super) fn reset_in_child(&self) {
        // Relaxed: the child has one thread.
        let _ = self.state.compare_exchange(RUNS, WANTED, Ordering::Relaxed, Ordering::Relaxed);
        self.word.store(AWAKE, Ordering::Relaxed);
    }
}

impl<O: Os> Cache<O> {
    /// All that the thread does, for ever.
    pub(crate) fn keep(&self) -> ! {
        let mut watch = Watch::default();
        loop {
            match self.keep_once(&mut watch) {
                Rest::For(nanoseconds) => self.os().wait_for(&self.keeper.word, AWAKE, nanoseconds),
                Rest::UntilWoken => {
                    self.keeper.word.store(ASLEEP, Ordering::Release);
                    // Whoever hands out memory after this look finds the word ASLEEP, since both are in the heap's
                    // lock between: its release and acquire order the store before that thread's load.
                    if self.is_empty() {
                        self.os().wait(&self.keeper.word, ASLEEP);
                    }
                    self.keeper.word.store(AWAKE, Ordering::Release);
                }
            }
        }
    }

    /// Whether nothing is handed out and nothing cached.
    fn is_empty(&self) -> bool {
        let books = self.heap.books();
        books.out == 0 && books.dirty == 0 && books.soft == 0
    }

    /// Looks once at what is to be done, does it, and says how long there will be nothing.
    pub(crate) fn keep_once(&self, watch: &mut Watch) -> Rest {
        let now = self.os().now();
        let activity = self.activity();
        if activity != watch.activity || watch.since == 0 {
            *watch = Watch { activity, since: now, aged: now, asked: false };
        }
        if now.saturating_sub(watch.since) >= SILENT && !watch.asked {
            // Once: small blocks are not seen here, and whoever goes on making them would lose them every ten seconds.
            watch.asked = true;
            self.ask_library();
        }
        if self.cached_bytes() == 0 {
            return if self.is_empty() { Rest::UntilWoken } else { Rest::For(IDLE) };
        }
        // Relaxed: as in `tick_slow`.
        if now.saturating_sub(self.last_look.load(Ordering::Relaxed)) >= LOOK_AFTER {
            self.look_slow();
        }
        if now.saturating_sub(watch.aged) >= SILENT {
            watch.aged = now;
            self.age_slow();
        }
        Rest::For(if now.saturating_sub(watch.since) < IDLE { LOOK_AFTER } else { IDLE })
    }

    /// Ends a window for silence, and gives up what no window remembers.
    fn age_slow(&self) {
        self.drain();
        let level = self.heap.level();
        let mut limits = self.limits.lock(self.os());
        limits.saw(&level);
        limits.aged(level.out_max, level.out);
        let (excess, keep, unit) = self.too_much(&limits, &level);
        let remembered = limits.total();
        drop(limits);
        self.forget_asking(remembered);
        self.heap.begin_window();
        if excess > 0 {
            self.heap.purge_to(keep, excess, unit);
        }
    }
}
