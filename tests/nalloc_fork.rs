//! Forks of a process whose threads allocate: both sides go on, each with all that it had.
//!
//! Processes of their own, because every thread of a process meets its forks.

#![expect(unsafe_code, reason = "asks for a real fork where the library would do without")]

#[path = "secret_support/fork.rs"]
mod fork;
#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use std::ffi::c_int;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fork::forked;
use support::load::{Load, load};
use support::pattern::Patterned;
use support::{count, in_both_modes, times, watch};
use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

const CHURN: Load = Load { threads: 1, most: 4 << 20, budget: 12 << 20 };

/// Runs `body` while other threads take, resize and free.
fn under_churn(body: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    load(&CHURN, 20);
                }
            });
        }
        let stopper = Stop(&stop);
        body();
        drop(stopper);
    });
}

/// Ends the churn, if the body panics too.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn blocks(seed: u64) -> Vec<Patterned> {
    [64 << 10, 200_000, 1 << 20, 3 << 20, 8 << 20].map(|len| Patterned::new(seed, len)).into()
}

/// What a child does: finds all as it was, frees half of it, resizes the rest, and takes more. It has one thread, and
/// makes no other.
fn go_on(inherited: &mut Vec<Patterned>) -> u8 {
    watch();
    inherited.iter().for_each(|block| block.check("an inherited block"));
    inherited.truncate(3);
    let mut more = blocks(77);
    inherited.iter_mut().for_each(|block| block.resize(block.bytes.len() * 5 / 4));
    more.push(Patterned::from_zeroed(5, 6 << 20));
    more.push(Patterned::from_zeroed(6, 100_000));
    inherited.iter().chain(&more).for_each(|block| block.check("a block in a child"));
    0
}

#[test]
fn both_sides_of_a_fork_go_on() {
    in_both_modes("both_sides_of_a_fork_go_on", || {
        under_churn(|| {
            let mut inherited = blocks(0);
            for n in 1..=50 * times() {
                assert_eq!(forked(|| go_on(&mut inherited)), 0, "fork {n}");
                inherited.iter().for_each(|block| block.check("a block of the parent"));
                inherited = blocks(n as u64);
            }
            count("forks under load", 50 * times());
        });
    });
}

#[test]
fn children_have_children() {
    in_both_modes("children_have_children", || {
        under_churn(|| {
            for n in 0..5 {
                let mut inherited = blocks(n);
                let code = forked(|| {
                    let code = forked(|| {
                        let code = forked(|| go_on(&mut inherited));
                        if code == 0 { go_on(&mut inherited) } else { 1 }
                    });
                    if code == 0 { go_on(&mut inherited) } else { 2 }
                });
                assert_eq!(code, 0);
                inherited.iter().for_each(|block| block.check("a block of the parent"));
            }
        });
    });
}

#[test]
fn a_child_gives_back_what_it_inherited_free() {
    in_both_modes("a_child_gives_back_what_it_inherited_free", || {
        drop(blocks(1));
        let live = Patterned::new(2, 2 << 20);
        let code = forked(|| {
            watch();
            zk_nalloc::soften_cache();
            zk_nalloc::release_cache();
            live.check("a block of the parent in a child");
            u8::from(zk_nalloc::cached_bytes() != 0)
        });
        assert_eq!(code, 0);
        assert_ne!(zk_nalloc::cached_bytes(), 0, "what a child gives back is its own");
        drop(blocks(3));
        live.check("a block of the parent");
    });
}

#[test]
fn commands_run_under_churn() {
    in_both_modes("commands_run_under_churn", || {
        under_churn(|| {
            for n in 0..20 * times() {
                let mut command = Command::new("true");
                if n % 2 == 0 {
                    // SAFETY: does nothing; keeps the library from doing without a fork.
                    unsafe { command.pre_exec(|| Ok(())) };
                }
                assert!(command.status().unwrap().success());
            }
        });
    });
}

/// The reading end of a pipe that holds up whoever writes to it.
struct Held(c_int);

impl Drop for Held {
    /// Lets the writer go on, if what holds him up has failed too: without a reader he is told so.
    fn drop(&mut self) {
        // SAFETY: the end is ours.
        assert_eq!(unsafe { libc::close(self.0) }, 0);
    }
}

