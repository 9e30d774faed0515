//! An arena used by many threads: blocks never overlap, whoever comes and goes, and nothing is lost.

use std::sync::Barrier;

use zk_nalloc::Arena;
use zk_nalloc::arena::Scope;

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

#[test]
fn what_may_cross_threads_does() {
    is_send::<Arena>();
    is_sync::<Arena>();
    is_send::<zk_nalloc::arena::Worker<'_>>();
    is_send::<zk_nalloc::arena::Scope<'_, '_>>();
    is_sync::<zk_nalloc::arena::Scope<'_, '_>>();
    is_send::<zk_nalloc::arena::Checkpoint<'_>>();
    is_send::<zk_nalloc::TypedArena<u8>>();
}

const THREADS: usize = 4;
const OBJECTS: usize = if cfg!(miri) { 40 } else { 20_000 };

/// Each thread allocates its own numbers, mixed in size; then all are checked.
fn hammer<'a>(arena: &'a Arena, alloc: impl Fn(u64) -> &'a mut [u64] + Sync) {
    let start = Barrier::new(THREADS);
    let slices: Vec<Vec<&mut [u64]>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (start, alloc) = (&start, &alloc);
                scope.spawn(move || {
                    start.wait();
                    (0..OBJECTS).map(|i| alloc((thread * OBJECTS + i) as u64)).collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (expected, slice) in slices.iter().flatten().enumerate() {
        assert!(slice.iter().all(|&x| x == expected as u64), "a block was given to two threads");
    }
    assert!(arena.used() >= slices.iter().flatten().map(|slice| size_of_val(&**slice)).sum());
}

#[test]
fn all_threads_allocate_from_the_arena_itself() {
    let mut arena = Arena::with_capacity(32 << 20).unwrap();
    for _ in 0..3 {
        hammer(&arena, |i| arena.alloc_slice_fill_with((i % 7) as usize + 1, |_| i));
        arena.reset();
    }
}

#[test]
fn single_values_from_all_threads() {
    let mut arena = Arena::with_capacity(32 << 20).unwrap();
    for _ in 0..3 {
        hammer(&arena, |i| std::slice::from_mut(arena.alloc(i)));
        arena.reset();
    }
}

#[test]
fn all_threads_allocate_by_workers_and_by_the_arena_beside_them() {
    let mut arena = Arena::reserve(if cfg!(miri) { 4 << 20 } else { 1 << 30 }).unwrap();
    for _ in 0..3 {
        arena.alloc(1);
        hammer(&arena, |i| {
            let worker = arena.worker_with_chunk(1024);
            worker.alloc(!i);
            worker.alloc_slice_fill_with((i % 7) as usize + 1, |_| i)
        });
        arena.reset();
    }
}

#[test]
fn the_first_thread_may_go_and_others_go_on() {
    let mut arena = Arena::with_capacity(1 << 20).unwrap();
    for round in 0..20_u64 {
        let numbers: Vec<&mut u64> = std::thread::scope(|scope| {
            let first = scope.spawn(|| arena.alloc(round)).join().unwrap();
            let second = scope.spawn(|| arena.alloc(round + 1)).join().unwrap();
            vec![first, second, arena.alloc(round + 2)]
        });
        assert_eq!(numbers, [&round, &(round + 1), &(round + 2)]);
        if round % 3 == 0 {
            arena.reset();
        }
        arena.scope(|scope| {
            let inside = scope.alloc(round);
            std::thread::scope(|threads| _ = threads.spawn(|| scope.alloc(1)).join());
            assert_eq!(*inside, round);
        });
    }
}

/// It fell to what the worker had handed out.
#[test]
fn the_most_that_was_in_use_stays_when_a_worker_goes() {
    let arena = Arena::with_capacity(1 << 20).unwrap();
    let worker = arena.worker();
    worker.alloc(1_u64);
    let most = arena.used();
    assert_eq!((most, arena.high_water()), (64 << 10, most));
    drop(worker);
    assert_eq!((arena.used(), arena.high_water()), (8, most));
}

#[test]
fn an_exhausted_arena_refuses_every_thread() {
    let arena = Arena::with_capacity(64 << 10).unwrap();
    let got: usize = std::thread::scope(|scope| {
        let count = || std::iter::from_fn(|| arena.try_alloc([0_u64; 16]).ok()).count();
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(got <= 512, "no more than there is");
    assert!(got >= 480, "no more is stranded than the first window of a 16th");
}

#[test]
fn what_stays_outside_a_scope_and_what_goes_with_it_share_no_chunk() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build().unwrap();
    let mut arena = Arena::with_capacity(1 << 20).unwrap();
    let mut checkpoint = arena.checkpoint();
    let mut scope = checkpoint.scope();
    let mut stay: Vec<Vec<&mut u64>> = Vec::new();
    const ROUNDS: u64 = if cfg!(miri) { 5 } else { 500 };
    for round in 0..ROUNDS {
        stay.push(pool.broadcast(|_| scope.alloc(round)));
        scope.scope(|inner| {
            pool.broadcast(|_| (0..50).for_each(|i| assert_eq!(*inner.alloc([round, i]), [round, i])));
        });
    }
    for (numbers, round) in stay.iter().zip(0..) {
        assert!(numbers.iter().all(|&&mut number| number == round));
    }
    let least = 8 * THREADS * ROUNDS as usize;
    let used = scope.used();
    assert!((least..2 * least + 4096).contains(&used), "{used} bytes are in use, of {least} asked for");
}

/// Allocates from all threads, before, inside and after a scope within this one, and so on `depth` times.
fn nested(pool: &rayon::ThreadPool, scope: &mut Scope<'_, '_>, depth: u64) {
    for round in 0..2 {
        let before = pool.broadcast(|_| scope.alloc([depth, round, 0]));
        let used = scope.used();
        if depth > 0 {
            scope.scope(|inner| nested(pool, inner, depth - 1));
        }
        assert!(scope.used() >= used, "what a rewind cannot put back is lost, not given twice");
        let after = pool.broadcast(|_| scope.alloc([depth, round, 1]));
        assert!(before.iter().all(|x| **x == [depth, round, 0]));
        assert!(after.iter().all(|x| **x == [depth, round, 1]));
    }
}

#[test]
fn all_threads_allocate_in_scopes_deeper_than_a_seat_can_save() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build().unwrap();
    let mut arena = Arena::with_capacity(if cfg!(miri) { 256 << 10 } else { 4 << 20 }).unwrap();
    for depth in [3, if cfg!(miri) { 4 } else { 9 }] {
        arena.scope(|scope| nested(&pool, scope, depth));
        assert_eq!(arena.used(), 0);
    }
    arena.reset();
    let got = std::iter::from_fn(|| arena.try_alloc([0_u64; 16]).ok()).count() * 128;
    assert_eq!(got, arena.capacity(), "one thread can have it all");
}

#[test]
fn a_new_arena_has_nothing_of_one_that_is_gone() {
    for round in 0..10_u64 {
        let mut arena = Arena::with_capacity(64 << 10).unwrap();
        assert_eq!((arena.used(), arena.high_water()), (0, 0));
        let mut checkpoint = arena.checkpoint();
        let scope = checkpoint.scope();
        let mine = scope.alloc([round; 3]);
        std::thread::scope(|threads| _ = threads.spawn(|| *scope.alloc(round)).join());
        assert_eq!(*mine, [round; 3]);
        std::mem::forget(checkpoint);
        assert_eq!(arena.used(), 32);
    }
    let arena = Arena::with_capacity(64 << 10).unwrap();
    let got = std::iter::from_fn(|| arena.try_alloc([0_u64; 16]).ok()).count() * 128;
    assert_eq!(got, arena.capacity());
}

#[test]
fn threads_that_come_and_go_strand_little() {
    let arena = Arena::with_capacity(1 << 20).unwrap();
    arena.alloc(0);
    let count = if cfg!(miri) { 20 } else { 1000 };
    for i in 0..count {
        std::thread::scope(|scope| _ = scope.spawn(|| arena.alloc(i)).join());
    }
    assert!(arena.used() <= 256 << 10);
    let left = std::iter::from_fn(|| arena.try_alloc([0_u64; 16]).ok()).count() * 128;
    assert!(left >= 768 << 10, "only {left} bytes are left");
}

#[test]
fn the_first_thread_keeps_its_window_when_others_come() {
    let mut arena = Arena::with_capacity(1 << 20).unwrap();
    for _ in 0..3 {
        arena.alloc(0_u64);
        std::thread::scope(|scope| _ = scope.spawn(|| arena.alloc(1_u64)).join());
        let before = arena.used();
        arena.alloc(2_u64);
        arena.alloc_slice_copy(&[3_u64; 4]);
        assert_eq!(arena.used(), before + 8 + 32, "from where it allocated before");
        arena.reset();
        assert_eq!(arena.used(), 0);
    }
}

#[test]
fn arenas_work_in_destructors_of_thread_locals() {
    struct Last(Arena);
    impl Drop for Last {
        fn drop(&mut self) {
            assert_eq!(*self.0.alloc(5), 5);
        }
    }
    thread_local!(static LAST: Last = Last(Arena::with_capacity(1).unwrap()));
    std::thread::spawn(|| LAST.with(|last| _ = last.0.alloc(1))).join().unwrap();
}

/// The first one took all of a small arena.
#[test]
fn a_small_arena_has_room_for_some_workers() {
    let arena = Arena::with_capacity(64 << 10).unwrap();
    let workers: Vec<_> = (0..8).map(|_| arena.worker()).collect();
    for (nth, worker) in workers.iter().enumerate() {
        assert_eq!(*worker.alloc(nth), nth);
    }
    assert!(format!("{:?}", workers[0]).len() < 80);
}
