//! Arenas as allocators of collections: `Vec<T, &Arena>`, hash maps.
//!
//! A collection's block grows, shrinks and is freed in place where it is the last one: a growing vector at the
//! end of an arena is never copied. Any other block that is freed comes back with the next reset.
//!
//! Why it is sound: a block that ends where a window's cursor, or the shared counter, stands has nothing behind it;
//! who holds the block may move that end (docs/SAFETY.md, R14). What is freed so counts as dirty from then on (R9).
//! Never here: lifetimes. A collection holds a borrow of its arena, scope or worker.

#![expect(unsafe_code, reason = "implements an unsafe trait")]

use core::alloc::Layout;
use core::ptr::NonNull;

use super::parts::Body;
use super::place::Source;
use super::shared::Want;
use super::window::{Window, footprint};
use super::{Arena, Exhausted, Scope, Worker};

/// The block at `block` as the traits want it.
fn sized(block: NonNull<u8>, layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(block, layout.size())
}

/// Where the block ends, with its padding.
fn end(block: NonNull<u8>, layout: Layout) -> usize {
    block.addr().get() + footprint(layout.size())
}

fn try_place(source: &impl Source, layout: Layout) -> Result<NonNull<u8>, Exhausted> {
    source.or_try_slow(source.bump(layout), layout)
}

fn allocate(source: &impl Source, layout: Layout) -> Result<NonNull<[u8]>, Exhausted> {
    try_place(source, layout).map(|block| sized(block, layout))
}

fn allocate_zeroed(source: &impl Source, layout: Layout) -> Result<NonNull<[u8]>, Exhausted> {
    let block = try_place(source, layout)?;
    if layout.size() != 0 {
        let dirty = source.body().dirty_len(block.as_ptr(), layout.size());
        // SAFETY: the block is ours (R11) and longer than `dirty`.
        unsafe { block.write_bytes(0, dirty) };
    }
    Ok(sized(block, layout))
}

/// Frees a block of this source, in place where it is the last one.
fn deallocate(source: &impl Source, block: NonNull<u8>, layout: Layout) {
    if layout.size() != 0 {
        cut(source, end(block, layout), block.addr().get());
    }
}

/// Frees `to..from`, the end of a block, where the block is the last one.
fn cut(source: &impl Source, from: usize, to: usize) {
    source.body().note_dirty(from);
    if !source.window().move_end(from, to) {
        source.body().shared.0.give_back(from, to);
    }
}

/// Moves the end of a block from `from` up to `to`, where nothing lies behind it.
fn lengthen(source: &impl Source, from: usize, to: usize) -> bool {
    let window = source.window();
    if window.get().0.addr() == from {
        return window.move_end(from, to)
            || source.body().widen_slow(window, to) && window.move_end(from, to);
    }
    source.body().extend_slow(from, to)
}

