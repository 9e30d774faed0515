//! The allocation methods, written once for [`Arena`], [`Scope`] and [`Worker`].
//!
//! Why a macro: the three differ only in how long a block lives, which no trait that need not be imported can say.
//! Each method comes in two forms; `try_` returns [`Exhausted`] where the other panics.
//! Never here: anything but signatures and documentation. See `place`.

#![expect(unsafe_code, reason = "says how long blocks live")]

use core::alloc::Layout;
use core::convert::Infallible;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::place::{self, Source};
use super::{Arena, Exhausted, Scope, Worker, Zeroable};

/// Calls a function of `place` with the way to get a block that cannot fail, or with the one
/// that can.
macro_rules! placed {
    (try $source:expr, $function:ident $(, $argument:expr)*) => {
        // SAFETY: a block lives until the arena is reset, rewound or dropped (R11), and none of these can be before
        // the end of the lifetime in the signature (R10). What is not dirty is zero (R9).
        unsafe {
            place::$function(|layout| $source.or_try_slow($source.bump(layout), layout) $(, $argument)*)
        }
    };
    ($source:expr, $function:ident $(, $argument:expr)*) => {{
        // SAFETY: as above.
        let Ok(placed) = (unsafe {
            place::$function(
                |layout| Ok::<_, Infallible>($source.or_slow($source.bump(layout), layout))
                $(, $argument)*
            )
        });
        placed
    }};
}

