//! Forks: what is held still before one, and how a child goes on without the threads that are not there.
//!
//! Why it is here: a lock that another thread held when the process forked stays held in the child for ever. Before a fork
//! the heaps are left by everybody and the shards are latched and taken away; in the child all other locks are made free,
//! since what they guard are numbers that steer and a table that begins anew. Invariants: C1 and C2 of `docs/SAFETY.md`.
//! Never here: who registers the handlers (`global`), and how a child is told from its parent (`os::fork`).

#![expect(unsafe_code, reason = "the locks that a fork holds are given back without their guards")]

use super::{Cache, count::add};
use crate::heap::Span;
use crate::os::Os;
use crate::sync::{Guard, atomic::Ordering};

/// Guards the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    pub(super) started: bool,
}

impl Host {
    pub(super) const fn new() -> Self {
        Self { started: false }
    }
}

/// What only the process can do for a cache, on whose `static` these act. None in tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hooks {
    /// Has [`Cache::before_fork`] and what comes after it called around every fork. Called again where a start was refused.
    pub(crate) watch_forks: fn(),
    /// Starts the thread that calls [`Cache::keep`]; says whether that worked.
    pub(crate) start_keeper: fn() -> bool,
    /// Has [`Cache::thread_ended`] called with this number when the calling thread ends; says whether that worked.
    pub(crate) watch_thread: fn(usize) -> bool,
}

