//! What the limits are told, and what is done when they say that too much stays: purging, closing, giving up.
//!
//! Why it is here: a request comes by now and then, on its slow path, and does this for all. Never under a lock of the heap.

use super::refill::{FORGOTTEN, FORGOTTEN_IN_A_WINDOW};
use super::{Cache, shard::Shard};
use crate::heap::{Keep, Level, Unit};
use crate::limits::Limits;
use crate::os::{CHUNK, Os};
use crate::sync::atomic::Ordering;

/// Fresh memory between two looks at what the container or host has left, in bytes; a look reads files.
const LOOK_EVERY: usize = 256 << 20;

/// Nanoseconds after which a request that tells the limits looks too: a look takes a quarter of a millisecond.
pub(super) const LOOK_AFTER: u64 = 250_000_000;

/// Untouched memory that stays open, in multiples of what may be resident: a block that doubles has left as much as it takes, and
/// several may grow at once. To open it again is a call for each GiB.
const OPEN_TIMES: usize = 2;

/// What may be resident counts as this at least for that, in bytes: a few of the largest steps in which memory is opened.
const OPEN_MIN: usize = 4 << 30;

/// Nanoseconds after which the limits are told again. To tell takes locks and lines that all threads share, and threads
/// that allocate and free untouched blocks would do so every microsecond; in this time none writes as much as a few MiB.
const TELL_AFTER: u64 = 50_000;

/// The most that one request purges for the decay of a forgotten peak, in bytes: a purge of this size takes
/// a quarter of a millisecond, and the next request goes on.
const SLICE: usize = 64 << 20;

impl<O: Os> Cache<O> {
    /// Sees to the limits after `fresh` bytes of a run were neither resident nor moved in.
    #[cold]
    pub(super) fn fresh_slow(&self, fresh: usize) {
        self.keeper.wake(self.os());
        // Relaxed: a statistic.
        self.tally.live_peak.fetch_max(self.live(), Ordering::Relaxed);
        if self.since_look.fetch_add(fresh, Ordering::Relaxed) + fresh > LOOK_EVERY {
            self.look_slow();
        }
        let beside = self.heap.beside();
        self.see_beside(self.os().now(), fresh);
        let risen = self.heap.beside().saturating_sub(beside);
        let level = self.heap.level_of_miss();
        let mut limits = self.limits.lock(self.os());
        limits.saw(&level);
        if fresh >= CHUNK {
            limits.missed(level.out_max);
        }
        limits.allocated(0, level.out_max, level.out);
        let (excess, keep, unit) = self.too_much(&limits, &level);
        // A ceiling is hard. Of a peak that is forgotten no less goes than has come, beside us too.
        let come = fresh.saturating_add(risen).saturating_add(SLICE);
        let most = if limits.ceiling().is_some() { excess } else { excess.min(come) };
        drop(limits);
        if most > 0 {
            self.heap.purge_to(keep, most, unit);
        }
    }

    /// Sees to it that what threads have at hand that have less in use does not count as handed out beside `bytes` that are about to be
    /// faulted in, where all of it would be more than ever lately: it goes before there is more.
    pub(super) fn make_room_for(&self, bytes: usize) {
        let most = self.limits.lock(self.os()).total();
        let fits = || self.heap.present().saturating_add(bytes) <= most;
        if !fits() {
            let _fits = self.drain_until(Shard::needs_what_it_holds, || fits().then_some(()));
        }
    }

    /// How much of what is free in the heap has to go, what a purge of it leaves, and in what units it goes. A ceiling is for what
    /// shards hold too; without one that counts as handed out.
    pub(super) fn too_much(&self, limits: &Limits, level: &Level) -> (usize, Keep, Unit) {
        let held = if limits.ceiling().is_some() { self.stacked() } else { 0 };
        let keep = match limits.keep() {
            Keep::Dirty(most) => Keep::Dirty(most.saturating_sub(held)),
            keep => keep,
        };
        (limits.excess(level.out, level.dirty + held), keep, limits.unit())
    }

    /// Tells the limits what has been allocated through a shard, unless they were told something a moment ago.
    #[cold]
    pub(super) fn tick_slow(&self, shard: &Shard) {
        let now = self.os().now();
        // Relaxed, both times: whoever is a moment late tells once more.
        let since = now.saturating_sub(self.last_tick.load(Ordering::Relaxed));
        // A clock that stands still says nothing.
        if since > 0 && since < TELL_AFTER {
            return;
        }
        self.last_tick.store(now, Ordering::Relaxed);
        let bytes = shard.lock(self.os()).take_untold(&shard.counts);
        shard.counts.bound_in_use(self.live());
        self.forget_use(shard, FORGOTTEN);
        self.tell(bytes, now);
    }

    /// As [`Cache::tick_slow`], for what the calling thread has allocated.
    pub(crate) fn tick_here_slow(&self) {
        if let Some(shard) = self.shard_slow() {
            self.tick_slow(shard);
        }
    }

