//! The engine: shards of stacks in front of the page heap, and the order in which a request looks for memory.
//!
//! [`Cache`] is a value, built over any [`Os`]; the one that serves a process is a `static` in `global`. Its
//! invariants are C1 to C5 of `docs/SAFETY.md`. It decides where memory comes from and when the limits are
//! looked at; what a pointer is made of is `global`'s business.

mod ahead;
mod beside;
mod careful;
mod ceiling;
mod count;
mod counters;
mod depth;
mod drain;
mod fork;
mod free;
mod grow;
mod heaps;
mod homes;
mod hot;
mod keeper;
mod learn;
mod middling;
mod peaks;
mod refill;
mod room;
mod runs;
mod scan;
mod shard;
mod shards;
mod slow;
mod thin;
mod told;
mod untouched;
mod warm;

#[cfg(any(test, zk_nalloc_proof))]
pub(crate) mod tests;

pub(crate) use ceiling::kept_for_all;
pub(crate) use count::Snapshot;
pub(crate) use counters::{SIZES, size_line};
pub(crate) use fork::Hooks;
pub(crate) use grow::Grown;
pub(crate) use peaks::PLACES;
use shards::Given;
pub(crate) use shards::Mine;

use core::alloc::Layout;

use crate::config::{Config, Settings};
use crate::geometry::{Block, Colours, SizeClass};
use crate::heap::{Growth, PageHeap, Setup, Unclean};
use crate::limits::Limits;
use crate::os::{self, Huge, HugeMode, Os};
use crate::sync::{
    Lock,
    atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    process,
};
use crate::trace::Trace;
use crate::zeroing::Zeroing;
use beside::Beside;
use count::Tally;
use fork::Host;
use homes::Homes;
use keeper::Keeper;
use peaks::Peaks;
use shard::Shard;
use untouched::Untouched;

/// The most that one shard holds, in bytes, whatever the ceiling; where there is none, more while its thread has much in use
/// (`refill`). A hot run that it takes from the heap may come on top, and what that has beyond its usual length.
const SHARD_BYTES_MAX: usize = 12 << 20;

/// Shards per CPU that we may run on: a pool of as many threads as CPUs, and as many others.
const SHARDS_PER_CPU: usize = 2;

/// The most shards: 512 of 8 1/2 KiB each.
const SHARDS_MAX: usize = 512;

/// Address space set aside at first: 16 times RAM, but at least this and at most that, in bytes.
const RESERVE: core::ops::RangeInclusive<usize> = 1 << 40..=16 << 40;

/// A block, given up by the cache to its caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    pub(crate) start: usize,
    /// The parts that are not known to be zero.
    pub(crate) unclean: Unclean,
    /// A number that differs from request to request, for colours.
    pub(crate) turn: usize,
    /// Bytes that were not resident before.
    pub(crate) fresh: usize,
}

/// A block that a shard had at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtHand {
    pub(crate) start: usize,
    /// As in [`Handed`].
    pub(crate) turn: usize,
    /// Whether the limits are to be told: [`Cache::tick_here_slow`].
    pub(crate) tick: bool,
}

/// What the start of a cache comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    /// Whether it was this call that started it.
    pub(crate) first: bool,
    /// Whether glibc is to be told to keep its heap top.
    pub(crate) tune_glibc: bool,
    /// The huge-page advice in force.
    pub(crate) huge: Huge,
    /// Whether a trace was begun.
    pub(crate) traced: bool,
}

/// What every request and every free reads, on lines that nothing else is written to: two lines apart, as a [`Shard`] is.
#[repr(align(128))]
struct Steady {
    /// Null until the first request.
    shards: AtomicPtr<Shard>,
    shard_count: AtomicUsize,
    /// Null until then, too.
    homes: process::AtomicPtr<Homes>,
    /// Where blocks begin: [`Colours::number`].
    colours: AtomicU8,
    /// The most that one shard holds now, in bytes, and its stacks of that: `Bounds`.
    shard_bytes_max: AtomicUsize,
    shard_stacked_max: AtomicUsize,
}