/// The methods for blocks that live for `$a`, got through `&$own self`, with examples on `$handle`, which `$setup`
/// makes.
macro_rules! allocation_methods {
    ([$($own:lifetime)?] $a:lifetime $handle:literal $setup:literal) => {
        /// Moves `value` into the arena.
        ///
        /// # Panics
        /// Where the arena has too little left.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("let seven = ", $handle, ".alloc(7_u64);")]
        /// *seven += 1;
        /// assert_eq!(*seven, 8);
        /// # Ok::<(), zk_nalloc::MapFailed>(())
        /// ```
        ///
        /// A type that needs to be dropped is refused when the program is built:
        ///
        /// ```compile_fail
        #[doc = $setup]
        #[doc = concat!($handle, ".alloc(String::new());")]
        /// # Ok::<(), zk_nalloc::MapFailed>(())
        /// ```
        #[inline(always)]
        #[track_caller]
        pub fn alloc<$($own,)? T>(&$($own)? self, value: T) -> &$a mut T {
            // SAFETY: as in `placed`.
            let Ok(placed) = (unsafe {
                place::moved(self, value, |layout| Ok::<_, Infallible>(self.place_slow(layout)))
            });
            placed
        }

        /// Moves `value` into the arena.
        ///
        /// # Errors
        /// Where the arena has too little left; `value` is gone.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("let seven = ", $handle, ".try_alloc(7_u64)?;")]
        /// assert_eq!(*seven, 7);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[inline(always)]
        pub fn try_alloc<$($own,)? T>(&$($own)? self, value: T) -> Result<&$a mut T, Exhausted> {
            // SAFETY: as in `placed`.
            unsafe { place::moved(self, value, |layout| self.try_place_slow(layout)) }
        }

        /// Makes a value in its place in the arena: what is large need not be moved there.
        ///
        /// `make` may allocate from the same arena. If it unwinds, its place is lost until the next reset.
        ///
        /// # Panics
        /// Where the arena has too little left.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("let block = ", $handle, ".alloc_with(|| [1_u8; 4096]);")]
        /// assert_eq!(block[4095], 1);
        /// # Ok::<(), zk_nalloc::MapFailed>(())
        /// ```
        #[inline(always)]
        #[track_caller]
        pub fn alloc_with<$($own,)? T>(&$($own)? self, make: impl FnOnce() -> T) -> &$a mut T {
            placed!(self, value, make)
        }

        /// Makes a value in its place in the arena, as [`alloc_with`](Self::alloc_with) does.
        ///
        /// # Errors
        /// Where the arena has too little left; `make` was not called.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("let block = ", $handle, ".try_alloc_with(|| [1_u8; 4096])?;")]
        /// assert_eq!(block[4095], 1);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[inline(always)]
        pub fn try_alloc_with<$($own,)? T>(
            &$($own)? self,
            make: impl FnOnce() -> T,
        ) -> Result<&$a mut T, Exhausted> {
            placed!(try self, value, make)
        }

        /// Allocates `n` values without initialising them.
        ///
        /// # Panics
        /// Where the arena has too little left.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("let column = ", $handle, ".alloc_array::<u64>(100);")]
        /// for (i, slot) in column.iter_mut().enumerate() {
        ///     slot.write(i as u64);
        /// }
        /// # Ok::<(), zk_nalloc::MapFailed>(())
        /// ```
        #[inline(always)]
        #[track_caller]
        pub fn alloc_array<$($own,)? T>(&$($own)? self, n: usize) -> &$a mut [MaybeUninit<T>] {
            placed!(self, uninit, n)
        }

        /// Allocates `n` values without initialising them.
        ///
        /// # Errors
        /// Where the arena has too little left.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("assert!(", $handle, ".try_alloc_array::<u64>(100).is_ok());")]
        #[doc = concat!("assert!(", $handle, ".try_alloc_array::<u64>(usize::MAX).is_err());")]
        /// # Ok::<(), zk_nalloc::MapFailed>(())
        /// ```
        #[inline(always)]
        pub fn try_alloc_array<$($own,)? T>(
            &$($own)? self,
            n: usize,
        ) -> Result<&$a mut [MaybeUninit<T>], Exhausted> {
            placed!(try self, uninit, n)
        }

        /// Allocates `n` values that are zero, writing only what was in use before: fresh pages are zero already.
        ///
        /// # Panics
        /// Where the arena has too little left.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("assert_eq!(", $handle, ".alloc_zeroed::<u32>(3), &[0, 0, 0]);")]
        /// # Ok::<(), zk_nalloc::MapFailed>(())
        /// ```
        #[inline(always)]
        #[track_caller]
        pub fn alloc_zeroed<$($own,)? T: Zeroable>(&$($own)? self, n: usize) -> &$a mut [T] {
            placed!(self, zeroed, |at, len| self.body().dirty_len(at, len), n)
        }

        /// Allocates `n` values that are zero, as [`alloc_zeroed`](Self::alloc_zeroed) does.
        ///
        /// # Errors
        /// Where the arena has too little left.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("assert_eq!(", $handle, ".try_alloc_zeroed::<u32>(3)?, &[0, 0, 0]);")]
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[inline(always)]
        pub fn try_alloc_zeroed<$($own,)? T: Zeroable>(
            &$($own)? self,
            n: usize,
        ) -> Result<&$a mut [T], Exhausted> {
            placed!(try self, zeroed, |at, len| self.body().dirty_len(at, len), n)
        }

        /// Copies a slice into the arena.
        ///
        /// # Panics
        /// Where the arena has too little left.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("assert_eq!(", $handle, ".alloc_slice_copy(&[1, 2, 3]), &[1, 2, 3]);")]
        /// # Ok::<(), zk_nalloc::MapFailed>(())
        /// ```
        #[inline(always)]
        #[track_caller]
        pub fn alloc_slice_copy<$($own,)? T: Copy>(&$($own)? self, values: &[T]) -> &$a mut [T] {
            placed!(self, copied, values)
        }

        /// Copies a slice into the arena.
        ///
        /// # Errors
        /// Where the arena has too little left.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("assert_eq!(", $handle, ".try_alloc_slice_copy(&[1, 2, 3])?, &[1, 2, 3]);")]
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[inline(always)]
        pub fn try_alloc_slice_copy<$($own,)? T: Copy>(
            &$($own)? self,
            values: &[T],
        ) -> Result<&$a mut [T], Exhausted> {
            placed!(try self, copied, values)
        }

        /// Makes `n` values in their places, from their indices.
        ///
        /// `make` may allocate from the same arena. If it unwinds, the slice is lost until the next reset.
        ///
        /// # Panics
        /// Where the arena has too little left.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("let squares = ", $handle, ".alloc_slice_fill_with(4, |i| i * i);")]
        /// assert_eq!(squares, &[0, 1, 4, 9]);
        /// # Ok::<(), zk_nalloc::MapFailed>(())
        /// ```
        #[inline(always)]
        #[track_caller]
        pub fn alloc_slice_fill_with<$($own,)? T>(
            &$($own)? self,
            n: usize,
            make: impl FnMut(usize) -> T,
        ) -> &$a mut [T] {
            placed!(self, filled, n, make)
        }

        /// Makes `n` values in their places, as [`alloc_slice_fill_with`](Self::alloc_slice_fill_with) does.
        ///
        /// # Errors
        /// Where the arena has too little left; `make` was not called.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("let squares = ", $handle, ".try_alloc_slice_fill_with(4, |i| i * i)?;")]
        /// assert_eq!(squares, &[0, 1, 4, 9]);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[inline(always)]
        pub fn try_alloc_slice_fill_with<$($own,)? T>(
            &$($own)? self,
            n: usize,
            make: impl FnMut(usize) -> T,
        ) -> Result<&$a mut [T], Exhausted> {
            placed!(try self, filled, n, make)
        }

        /// Moves what an iterator yields into the arena: as many values as it says it has, or as many as there are
        /// if it ends early. What it yields beyond is not asked for.
        ///
        /// # Panics
        /// Where the arena has too little left.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("let odd = ", $handle, ".alloc_slice_fill_iter((0..3).map(|i| 2 * i + 1));")]
        /// assert_eq!(odd, &[1, 3, 5]);
        /// # Ok::<(), zk_nalloc::MapFailed>(())
        /// ```
        #[inline(always)]
        #[track_caller]
        pub fn alloc_slice_fill_iter<$($own,)? T, I>(&$($own)? self, values: I) -> &$a mut [T]
        where
            I: IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        {
            placed!(self, collected, values.into_iter())
        }

        /// Moves what an iterator yields into the arena, as [`alloc_slice_fill_iter`](Self::alloc_slice_fill_iter)
        /// does.
        ///
        /// # Errors
        /// Where the arena has too little left; nothing was asked of the iterator but its length.
        ///
        /// ```
        #[doc = $setup]
        #[doc = concat!("let odd = ", $handle, ".try_alloc_slice_fill_iter([1, 3, 5])?;")]
        /// assert_eq!(odd, &[1, 3, 5]);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[inline(always)]
        pub fn try_alloc_slice_fill_iter<$($own,)? T, I>(
            &$($own)? self,
            values: I,
        ) -> Result<&$a mut [T], Exhausted>
        where
            I: IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        {
            placed!(try self, collected, values.into_iter())
        }

        /// Allocates memory of a layout, not initialised: valid until the arena is reset or dropped, or the checkpoint ends under
        /// which it was allocated. The pointer carries no lifetime, so the compiler does not see to that.
        ///
        /// # Panics
        /// Where the arena has too little left.
        ///
        /// ```
        #[doc = $setup]
        /// let layout = std::alloc::Layout::from_size_align(100, 4096)?;
        #[doc = concat!("let block = ", $handle, ".alloc_layout(layout);")]
        /// assert_eq!(block.addr().get() % 4096, 0);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[inline(always)]
        #[track_caller]
        pub fn alloc_layout(&self, layout: Layout) -> NonNull<u8> {
            self.or_slow(self.bump(layout), layout)
        }

        /// Allocates memory of a layout, not initialised, as [`alloc_layout`](Self::alloc_layout) does.
        ///
        /// # Errors
        /// Where the arena has too little left.
        ///
        /// ```
        #[doc = $setup]
        /// let layout = std::alloc::Layout::from_size_align(1 << 40, 8)?;
        #[doc = concat!("assert!(", $handle, ".try_alloc_layout(layout).is_err());")]
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[inline(always)]
        pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, Exhausted> {
            self.or_try_slow(self.bump(layout), layout)
        }
    };
}

#[expect(clippy::mut_from_ref, reason = "every call gives another block")]
impl Arena {
    allocation_methods!(['x] 'x "arena" "# use zk_nalloc::Arena;\nlet arena = Arena::with_capacity(1 << 20)?;");
}

impl<'s> Scope<'s, '_> {
    allocation_methods!([] 's "scope" "# use zk_nalloc::Arena;\nlet mut arena = Arena::with_capacity(1 << 20)?;\nlet mut checkpoint = arena.checkpoint();\nlet scope = checkpoint.scope();");
}

impl<'a> Worker<'a> {
    allocation_methods!([] 'a "worker" "# use zk_nalloc::Arena;\nlet arena = Arena::with_capacity(1 << 20)?;\nlet worker = arena.worker();");
}
