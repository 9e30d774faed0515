//! `NAlloc`: what a binary installs. It routes each request by its `Layout`, and starts the engine.
//!
//! The one `static` of the engine is here; what a large request comes to is in `large`. Nothing here panics, unwinds
//! or allocates; what the kernel refuses is answered with null, and a failed `realloc` leaves the old block as it was.

#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait, and blocks that change sides are copied")]

mod large;
mod small;

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::alloc::System;

use crate::cache::{Cache, Hooks, Started};
use crate::config::Config;
use crate::geometry::is_large;
use crate::os::{self, Linux, ThreadKey};

/// The engine of this process.
pub(crate) static ENGINE: Cache<Linux> = Cache::new(Linux, Hooks { watch_forks, start_keeper, watch_thread });

/// Has the engine hold still around every fork. Does no harm where it comes to that twice: a thread may start the engine while
/// the loader is here.
fn watch_forks() {
    /// Whether that was done.
    static WATCHED: AtomicBool = AtomicBool::new(false);
    extern "C" fn prepare() {
        ENGINE.before_fork();
    }
    extern "C" fn parent() {
        ENGINE.after_fork();
    }
    extern "C" fn child() {
        ENGINE.after_fork_in_child();
    }
    // Acquire: pairs with the release below, so that whoever finds it done starts after it.
    if WATCHED.load(Ordering::Acquire) {
        return;
    }
    // Without them (no memory for libc's list) a fork while another thread allocates may hang the child.
    let _ = os::at_fork(prepare, parent, child);
    WATCHED.store(true, Ordering::Release);
}

/// Has that done when the program is loaded: mostly there are no other threads yet, so no fork is under way, and handlers that
/// others register later run before ours before a fork and after ours after it, when the engine serves everybody (POSIX,
/// `pthread_atfork`: before in the opposite order, after in the order of registration). Of what a program is linked from this
/// comes right after std's own constructor, whose section ends in 99: linkers put those with numbers first.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array.00100")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        watch_forks();
    }
    at_load
};

/// Whether a [`NAlloc`] has started the engine or taken back a small block.
pub(crate) fn has_served() -> bool {
    ENGINE.has_started() || small::has_freed()
}

/// Starts the thread that sees to the engine while nobody allocates.
fn start_keeper() -> bool {
    extern "C" fn keep(_: *mut c_void) -> *mut c_void {
        ENGINE.keep()
    }
    os::start_thread(keep).is_ok()
}

/// By which libc knows whom to tell of the ends of threads.
static ENDS: ThreadKey = ThreadKey::new(0);

/// Nobody is to be told any more when this code is unloaded (`dlclose`); or the process ends.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".fini_array.00100")]
static AT_UNLOAD: extern "C" fn() = {
    extern "C" fn at_unload() {
        os::forget_thread_ends(&ENDS);
    }
    at_unload
};

/// Has the engine told when the calling thread ends, with this number.
fn watch_thread(number: usize) -> bool {
    extern "C" fn ended(number: *mut c_void) {
        ENGINE.thread_ended(number.addr());
    }
    os::at_thread_end(&ENDS, ended, number).is_ok()
}

/// A global allocator for provers: requests of 64 KiB and more ([`Config::large_from`] says otherwise) are served
/// from resident memory that is kept and reused by any size; smaller ones go to `S`.
///
/// All values of this type serve large requests from one engine, which is set up by the first large request
/// that any of them serves, with that one's [`Config`].
///
/// ```
/// use zk_nalloc::NAlloc;
///
/// #[global_allocator]
/// static GLOBAL: NAlloc = NAlloc::new();
///
/// let trace = vec![1_u64; 1 << 20];
/// drop(trace);
/// // The next buffer reuses the pages of the last one, whatever their sizes.
/// let quotient = vec![2_u64; 1 << 19];
/// assert!(zk_nalloc::stats().hits() > 0);
/// # drop(quotient);
/// ```
#[derive(Debug)]
pub struct NAlloc<S = System> {
    small: S,
    config: Config,
}

impl NAlloc {
    /// Makes the allocator with the system's for small requests.
    #[must_use]
    pub const fn new() -> Self {
        Self { small: System, config: Config::new() }
    }

    /// Makes the allocator with the system's for small requests, and with a configuration.
    ///
    /// The environment wins over `config`, but for [`Config::tune_glibc`] and [`Config::large_from`], which it does not name. Where a
    /// program has several `NAlloc` values, the engine behind all of them is set up by the first that serves a large request;
    /// [`Config::large_from`] alone is each value's own.
    ///
    /// ```
    /// use zk_nalloc::{Config, NAlloc};
    ///
    /// static GLOBAL: NAlloc = NAlloc::with_config(Config::new().cache_bytes(8 << 30));
    /// # let _ = &GLOBAL;
    /// ```
    #[must_use]
    pub const fn with_config(config: Config) -> Self {
        Self { small: System, config }
    }
}

impl<S> NAlloc<S> {
    /// Makes the allocator with `small` for requests under 64 KiB: mimalloc, jemalloc, snmalloc, any `GlobalAlloc`. glibc is not
    /// tuned, since it serves no Rust code as a rule; so for `System` take [`NAlloc::new`], which tunes it.
    ///
    /// ```
    /// use zk_nalloc::NAlloc;
    /// # use std::alloc::System as MiMalloc;
    ///
    /// static GLOBAL: NAlloc<MiMalloc> = NAlloc::with_small(MiMalloc);
    /// # let _ = &GLOBAL;
    /// ```
    #[must_use]
    pub const fn with_small(small: S) -> Self {
        Self { small, config: Config::new().beside_another() }
    }

