//! The shards: where they lie, and which of them a thread uses.
//!
//! One for good: the first that no living thread was given so, as what a thread has gone over that has ended is in the caches,
//! and what others have that live is theirs. Where all are given, or nobody tells of the end of a thread, in turn. Which one it is
//! matters to speed alone; when a thread ends, its number is given back, and nothing else is to be undone (C1). Never here: what is in a shard, or
//! what the table of homes says.

#![expect(unsafe_code, reason = "the shards live in memory mapped by the os layer")]

use core::cell::Cell;

use super::homes::Homes;
use super::shard::Shard;
use super::{Cache, SHARDS_MAX};
use crate::os::{GRANULE, Os};
use crate::sync::atomic::Ordering;
use crate::sync::{NOBODY, Numbers};

/// What a thread that is given a shard in turn is watched as, in place of the number of one of its own.
const IN_TURN: usize = SHARDS_MAX + 1;

/// A set of shards by their numbers, from one on.
pub(super) type Given = Numbers<{ SHARDS_MAX / 64 }>;

#[cfg(all(test, loom))]
loom::thread_local! {
    pub(super) static SHARD: Cell<usize> = Cell::new(0);
}

#[cfg(not(all(test, loom)))]
thread_local! {
    /// Which shard this thread uses, plus one; 0 before it has one. Without a destructor, so that it can be
    /// read while a thread ends; a thread that ends leaves nothing behind (C1).
    pub(super) static SHARD: Cell<usize> = const { Cell::new(0) };
}

/// Which shard a thread uses, if it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mine(usize);

impl Mine {
    /// The calling thread's. To be asked first of all: in a library compiled for any place in a program it is a call, over which
    /// registers are saved, and the linker replaces that later.
    #[inline]
    pub(crate) fn now() -> Self {
        Self(SHARD.with(Cell::get))
    }
}

/// Maps memory for so many shards, and behind them for the table of homes, and writes the shards there; `None` if the kernel refuses.
pub(super) fn map<O: Os>(os: &O, page: usize, count: usize) -> Option<(*mut Shard, *mut Homes)> {
    let bytes = (count * size_of::<Shard>()).next_multiple_of(page.max(GRANULE));
    let address = os.map(bytes + Homes::BYTES, GRANULE).ok()?;
    let shards: *mut Shard = core::ptr::with_exposed_provenance_mut(address);
    for i in 0..count {
        // SAFETY: the mapping is fresh, ours, aligned to a page and long enough for `count` shards.
        unsafe { shards.add(i).write(Shard::new(i as u32 + 1)) };
    }
    Some((shards, core::ptr::with_exposed_provenance_mut(address + bytes)))
}

impl<O: Os> Cache<O> {
    /// The shards, wherever they are kept; null before the first request and while a thread forks.
    pub(super) fn shards_now(&self) -> *mut Shard {
        // Acquire: pairs with the release in `start`, so that the shards and settings are seen whole.
        let shards = self.steady.shards.load(Ordering::Acquire);
        if shards.is_null() { self.shards_careful.load(Ordering::Acquire) } else { shards }
    }

    /// All shards; none before the first request.
    pub(super) fn shards(&self) -> &[Shard] {
        self.all_of(self.shards_now())
    }

    /// All shards, for whoever reads their counters alone: also while a thread forks, and holds their latches.
    pub(super) fn counted(&self) -> &[Shard] {
        let shards = self.shards_now();
        // Acquire: pairs with the release in `before_fork`, which comes before they are taken away.
        self.all_of(if shards.is_null() { self.shards_in_fork.load(Ordering::Acquire) } else { shards })
    }

    /// All of `shards`, which are all there are, or null.
    pub(super) fn all_of(&self, shards: *mut Shard) -> &[Shard] {
        if shards.is_null() {
            return &[];
        }
        // SAFETY: `map` wrote `shard_count` shards there before `start` published the pointer, for ever; they
        // are shared, and all that changes in them is behind a lock or atomic.
        unsafe { core::slice::from_raw_parts(shards, self.steady.shard_count.load(Ordering::Relaxed)) }
    }

