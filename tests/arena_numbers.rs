//! Threads in turns, and more of them at once than an arena has seats for. Alone in its process: who has which number matters.

#![cfg(not(any(miri, loom)))]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{Builder, scope, sleep};
use std::time::Duration;

use zk_nalloc::Arena;

/// There are seats for 448.
const THREADS: usize = 500;
const OBJECTS: usize = 40;

#[test]
fn threads_in_turns_share_a_seat_and_those_without_one_allocate_from_the_counter() {
    a_thread_goes_on_where_the_one_before_it_ended();
    threads_without_a_seat_allocate_from_the_counter();
}

fn a_thread_goes_on_where_the_one_before_it_ended() {
    let arena = Arena::with_capacity(1 << 20).unwrap();
    let address = |i| std::ptr::from_mut(arena.alloc::<u64>(i)).addr();
    let in_turns = (0..100).map(|i| scope(|scope| scope.spawn(|| address(i)).join().unwrap()));
    let addresses: Vec<usize> = in_turns.collect();
    assert!(addresses.windows(2).all(|two| two[1] == two[0] + 8), "{addresses:x?}");
    assert_eq!(arena.used(), 800);
}

fn threads_without_a_seat_allocate_from_the_counter() {
    let mut arena = Arena::with_capacity(16 << 20).unwrap();
    let (began, go) = (AtomicUsize::new(0), AtomicBool::new(false));
    let run = |thread: usize| {
        // From here to the end each has a number, or there is none left for it.
        let first = arena.alloc([thread, 0]);
        began.fetch_add(1, SeqCst);
        while !go.load(SeqCst) {
            sleep(Duration::from_millis(1));
        }
        let others = (1..OBJECTS).map(|i| arena.alloc([thread, i]));
        std::iter::once(first).chain(others).collect::<Vec<_>>()
    };
    let all: Vec<Vec<&mut [usize; 2]>> = scope(|scope| {
        let run = &run;
        let spawn = |thread| Builder::new().stack_size(64 << 10).spawn_scoped(scope, move || run(thread));
        let threads: Vec<_> = (0..THREADS).map_while(|thread| spawn(thread).ok()).collect();
        while began.load(SeqCst) < threads.len() {
            sleep(Duration::from_millis(1));
        }
        go.store(true, SeqCst);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    if all.len() < THREADS {
        eprintln!("skipped: the system refuses a process of {THREADS} threads");
    }
    for (thread, values) in all.iter().enumerate() {
        assert!(values.iter().enumerate().all(|(i, value)| **value == [thread, i]));
    }
    let asked = all.len() * OBJECTS * 16;
    assert!((asked..2 * asked).contains(&arena.used()), "{} bytes are in use, of {asked}", arena.used());
    arena.reset();
    let got = std::iter::from_fn(|| arena.try_alloc([0_u64; 16]).ok()).count() * 128;
    assert_eq!(got, arena.capacity(), "one thread can have it all");
}
