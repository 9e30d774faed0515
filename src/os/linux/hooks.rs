//! What libc is told: whom to call around a `fork` and at the end of a thread, and how much of its heap to keep.

#![expect(unsafe_code, reason = "calls into libc")]

use core::ffi::c_void;

use super::sys::KeepErrno;
#[cfg(target_env = "gnu")]
use super::tunables::Once;
#[cfg(target_env = "gnu")]
use super::{environ, in_use};
use crate::error::Errno;
use crate::os::Outcome;
use crate::sync::process::{AtomicU32, Ordering};

/// Has `prepare` called before every `fork` of the process, and `parent` or `child` after it, on the thread that
/// forks. Never undone; the order is that of `pthread_atfork`: `prepare` last registered first, the others first
/// registered first.
///
/// libc keeps the list with its own `malloc`, and some hold a lock of their own while they call them (glibc before 2.36, musl):
/// they must not register more. They are not called for `vfork`, `clone` and `posix_spawn`, whose children share no memory that
/// they could harm or only call `exec`.
pub(crate) fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> Outcome {
    let _keep = KeepErrno::new();
    // SAFETY: the functions live as long as the process (they are items of this crate), and do not unwind: that
    // aborts in an `extern "C" fn`.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => Ok(()),
        error => Err(Errno(error)),
    }
}

/// What glibc's heap grows by beyond what it needs, in bytes: a system call per MiB of small blocks.
#[cfg(target_env = "gnu")]
const TOP_PAD: i32 = 1 << 20;

/// Which of the knobs the environment sets.
#[cfg(target_env = "gnu")]
static SEEN: Once = Once::new();

/// Has glibc keep up to `trim_threshold` bytes free at the top of its heap, `usize::MAX` for all, and take [`TOP_PAD`]
/// bytes more than it needs whenever it grows; blocks of C code up to `mmap_threshold` come from that heap. Without it, and
/// without ever seeing a large block freed, it gives back and faults in again at every 128 KiB. All are cut to what an `int`
/// holds. Does nothing on other C libraries.
///
/// Gives whether the first stands; it does not where the environment says something else.
///
/// Any such setting also stops glibc's own tuning of the size from which a block gets a mapping of its own, which
/// would have risen with the first large block that C code frees: hence the third. What the environment sets of the three
/// stays as it is.
#[cfg(target_env = "gnu")]
pub(crate) fn keep_small_top(trim_threshold: usize, mmap_threshold: usize) -> bool {
    let _keep = KeepErrno::new();
    let seen = SEEN.seen(environ::stream);
    let knobs = [
        (libc::M_TRIM_THRESHOLD, trim_threshold),
        (libc::M_TOP_PAD, TOP_PAD as usize),
        (libc::M_MMAP_THRESHOLD, mmap_threshold),
    ];
    for ((knob, bytes), is_set) in knobs.into_iter().zip(seen) {
        if !is_set {
            // Less than nothing turns trimming off (mallopt(3)).
            let value = if bytes == usize::MAX { -1 } else { i32::try_from(bytes).unwrap_or(i32::MAX) };
            // SAFETY: mallopt takes the lock of glibc's heap itself. A refused setting costs speed alone.
            unsafe { libc::mallopt(knob, value) };
        }
    }
    !seen[0]
}

/// Does nothing: only glibc has such a heap.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn keep_small_top(_trim_threshold: usize, _mmap_threshold: usize) -> bool {
    false
}

/// Has glibc keep the heaps that it has for threads but the first, or as [`keep_small_top`] has left it. Of these it unmaps the last when
/// that is free, whatever `M_TRIM_THRESHOLD` says, unless `M_TOP_PAD` is as long as a heap (`heap_trim` in arena.c). Each new
/// one is writable at once then, not a few pages more with each `mprotect`; and the first heap grows by as much address space.
///
/// Does nothing where the environment sets that knob, on other C libraries, and where memory is locked: each heap would
/// be resident as a whole.
#[cfg(target_env = "gnu")]
pub(super) fn keep_heaps(keeps: bool) {
    /// `HEAP_MAX_SIZE` of arena.c.
    const HEAP: i32 = 64 << 20;
    let _keep = KeepErrno::new();
    let [_, is_set, _] = SEEN.seen(environ::stream);
    if is_set || (keeps && in_use::locks_memory()) {
        return;
    }
    // SAFETY: as in `keep_small_top`.
    unsafe { libc::mallopt(libc::M_TOP_PAD, if keeps { HEAP } else { TOP_PAD }) };
}

/// Does nothing: only glibc has such heaps.
#[cfg(not(target_env = "gnu"))]
pub(super) fn keep_heaps(_keeps: bool) {}

/// Has glibc give back what its heap keeps free: whole pages in all of its arenas, and the top of the first.
#[cfg(target_env = "gnu")]
pub(super) fn trim_library() {
    let _keep = KeepErrno::new();
    // SAFETY: malloc_trim may be called whenever malloc may. It takes the locks of glibc's heap itself, one after the other,
    // and this thread has none of them: glibc calls nobody while it holds one, and we are its `malloc`'s caller, never
    // its callee. It gives the kernel whole pages of blocks that are free, which nobody may read.
    unsafe { libc::malloc_trim(0) };
}

/// Does nothing: there is nothing to ask.
#[cfg(not(target_env = "gnu"))]
pub(super) fn trim_library() {}

