//! Values of one type, side by side in the order of their allocation, dropped together.
//!
//! Why beside [`Arena`](super::Arena): it runs destructors, it can be walked like a slice, and its values may refer to
//! one another in cycles. It is for one thread; a whole graph lies in one contiguous range of huge pages, which is
//! what makes walking it fast.
//!
//! Invariants (docs/SAFETY.md): R12, destructors see no value that may be gone; R13, what is initialised.
//! Never here: moving a value while it is in the arena.

#![expect(unsafe_code, reason = "hands out values in memory that it owns")]

use core::alloc::Layout;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::needs_drop;
use core::ptr;
use core::slice;

use super::Exhausted;
use super::mapping::Mapping;
use super::typed_raw::Erased;
use crate::error::MapFailed;

/// The address space that [`TypedArena::new`] sets aside: more than the memory of any machine that runs provers, and
/// little enough of the 128 TiB of a process that a hundred of them fit.
const RESERVED: usize = if cfg!(miri) { 1 << 20 } else { 1 << 40 };

/// What it sets aside where it is refused so much, as divisors: 64, 4 and 1 GiB.
const LESS: [usize; 3] = [16, 256, 1024];

/// Values of one type, contiguous and in order, dropped at reset and with the arena.
///
/// ```
/// use zk_nalloc::TypedArena;
///
/// let mut arena = TypedArena::new();
/// let hello = arena.alloc(String::from("hello"));
/// hello.push('!');
/// arena.alloc(String::from("world"));
/// let all: Vec<&str> = arena.iter_mut().map(|s| s.as_str()).collect();
/// assert_eq!(all, ["hello!", "world"]);
/// ```
///
/// Values may refer to one another, in cycles too, and may own what has a destructor:
///
/// ```
/// use std::cell::RefCell;
/// use zk_nalloc::TypedArena;
///
/// struct GraphNode<'a> {
///     name: String,
///     neighbours: RefCell<Vec<&'a GraphNode<'a>>>,
/// }
///
/// let arena = TypedArena::new();
/// let node = |name: &str| {
///     &*arena.alloc(GraphNode { name: name.into(), neighbours: RefCell::default() })
/// };
/// let (a, b) = (node("a"), node("b"));
/// a.neighbours.borrow_mut().push(b);
/// b.neighbours.borrow_mut().push(a);
/// assert_eq!(a.neighbours.borrow()[0].neighbours.borrow()[0].name, "a");
/// ```
///
/// A type with a destructor of its own that could look at such a neighbour, which may have been dropped before it, is
/// refused:
///
/// ```compile_fail,E0597
/// # use std::cell::Cell;
/// # use zk_nalloc::TypedArena;
/// struct Node<'a>(Cell<Option<&'a Node<'a>>>);
///
/// impl Drop for Node<'_> {
///     fn drop(&mut self) {}
/// }
///
/// let arena = TypedArena::new();
/// let node = arena.alloc(Node(Cell::new(None)));
/// node.0.set(Some(node));
/// ```
///
/// It is for one thread at a time: it can be sent, not shared.
///
/// ```compile_fail,E0277
/// fn share(_: impl Sync) {}
/// share(zk_nalloc::TypedArena::<u8>::new());
/// ```
pub struct TypedArena<T> {
    erased: Erased,
    /// Never filled. Its drop glue tells the compiler that dropping the arena may drop values of `T`, in the
    /// exact words of the standard library: what `T` refers to may dangle unless a destructor of `T` could
    /// see it (R12).
    _drops: Vec<T>,
    /// Neither shorter nor longer lifetimes will do for `T`: what is put in is what `iter_mut` takes out.
    _exact: PhantomData<Cell<T>>,
}

// SAFETY: the arena owns its values and its mapping, and nothing else; it is not `Sync`.
unsafe impl<T: Send> Send for TypedArena<T> {}

/// Drops `len` values of `T` from `first` on.
///
/// # Safety
/// They are initialised, and are not used again.
unsafe fn drop_run<T>(first: *mut u8, len: usize) {
    // SAFETY: as the caller promises. As for any slice, a destructor that unwinds does not keep the rest from running.
    unsafe { ptr::drop_in_place(ptr::slice_from_raw_parts_mut(first.cast::<T>(), len)) }
}