/// Calls `body`. Until that drops what it is given another thread has the lock of libc's list of open files, for which a fork
/// waits after it has called what was registered for before it.
fn while_forks_wait(body: impl FnOnce(Held)) {
    let mut ends = [0; 2];
    // SAFETY: there is room for the two numbers; the end is ours, and the file keeps it; the mode is a C string.
    let (file, holds) = unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        // As little as there can be: a page.
        let holds = libc::fcntl(ends[1], libc::F_SETPIPE_SZ, 1);
        (libc::fdopen(ends[1], c"w".as_ptr()), usize::try_from(holds).unwrap())
    };
    let mut buffer = vec![0; 4 * holds];
    let bytes = vec![7_u8; 2 * holds];
    // SAFETY: the file is open, and its buffer, which has room for all that is written, is not used after it is closed.
    unsafe {
        assert_eq!(libc::setvbuf(file, buffer.as_mut_ptr(), libc::_IOFBF, buffer.len()), 0);
        assert_eq!(libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), file), bytes.len());
    }
    thread::scope(|scope| {
        let reader = Held(ends[0]);
        // SAFETY: asks for all files to be flushed; nobody else uses them here.
        let flusher = scope.spawn(|| unsafe { libc::fflush(null_mut()) });
        let mut held: c_int = 0;
        while usize::try_from(held).unwrap() < holds {
            // SAFETY: there is room for the number.
            assert_eq!(unsafe { libc::ioctl(ends[0], libc::FIONREAD, &raw mut held) }, 0);
        }
        body(reader);
        assert_ne!(flusher.join().unwrap(), 0, "nobody has read what it wrote");
    });
    // SAFETY: the file is open. What it could not write is lost, of which this tells.
    unsafe { libc::fclose(file) };
}

/// Waits until a thread of this process sleeps on a futex.
fn wait_until_it_sleeps(thread: i64) {
    let path = format!("/proc/self/task/{thread}/syscall");
    let on_futex = format!("{} ", libc::SYS_futex);
    while !fs::read_to_string(&path).unwrap().starts_with(&on_futex) {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_fork_during_which_the_engine_would_start() {
    in_both_modes("a_fork_during_which_the_engine_would_start", || {
        while_forks_wait(|reader| {
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                // In here, or whoever fails waits for those who wait for it.
                let reader = reader;
                let _stopper = Stop(&stop);
                let (sender, receiver) = mpsc::channel();
                let forking = scope.spawn(move || {
                    // SAFETY: asks for a number.
                    sender.send(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap();
                    forked(|| go_on(&mut Vec::new()))
                });
                wait_until_it_sleeps(receiver.recv().unwrap());
                assert_eq!(zk_nalloc::stats().misses(), 0, "the engine has started before");
                for _ in 0..6 {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            load(&CHURN, 20);
                        }
                    });
                }
                // Whether they get far by then or not, the child has to go on.
                thread::sleep(Duration::from_millis(100));
                drop(reader);
                assert_eq!(forking.join().unwrap(), 0);
            });
        });
    });
}

/// What the child does before anything else took 45 KiB of it.
#[test]
fn a_thread_with_a_short_stack_forks() {
    in_both_modes("a_thread_with_a_short_stack_forks", || {
        drop(Patterned::new(1, 2 << 20));
        let forking = thread::Builder::new().stack_size(32 << 10).spawn(|| forked(|| 0)).unwrap();
        assert_eq!(forking.join().unwrap(), 0);
    });
}

/// How often the thread below was served, and whether the handler has waited for it.
static SERVED: AtomicU32 = AtomicU32::new(0);
static ENDED: AtomicBool = AtomicBool::new(false);
static WAITED_FOR_NOTHING: AtomicBool = AtomicBool::new(false);

/// Ours ran after those that had been registered before the first large request, and until then nobody was served.
#[test]
fn a_handler_after_a_fork_may_wait_for_a_thread_that_allocates() {
    extern "C" fn after() {
        let (since, served) = (Instant::now(), SERVED.load(Ordering::Relaxed));
        // The first time it may have been before the fork.
        while SERVED.load(Ordering::Relaxed) < served + 2 && since.elapsed() < Duration::from_secs(60) {
            thread::yield_now();
        }
        WAITED_FOR_NOTHING.store(SERVED.load(Ordering::Relaxed) < served + 2, Ordering::Relaxed);
        ENDED.store(true, Ordering::Relaxed);
    }
    in_both_modes("a_handler_after_a_fork_may_wait_for_a_thread_that_allocates", || {
        assert_eq!(zk_nalloc::stats().misses(), 0, "the engine has started before");
        // SAFETY: the functions are there as long as the process.
        assert_eq!(unsafe { libc::pthread_atfork(None, Some(after), None) }, 0);
        // The engine starts.
        drop(Patterned::new(1, 2 << 20));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ENDED.load(Ordering::Relaxed) {
                    drop(Patterned::new(2, 3 << 20));
                    SERVED.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert_eq!(forked(|| go_on(&mut Vec::new())), 0);
        });
        assert!(!WAITED_FOR_NOTHING.load(Ordering::Relaxed), "nobody was served while a handler ran");
    });
}