    /// The table of homes, by whoever has one of this cache's shards, whichever.
    #[inline]
    pub(super) fn homes(&self, _seen: &Shard) -> &Homes {
        // Relaxed: `start` stores it before the shards, by a release that pairs with the acquire by which the caller got its shard.
        let homes = self.steady.homes.load(Ordering::Relaxed);
        // SAFETY: a cache has shards only once `start` has published what `map` gave, and stored this pointer before: so it is not null, but
        // into that mapping, at a multiple of a granule, with `Homes::BYTES` behind it, which nobody unmaps (O2). The mapping was zero, and
        // zeros are a table of atomics; nobody ever has it but shared.
        unsafe { &*homes }
    }

    /// The calling thread's shard, once the cache is ready, unless all have to take the slow path.
    #[inline]
    pub(super) fn shard(&self) -> Option<&Shard> {
        // Acquire: pairs with the release in `start`.
        self.shard_of(self.steady.shards.load(Ordering::Acquire))
    }

    /// As [`Cache::shard`], if the thread has had one before: without a call.
    #[inline]
    pub(super) fn shard_at_hand(&self, mine: Mine) -> Option<&Shard> {
        // Acquire: pairs with the release in `start`.
        let shards = self.steady.shards.load(Ordering::Acquire);
        if mine.0 == 0 || shards.is_null() { None } else { Some(self.nth_of(shards, mine.0)) }
    }

    /// The calling thread's shard, once the cache is ready.
    pub(super) fn shard_slow(&self) -> Option<&Shard> {
        self.shard_of(self.shards_now())
    }

    /// The calling thread's one of `shards`, which are all there are, or null.
    #[inline]
    fn shard_of(&self, shards: *mut Shard) -> Option<&Shard> {
        if shards.is_null() {
            return None;
        }
        let mut mine = SHARD.with(Cell::get);
        if mine == 0 {
            mine = self.assign_slow();
        }
        Some(self.nth_of(shards, mine))
    }

    /// The shard of the thread whose number is `mine`, from one on, among `shards`, which are all there are, and not null.
    #[inline]
    fn nth_of(&self, shards: *mut Shard, mine: usize) -> &Shard {
        // The count is a power of two; another cache, in a test, may have fewer shards.
        let mask = self.steady.shard_count.load(Ordering::Relaxed) - 1;
        // SAFETY: as in `all_of`: both callers have seen that there are any, and the masked index is under the count, whatever
        // `mine` is.
        unsafe { &*shards.add(mine.wrapping_sub(1) & mask) }
    }

    #[cold]
    fn assign_slow(&self) -> usize {
        let mine = self.take_vacant().unwrap_or_else(|| self.take_in_turn());
        SHARD.with(|shard| shard.set(mine));
        mine
    }

    /// Gives the calling thread a shard that others have too, by its number. It counts as living until it is told of, if ever.
    fn take_in_turn(&self) -> usize {
        // Relaxed, both: hints, and any distribution is right, an even one is fast.
        self.in_turn.fetch_add(1, Ordering::Relaxed);
        let _is_told_of = self.hooks.as_ref().is_some_and(|hooks| (hooks.watch_thread)(IN_TURN));
        self.next.fetch_add(1, Ordering::Relaxed) % SHARDS_MAX + 1
    }

    /// Whether threads live, as far as is known, that were given shards in turn: whose those are is not known.
    pub(super) fn has_in_turn(&self) -> bool {
        // Relaxed: a hint.
        self.in_turn.load(Ordering::Relaxed) > 0
    }

    /// Gives the calling thread a shard, by its number, that no living thread was given so. `None` where there is none, or it
    /// would not be known when this thread ends. Takes no lock of ours.
    fn take_vacant(&self) -> Option<usize> {
        let hooks = self.hooks.as_ref()?;
        // Relaxed: published by the release store of `shards`, which the caller has seen.
        let number = self.given.take(self.steady.shard_count.load(Ordering::Relaxed));
        if number == NOBODY {
            return None;
        }
        if !(hooks.watch_thread)(number) {
            self.given.give_back(number);
            return None;
        }
        // Where some were given in turn as well, what is in use may be theirs.
        if !self.has_in_turn()
            && let Some(shard) = self.shards().get(number - 1)
        {
            shard.counts.note_taken_over();
        }
        Some(number)
    }

    /// The thread ends that was watched as this number. What it does yet it does in the shard that it has, as whoever shares it would.
    pub(crate) fn thread_ended(&self, number: usize) {
        match number {
            1..=SHARDS_MAX => self.given.give_back(number),
            // Relaxed: a hint, which a child begins anew.
            IN_TURN => {
                let less = |count: usize| count.checked_sub(1);
                let _count = self.in_turn.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            }
            _ => {}
        }
    }

