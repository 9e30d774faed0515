//! Types of which zero bytes are a value.

#![expect(unsafe_code, reason = "an unsafe marker trait")]

use core::mem::MaybeUninit;
use core::num::{NonZero, Wrapping};
use core::ptr::NonNull;
use core::sync::atomic;

/// A type of which all zero bytes are a value, so that [`Arena::alloc_zeroed`](super::Arena::alloc_zeroed) need
/// not write what the kernel gave as zeros.
///
/// # Safety
/// A value whose bytes are all zero must be valid.
///
/// ```
/// use zk_nalloc::{Arena, arena::Zeroable};
///
/// /// An element of a 31-bit field in Montgomery form: zero is zero.
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// #[repr(transparent)]
/// struct Element(u32);
/// // SAFETY: it holds a `u32`, of which zero is a value.
/// unsafe impl Zeroable for Element {}
///
/// let arena = Arena::with_capacity(1 << 20)?;
/// assert_eq!(arena.alloc_zeroed::<Element>(2), &[Element(0), Element(0)]);
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
///
/// A reference is not one:
///
/// ```compile_fail,E0277
/// # let arena = zk_nalloc::Arena::with_capacity(1 << 20)?;
/// arena.alloc_zeroed::<&u8>(1);
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
pub unsafe trait Zeroable {}

macro_rules! zeroable {
    ($($t:ty),* $(,)?) => {
        $(
            // SAFETY: the reference says of each of these types that zero bytes are a value: numbers, `false`,
            // the first character, null pointers.
            unsafe impl Zeroable for $t {}
        )*
    };
}

zeroable!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, bool, char, ());
zeroable!(
    atomic::AtomicU8,
    atomic::AtomicU16,
    atomic::AtomicU32,
    atomic::AtomicU64,
    atomic::AtomicUsize,
    atomic::AtomicI8,
    atomic::AtomicI16,
    atomic::AtomicI32,
    atomic::AtomicI64,
    atomic::AtomicIsize,
    atomic::AtomicBool,
);

macro_rules! zeroable_option {
    ($($t:ty),*) => {
        $(
            // SAFETY: `Option<NonZero<_>>` is laid out as the integer, with `None` as zero.
            unsafe impl Zeroable for Option<NonZero<$t>> {}
        )*
    };
}

zeroable_option!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

// SAFETY: any bytes are a value.
unsafe impl<T> Zeroable for MaybeUninit<T> {}
// SAFETY: a null pointer is a value.
unsafe impl<T> Zeroable for *const T {}
// SAFETY: a null pointer is a value.
unsafe impl<T> Zeroable for *mut T {}
// SAFETY: `None` is laid out as null.
unsafe impl<T> Zeroable for Option<NonNull<T>> {}
// SAFETY: `None` is laid out as null.
unsafe impl<T> Zeroable for Option<&T> {}
// SAFETY: it is laid out as `T`.
unsafe impl<T: Zeroable> Zeroable for Wrapping<T> {}
// SAFETY: it is laid out as `T`.
unsafe impl<T: Zeroable> Zeroable for core::cell::Cell<T> {}
// SAFETY: each element is zero bytes.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}

macro_rules! zeroable_tuple {
    ($($t:ident)*) => {
        // SAFETY: each field is zero bytes, and padding may be anything.
        unsafe impl<$($t: Zeroable),*> Zeroable for ($($t,)*) {}
    };
}

zeroable_tuple!(A);
zeroable_tuple!(A B);
zeroable_tuple!(A B C);
zeroable_tuple!(A B C D);
