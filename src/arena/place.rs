//! From a block of bytes to a reference: the one place where allocations get their type and lifetime.
//!
//! Why it is here: [`Arena`](super::Arena), [`Scope`](super::Scope) and [`Worker`](super::Worker) differ only in where blocks come
//! from ([`Source`]) and how long they live. The functions here take the way to get a block as a closure, so that
//! the panicking and the fallible forms are one: a closure that cannot fail has [`Infallible`] as its error.
//!
//! Invariant (docs/SAFETY.md): R11, a block from a source belongs to its taker alone.
//! Never here: a destructor. Types that have one are refused at compile time.

#![expect(unsafe_code, reason = "makes references to blocks")]

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::num::NonZero;
use core::ptr::NonNull;
use core::slice;

use super::parts::Body;
use super::window::Window;
use super::{Exhausted, Zeroable};

/// What blocks come from. A block that is handed out lies in the arena's mapping, can be read and written, has the
/// size and alignment asked for, and belongs to the taker until the arena is reset, rewound or dropped (R11).
pub(super) trait Source {
    fn body(&self) -> &Body;

    /// The window that this thread may bump; an empty one where it has none.
    fn window(&self) -> &Window;

    /// Hands out a block for which the window had no room; not of size zero.
    fn find_slow(&self, layout: Layout) -> Result<NonNull<u8>, Exhausted>;

    /// Hands out a block from the window.
    #[inline(always)]
    fn bump(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.window().bump(layout)
    }

    /// Hands out a block, after `bumped` was tried.
    #[inline(always)]
    fn or_try_slow(&self, bumped: Option<NonNull<u8>>, layout: Layout) -> Result<NonNull<u8>, Exhausted> {
        match bumped {
            Some(block) => Ok(block),
            None => self.try_place_slow(layout),
        }
    }

    /// Hands out a block, after `bumped` was tried.
    ///
    /// # Panics
    /// Where none is left.
    #[inline(always)]
    #[track_caller]
    fn or_slow(&self, bumped: Option<NonNull<u8>>, layout: Layout) -> NonNull<u8> {
        match bumped {
            Some(block) => block,
            None => self.place_slow(layout),
        }
    }

    #[cold]
    #[inline(never)]
    fn try_place_slow(&self, layout: Layout) -> Result<NonNull<u8>, Exhausted> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        self.find_slow(layout)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn place_slow(&self, layout: Layout) -> NonNull<u8> {
        match self.try_place_slow(layout) {
            Ok(block) => block,
            Err(exhausted) => panic!("{exhausted}"),
        }
    }
}

/// What stands for a block of no bytes where none can be placed: nothing at its alignment.
pub(super) fn dangling(layout: Layout) -> NonNull<u8> {
    NonNull::without_provenance(NonZero::new(layout.align()).expect("an alignment is not zero"))
}

/// The layout of `n` values; one that no arena can serve where there is none.
#[inline(always)]
pub(super) fn array<T>(n: usize) -> Layout {
    Layout::array::<T>(n).unwrap_or_else(|_| beyond(align_of::<T>()))
}

#[cold]
fn beyond(align: usize) -> Layout {
    Layout::from_size_align(isize::MAX as usize - (align - 1), align).expect("the largest size there is")
}

/// Places `value`, by `slow` where the window has no room.
///
/// It is written before the window's cursor: the processor then need not have found the next block before it can write
/// to this one, which for 128 bytes takes a fifth off the time.
///
/// # Safety
/// As for [`self::value`], of the window's blocks and those of `slow`.
#[inline(always)]
pub(super) unsafe fn moved<'a, T, E>(
    source: &impl Source,
    value: T,
    slow: impl FnOnce(Layout) -> Result<NonNull<u8>, E>,
) -> Result<&'a mut T, E> {
    const { assert!(!core::mem::needs_drop::<T>(), "an arena runs no destructors; see zk_nalloc::arena") }
    let layout = Layout::new::<T>();
    let window = source.window();
    if size_of::<T>() != 0
        && let Some((start, end)) = window.fitting(layout)
    {
        let block = start.cast::<T>();
        // SAFETY: the block lies in a window of this thread's, so it can be written and is nobody else's (R3, R4); no foreign
        // code runs before it is handed out, and then it is ours for `'a` (the caller).
        unsafe {
            block.write(value);
            window.end_at(end);
            return Ok(&mut *block);
        }
    }
    let block = if size_of::<T>() == 0 { NonNull::dangling() } else { slow(layout)?.cast::<T>() };
    // SAFETY: the block has the layout of `T` and is ours for `'a` (the caller); a type without size needs no memory.
    unsafe {
        block.write(value);
        Ok(&mut *block.as_ptr())
    }
}

/// Places what `make` returns.
///
/// # Safety
/// For all of `'a` a block that `place` returns belongs to the caller alone (R11) and can be written.
#[inline(always)]
pub(super) unsafe fn value<'a, T, E>(
    place: impl FnOnce(Layout) -> Result<NonNull<u8>, E>,
    make: impl FnOnce() -> T,
) -> Result<&'a mut T, E> {
    const { assert!(!core::mem::needs_drop::<T>(), "an arena runs no destructors; see zk_nalloc::arena") }
    let block =
        if size_of::<T>() == 0 { NonNull::<T>::dangling() } else { place(Layout::new::<T>())?.cast() };
    // `make` may allocate, from this arena too, or unwind: the block is ours already, and nothing is in it.
    let value = make();
    // SAFETY: the block has the layout of `T` and is ours for `'a` (the caller); a type without size needs no memory.
    unsafe {
        block.write(value);
        Ok(&mut *block.as_ptr())
    }
}

