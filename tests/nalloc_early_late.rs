//! Allocations before `main`, while threads end in every way, and after `main`.
//!
//! A process of its own, because what runs before `main` runs in every test of this file.

#![expect(unsafe_code, reason = "registers handlers with the C library")]

#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use support::pattern::Patterned;
use support::{in_both_modes, tell};
use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const LENGTHS: [usize; 4] = [64 << 10, 300_000, 1 << 20, 5 << 20];

/// What was allocated before `main`.
static EARLY: Mutex<Vec<Patterned>> = Mutex::new(Vec::new());

extern "C" fn before_main() {
    let mut early = EARLY.lock().unwrap();
    early.extend(LENGTHS.map(|len| Patterned::new(len as u64, len)));
    drop(Patterned::from_zeroed(3, 3 << 20));
}

#[used]
// SAFETY: the section is an array of pointers to such functions, which the loader calls.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

#[test]
fn blocks_from_before_main_are_whole_and_can_be_freed() {
    in_both_modes("blocks_from_before_main_are_whole_and_can_be_freed", || {
        let mut early = EARLY.lock().unwrap();
        assert_eq!(early.len(), LENGTHS.len());
        for block in early.drain(..) {
            block.check("a block from before main");
        }
    });
}

/// Takes, resizes and frees when it is dropped, and frees what it holds.
struct AtTheEnd(Vec<Patterned>);

static ENDED: AtomicUsize = AtomicUsize::new(0);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        for block in &mut self.0 {
            block.resize(2 * block.bytes.len());
        }
        self.0.extend(LENGTHS.map(|len| Patterned::from_zeroed(1, len)));
        self.0.iter().for_each(|block| block.check("a block of a thread that ends"));
        ENDED.fetch_add(1, Ordering::Relaxed);
    }
}

thread_local! {
    static MINE: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
}

/// A destructor of the C library, which runs after those of Rust.
extern "C" fn at_the_very_end(_: *mut c_void) {
    drop(AtTheEnd(vec![Patterned::new(2, 1 << 20)]));
}

#[test]
fn threads_allocate_while_their_locals_are_destroyed() {
    in_both_modes("threads_allocate_while_their_locals_are_destroyed", || {
        let mut key = 0;
        // SAFETY: the key is ours, and the destructor takes any value.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(at_the_very_end)) }, 0);
        for _ in 0..10 {
            thread::scope(|scope| {
                for seed in 0..4 {
                    scope.spawn(move || {
                        let value = core::ptr::dangling::<c_void>();
                        // SAFETY: the key was made; the value is never read.
                        assert_eq!(unsafe { libc::pthread_setspecific(key, value) }, 0);
                        let blocks = LENGTHS.map(|len| Patterned::new(seed, len)).into();
                        MINE.with_borrow_mut(|mine| *mine = Some(AtTheEnd(blocks)));
                    });
                }
            });
        }
        // A scope may end before the last destructors have run.
        while ENDED.load(Ordering::Relaxed) < 80 {
            thread::yield_now();
        }
    });
}

extern "C" fn after_main() {
    drop(AtTheEnd(LENGTHS.map(|len| Patterned::new(4, len)).into()));
    EARLY.lock().unwrap().iter().for_each(|block| block.check("a block from before main, after it"));
    tell("after", 1);
}

#[test]
fn handlers_at_exit_allocate() {
    for (mode, environment) in support::MODES {
        let ended = support::alone("handlers_at_exit_allocate", mode, environment, || {
            // SAFETY: the handler may run at any time.
            assert_eq!(unsafe { libc::atexit(after_main) }, 0);
        });
        if let Some(ended) = ended {
            assert_eq!(ended.told("after"), 1);
        }
    }
}

/// Takes and frees, leaving nothing that would have to be dropped: the thread's frames may be unwound by force.
fn churn_raw(times: usize) {
    for n in 0..times {
        let layout = Layout::from_size_align(LENGTHS[n % LENGTHS.len()] + n, 8).unwrap();
        // SAFETY: the layout is not empty; the block is as long as what is written and freed once.
        unsafe {
            let p = GLOBAL.alloc(layout);
            assert!(!p.is_null());
            p.write(1);
            let q = GLOBAL.realloc(p, layout, 2 * layout.size());
            assert!(!q.is_null());
            q.add(2 * layout.size() - 1).write(2);
            GLOBAL.dealloc(q, Layout::from_size_align(2 * layout.size(), 8).unwrap());
        }
    }
}

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// What a thread of the C library runs. It is ended by an unwinding of its stack.
type Body = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

unsafe extern "C-unwind" {
    safe fn pthread_testcancel();
    fn pthread_exit(value: *mut c_void) -> !;
    fn pthread_cancel(thread: libc::pthread_t) -> i32;
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        body: Body,
        argument: *mut c_void,
    ) -> i32;
}

extern "C-unwind" fn exits(_: *mut c_void) -> *mut c_void {
    churn_raw(8);
    // SAFETY: no frame of this thread has anything to drop.
    unsafe { pthread_exit(null_mut()) }
}

extern "C-unwind" fn is_cancelled(_: *mut c_void) -> *mut c_void {
    RUNNING.fetch_add(1, Ordering::Relaxed);
    loop {
        // With a cancellation pending, an allocation must not be what acts on it.
        churn_raw(5);
        pthread_testcancel();
    }
}

#[test]
fn threads_that_exit_or_are_cancelled_leave_the_allocator_whole() {
    in_both_modes("threads_that_exit_or_are_cancelled_leave_the_allocator_whole", || {
        churn_raw(4);
        let live = zk_nalloc::stats().live_bytes();
        for round in 1..=20 {
            let bodies: [Body; 3] = [exits, is_cancelled, is_cancelled];
            let threads = bodies.map(|body| {
                let mut thread = 0;
                // SAFETY: the bodies take any argument.
                let made = unsafe { pthread_create(&mut thread, core::ptr::null(), body, null_mut()) };
                assert_eq!(made, 0);
                thread
            });
            while RUNNING.load(Ordering::Relaxed) < 2 * round {
                thread::yield_now();
            }
            for (n, thread) in threads.into_iter().enumerate() {
                // SAFETY: the thread is joined once; the ones that are cancelled run until then.
                unsafe {
                    if n > 0 {
                        assert_eq!(pthread_cancel(thread), 0);
                    }
                    assert_eq!(libc::pthread_join(thread, null_mut()), 0);
                }
            }
        }
        assert_eq!(zk_nalloc::stats().live_bytes(), live);
        zk_nalloc::release_cache();
        assert_eq!(zk_nalloc::cached_bytes(), 0);
    });
}
