//! `NAlloc`: what a binary installs. It routes each request by its `Layout`, turns blocks into pointers and
//! back, and climbs the ladder of `realloc`.
//!
//! The one `static` of the engine is here. Nothing here panics, unwinds or allocates; what the kernel refuses is
//! answered with null, and a failed `realloc` leaves the old block as it was.

#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait, and memory is copied and zeroed")]

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use std::alloc::System;

use crate::cache::{Cache, Grown, Handed};
use crate::config::Config;
use crate::geometry::{Block, LARGE_FROM, SizeClass, is_large};
use crate::heap::Span;
use crate::os::{self, GRANULE, Linux};
use crate::zeroing::write_zeros;

/// The engine of this process.
pub(crate) static ENGINE: Cache<Linux> = Cache::new(Linux);

/// A global allocator for provers: requests of 64 KiB and more are served from resident memory that is kept and
/// reused by any size; smaller ones go to `S`.
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
    /// Makes the allocator with `small` for requests under 64 KiB. glibc, which then serves no Rust code, is
    /// left as it is.
    ///
    /// ```
    /// use std::alloc::System;
    /// use zk_nalloc::NAlloc;
    ///
    /// // Any `GlobalAlloc` will do: mimalloc, jemalloc, snmalloc, …
    /// static GLOBAL: NAlloc<System> = NAlloc::with_small(System);
    /// # let _ = &GLOBAL;
    /// ```
    #[must_use]
    pub const fn with_small(small: S) -> Self {
        Self { small, config: Config::new().tune_glibc(false) }
    }

    /// Makes the allocator with `small` for requests under 64 KiB, and with a configuration.
    #[must_use]
    pub const fn with_small_and_config(small: S, config: Config) -> Self {
        Self { small, config }
    }
}

impl Default for NAlloc {
    fn default() -> Self {
        Self::new()
    }
}

/// The pointer to an address of the engine's memory.
fn pointer(address: usize) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address)
}

/// Has the engine hold still around every fork, and glibc keep what it would give back and take again.
fn hook_slow(tune_glibc: bool) {
    /// What glibc's own tuning comes to at most, and would come to if it saw large blocks freed
    /// (`DEFAULT_MMAP_THRESHOLD_MAX` of malloc.c, and twice that).
    const MMAP_THRESHOLD: usize = 32 << 20;
    const TRIM_THRESHOLD: usize = 2 * MMAP_THRESHOLD;
    /// What the heap grows by at least: a system call per MiB of small blocks.
    const TOP_PAD: usize = 1 << 20;
    extern "C" fn prepare() {
        ENGINE.before_fork();
    }
    extern "C" fn parent() {
        ENGINE.after_fork();
    }
    extern "C" fn child() {
        ENGINE.after_fork_in_child();
    }
    // Without the hooks (no memory for libc's list) a fork while another thread allocates may hang the child.
    let _ = os::at_fork(prepare, parent, child);
    if tune_glibc {
        os::keep_small_top(TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD);
    }
}

impl<S> NAlloc<S> {
    #[cold]
    fn take_slow(&self, block: Block, layout: Layout, zeroed: bool) -> Option<Handed> {
        if !ENGINE.has_started() {
            let started = ENGINE.start(&self.config)?;
            if started.first {
                hook_slow(started.tune_glibc);
            }
        }
        ENGINE.take_slow(block, layout.size(), zeroed)
    }

    #[inline]
    fn take(&self, layout: Layout) -> *mut u8 {
        let Some(block) = Block::of(layout) else { return ptr::null_mut() };
        if block.align == GRANULE
            && let Some(class) = SizeClass::of(block.len)
            && let Some((start, turn)) = ENGINE.take(class, layout.size())
        {
            return pointer(start + Block::colour(turn, layout));
        }
        match self.take_slow(block, layout, false) {
            Some(handed) => pointer(handed.start + Block::colour(handed.turn, layout)),
            None => ptr::null_mut(),
        }
    }

