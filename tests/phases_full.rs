//! Phases where all places are taken, in a process of their own: what finds none is counted for good.

use std::thread;

use zk_nalloc::{NAlloc, Phase, PhaseGuard, begin_phase_named, end_phase};

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

/// The number of those that found no place was one for all threads: this thread's end was taken for the other's.
#[test]
fn a_thread_ends_its_own_phase_whoever_has_begun_one_without_a_place() {
    begin_phase_named("mine");
    let guards: Vec<_> = (0..511).map(|_| PhaseGuard::named("filling")).collect();
    let other = thread::spawn(|| {
        begin_phase_named("placeless");
    });
    other.join().unwrap();
    drop(guards);
    end_phase();
    assert_eq!(Phase::named("mine").report().count(), 1);
}
