//! Which data a [`Secret`](super::Secret) can hold, and how its bytes are seen as that.
//!
//! Invariant (X9): of a [`PlainData`] any initialised bytes are a value, and any value is initialised bytes.

#![expect(unsafe_code, reason = "sees bytes as plain data")]

/// Types whose every bit pattern is a value, and whose every byte belongs to it.
///
/// Implemented for the integers, the floats and arrays of them. A field element of another crate takes a
/// wrapper, since only the owner of a type or of a trait may join the two.
///
/// ```
/// use zk_nalloc::{Secret, secret::PlainData};
///
/// #[derive(Clone, Copy)]
/// #[repr(transparent)]
/// struct Goldilocks(u64);
///
/// // SAFETY: a transparent wrapper of a `u64`, and any `u64` stands for an element.
/// unsafe impl PlainData for Goldilocks {}
///
/// let witness = Secret::<[Goldilocks]>::new(1000)?;
/// assert!(witness.get().iter().all(|element| element.0 == 0));
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
///
/// # Safety
/// Every bit pattern of the type's size is a valid value; the type has no padding, no interior mutability and
/// nothing to drop; and it holds no reference or pointer that would be wrong in another process.
pub unsafe trait PlainData: Copy + 'static {}

macro_rules! plain {
    ($($number:ty)*) => {$(
        // SAFETY: a number has no padding, and every bit pattern of it is a value.
        unsafe impl PlainData for $number {}
    )*};
}
plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: an array is its elements, one after another without padding.
unsafe impl<T: PlainData, const N: usize> PlainData for [T; N] {}

mod contents {
    //! How bytes are seen as a content; sealed.

    use super::PlainData;

    /// # Safety
    /// The methods return references to exactly the bytes given.
    pub unsafe trait View {
        /// # Safety
        /// The bytes are aligned and a whole number of elements (X9).
        unsafe fn view(bytes: &[u8]) -> &Self;
        /// # Safety
        /// As `view`.
        unsafe fn view_mut(bytes: &mut [u8]) -> &mut Self;
    }

    // SAFETY: the pointers are those of the bytes given, and so are the lengths.
    unsafe impl<T: PlainData> View for T {
        unsafe fn view(bytes: &[u8]) -> &Self {
            // SAFETY: as many bytes as `T` has, aligned (the caller), of which any pattern is a value.
            unsafe { &*bytes.as_ptr().cast() }
        }
        unsafe fn view_mut(bytes: &mut [u8]) -> &mut Self {
            // SAFETY: as above; and any value of `T` is initialised bytes, as it has no padding.
            unsafe { &mut *bytes.as_mut_ptr().cast() }
        }
    }

    // SAFETY: the pointers are those of the bytes given, and so are the lengths.
    unsafe impl<T: PlainData> View for [T] {
        unsafe fn view(bytes: &[u8]) -> &Self {
            // SAFETY: as above, for each element.
            unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
        }
        unsafe fn view_mut(bytes: &mut [u8]) -> &mut Self {
            let len = bytes.len() / size_of::<T>();
            // SAFETY: as above, for each element.
            unsafe { core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) }
        }
    }
}

/// What a [`Secret`](super::Secret) can hold: one [`PlainData`], or a slice of them.
pub trait Contents: contents::View {}
impl<T: PlainData> Contents for T {}
impl<T: PlainData> Contents for [T] {}