    fn take_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(block) = Block::of(layout) else { return ptr::null_mut() };
        if block.align == GRANULE
            && let Some(class) = SizeClass::of(block.len)
            && let Some((start, turn)) = ENGINE.take(class, layout.size())
        {
            let p = pointer(start + Block::colour(turn, layout));
            // SAFETY: the block is ours until it is handed out, and `size` bytes fit behind the colour (G2).
            unsafe { p.write_bytes(0, layout.size()) };
            ENGINE.zeroed(layout.size());
            return p;
        }
        let Some(handed) = self.take_slow(block, layout, true) else {
            return ptr::null_mut();
        };
        let p = pointer(handed.start + Block::colour(handed.turn, layout));
        // SAFETY: as above; what is not in `unclean` reads as zero (H2).
        let written = unsafe {
            write_zeros(&handed.unclean, Span::new(p.addr(), layout.size()), ENGINE.last_level_cache())
        };
        ENGINE.zeroed(written);
        p
    }

    #[inline]
    fn give(&self, p: *mut u8, layout: Layout) {
        // No large request was ever served without a block.
        let Some(block) = Block::of(layout) else { return };
        ENGINE.give(Block::start(p.expose_provenance(), layout), block.len, layout.size());
    }

    /// Resizes a large block that stays large.
    fn resize(&self, p: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
        let (Some(old_block), Some(block)) = (Block::of(layout), Block::of(new)) else {
            return ptr::null_mut();
        };
        let span = Span::new(Block::start(p.expose_provenance(), layout), old_block.len.bytes());
        if block.len == old_block.len || (block.len < old_block.len && ENGINE.shrink(span, block.len)) {
            ENGINE.resized(layout.size(), new.size());
            return p;
        }
        if block.len < old_block.len {
            return ptr::null_mut();
        }
        let colour = p.addr() - span.start;
        match ENGINE.grow(span, block) {
            Grown::InPlace => {
                ENGINE.resized(layout.size(), new.size());
                p
            }
            Grown::Moved(moved) => {
                let start = moved.span.start + colour;
                let end = p.addr() + layout.size();
                // The two ends of the old block that are not whole chunks, and what the kernel refused to move.
                for part in [
                    Span::between(p.addr(), moved.moved.start),
                    Span::between(moved.moved.end().max(p.addr()), end),
                ] {
                    // SAFETY: `part` lies in the old block, which its caller owns and gives up; its place in the
                    // new block is ours and accessible; the two blocks do not overlap (H1).
                    unsafe {
                        pointer(part.start - p.addr() + start)
                            .copy_from_nonoverlapping(pointer(part.start), part.len);
                    }
                    ENGINE.copied(part.len);
                }
                ENGINE.finish_move(span, moved);
                ENGINE.resized(layout.size(), new.size());
                pointer(start)
            }
            Grown::Copy(start) => {
                let to = pointer(start + colour);
                // SAFETY: as above.
                unsafe { to.copy_from_nonoverlapping(p, layout.size()) };
                ENGINE.copied(layout.size());
                ENGINE.give(span.start, old_block.len, 0);
                ENGINE.resized(layout.size(), new.size());
                to
            }
            Grown::Refused => ptr::null_mut(),
        }
    }
}

// SAFETY: a block is handed out once until it is given back (H1, C2), is as long and as aligned as its `Layout`
// asks (G2, G3), and which side serves a request is a function of its `Layout` alone (G1), so what comes back goes to
// the side that it came from. Nothing unwinds.
unsafe impl<S: GlobalAlloc> GlobalAlloc for NAlloc<S> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout, LARGE_FROM) {
            return self.take(layout);
        }
        // SAFETY: as our caller promised.
        unsafe { self.small.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout, LARGE_FROM) {
            return self.take_zeroed(layout);
        }
        // SAFETY: as our caller promised.
        unsafe { self.small.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        if is_large(layout, LARGE_FROM) {
            return self.give(p, layout);
        }
        // SAFETY: as our caller promised; the small side served this layout (G1).
        unsafe { self.small.dealloc(p, layout) }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(new_size, layout.align()) else { return ptr::null_mut() };
        match (is_large(layout, LARGE_FROM), is_large(new, LARGE_FROM)) {
            (true, true) => self.resize(p, layout, new),
            // SAFETY: as our caller promised; the small side served this layout and serves the new one (G1).
            (false, false) => unsafe { self.small.realloc(p, layout, new_size) },
            _ => {
                // SAFETY: `new` has the size that our caller promised is not zero; both blocks are as long as
                // what is copied, and a new block does not overlap one that is still owned.
                unsafe {
                    let to = self.alloc(new);
                    if !to.is_null() {
                        to.copy_from_nonoverlapping(p, layout.size().min(new_size));
                        self.dealloc(p, layout);
                    }
                    to
                }
            }
        }
    }
}