impl<T> TypedArena<T> {
    /// Sets 1 TiB of address space aside, of which memory is opened as values come: no value ever moves, and all lie
    /// side by side. Where the host refuses that (`ulimit -v`, `mlockall`), 64, 4 or 1 GiB.
    ///
    /// # Panics
    /// Where it refuses all of these, with the setting that did; see [`with_capacity`](Self::with_capacity).
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let arena = TypedArena::new();
    /// assert_eq!(*arena.alloc(1), 1);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new() -> Self {
        let less = |refused| LESS.iter().find_map(|part| Self::over(RESERVED / part).ok()).ok_or(refused);
        match Self::over(RESERVED).or_else(less) {
            Ok(arena) => arena,
            Err(refused) => panic!("{refused}"),
        }
    }

    /// Sets address space aside for `n` values.
    ///
    /// # Errors
    /// Where the kernel refuses, or where no address space is that large.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let arena = TypedArena::<u64>::with_capacity(1000)?;
    /// assert!(arena.capacity() >= 1000);
    /// assert!(TypedArena::<u64>::with_capacity(usize::MAX).is_err());
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn with_capacity(n: usize) -> Result<Self, MapFailed> {
        match n.checked_mul(size_of::<T>()) {
            Some(bytes) => Self::over(bytes),
            None => Err(MapFailed::absurd(usize::MAX)),
        }
    }

    fn over(bytes: usize) -> Result<Self, MapFailed> {
        const { assert!(align_of::<T>() <= super::mapping::PAGE_MAX, "no arena starts at so large an alignment") }
        let drop_all = needs_drop::<T>().then_some(drop_run::<T> as super::typed_raw::DropAll);
        let erased = Erased::new(Mapping::reserved(bytes)?, size_of::<T>(), drop_all);
        Ok(Self { erased, _drops: Vec::new(), _exact: PhantomData })
    }

    /// Moves `value` into the arena, behind the last one.
    ///
    /// # Panics
    /// Where the arena is full.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let arena = TypedArena::new();
    /// let name = arena.alloc(String::from("a"));
    /// name.push('b');
    /// assert_eq!(name, "ab");
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn alloc(&self, value: T) -> &mut T {
        if size_of::<T>() != 0 && !self.fits() {
            self.open_slow();
        }
        self.put(value)
    }

    /// Moves `value` into the arena, behind the last one.
    ///
    /// # Errors
    /// Where the arena is full; `value` is dropped.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let arena = TypedArena::with_capacity(8)?;
    /// assert_eq!(*arena.try_alloc(1)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn try_alloc(&self, value: T) -> Result<&mut T, Exhausted> {
        if size_of::<T>() != 0 && !self.fits() {
            self.erased.open_slow(Layout::new::<T>())?;
        }
        Ok(self.put(value))
    }

    #[inline(always)]
    fn fits(&self) -> bool {
        // Cannot overflow: an address is below 2^57, a size at most 2^63.
        self.erased.cursor.get().wrapping_add(size_of::<T>()).addr() <= self.erased.limit.get().addr()
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn open_slow(&self) {
        if let Err(exhausted) = self.erased.open_slow(Layout::new::<T>()) {
            panic!("{exhausted}");
        }
    }

    /// Puts `value` at the cursor, where it fits.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "every call gives another value")]
    fn put(&self, value: T) -> &mut T {
        if size_of::<T>() == 0 {
            self.erased.count(1);
        }
        let slot = self.erased.cursor.get().cast::<T>();
        // SAFETY: the slot lies below the limit (`fits`), so it can be written (R2), or has no size; it is aligned, since the base is
        // a multiple of a page and all before it are of this size; no value is at or above the cursor (R13). It
        // stays until a reset, which needs `&mut`, or the end of the arena.
        unsafe {
            slot.write(value);
            self.erased.cursor.set(slot.add(1).cast());
            &mut *slot
        }
    }

    /// Moves all that an iterator yields into the arena, side by side.
    ///
    /// The values are gathered on the heap first, since the iterator may allocate from this arena.
    ///
    /// # Panics
    /// Where the arena has too little room.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let arena = TypedArena::new();
    /// let words = arena.alloc_extend("a few words".split(' ').map(String::from));
    /// assert_eq!(words, ["a", "few", "words"]);
    /// ```
    #[track_caller]
    pub fn alloc_extend(&self, values: impl IntoIterator<Item = T>) -> &mut [T] {
        match self.try_alloc_extend(values) {
            Ok(values) => values,
            Err(exhausted) => panic!("{exhausted}"),
        }
    }

    /// Moves all that an iterator yields into the arena, side by side; as [`alloc_extend`](Self::alloc_extend).
    ///
    /// # Errors
    /// Where the arena has too little room: the values are dropped.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let arena = TypedArena::with_capacity(512)?;
    /// let room = arena.capacity();
    /// assert_eq!(arena.try_alloc_extend(0..room).unwrap().len(), room);
    /// assert!(arena.try_alloc_extend(0..1).is_err());
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[expect(clippy::mut_from_ref, reason = "every call gives other values")]
    pub fn try_alloc_extend(&self, values: impl IntoIterator<Item = T>) -> Result<&mut [T], Exhausted> {
        let mut values: Vec<T> = values.into_iter().collect();
        let n = values.len();
        if size_of::<T>() == 0 {
            self.erased.count(n);
        }
        let layout = Layout::for_value(values.as_slice());
        if self.erased.limit.get().addr() - self.erased.cursor.get().addr() < layout.size() {
            self.erased.open_slow(layout)?;
        }
        let first = self.erased.cursor.get().cast::<T>();
        // SAFETY: as in `put`, for `n` slots; the values are moved, so the vector must not drop them.
        unsafe {
            values.set_len(0);
            first.copy_from_nonoverlapping(values.as_ptr(), n);
            self.erased.cursor.set(first.add(n).cast());
            Ok(slice::from_raw_parts_mut(first, n))
        }
    }

    /// Says how many values there are.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let arena = TypedArena::new();
    /// arena.alloc(1);
    /// assert_eq!(arena.len(), 1);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.erased.len()
    }

    /// Says whether there is no value.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// assert!(TypedArena::<u8>::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says how many values there is room for in all.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// assert!(TypedArena::<u64>::with_capacity(10)?.capacity() >= 10);
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.erased.capacity()
    }

    /// Gives all values as a slice, in the order in which they were allocated.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let mut arena = TypedArena::new();
    /// arena.alloc(2);
    /// arena.alloc(1);
    /// arena.as_mut_slice().sort();
    /// assert_eq!(arena.as_mut_slice(), [1, 2]);
    /// ```
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        let (first, len) = self.run();
        // SAFETY: the first `len` values are initialised (R13), and `&mut self` says that no reference to one is left.
        unsafe { slice::from_raw_parts_mut(first, len) }
    }

    /// Walks all values in the order in which they were allocated.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let mut arena = TypedArena::new();
    /// arena.alloc(1);
    /// arena.alloc(2);
    /// assert!(arena.iter_mut().eq([&1, &2]));
    /// ```
    pub fn iter_mut(&mut self) -> slice::IterMut<'_, T> {
        self.as_mut_slice().iter_mut()
    }

    /// Moves all values into a vector, in the order in which they were allocated: one copy of their bytes.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let arena = TypedArena::new();
    /// arena.alloc(String::from("a"));
    /// assert_eq!(arena.into_vec(), ["a"]);
    /// ```
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        let (first, len) = self.run();
        let mut values: Vec<T> = Vec::with_capacity(len);
        self.erased.forget_all();
        // SAFETY: the first `len` values are initialised (R13), the vector has room for them, and the arena has
        // forgotten them, so that they are moved.
        unsafe {
            values.as_mut_ptr().copy_from_nonoverlapping(first, len);
            values.set_len(len);
        }
        values
    }

    /// Drops all values and keeps the pages warm.
    ///
    /// If a destructor unwinds, the others run all the same, and the arena is empty.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let mut arena = TypedArena::new();
    /// arena.alloc(String::from("a"));
    /// arena.reset();
    /// assert!(arena.is_empty());
    /// ```
    pub fn reset(&mut self) {
        self.erased.drop_all();
    }

    /// Drops all values and gives the pages back to the kernel. Says how many bytes were given back at most, or 0
    /// where the kernel refused.
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let mut arena = TypedArena::new();
    /// arena.alloc([1_u8; 5000]);
    /// assert!(arena.reset_and_release() >= 5000);
    /// ```
    pub fn reset_and_release(&mut self) -> usize {
        self.reset();
        self.erased.release()
    }

    /// Drops all values and overwrites all that was ever in use with zeros, in a way that the compiler cannot leave out. Pages
    /// stay warm, and what was never touched gets none. Dropping an arena does not wipe it, nor does
    /// [`Config::wipe_on_free`](crate::Config::wipe_on_free).
    ///
    /// If a destructor unwinds, the others run all the same, and the arena is empty and wiped.
    ///
    /// What it does not reach: what values own elsewhere, such as the text of a `String`; copies in registers, on stacks, in swap
    /// or in a core dump. Secrets that need more than this need a [`SecretBuf`](crate::SecretBuf).
    ///
    /// ```
    /// # use zk_nalloc::TypedArena;
    /// let mut arena = TypedArena::new();
    /// arena.alloc([7_u8; 32]);
    /// arena.wipe();
    /// assert!(arena.is_empty());
    /// ```
    pub fn wipe(&mut self) {
        self.erased.wipe();
    }

    /// The first value and how many there are.
    fn run(&self) -> (*mut T, usize) {
        (self.erased.base().cast(), self.len())
    }
}

impl<T> Default for TypedArena<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for TypedArena<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedArena").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<'a, T> IntoIterator for &'a mut TypedArena<T> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}