pub(crate) struct Cache<O: Os> {
    steady: Steady,
    heap: PageHeap<O>,
    /// Memory in small pages, for zeroed blocks that are barely touched.
    thin: PageHeap<O>,
    /// The kernel's page size in bytes.
    page: AtomicUsize,
    /// What an allocator that gives everything back would fault in at a time, in bytes; 0 before the start.
    fault_unit: AtomicUsize,
    /// Where the shards are kept while a thread forks.
    shards_in_fork: AtomicPtr<Shard>,
    /// While a thread forks, and in the child until that is seen to: the mark of the process that forks; else 0.
    mark_in_fork: AtomicU64,
    /// Which thread that is.
    thread_in_fork: AtomicU64,
    /// Forks of that thread within its fork: handlers that fork.
    forks_within: AtomicU32,
    /// The mark of the last child that was seen to, this process or one that it comes of. No other process has it.
    seen: AtomicU64,
    /// The shards, in their place, where every request and every free takes the slow path (see `careful`).
    shards_careful: AtomicPtr<Shard>,
    /// What a free has to do beside giving the block back: bits of [`Care`].
    care: AtomicU8,
    /// Fresh memory since the last look at what the host has left, in bytes.
    since_look: AtomicUsize,
    /// When that was, in nanoseconds of the clock.
    last_look: AtomicU64,
    /// Whether a thread looks at what is left, or gives up what is missing.
    looks: AtomicBool,
    /// The least that a limit of memory had left at the last look, in bytes; `usize::MAX` before, and where nobody tells.
    memory_left: AtomicUsize,
    /// When the limits were told last, by the same clock.
    last_tick: AtomicU64,
    /// Untouched memory that stays open whatever is done, and as much as is not worth another try, in bytes.
    unclosable: AtomicUsize,
    /// How many long blocks and vectors with room in a row have found nothing in use, up to `ALONE_AFTER`.
    alone: AtomicU32,
    /// The shards that living threads were given for themselves.
    given: Given,
    /// The next one that is given in turn, and how many threads live that were given one so.
    next: AtomicUsize,
    in_turn: AtomicUsize,
    /// Dirty bytes beyond which a free purges: the ceiling, less the stacks' share; `usize::MAX` without one.
    dirty_max: AtomicUsize,
    limits: Lock<Limits>,
    untouched: Lock<Untouched>,
    zeroing: Zeroing,
    host: Lock<Host>,
    /// The mark of the process in which somebody had that lock last.
    mark_in_start: AtomicU64,
    tally: Tally,
    beside: Beside,
    peaks: Peaks,
    hooks: Option<Hooks>,
    keeper: Keeper,
    trace: Trace,
    /// Address space to set aside at first, at least, in bytes.
    reserve_min: usize,
}

impl<O: Os> Cache<O> {
    crate::sync::constant! {
        /// A cache of a process.
        pub(crate) const fn new(os: O, hooks: Hooks) -> Self
        where
            O: Copy,
        {
            Self::with_reserve(os, os, *RESERVE.start(), Some(hooks))
        }
    }

    crate::sync::constant! {
        /// As [`Cache::new`], with `reserve_min` bytes of address space set aside at first, at least, over a kernel that is
        /// given twice.
        const fn with_reserve(os: O, again: O, reserve_min: usize, hooks: Option<Hooks>) -> Self {
            Self {
                steady: Steady {
                    shards: AtomicPtr::new(core::ptr::null_mut()),
                    shard_count: AtomicUsize::new(0),
                    homes: process::AtomicPtr::new(core::ptr::null_mut()),
                    colours: AtomicU8::new(Colours::Skewed.number()),
                    shard_bytes_max: AtomicUsize::new(SHARD_BYTES_MAX),
                    shard_stacked_max: AtomicUsize::new(SHARD_BYTES_MAX),
                },
                heap: PageHeap::new(os),
                thin: PageHeap::new(again),
                page: AtomicUsize::new(0),
                fault_unit: AtomicUsize::new(0),
                shards_in_fork: AtomicPtr::new(core::ptr::null_mut()),
                mark_in_fork: AtomicU64::new(0),
                thread_in_fork: AtomicU64::new(0),
                forks_within: AtomicU32::new(0),
                seen: AtomicU64::new(0),
                shards_careful: AtomicPtr::new(core::ptr::null_mut()),
                care: AtomicU8::new(0),
                since_look: AtomicUsize::new(0),
                last_look: AtomicU64::new(0),
                looks: AtomicBool::new(false),
                memory_left: AtomicUsize::new(usize::MAX),
                last_tick: AtomicU64::new(0),
                unclosable: AtomicUsize::new(0),
                alone: AtomicU32::new(0),
                given: Given::new(),
                next: AtomicUsize::new(0),
                in_turn: AtomicUsize::new(0),
                dirty_max: AtomicUsize::new(usize::MAX),
                limits: Lock::new(Limits::new()),
                untouched: Lock::new(Untouched::new()),
                zeroing: Zeroing::new(),
                host: Lock::new(Host::new()),
                mark_in_start: AtomicU64::new(0),
                tally: Tally::new(),
                beside: Beside::new(),
                peaks: Peaks::new(),
                hooks,
                keeper: Keeper::new(),
                trace: Trace::new(),
                reserve_min,
            }
        }
    }

    pub(crate) fn os(&self) -> &O {
        self.heap.os()
    }

    /// Who watches how high memory stands.
    pub(crate) fn peaks(&self) -> &Peaks {
        &self.peaks
    }

    /// Whether there are shards: from the start on, but while a thread forks.
    #[inline]
    fn is_ready(&self) -> bool {
        !self.shards_now().is_null()
    }

    /// Whether [`Cache::start`] has been.
    pub(crate) fn has_started(&self) -> bool {
        // Acquire: pairs with the release in `start`, so that whoever sees this sees what there is to care for.
        self.steady.shard_count.load(Ordering::Acquire) > 0
    }

