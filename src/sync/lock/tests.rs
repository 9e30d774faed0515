//! The lock excludes, wakes and publishes: by real threads, and in every order that loom can think of.

use super::*;

/// What the tests share: a number that two threads at once would spoil.
fn add_one<P: Park>(lock: &Lock<usize>, park: &P) {
    let mut guard = lock.lock(park);
    let before = *guard;
    *guard = before + 1;
}

#[cfg(not(loom))]
mod threads {
    use super::*;
    use core::mem::forget;
    use std::sync::atomic::AtomicUsize;

    /// Sleeps by yielding, and counts.
    #[derive(Default)]
    struct Yield {
        waits: AtomicUsize,
        wakes: AtomicUsize,
    }

    impl Park for Yield {
        fn wait(&self, word: &AtomicU32, expected: u32) {
            self.waits.fetch_add(1, Ordering::Relaxed);
            while word.load(Ordering::Relaxed) == expected {
                std::thread::yield_now();
            }
        }

        fn wake_one(&self, _: &AtomicU32) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
        }

        fn nap(&self) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_at_a_time_with_naps() {
        const THREADS: usize = 4;
        const ROUNDS: usize = if cfg!(miri) { 50 } else { 20_000 };
        static LATCH: Latch<usize> = Latch::new(0);
        let park = Yield::default();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..ROUNDS).for_each(|_| *LATCH.lock(&park) += 1));
            }
        });
        assert_eq!(*LATCH.lock(&park), THREADS * ROUNDS);
        assert_eq!((park.waits.into_inner(), park.wakes.into_inner()), (0, 0));
    }

    #[test]
    fn one_at_a_time() {
        const THREADS: usize = 4;
        const ROUNDS: usize = if cfg!(miri) { 50 } else { 20_000 };
        static LOCK: Lock<usize> = Lock::new(0);
        let park = Yield::default();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..ROUNDS).for_each(|_| add_one(&LOCK, &park)));
            }
        });
        assert_eq!(*LOCK.lock(&park), THREADS * ROUNDS);
    }

    #[test]
    fn without_contention_nobody_is_asked_to_wait_or_to_wake() {
        let (lock, park): (Lock<_>, _) = (Lock::new(0), Yield::default());
        (0..1000).for_each(|_| add_one(&lock, &park));
        assert_eq!(*lock.lock(&park), 1000);
        assert_eq!((park.waits.into_inner(), park.wakes.into_inner()), (0, 0));
    }

    #[test]
    fn a_refused_try_leaves_the_lock_held() {
        let (lock, park): (Lock<_>, _) = (Lock::new(7), Yield::default());
        let guard = lock.lock(&park);
        for _ in 0..3 {
            assert!(lock.try_lock(&park).is_none());
        }
        drop(guard);
        assert_eq!(lock.try_lock(&park).as_deref(), Some(&7));
        assert!(lock.try_lock(&park).is_some());
    }

    #[test]
    fn a_forgotten_guard_can_be_given_back() {
        let (lock, park): (Lock<_>, _) = (Lock::new(1), Yield::default());
        forget(lock.lock(&park));
        assert!(lock.try_lock(&park).is_none());
        // SAFETY: the guard was forgotten just now.
        unsafe { lock.unlock_forgotten(&park) };
        assert!(lock.try_lock(&park).is_some());
    }

    #[test]
    fn it_is_four_bytes_beside_its_data() {
        assert_eq!(size_of::<Lock<()>>(), 4);
        assert_eq!(size_of::<Lock<u64>>(), 16);
    }
}

#[cfg(loom)]
mod loom_orders {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// A futex: looking at the word and falling asleep are one step, by a mutex of its own.
    struct Futex {
        queue: Mutex<()>,
        woken: Condvar,
    }

    impl Futex {
        fn new() -> Self {
            Self { queue: Mutex::new(()), woken: Condvar::new() }
        }
    }

    impl Park for Futex {
        fn wait(&self, word: &AtomicU32, expected: u32) {
            let queue = self.queue.lock().unwrap();
            // Relaxed: the queue's mutex orders this look with the wake that follows a change.
            if word.load(Ordering::Relaxed) == expected {
                drop(self.woken.wait(queue).unwrap());
            }
        }

        fn wake_one(&self, _: &AtomicU32) {
            let _queue = self.queue.lock().unwrap();
            self.woken.notify_one();
        }

        fn nap(&self) {
            thread::yield_now();
        }
    }

    #[test]
    fn loom_latches_exclude_and_publish() {
        model(3, || {
            let ours = Arc::new((Latch::new(0_usize), Futex::new()));
            let theirs = ours.clone();
            let other = thread::spawn(move || *theirs.0.lock(&theirs.1) += 1);
            *ours.0.lock(&ours.1) += 1;
            other.join().unwrap();
            assert_eq!(*ours.0.lock(&ours.1), 2);
        });
    }

    fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(test);
    }

    type Shared = Arc<(Lock<usize>, Futex)>;

    fn share() -> (Shared, Shared) {
        let shared = Arc::new((Lock::new(0), Futex::new()));
        (shared.clone(), shared)
    }

    #[test]
    fn loom_two_threads_exclude_each_other() {
        model(5, || {
            let (ours, theirs) = share();
            let other = thread::spawn(move || add_one(&theirs.0, &theirs.1));
            add_one(&ours.0, &ours.1);
            other.join().unwrap();
            assert_eq!(*ours.0.lock(&ours.1), 2);
        });
    }

    /// Loom reports a sleeper that nobody wakes as a deadlock.
    #[test]
    fn loom_no_wake_up_is_lost_among_three() {
        model(3, || {
            let (ours, theirs) = share();
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let theirs = theirs.clone();
                    thread::spawn(move || add_one(&theirs.0, &theirs.1))
                })
                .collect();
            add_one(&ours.0, &ours.1);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(*ours.0.lock(&ours.1), 3);
        });
    }

    #[test]
    fn loom_a_try_beside_a_holder_takes_or_leaves() {
        model(5, || {
            let (ours, theirs) = share();
            let other = thread::spawn(move || add_one(&theirs.0, &theirs.1));
            let mine = ours.0.try_lock(&ours.1).map(|mut guard| *guard += 1).is_some();
            other.join().unwrap();
            assert_eq!(*ours.0.lock(&ours.1), 1 + usize::from(mine));
        });
    }
}
