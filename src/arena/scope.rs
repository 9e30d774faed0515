//! Taking back what was allocated since a point in time, on exit and on unwind.
//!
//! A [`Checkpoint`] holds a state of the arena and goes back to it when dropped. Between the two, memory is allocated
//! through a [`Scope`], and lives for the scope's lifetime `'s` rather than for a borrow of the handle, so that what
//! an outer scope allocated can be used inside an inner one.
//!
//! Why it is sound (docs/SAFETY.md, R10): of all handles to an arena only the innermost can be used, since each
//! inner one borrows the next outer one mutably; so nothing can be allocated for an outer lifetime behind an inner
//! mark. A handle or checkpoint that is forgotten gives memory back later, never earlier.
//! Never here: `Clone`, and any `&Arena` that lives longer than a borrow of its scope.

use core::alloc::Layout;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use super::Arena;
use super::parts::{Body, Mark};
use super::place::Source;
use super::window::Window;
use super::{Exhausted, Worker};

/// A state of an arena, to which it goes back when this is dropped.
///
/// ```
/// # use zk_nalloc::Arena;
/// let mut arena = Arena::with_capacity(1 << 20)?;
/// let mut outer = arena.checkpoint();
/// let mut scope = outer.scope();
/// let sum = scope.alloc(0_u64);
/// for round in 0..10 {
///     let mut inner = scope.checkpoint();
///     let scratch = inner.scope().alloc_slice_fill_with(1000, |i| i as u64 * round);
///     *sum += scratch.iter().sum::<u64>();
/// } // `scratch` is gone, `sum` is not
/// assert_eq!(*sum, 45 * 499_500);
/// assert_eq!(scope.used(), 8);
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint<'a> {
    /// Borrowed mutably when the checkpoint was made, and so for all of `'a`.
    arena: &'a Arena,
    mark: Mark,
}

/// Allocates from an arena until the [`Checkpoint`] it belongs to is dropped.
///
/// It allocates as [`Arena`] does, from any thread. It also derefs to the arena, for its figures, for
/// [`Arena::worker`] and for collections that hold an `&Arena`; what comes from there borrows from the scope itself.
///
/// ```
/// # use zk_nalloc::Arena;
/// let mut arena = Arena::with_capacity(1 << 20)?;
/// let longest = arena.scope(|scope| {
///     let words = scope.alloc_slice_copy(&["a", "list", "of", "words"]);
///     words.iter().map(|word| word.len()).max()
/// });
/// assert_eq!(longest, Some(5));
/// assert_eq!(arena.used(), 0);
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
#[derive(Debug)]
pub struct Scope<'s, 'env: 's> {
    arena: &'s Arena,
    /// Both lifetimes are exact: a scope is never taken for one that lives longer or shorter.
    exact: PhantomData<(&'s mut &'s (), &'env mut &'env ())>,
}

impl Arena {
    /// Remembers this state of the arena, to go back to it when the checkpoint is dropped.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let mut arena = Arena::with_capacity(1 << 20)?;
    /// let mut checkpoint = arena.checkpoint();
    /// checkpoint.scope().alloc_array::<u8>(1000);
    /// drop(checkpoint);
    /// assert_eq!(arena.used(), 0);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use = "the arena goes back to this state when the checkpoint is dropped"]
    pub fn checkpoint(&mut self) -> Checkpoint<'_> {
        Checkpoint { mark: self.body().mark(), arena: self }
    }

    /// Calls `body` with a scope and frees what was allocated in it, also when `body` unwinds.
    ///
    /// Nothing allocated inside can be returned:
    ///
    /// ```compile_fail
    /// # use zk_nalloc::Arena;
    /// let mut arena = Arena::with_capacity(1 << 20)?;
    /// let escaped = arena.scope(|scope| scope.alloc(1));
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let mut arena = Arena::with_capacity(1 << 20)?;
    /// let sum = arena.scope(|scope| {
    ///     let a = scope.alloc(1);
    ///     let b = scope.scope(|inner| *inner.alloc(2) + *a);
    ///     *a + b
    /// });
    /// assert_eq!((sum, arena.used()), (4, 0));
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn scope<'env, R>(&'env mut self, body: impl for<'s> FnOnce(&mut Scope<'s, 'env>) -> R) -> R {
        let mut checkpoint = self.checkpoint();
        body(&mut checkpoint.scope())
    }
}

impl<'a> Checkpoint<'a> {
    /// Gives the handle to allocate with. What it allocates keeps the checkpoint borrowed.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let mut arena = Arena::with_capacity(1 << 20)?;
    /// let mut checkpoint = arena.checkpoint();
    /// let scope = checkpoint.scope();
    /// assert_eq!(scope.alloc_slice_copy(&[1, 2]), &[1, 2]);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn scope(&mut self) -> Scope<'_, 'a> {
        Scope { arena: self.arena, exact: PhantomData }
    }
}

impl Drop for Checkpoint<'_> {
    fn drop(&mut self) {
        // All that was allocated since borrows from this checkpoint, and nobody else can reach the arena (R10).
        self.arena.body().rewind(self.mark);
    }
}

impl Scope<'_, '_> {
    /// Remembers this state of the arena, to go back to it when the checkpoint is dropped. What this scope has
    /// allocated so far stays usable; the scope itself is not until then.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let mut arena = Arena::with_capacity(1 << 20)?;
    /// let mut outer = arena.checkpoint();
    /// let mut scope = outer.scope();
    /// let kept = scope.alloc(1);
    /// {
    ///     let mut inner = scope.checkpoint();
    ///     *kept += *inner.scope().alloc(2);
    /// }
    /// assert_eq!((*kept, scope.used()), (3, 8));
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use = "the arena goes back to this state when the checkpoint is dropped"]
    pub fn checkpoint(&mut self) -> Checkpoint<'_> {
        Checkpoint { mark: self.arena.body().mark(), arena: self.arena }
    }

    /// Calls `body` with a scope inside this one and frees what was allocated in it, also when `body` unwinds.
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let mut arena = Arena::with_capacity(1 << 20)?;
    /// arena.scope(|outer| {
    ///     let sum = outer.alloc(0);
    ///     for i in 0..4 {
    ///         outer.scope(|inner| *sum += *inner.alloc(i));
    ///     }
    ///     assert_eq!((*sum, outer.used()), (6, 8));
    /// });
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn scope<'env, R>(&'env mut self, body: impl for<'s> FnOnce(&mut Scope<'s, 'env>) -> R) -> R {
        let mut checkpoint = self.checkpoint();
        body(&mut checkpoint.scope())
    }

    /// Gives a worker whose blocks live as long as this borrow of the scope; see [`Arena::worker`].
    ///
    /// ```
    /// # use zk_nalloc::Arena;
    /// let mut arena = Arena::with_capacity(1 << 20)?;
    /// arena.scope(|scope| {
    ///     let worker = scope.worker();
    ///     assert_eq!(*worker.alloc(1), 1);
    /// });
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn worker(&self) -> Worker<'_> {
        self.arena.worker()
    }
}

impl Deref for Scope<'_, '_> {
    type Target = Arena;

    fn deref(&self) -> &Arena {
        self.arena
    }
}

impl Source for Scope<'_, '_> {
    #[inline(always)]
    fn body(&self) -> &Body {
        self.arena.body()
    }

    #[inline(always)]
    fn window(&self) -> &Window {
        self.arena.window()
    }

    fn find_slow(&self, layout: Layout) -> Result<NonNull<u8>, Exhausted> {
        self.arena.find_slow(layout)
    }
}