/// Starts a thread of ours that `run` is all of: detached, with every signal blocked, so that no handler of the
/// program's ever runs on its small stack.
///
/// libc allocates for it with its own `malloc`. Works before `main` and in a forked child; the caller holds no lock.
pub(crate) fn start_thread(run: extern "C" fn(*mut c_void) -> *mut c_void) -> Outcome {
    /// Ours needs 16 KiB, libc's part of it is a few for each thread-local of the program; what is not touched costs
    /// nothing.
    const STACK: usize = 256 << 10;
    let _keep = KeepErrno::new();
    // SAFETY: all-zero is a valid place for each of these, which the calls fill before they are used; `run` lives as
    // long as the process and does not unwind (that aborts in an `extern "C" fn`). The mask of signals is put back.
    let error = unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        let mut thread: libc::pthread_t = core::mem::zeroed();
        match libc::pthread_attr_init(&raw mut attributes) {
            0 => {}
            error => return Err(Errno(error)),
        }
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        // Where it is refused, the usual size will do.
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        libc::sigfillset(&raw mut all);
        let mut error = libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        if error == 0 {
            error = libc::pthread_create(&raw mut thread, &raw const attributes, named, run as *mut c_void);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        }
        libc::pthread_attr_destroy(&raw mut attributes);
        error
    };
    if error == 0 { Ok(()) } else { Err(Errno(error)) }
}

/// Gives the thread its name and becomes it.
extern "C" fn named(run: *mut c_void) -> *mut c_void {
    // SAFETY: the name is a C string of at most 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"zk-nalloc".as_ptr()) };
    // SAFETY: `start_thread` passed a function of this type.
    let run: extern "C" fn(*mut c_void) -> *mut c_void = unsafe { core::mem::transmute(run) };
    run(core::ptr::null_mut())
}

/// Where libc's key is kept by which [`at_thread_end`] finds a thread's number: plus one; 0 before there is one.
pub(crate) type ThreadKey = AtomicU32;

/// Where there is none any more.
const GONE: u32 = u32::MAX;

/// Has `ended` called with `number`, which is not 0, when the calling thread ends, after its thread-locals are destroyed (where std
/// has a list of those; on musl it keeps them as this does, and the order is libc's). The last call counts, of those with one `key`; all
/// of these name one function. Forgotten where the thread ends already and libc asks for no more (it does so four times, says POSIX).
///
/// Not a thread-local with a destructor: std may allocate for its list of those. libc has a place in each thread for values of the
/// first keys; for later ones glibc allocates, with the process's `malloc`, which is never ours.
pub(crate) fn at_thread_end(
    key: &'static ThreadKey,
    ended: extern "C" fn(*mut c_void),
    number: usize,
) -> Outcome {
    let _keep = KeepErrno::new();
    // Acquire: pairs with the release below, so that libc's own table has the key here too.
    let mut known = key.load(Ordering::Acquire);
    if known == GONE {
        return Err(Errno(libc::EINVAL));
    }
    if known == 0 {
        let mut made = 0;
        // SAFETY: `made` is written before the call returns; the function lives until `forget_thread_ends` is called (it is an item
        // of this crate), and does not unwind: that aborts in an `extern "C" fn`.
        let error = unsafe { libc::pthread_key_create(&raw mut made, Some(ended)) };
        if error != 0 {
            return Err(Errno(error));
        }
        known = made + 1;
        if let Err(theirs) = key.compare_exchange(0, known, Ordering::Release, Ordering::Acquire) {
            // SAFETY: this one is known to nobody, so no thread has a value for it.
            unsafe { libc::pthread_key_delete(made) };
            if theirs == GONE {
                return Err(Errno(libc::EINVAL));
            }
            known = theirs;
        }
    }
    // SAFETY: the key was created; where it has been deleted since, libc finds that it is (glibc), or it is another's by now, who
    // finds nothing there once it is cleared below, or this library is being unloaded while a thread runs in it, which nobody may
    // do. The value is a number, and no memory.
    let set = |number| unsafe { libc::pthread_setspecific(known - 1, core::ptr::without_provenance(number)) };
    match set(number) {
        // Acquire: as above. The process may have begun to end in between, and the key be made anew.
        0 if key.load(Ordering::Acquire) == GONE => {
            set(0);
            Err(Errno(libc::EINVAL))
        }
        0 => Ok(()),
        error => Err(Errno(error)),
    }
}

/// Ends that, for good: no function is called any more.
pub(crate) fn forget_thread_ends(key: &'static ThreadKey) {
    // Acquire: as in `at_thread_end`.
    let known = key.swap(GONE, Ordering::Acquire);
    if known != 0 && known != GONE {
        // SAFETY: the key was created, and nobody else deletes it: what was swapped out is swapped out once.
        unsafe { libc::pthread_key_delete(known - 1) };
    }
}

/// Calls `then` when the process ends by `exit` or by returning from `main`, after what was registered later.
///
/// libc may keep the list with its own `malloc`, and holds no lock while it calls what is on it.
pub(crate) fn at_exit(then: extern "C" fn()) -> Outcome {
    let _keep = KeepErrno::new();
    // SAFETY: the function lives as long as the process and does not unwind: that aborts in an `extern "C" fn`.
    match unsafe { libc::atexit(then) } {
        0 => Ok(()),
        _ => Err(Errno(libc::ENOMEM)),
    }
}
