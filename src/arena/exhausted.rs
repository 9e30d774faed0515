//! The error of the `try_` forms.

use core::alloc::Layout;
use core::fmt;

use crate::error::MapFailed;

/// An arena had too little memory left, or the kernel would not open more of a reserved one.
///
/// ```
/// # use zk_nalloc::Arena;
/// let arena = Arena::with_capacity(1 << 20)?;
/// let error = arena.try_alloc_array::<u64>(1 << 20).unwrap_err();
/// assert_eq!(error.requested(), 8 << 20);
/// assert_eq!(error.remaining(), 1 << 20);
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    requested: Layout,
    remaining: usize,
    refused: Option<MapFailed>,
}

impl Exhausted {
    #[cold]
    pub(super) fn new(requested: Layout, remaining: usize, refused: Option<MapFailed>) -> Self {
        Self { requested, remaining, refused }
    }

    /// Says how many bytes were asked for; the most that a `Layout` can say (about `isize::MAX`) where the
    /// product of count and size is more.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let arena = Arena::with_capacity(4096)?;
    /// assert_eq!(arena.try_alloc_array::<u32>(1 << 20).unwrap_err().requested(), 4 << 20);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub const fn requested(&self) -> usize {
        self.requested.size()
    }

    /// Says at which alignment they were asked for.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let arena = Arena::with_capacity(4096)?;
    /// assert_eq!(arena.try_alloc_array::<u32>(1 << 20).unwrap_err().align(), 4);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub const fn align(&self) -> usize {
        self.requested.align()
    }

    /// Says how many bytes were left for the caller; aligning may take some of them.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let arena = Arena::with_capacity(4096)?;
    /// arena.alloc([0_u8; 1024]);
    /// let error = arena.try_alloc_array::<u8>(1 << 20).unwrap_err();
    /// assert_eq!(error.remaining(), arena.capacity() - 1024);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.remaining
    }

    /// Gives what the kernel answered, where it was the kernel that refused.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let arena = Arena::with_capacity(4096)?;
    /// assert_eq!(arena.try_alloc_array::<u8>(1 << 20).unwrap_err().refusal(), None);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub const fn refusal(&self) -> Option<MapFailed> {
        self.refused
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, align) = (self.requested.size(), self.requested.align());
        write!(f, "the arena has {} bytes left, not {size} at a multiple of {align}", self.remaining)?;
        match self.refused {
            Some(refused) => write!(f, ": {refused}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Exhausted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.refused.as_ref().map(|refused| refused as _)
    }
}