impl<O: Os> Cache<O> {
    /// Before a fork: waits until nothing is in transit, and holds all shards.
    pub(crate) fn before_fork(&self) {
        // In a handler that forks, of a child that this one has yet to see to.
        self.see_child();
        // In one of a fork of this thread: all is held already. Or we are registered twice.
        if self.forks_here() {
            // Relaxed, as every use of it: this thread's alone, or its copy's in a child.
            self.forks_within.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Nobody starts meanwhile, or shards that are new would be lost.
        core::mem::forget(self.lock_host());
        self.heap.before_fork();
        // Until the heap is left again no other thread forks. Relaxed: published by the next.
        self.thread_in_fork.store(self.os().thread(), Ordering::Relaxed);
        // Release: pairs with the acquire of whoever sees it, so that he sees whose fork it is.
        self.mark_in_fork.store(self.os().mark(), Ordering::Release);
        self.thin.before_fork();
        if self.is_checked() {
            self.heap.misuse().before_fork(self.os());
        }
        for shard in self.shards() {
            core::mem::forget(shard.lock(self.os()));
        }
        // Handlers that others registered may allocate: this thread then finds no shard and asks the heap.
        // Before they are taken away, so that whoever reads counters finds them in the one place or the other. Release, both: they
        // pair with the acquire of whoever finds it null or, later, not null, and of whoever goes on to look here. Acquire: as in
        // `shards_now`.
        self.shards_in_fork.store(self.home_of_shards().load(Ordering::Acquire), Ordering::Release);
        self.home_of_shards().store(core::ptr::null_mut(), Ordering::Release);
    }

    /// After a fork, in the parent. Does nothing if [`Cache::before_fork`] was not called, as when the handlers were registered
    /// while it forked: a C library that has none to call may let that happen (musl).
    pub(crate) fn after_fork(&self) {
        if !self.forks_here() {
            return;
        }
        let within = self.forks_within.load(Ordering::Relaxed);
        if within > 0 {
            self.forks_within.store(within - 1, Ordering::Relaxed);
            return;
        }
        self.restore_shards();
        for shard in self.shards() {
            // SAFETY: `before_fork` locked it in this thread and forgot the guard.
            unsafe { shard.stacks.unlock_forgotten(self.os()) };
        }
        if self.is_checked() {
            self.heap.misuse().after_fork(self.os());
        }
        // Release: as below.
        self.mark_in_fork.store(0, Ordering::Release);
        self.thin.after_fork();
        self.heap.after_fork();
        // SAFETY: as above.
        unsafe { self.host.unlock_forgotten(self.os()) };
    }

    /// Whether it is this thread that forks.
    pub(super) fn forks_here(&self) -> bool {
        // Acquire: pairs with the release in `before_fork`. Which thread is asked after it, or it might be one of an earlier fork.
        self.mark_in_fork.load(Ordering::Acquire) == self.os().mark()
            && self.thread_in_fork.load(Ordering::Relaxed) == self.os().thread()
    }

    /// To be called before anything else where a request or a free found no shards: in a child whose handler has yet to run,
    /// does what that will do. Handlers that others registered before ours run before it; they may take blocks and give
    /// them back, and whoever held a lock of ours when the process forked does not exist there to open it. Other threads wait
    /// for the end of the fork, in the parent as in a child in which such a handler has started them.
    #[inline]
    pub(crate) fn see_child(&self) {
        if !self.is_ready() {
            self.see_child_slow();
        }
    }

    /// As [`Cache::see_child`], for whoever asks for figures alone: in the process that forks nobody waits for that.
    pub(super) fn see_child_only(&self) {
        // Acquire: as in `see_child_slow`.
        let forked = self.mark_in_fork.load(Ordering::Acquire);
        if forked != 0 && forked != self.os().mark() {
            self.see_child();
        }
    }

    #[cold]
    fn see_child_slow(&self) {
        loop {
            // Acquire: pairs with the releases that begin and end a fork: whose it is, and what that thread has put right.
            let forked = self.mark_in_fork.load(Ordering::Acquire);
            if forked == 0 {
                return;
            }
            if self.thread_in_fork.load(Ordering::Relaxed) == self.os().thread() {
                if forked != self.os().mark() {
                    self.see_to_child();
                }
                return;
            }
            self.os().nap();
        }
    }

    /// After a fork, in the child, on the thread that forked. Does nothing where [`Cache::see_child`] has done it, or this
    /// itself: a process is a child once.
    pub(crate) fn after_fork_in_child(&self) {
        // Relaxed, as every use of it: written by the thread that forked, which this is. Another one of this process that forks
        // meanwhile has what it holds.
        if self.seen.load(Ordering::Relaxed) != self.os().mark() || self.forks_here() {
            self.see_to_child();
        }
    }

    /// Threads that handlers of others have started wait until this is done ([`Cache::see_child`]): shards come last.
    fn see_to_child(&self) {
        let here = self.os().mark();
        self.seen.store(here, Ordering::Relaxed);
        self.trace.after_fork_in_child(self.os());
        self.peaks.forget_all();
        self.vacate_in_child();
        // Relaxed: this is the only thread.
        self.looks.store(false, Ordering::Relaxed);
        // None were taken away where no handler ran before the fork. Acquire: as in `before_fork`.
        let is_seen_begin = self.mark_in_fork.load(Ordering::Relaxed) != 0;
        let shards =
            if is_seen_begin { self.shards_in_fork.load(Ordering::Acquire) } else { self.shards_now() };
        let shards = self.all_of(shards);
        for shard in shards {
            shard.stacks.reset_in_child();
        }
        // Whoever held these does not exist here. What they guard are numbers that steer, none of which can be
        // wrong enough to matter, and a table that begins anew.
        self.limits.reset_in_child();
        self.beside.heaps.reset_in_child();
        self.keeper.reset_in_child();
        self.host.reset_in_child();
        // Nobody starts, or forks, before this is done.
        let host = self.lock_host();
        self.zeroing.leave_all();
        self.untouched.reset_in_child();
        self.untouched.lock(self.os()).clear();
        self.heap.misuse().after_fork_in_child(self.os());
        self.thin.reset_in_child();
        self.thin.after_fork_in_child();
        self.heap.reset_in_child();
        self.heap.expect_absent(0);
        // What lies in stacks is shared with the parent too.
        for shard in shards {
            self.drain_shard(shard);
        }
        self.heap.after_fork_in_child();
        self.forks_within.store(0, Ordering::Relaxed);
        self.restore_shards();
        // Release: pairs with the acquire in `see_child_slow`.
        self.mark_in_fork.store(0, Ordering::Release);
        drop(host);
    }

    /// Puts the shards back, if they were taken away.
    fn restore_shards(&self) {
        if self.mark_in_fork.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Acquire and release: as in `before_fork`.
        self.home_of_shards().store(self.shards_in_fork.load(Ordering::Acquire), Ordering::Release);
    }

    /// Takes back a block from a handler that runs while this thread forks, or from a thread that waits for
    /// another one's fork to end.
    #[cold]
    pub(super) fn give_while_forking(&self, span: Span, requested: usize) {
        add(&self.tally.frees_in_fork, u64::from(requested > 0));
        add(&self.tally.live_in_fork, (requested as u64).wrapping_neg());
        // Another thread may hold the table, and not be there any more: then the note stands until its place is needed.
        if let Some(mut table) = self.untouched.try_lock(self.os()) {
            let before = table.credit();
            let noted = table.forget(span.start);
            noted.iter().for_each(|noted| table.settle(noted));
            self.note_credit(before, table.credit());
            drop(table);
            if let Some(noted) = noted {
                self.zeroing.leave(noted.kind);
            }
        }
        if self.is_thin(span) {
            self.thin.give_purged(span, 0);
        } else {
            self.heap.give(&[span], 0);
        }
    }

    /// Takes the lock of the start. In a child of a process in which a thread was just starting the cache, with no handler
    /// registered yet, that thread does not exist: whatever it had locked is free then, and all begins anew.
    pub(super) fn lock_host(&self) -> Guard<'_, Host, O> {
        /// Somebody sees to that.
        const BUSY: u64 = u64::MAX;
        let here = self.os().mark();
        loop {
            // Acquire: pairs with the release below, so that whoever finds the locks free finds them so.
            match self.mark_in_start.load(Ordering::Acquire) {
                // Before the lock is taken, or a fork in between would leave one that nobody knows of. Relaxed: every thread
                // of a process stores the same.
                0 => self.mark_in_start.store(here, Ordering::Relaxed),
                mark if mark == here => return self.host.lock(self.os()),
                BUSY => self.os().nap(),
                gone => {
                    // Acquire: as above. Whoever loses looks again.
                    let mine =
                        self.mark_in_start.compare_exchange(gone, BUSY, Ordering::Acquire, Ordering::Relaxed);
                    if mine.is_ok() {
                        self.host.reset_in_child();
                        // Once all has begun these are threads' of this process, whatever its fork left of them.
                        if !self.has_started() {
                            self.heap.reset_in_child();
                            self.thin.reset_in_child();
                            self.limits.reset_in_child();
                            self.beside.heaps.reset_in_child();
                        }
                        self.mark_in_start.store(here, Ordering::Release);
                    }
                }
            }
        }
    }
}