    /// Tells the limits that so many bytes have been allocated, and applies what they say, a slice at a time.
    pub(super) fn tell(&self, bytes: usize, now: u64) {
        self.tally.live_peak.fetch_max(self.live(), Ordering::Relaxed);
        if self.peaks.is_watched() {
            self.peaks.note(self.live(), self.os().resident_in_all().unwrap_or(0) as u64);
        }
        self.keeper.see_to(self.hooks.as_ref());
        self.keeper.wake(self.os());
        // Relaxed, both times: whoever is a moment late looks once more.
        if now.saturating_sub(self.last_look.load(Ordering::Relaxed)) > LOOK_AFTER {
            self.look_slow();
        }
        self.see_beside(now, 0);
        let level = self.heap.level();
        let mut limits = self.limits.lock(self.os());
        limits.saw(&level);
        let ended = limits.allocated(bytes, level.out_max, level.out);
        let remembered = limits.total();
        let (excess, keep, unit) = self.too_much(&limits, &level);
        drop(limits);
        if ended {
            self.forget_asking(remembered);
            // Threads that are idle, or gone, do not tell.
            self.shards().iter().for_each(|shard| self.forget_use(shard, FORGOTTEN_IN_A_WINDOW));
            self.heap.begin_window();
            if self.heap.is_seamed() {
                self.heap.heal_free();
            }
        }
        if excess > 0 {
            let purged = self.heap.purge_to(keep, excess.min(SLICE), unit);
            // Parts of chunks are not worth splitting huge pages for; but more of them than all that may be resident are.
            let stranded = (excess - purged.min(excess)).saturating_sub(remembered);
            if stranded > 0 && purged < SLICE {
                // Each piece is a call, and they may be short.
                let keep = match keep {
                    Keep::Present(most) => Keep::Present(most.saturating_add(remembered)),
                    Keep::Dirty(most) => Keep::Dirty(most.saturating_add(remembered)),
                    Keep::Nothing => keep,
                };
                self.heap.purge_to(keep, stranded.min(SLICE / 8), Unit::Pages);
            }
        }
        // What blocks leave that grow by moving stays open for the next ones; much more than there may be memory serves nobody.
        // Relaxed, both: a hint; whoever comes in between tries once more.
        let open_max = OPEN_TIMES * remembered.max(OPEN_MIN);
        if level.zero > open_max.max(self.unclosable.load(Ordering::Relaxed)) {
            self.heap.close_free(level.zero - open_max / 2);
            // What cannot be closed, in plain mappings, is not tried again until there is as much more of it.
            self.unclosable.store(self.heap.level().zero + OPEN_MIN, Ordering::Relaxed);
        }
    }

    /// Looks at what the container or host has left, and gives up what it needs back.
    #[cold]
    pub(super) fn look_slow(&self) {
        // Relaxed: as in `tick_slow`.
        self.since_look.store(0, Ordering::Relaxed);
        let now = self.os().now();
        self.last_look.store(now, Ordering::Relaxed);
        // One thread at a time, from what it reads to what it gives up: what is missing would go twice, and what is told once, such as
        // that more is swapped, would have been told to who finds another at it. Acquire: pairs with the release below, so that what is
        // read comes after what the last one gave up.
        if self.looks.swap(true, Ordering::Acquire) {
            return;
        }
        let (room, left) = self.os().rooms(self.heap.closed() + self.thin.closed());
        let (host, strain) = (self.os().host_room(), self.os().strain());
        // Relaxed: a hint, see `credit_for`.
        self.memory_left.store(left.unwrap_or(usize::MAX), Ordering::Relaxed);
        let free = self.cached_bytes();
        let mut limits = self.limits.lock(self.os());
        if let Some(room) = room {
            limits.room(room.limit, room.left);
        }
        limits.strain(now, strain, [room, host].map(|room| room.map(|room| (room.limit, room.left))), free);
        let pressed = limits.pressed();
        drop(limits);
        if pressed > 0 {
            self.give_up(pressed, now);
        }
        self.looks.store(false, Ordering::Release);
    }

    /// Gives so many free bytes back to the kernel, whatever is allowed, in pages; and address space, where that is what is short.
    fn give_up(&self, bytes: usize, now: u64) {
        let mut purged = self.heap.purge(bytes, Unit::Pages);
        // What threads have at hand goes last: all of them would come to the heap for the next block.
        if purged < bytes {
            self.drain_to_unmap();
            purged += self.heap.purge(bytes - purged, Unit::Pages);
        }
        let room = self.os().mapping_room(self.heap.closed() + self.thin.closed());
        if room.is_some_and(|room| room.left < Limits::wanted(room.limit)) {
            self.drain_to_unmap();
            self.heap.trim();
            self.thin.trim();
        }
        if purged < bytes {
            self.ask_library_in_need(now);
        }
    }
}