    /// In a child, which has but one thread: all shards are vacant but its own.
    pub(super) fn vacate_in_child(&self) {
        self.given.clear();
        // Whoever was given one in turn is not here. Relaxed, both: hints.
        self.next.store(0, Ordering::Relaxed);
        self.in_turn.store(0, Ordering::Relaxed);
        let mine = SHARD.with(Cell::get);
        // Relaxed: set once, and this thread's own process's.
        let count = self.steady.shard_count.load(Ordering::Relaxed);
        if mine != 0 && count > 0 {
            // It may have been given this one in turn; then it is given to nobody else but in turn.
            self.given.add((mine - 1) % count + 1);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::alloc::Layout;

    use super::*;
    use crate::cache::Hooks;
    use crate::config::Config;
    use crate::geometry::Block;
    use crate::os::fake::Fake;

    const MIB: usize = 1 << 20;

    /// A cache that has started on four processors, so that it has eight shards.
    fn started(watch_thread: fn(usize) -> bool) -> Box<Cache<Fake>> {
        let os = Fake::new(2 << 30);
        os.set_facts(|facts| (facts.ram, facts.cpus) = (1 << 20, 4));
        let hooks = Hooks { watch_forks: || {}, start_keeper: || false, watch_thread };
        let cache = Box::new(Cache::with_reserve(os.clone(), os, 512 * MIB, Some(hooks)));
        assert!(cache.start(&Config::new()).is_some_and(|started| started.first));
        assert_eq!(cache.shards().len(), 8);
        cache
    }

    /// Does something on a thread that has no shard yet. Gives the number of the one that it is given.
    fn anew(cache: &Cache<Fake>, then: impl FnOnce() + Send) -> usize {
        let life = || {
            assert!(cache.shard_slow().is_some());
            then();
            SHARD.get()
        };
        std::thread::scope(|scope| scope.spawn(life).join().unwrap())
    }

    #[test]
    fn who_begins_is_given_the_first_shard_that_no_living_thread_was_given() {
        // Nobody has ended who is not said to have.
        let cache = started(|_| true);
        let next = || anew(&cache, || {});
        assert!((1..=8).all(|number| next() == number));
        cache.thread_ended(3);
        cache.thread_ended(2);
        assert_eq!([next(), next()], [2, 3]);
        // All are given: from now on in turn.
        assert_eq!([next(), next(), next()], [1, 2, 3]);
        cache.thread_ended(8);
        assert_eq!([next(), next()], [8, 4]);
        // Numbers that nobody has are nobody's.
        for number in [0, IN_TURN + 1, usize::MAX] {
            cache.thread_ended(number);
        }
        assert_eq!(next(), 5);
    }

    #[test]
    fn where_nobody_tells_of_ends_shards_are_given_in_turn() {
        let cache = started(|_| false);
        let next = || anew(&cache, || {});
        assert!((1..=16).all(|number| next() == number));
        assert_eq!(cache.given.iter().count(), 0);
    }

    /// What threads that have ended left to others counted as in use by those that came after them, for ever: what these
    /// freed was not merged, and no thread stole from them.
    #[test]
    fn what_was_left_in_use_is_no_business_of_the_next_thread() {
        let cache = started(|_| true);
        let first = anew(&cache, || {
            cache.count_taken(100 * MIB);
        });
        assert_eq!((first, cache.shards()[0].counts.in_use()), (1, 100 * MIB));
        cache.thread_ended(first);
        let second = anew(&cache, || {
            assert_eq!(cache.shards()[0].counts.in_use(), 0);
            cache.count_taken(MIB);
        });
        assert_eq!((second, cache.shards()[0].counts.in_use()), (1, MIB));
        assert_eq!(cache.live(), 101 * MIB as u64);
    }

    /// Once more of them had lived than there are shards, all was taken for in use that any left, for as long as the process lived.
    #[test]
    fn threads_that_were_given_shards_in_turn_are_forgotten_when_they_have_ended() {
        let cache = started(|_| true);
        let next = || anew(&cache, || {});
        assert!((1..=8).all(|number| next() == number));
        assert_eq!([next(), next()], [1, 2]);
        for (ended, begins_anew) in [(0, false), (IN_TURN, false), (IN_TURN, true), (IN_TURN, true)] {
            let _from_before = cache.shards()[7].counts.forget_taken_over();
            cache.thread_ended(ended);
            cache.thread_ended(8);
            assert_eq!((next(), cache.shards()[7].counts.is_taken_over()), (8, begins_anew));
        }
    }

    /// Long blocks that one thread took and another freed left the one with ever more in use, and the other with ever less than nothing.
    #[test]
    fn no_thread_has_more_in_use_than_all_have_nor_less_than_nothing() {
        let cache = started(|_| true);
        let one = anew(&cache, || {
            cache.count_taken(100 * MIB);
        });
        let other = anew(&cache, || {
            cache.count_taken(MIB);
            // Those of the first one.
            cache.shard_slow().unwrap().counts.note_freed(100 * MIB);
        });
        assert_eq!((one, other), (1, 2));
        let [first, second] = [0, 1].map(|index| &cache.shards()[index]);
        assert_eq!([first, second].map(|shard| shard.counts.balance()), [100, -99].map(|mib| mib << 20));
        [first, second].into_iter().for_each(|shard| cache.tick_slow(shard));
        assert_eq!([first, second].map(|shard| shard.counts.balance()), [1 << 20, 0]);
        assert_eq!(cache.live(), MIB as u64);
    }

    /// It went on behind what the one before had gone over.
    #[test]
    fn the_next_thread_begins_where_the_last_one_has_been() {
        const KIB: usize = 1 << 10;
        let cache = started(|_| true);
        let take = |bytes: usize| {
            let block = Block::of(Layout::from_size_align(bytes, 8).unwrap()).unwrap();
            let at_hand = cache.take(block.class.unwrap(), bytes).map(|(start, _)| start);
            let start = at_hand.or_else(|| cache.take_slow(block, bytes, false).map(|handed| handed.start));
            (start.unwrap(), block)
        };
        let mut left = Vec::new();
        let first = anew(&cache, || {
            let blocks = [(); 4].map(|()| take(128 * KIB));
            for &(start, block) in &blocks[1..] {
                assert!(cache.give(start, block, 128 * KIB));
            }
            left.push(blocks[1].0);
        });
        cache.thread_ended(first);
        assert_eq!(anew(&cache, || left.push(take(260 * KIB).0)), first);
        assert_eq!(left[0], left[1]);
    }

    /// Where that was no block of a class, the one before went on.
    #[test]
    fn whatever_a_thread_does_first_it_begins_anew() {
        let cache = started(|_| true);
        let layout = Layout::from_size_align(128 << 10, 8).unwrap();
        let (block, long) = (Block::of(layout).unwrap(), Layout::from_size_align(9 * MIB, 8).unwrap());
        let start = || cache.take_slow(block, 128 << 10, false).unwrap().start;
        let given = start();
        let begins: [&(dyn Fn() + Sync); 3] =
            [&|| cache.expect_growth(layout), &|| assert!(cache.give(given, block, 128 << 10)), &|| {
                assert!(cache.take_slow(Block::of(long).unwrap(), 9 * MIB, false).is_some())
            }];
        let first = anew(&cache, || ());
        for begin in begins {
            cache.thread_ended(first);
            let then = || {
                assert!(cache.shards()[first - 1].counts.is_taken_over());
                begin();
                assert!(!cache.shards()[first - 1].counts.is_taken_over());
            };
            assert_eq!(anew(&cache, then), first);
        }
    }

    #[test]
    fn in_a_child_a_shard_that_was_given_in_turn_is_not_vacant() {
        let cache = started(|_| true);
        let given: Vec<usize> = (0..11).map(|_| anew(&cache, || {})).collect();
        assert_eq!(given[8..], [1, 2, 3]);
        assert!(cache.shard_slow().is_some());
        // The fourth in turn, of eight.
        assert_eq!(SHARD.get(), 4);
        SHARD.set(4 + 8 * 3);
        cache.before_fork();
        cache.os().become_child();
        cache.after_fork_in_child();
        assert!(cache.given.iter().eq([4]));
    }

    #[test]
    fn in_a_child_all_shards_but_its_own_are_vacant() {
        let cache = started(|_| true);
        assert!((1..=5).all(|number| anew(&cache, || {}) == number));
        assert!(cache.shard_slow().is_some());
        assert_eq!(SHARD.get(), 6);
        cache.before_fork();
        cache.os().become_child();
        cache.after_fork_in_child();
        assert!(cache.given.iter().eq([6]));
        assert!([1, 2, 3, 4, 5, 7].into_iter().all(|number| anew(&cache, || {}) == number));
    }
}