/// Places `n` values that are not initialised.
///
/// # Safety
/// As for [`value`].
#[inline(always)]
pub(super) unsafe fn uninit<'a, T, E>(
    place: impl FnOnce(Layout) -> Result<NonNull<u8>, E>,
    n: usize,
) -> Result<&'a mut [MaybeUninit<T>], E> {
    let block = place(array::<T>(n))?;
    // SAFETY: the block has room for `n` of `T` and is ours for `'a` (the caller); `MaybeUninit` allows any bytes.
    Ok(unsafe { slice::from_raw_parts_mut(block.cast().as_ptr(), n) })
}

/// Places `n` zeros; `dirty_len` says how many bytes of a block may be something else.
///
/// # Safety
/// As for [`value`]; and all bytes of a block are zero but for the first `dirty_len`.
#[inline(always)]
pub(super) unsafe fn zeroed<'a, T: Zeroable, E>(
    place: impl FnOnce(Layout) -> Result<NonNull<u8>, E>,
    dirty_len: impl FnOnce(*mut u8, usize) -> usize,
    n: usize,
) -> Result<&'a mut [T], E> {
    const { assert!(!core::mem::needs_drop::<T>(), "an arena runs no destructors; see zk_nalloc::arena") }
    // SAFETY: as the caller promises.
    let slots = unsafe { uninit::<T, E>(place, n)? };
    let (at, len) = (slots.as_mut_ptr().cast::<u8>(), size_of_val(slots));
    if len != 0 {
        let dirty = dirty_len(at, len);
        // SAFETY: `dirty <= len`, and the slots are that long.
        unsafe { at.write_bytes(0, dirty) };
    }
    // SAFETY: all bytes are zero now (the caller), and zeros are a value of `T` (`Zeroable`).
    Ok(unsafe { slice::from_raw_parts_mut(slots.as_mut_ptr().cast(), n) })
}

/// Places a copy of `values`.
///
/// # Safety
/// As for [`value`].
#[inline(always)]
pub(super) unsafe fn copied<'a, T: Copy, E>(
    place: impl FnOnce(Layout) -> Result<NonNull<u8>, E>,
    values: &[T],
) -> Result<&'a mut [T], E> {
    let to = place(Layout::for_value(values))?.cast::<T>().as_ptr();
    // SAFETY: the block has the layout of `values`, is ours for `'a` (the caller), and so overlaps nothing; `T` is
    // `Copy`, so its bytes are a value of their own.
    unsafe {
        to.copy_from_nonoverlapping(values.as_ptr(), values.len());
        Ok(slice::from_raw_parts_mut(to, values.len()))
    }
}

/// Places what `make` returns for each index below `n`.
///
/// # Safety
/// As for [`value`].
#[inline(always)]
pub(super) unsafe fn filled<'a, T, E>(
    place: impl FnOnce(Layout) -> Result<NonNull<u8>, E>,
    n: usize,
    mut make: impl FnMut(usize) -> T,
) -> Result<&'a mut [T], E> {
    const { assert!(!core::mem::needs_drop::<T>(), "an arena runs no destructors; see zk_nalloc::arena") }
    // SAFETY: as the caller promises.
    let slots = unsafe { uninit::<T, E>(place, n)? };
    for (i, slot) in slots.iter_mut().enumerate() {
        // `make` may allocate, from this arena too, or unwind: the slots are ours already and need no dropping.
        slot.write(make(i));
    }
    // SAFETY: all `n` slots were written.
    Ok(unsafe { slice::from_raw_parts_mut(slots.as_mut_ptr().cast(), n) })
}

/// Places what `values` yields: as many as it says, or fewer if it ends early.
///
/// # Safety
/// As for [`value`].
#[inline(always)]
pub(super) unsafe fn collected<'a, T, E>(
    place: impl FnOnce(Layout) -> Result<NonNull<u8>, E>,
    values: impl ExactSizeIterator<Item = T>,
) -> Result<&'a mut [T], E> {
    const { assert!(!core::mem::needs_drop::<T>(), "an arena runs no destructors; see zk_nalloc::arena") }
    // SAFETY: as the caller promises.
    let slots = unsafe { uninit::<T, E>(place, values.len())? };
    let mut written = 0;
    // The slots bound the loop, whatever the iterator claims.
    for (slot, value) in slots.iter_mut().zip(values) {
        slot.write(value);
        written += 1;
    }
    // SAFETY: the first `written` slots were written.
    Ok(unsafe { slice::from_raw_parts_mut(slots.as_mut_ptr().cast(), written) })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn too_large_an_array_has_a_layout_that_nothing_can_serve() {
        assert_eq!(array::<u64>(4), Layout::new::<[u64; 4]>());
        assert_eq!(array::<u64>(usize::MAX).size(), isize::MAX as usize - 7);
        assert_eq!(array::<u8>(usize::MAX).size(), isize::MAX as usize);
        assert_eq!(array::<()>(usize::MAX).size(), 0);
    }
}