/// Grows a block in place or by moving it.
///
/// # Safety
/// The block is one of this source with layout `old`, and `new` is no smaller.
unsafe fn grow(
    source: &impl Source,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, Exhausted> {
    let in_place = old.size() != 0
        && block.addr().get().is_multiple_of(new.align())
        && (footprint(old.size()) == footprint(new.size())
            || lengthen(source, end(block, old), end(block, new)));
    if in_place {
        // The caller's pointer may reach no further than the old block; the arena's own does.
        let whole = source.body().map.at(block.addr().get());
        return Ok(sized(NonNull::new(whole).unwrap_or(block), new));
    }
    let moved = try_place(source, new)?;
    // SAFETY: both blocks are as long as the old one, belong to the caller, and are two (R11).
    unsafe { moved.copy_from_nonoverlapping(block, old.size()) };
    deallocate(source, block, old);
    Ok(sized(moved, new))
}

/// Grows a block, the new part zero.
///
/// # Safety
/// As for [`grow`].
unsafe fn grow_zeroed(
    source: &impl Source,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, Exhausted> {
    // SAFETY: as the caller promises.
    let grown = unsafe { grow(source, block, old, new)? };
    let fresh = new.size() - old.size();
    if fresh != 0 {
        // SAFETY: the part behind the old size belongs to the block.
        let part = unsafe { grown.cast::<u8>().add(old.size()) };
        // A block that was shrunk before it grows again still holds what stood behind its size, as far as it ends where it did (R9).
        let own = fresh.min(footprint(old.size()) - old.size());
        let dirty = source.body().dirty_len(part.as_ptr(), fresh).max(own);
        // SAFETY: `dirty <= fresh`.
        unsafe { part.write_bytes(0, dirty) };
    }
    Ok(grown)
}

/// Shrinks a block in place, or moves it where a higher alignment demands it.
///
/// # Safety
/// The block is one of this source with layout `old`, and `new` is no larger.
unsafe fn shrink(
    source: &impl Source,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, Exhausted> {
    if !block.addr().get().is_multiple_of(new.align()) {
        let moved = try_place(source, new)?;
        // SAFETY: both blocks are as long as the new one, belong to the caller, and are two (R11).
        unsafe { moved.copy_from_nonoverlapping(block, new.size()) };
        deallocate(source, block, old);
        return Ok(sized(moved, new));
    }
    if footprint(new.size()) != footprint(old.size()) {
        cut(source, end(block, old), end(block, new));
    }
    Ok(sized(block, new))
}

impl Body {
    /// Lengthens the block that ends at `from` to `to` in place, where it is the last one given away.
    pub(super) fn extend_slow(&self, from: usize, to: usize) -> bool {
        let Ok(more) = Layout::from_size_align(to - from, 1) else { return false };
        let want = Want { least: more, most: 0, end: self.map.end() };
        matches!(self.shared.0.extend(from, from, want, |end| self.map.ready(end)), Ok(Some(_)))
    }

    /// Lengthens `window`, whose last block ends at its cursor, so that the block can end at `to`.
    pub(super) fn widen_slow(&self, window: &Window, to: usize) -> bool {
        let (cursor, limit) = window.get();
        let Ok(more) = Layout::from_size_align(to - cursor.addr(), 1) else { return false };
        let want = Want { least: more, most: 0, end: self.map.end() };
        let grown = self.shared.0.extend(cursor.addr(), limit.addr(), want, |end| self.map.ready(end));
        let Ok(Some(end)) = grown else { return false };
        window.set(cursor, self.map.at(end));
        true
    }
}

macro_rules! allocator {
    ($krate:path => $($handle:ty),*) => {
        const _: () = {
            use $krate::{AllocError, Allocator};
            $(
                // SAFETY: blocks stay valid until the arena is reset, rewound or dropped (R11), which the borrow in
                // the handle forbids; copies of the handle are the same allocator.
                unsafe impl Allocator for $handle {
                    #[inline]
                    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                        allocate(*self, layout).map_err(|_| AllocError)
                    }

                    #[inline]
                    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
                        allocate_zeroed(*self, layout).map_err(|_| AllocError)
                    }

                    #[inline]
                    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
                        deallocate(*self, block, layout);
                    }

                    #[inline]
                    unsafe fn grow(
                        &self,
                        block: NonNull<u8>,
                        old: Layout,
                        new: Layout,
                    ) -> Result<NonNull<[u8]>, AllocError> {
                        // SAFETY: as our caller promised.
                        unsafe { grow(*self, block, old, new) }.map_err(|_| AllocError)
                    }

                    #[inline]
                    unsafe fn grow_zeroed(
                        &self,
                        block: NonNull<u8>,
                        old: Layout,
                        new: Layout,
                    ) -> Result<NonNull<[u8]>, AllocError> {
                        // SAFETY: as our caller promised.
                        unsafe { grow_zeroed(*self, block, old, new) }.map_err(|_| AllocError)
                    }

                    #[inline]
                    unsafe fn shrink(
                        &self,
                        block: NonNull<u8>,
                        old: Layout,
                        new: Layout,
                    ) -> Result<NonNull<[u8]>, AllocError> {
                        // SAFETY: as our caller promised.
                        unsafe { shrink(*self, block, old, new) }.map_err(|_| AllocError)
                    }
                }
            )*
        };
    };
}

// With `nightly` the stand-in is the unstable trait itself.
#[cfg(all(feature = "allocator-api2", not(feature = "nightly")))]
allocator!(allocator_api2::alloc => &Arena, &Scope<'_, '_>, &Worker<'_>);

#[cfg(feature = "nightly")]
allocator!(std::alloc => &Arena, &Scope<'_, '_>, &Worker<'_>);