    /// Makes the allocator with `small` for requests under [`Config::large_from`], 64 KiB by default, and with a configuration, of which holds
    /// what [`NAlloc::with_config`] says. glibc is not tuned unless `config` says so, as in [`NAlloc::with_small`].
    #[must_use]
    pub const fn with_small_and_config(small: S, config: Config) -> Self {
        Self { small, config: config.beside_another() }
    }
}

impl Default for NAlloc {
    fn default() -> Self {
        Self::new()
    }
}

/// Has glibc keep what it would give back and take again: what its own tuning comes to at most, and would come to if it saw
/// large blocks freed; and all of it once the engine runs without a ceiling, which asks for it (`cache::beside`).
fn tell_library_slow() {
    /// `DEFAULT_MMAP_THRESHOLD_MAX` of malloc.c, and twice that.
    const MMAP_THRESHOLD: usize = 32 << 20;
    const TRIM_THRESHOLD: usize = 2 * MMAP_THRESHOLD;
    const KEEP_ALL: usize = usize::MAX;
    loop {
        let is_running = ENGINE.has_started();
        let keeps_all = is_running && ENGINE.ceiling().is_none();
        let threshold = if keeps_all { KEEP_ALL } else { TRIM_THRESHOLD };
        if os::keep_small_top(threshold, MMAP_THRESHOLD) {
            ENGINE.library_keeps();
        }
        // Whoever has started the engine meanwhile may have said the other thing before us.
        if is_running || !ENGINE.has_started() {
            return;
        }
    }
}

/// Makes the rest of the process know of the engine, which has just started: `Arena` gets the same huge pages, and glibc
/// keeps what it would give back and take again.
fn hook_slow(started: Started) {
    extern "C" fn exit() {
        ENGINE.end_trace();
    }
    if started.traced {
        // Where libc has no memory for its list, what is left at the end is not written.
        let _ = os::at_exit(exit);
    }
    os::set_huge(started.huge);
    crate::report::arm();
    if started.tune_glibc {
        tell_library_slow();
    }
}

/// Serves a large request. Not inlined: the registers that it saves are not a small request's to save, which would pay a
/// tenth of its time for that.
#[inline(never)]
fn alloc_large(layout: Layout, config: &Config) -> *mut u8 {
    ENGINE.allocate(layout, config, hook_slow)
}

/// Takes back what a large request was given. Not inlined either.
#[inline(never)]
fn dealloc_large(p: *mut u8, layout: Layout) {
    ENGINE.deallocate(p, layout);
}

// SAFETY: a block is handed out once until it is given back (H1, C2), is as long and as aligned as its `Layout`
// asks (G2, G3), and which side serves a request is a function of its `Layout` alone (G1), so what comes back goes to
// the side that it came from. Nothing unwinds.
unsafe impl<S: GlobalAlloc> GlobalAlloc for NAlloc<S> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout, self.config.begins_large()) {
            return alloc_large(layout, &self.config);
        }
        // SAFETY: as our caller promised.
        let p = unsafe { self.small.alloc(layout) };
        if p.is_null() {
            // SAFETY: as above.
            return unsafe { self.alloc_small_slow(layout) };
        }
        p
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout, self.config.begins_large()) {
            return ENGINE.allocate_zeroed(layout, &self.config, hook_slow);
        }
        // SAFETY: as our caller promised.
        let p = unsafe { self.small.alloc_zeroed(layout) };
        if p.is_null() {
            // SAFETY: as above.
            return unsafe { self.alloc_zeroed_small_slow(layout) };
        }
        p
    }

    // Not inlined: what drops a value would get long by it, and the compiler would leave that, and with it whatever iterates
    // over values that are dropped, out of the loops where it belongs (docs/EXPERIMENTS.md).
    #[inline(never)]
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        if is_large(layout, self.config.begins_large()) {
            return dealloc_large(p, layout);
        }
        if small::is_plain(&self.config) {
            // SAFETY: as our caller promised; the small side served this layout (G1).
            return unsafe { self.small.dealloc(p, layout) };
        }
        // SAFETY: as above.
        unsafe { self.dealloc_small_slow(p, layout) }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(new_size, layout.align()) else { return ptr::null_mut() };
        let from = self.config.begins_large();
        match (is_large(layout, from), is_large(new, from)) {
            (true, true) => ENGINE.reallocate(p, layout, new),
            // SAFETY: as our caller promised; the small side served this layout and serves the new one (G1).
            (false, false) if small::is_plain(&self.config) => unsafe {
                let to = self.small.realloc(p, layout, new_size);
                if to.is_null() { self.realloc_small_slow(p, layout, new) } else { to }
            },
            // SAFETY: as above.
            (false, false) => unsafe { self.realloc_small_slow(p, layout, new) },
            (was_large, _) => {
                if !was_large {
                    ENGINE.expect_growth(new);
                }
                // SAFETY: as our caller promised.
                unsafe { self.replace(p, layout, new) }
            }
        }
    }
}
