//! Phases in a process of their own: none left open by others, every allocation counted.

#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait, and a child is forked")]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use zk_nalloc::{NAlloc, Phase, PhaseGuard, begin_phase, begin_phase_named, end_phase, phase, phases};

/// Ours, counting what is asked of it.
struct Counting {
    ours: NAlloc,
    requests: AtomicUsize,
}

#[global_allocator]
static GLOBAL: Counting = Counting { ours: NAlloc::new(), requests: AtomicUsize::new(0) };

// SAFETY: everything is passed on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.requests.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as our caller promised.
        unsafe { self.ours.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: as our caller promised.
        unsafe { self.ours.dealloc(p, layout) }
    }
}

/// What is open, and what is allocated, is the whole process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn phases_allocate_nothing() {
    let _alone = alone();
    // The harness of the tests may allocate meanwhile, in another thread: once in many rounds nothing is.
    let least = (0..20)
        .map(|_| {
            let before = GLOBAL.requests.load(Ordering::Relaxed);
            for _ in 0..100 {
                phase(|| drop(PhaseGuard::named("nothing")));
                begin_phase_named("nothing, begun");
                end_phase();
                assert!(phases().all(|p| !p.name().is_empty()));
            }
            GLOBAL.requests.load(Ordering::Relaxed) - before
        })
        .min();
    assert_eq!(least, Some(0));
}

#[test]
fn an_end_without_a_begin_is_nothing() {
    let _alone = alone();
    end_phase();
    let outer = PhaseGuard::named("guarded");
    end_phase();
    assert_eq!(Phase::named("guarded").report().count(), 0, "guards end with guards");
    drop(outer);
    assert_eq!(Phase::named("guarded").report().count(), 1);
}

#[test]
fn the_last_of_this_thread_ends_first_then_the_last_of_any() {
    let _alone = alone();
    let count = |name| Phase::named(name).report().count();
    begin_phase_named("a");
    begin_phase_named("b");
    thread::spawn(|| {
        begin_phase_named("c");
        begin_phase_named("d");
    })
    .join()
    .unwrap();
    end_phase();
    assert_eq!(["a", "b", "c", "d"].map(count), [0, 1, 0, 0]);
    thread::spawn(|| {
        end_phase();
        end_phase();
    })
    .join()
    .unwrap();
    // The thread of c and d is gone; another one with its address may have come.
    assert_eq!(["a", "b", "c", "d"].map(count), [0, 1, 1, 1]);
    end_phase();
    assert_eq!(["a", "b", "c", "d"].map(count), [1, 1, 1, 1]);
}

#[test]
fn more_open_phases_than_places_are_missed_and_said_so() {
    let _alone = alone();
    let deep = 600;
    let guards: Vec<_> = (0..deep).map(|_| PhaseGuard::named("deep")).collect();
    begin_phase_named("too deep");
    end_phase();
    drop(guards);
    assert_eq!((Phase::named("deep").report().count(), Phase::named("too deep").report().count()), (512, 0));
    assert!(phases().to_string().contains("89 phases were not measured"), "{}", phases());
    // All places are free again.
    for _ in 0..deep {
        begin_phase_named("again");
    }
    for _ in 0..deep {
        end_phase();
    }
    assert_eq!(Phase::named("again").report().count(), 512);
}

#[test]
fn a_forked_child_measures_anew() {
    let _alone = alone();
    begin_phase();
    // SAFETY: the child allocates nothing that another thread could have locked, and exits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            end_phase();
            let before = Phase::named("forked").report().faults();
            let guard = PhaseGuard::named("forked");
            let touched = [1_u8; 1 << 18];
            std::hint::black_box(&touched);
            std::thread::sleep(std::time::Duration::from_millis(1));
            drop(guard);
            let faults = Phase::named("forked").report().faults() - before;
            libc::_exit(i32::from(faults == 0 || faults > 100_000));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
    end_phase();
}

/// A child's phase took the place of one that its parent had left open, and was ended twice.
#[test]
fn what_a_parent_left_open_is_no_phase_of_its_child() {
    let _alone = alone();
    let count = |name| Phase::named(name).report().count();
    begin_phase_named("left open");
    let guard = PhaseGuard::named("held");
    // SAFETY: the child allocates nothing that another thread could have locked, and exits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            begin_phase_named("of the child");
            let block = vec![1_u8; 40 << 20];
            // Its place is that of the phase which has just begun, or will be the next one's.
            drop(guard);
            drop(std::hint::black_box(block));
            let rest = vec![1_u8; 1 << 20];
            end_phase();
            end_phase();
            drop(std::hint::black_box(rest));
            let peak = Phase::named("of the child").report().peak_live_bytes();
            let is_right = (count("of the child"), count("left open")) == (1, 0) && peak >= 40 << 20;
            libc::_exit(i32::from(!is_right));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
    drop(guard);
    end_phase();
    assert_eq!((count("left open"), count("held")), (1, 1));
}

/// It had what was live as a reading said that was used again, some microseconds old.
#[test]
fn what_was_freed_just_before_a_phase_is_not_its_peak() {
    let _alone = alone();
    let (large, nothing) = (Phase::named("large"), Phase::named("nothing at all"));
    for _ in 0..12 {
        let block = vec![1_u8; 128 << 20];
        large.run(|| std::hint::black_box(block[77]));
        drop(block);
        nothing.run(|| ());
    }
    assert!(nothing.report().peak_live_bytes() < 64 << 20, "{}", nothing.report().peak_live_bytes());
}