    /// Gets ready for the first request: reads the environment, asks the host, maps the shards. `None` if the
    /// kernel refuses the memory for them, or in a handler of a fork, between ours; the next request tries again.
    #[cold]
    pub(crate) fn start(&self, config: &Config) -> Option<Started> {
        if self.forks_here() {
            return None;
        }
        let mut host = self.lock_host();
        if host.started {
            return Some(Started { first: false, tune_glibc: false, huge: Huge::Leave, traced: false });
        }
        // Before anybody can use what a fork would have to hold still: libc takes nobody in while it forks.
        if let Some(hooks) = &self.hooks {
            (hooks.watch_forks)();
        }
        let os = self.os();
        let facts = os.facts();
        let settings = os::settings(config, os, &os::REPORTED);
        let count = facts.cpus.saturating_mul(SHARDS_PER_CPU).next_power_of_two().clamp(1, SHARDS_MAX);
        let (shards, homes) = shards::map(os, facts.page, count)?;
        let huge = facts.advice(settings.thp);
        let setup = Setup {
            page: facts.page,
            huge,
            has_huge: facts.huge_mode != HugeMode::Never,
            // In checked mode free memory stays what it was filled with, where it was.
            moves: facts.moving(settings.moves) && !settings.checked,
            moves_several: facts.moves_several,
            residency: facts.residency,
            soften: facts.soften && !settings.checked,
            reserve: facts.ram.saturating_mul(16).clamp(self.reserve_min, *RESERVE.end()),
            growth: Growth::Any,
            wipes: settings.wipe_on_free,
        };
        self.heap.start(setup);
        self.start_thin(setup);
        // What is filled or wiped when it is freed is all touched by the thread that frees it.
        let spoils = settings.checked || settings.wipe_on_free;
        let cpus = facts.quota.map_or(facts.cpus, |quota| quota.min(facts.cpus));
        self.zeroing.start(cpus, facts.is_huge(huge) && !spoils);
        self.page.store(facts.page, Ordering::Relaxed);
        let colours = Colours::of(facts.l1_ways, facts.vendor);
        self.steady.colours.store(colours.number(), Ordering::Relaxed);
        // The C library gives no advice: its memory is huge only where everybody's is.
        let is_huge = facts.huge_mode == HugeMode::Always && facts.huge_page > 0;
        let unit = if is_huge { facts.huge_page } else { facts.page };
        self.fault_unit.store(unit, Ordering::Relaxed);
        self.steady.homes.store(homes, Ordering::Relaxed);
        host.started = true;
        self.set_ceiling(&settings, count, facts.ram);
        let traced = self.trace.start(os, &facts);
        self.set_care(&settings, traced);
        // Release: pairs with the acquire in `has_started`.
        self.steady.shard_count.store(count, Ordering::Release);
        if settings.background {
            self.keeper.ask_for();
        }
        // Release: pairs with the acquire in `shards_now` and `shard`.
        self.home_of_shards().store(shards, Ordering::Release);
        Some(Started { first: true, tune_glibc: settings.tune_glibc, huge, traced })
    }

    /// The kernel's page size in bytes.
    fn page(&self) -> usize {
        // Relaxed: published by the release store of `shards`.
        self.page.load(Ordering::Relaxed)
    }

    /// The offset into the block of the `turn`-th request.
    #[inline]
    pub(crate) fn colour(&self, turn: usize, layout: Layout) -> usize {
        // Relaxed: as in `page`.
        Block::colour(turn, layout, Colours::numbered(self.steady.colours.load(Ordering::Relaxed)))
    }

    /// Takes a block of a class that this thread's shard has at hand, unless its latch is held: the whole fast path. `None` is no
    /// refusal: [`Cache::take`] is to be asked. `requested` is what the caller asked for, in bytes.
    ///
    /// It calls nothing, so that its caller, which ends with a call where there is more to do, saves hardly a register: to take a
    /// latch waits for all that was written before (docs/EXPERIMENTS.md has the measurement).
    #[inline]
    pub(crate) fn take_at_hand(&self, mine: Mine, class: SizeClass, requested: usize) -> Option<AtHand> {
        let shard = self.shard_at_hand(mine)?;
        let mut stacks = shard.stacks.try_lock(self.os())?;
        let start = stacks.cut(class, &shard.counts).or_else(|| stacks.pop(class, &shard.counts))?;
        let (turn, tick) = stacks.count_hit(requested, &shard.counts);
        Some(AtHand { start, turn, tick })
    }

    /// Takes a block of a class from this thread's shard. `None` if there is none, and [`Cache::take_slow`] is to be asked.
    /// `requested` is what the caller asked for, in bytes.
    pub(crate) fn take(&self, class: SizeClass, requested: usize) -> Option<(usize, usize)> {
        let shard = self.shard()?;
        self.begin_if_new(shard);
        self.take_from(shard, class, requested)
    }

    fn take_from(&self, shard: &Shard, class: SizeClass, requested: usize) -> Option<(usize, usize)> {
        let mut stacks = shard.lock(self.os());
        let start = stacks.take(class, &shard.counts)?;
        let (turn, tick) = stacks.count_hit(requested, &shard.counts);
        drop(stacks);
        if tick {
            self.tick_slow(shard);
        }
        Some((start, turn))
    }
}
