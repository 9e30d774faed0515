//! The arenas under comparison, behind one interface; every one is given its capacity beforehand.

use std::alloc::Layout;

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use bump_scope::traits::BumpAllocatorTyped;

/// The bytes at `block`.
///
/// # Safety
/// An arena gave them, that many, for as long as it is borrowed.
unsafe fn bytes<'a>(block: NonNull<u8>, len: usize) -> &'a mut [MaybeUninit<u8>] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts_mut(block.as_ptr().cast(), len) }
}

fn words(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 8).expect("a size of memory")
}

#[expect(clippy::mut_from_ref, reason = "every call gives another block")]
pub trait Peer: Sized {
    const NAME: &'static str;
    fn with_capacity(bytes: usize) -> Self;
    fn value<T: Copy + 'static>(&self, value: T) -> &mut T;
    fn copy(&self, values: &[u64]) -> &mut [u64];
    fn array(&self, bytes: usize) -> &mut [MaybeUninit<u8>];
    fn reset(&mut self);
}

impl Peer for zk_nalloc::Arena {
    const NAME: &'static str = "zk-nalloc";
    fn with_capacity(bytes: usize) -> Self {
        Self::with_capacity(bytes).unwrap()
    }
    #[inline(always)]
    fn value<T: Copy>(&self, value: T) -> &mut T {
        self.alloc(value)
    }
    #[inline(always)]
    fn copy(&self, values: &[u64]) -> &mut [u64] {
        self.alloc_slice_copy(values)
    }
    fn array(&self, len: usize) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the arena gives that many bytes until it is reset.
        unsafe { bytes(self.alloc_layout(words(len)), len) }
    }
    fn reset(&mut self) {
        self.reset();
    }
}

impl Peer for bumpalo::Bump {
    const NAME: &'static str = "bumpalo";
    fn with_capacity(bytes: usize) -> Self {
        Self::with_capacity(bytes)
    }
    #[inline(always)]
    fn value<T: Copy>(&self, value: T) -> &mut T {
        self.alloc(value)
    }
    #[inline(always)]
    fn copy(&self, values: &[u64]) -> &mut [u64] {
        self.alloc_slice_copy(values)
    }
    fn array(&self, len: usize) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the arena gives that many bytes until it is reset.
        unsafe { bytes(self.alloc_layout(words(len)), len) }
    }
    fn reset(&mut self) {
        self.reset();
    }
}

impl Peer for bump_scope::Bump {
    const NAME: &'static str = "bump-scope";
    fn with_capacity(bytes: usize) -> Self {
        Self::with_size(bytes)
    }
    #[inline(always)]
    fn value<T: Copy>(&self, value: T) -> &mut T {
        bump_scope::BumpBox::leak(self.alloc(value))
    }
    #[inline(always)]
    fn copy(&self, values: &[u64]) -> &mut [u64] {
        bump_scope::BumpBox::leak(self.alloc_slice_copy(values))
    }
    fn array(&self, len: usize) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the arena gives that many bytes until it is reset.
        unsafe { bytes(self.allocate_layout(words(len)), len) }
    }
    fn reset(&mut self) {
        self.reset();
    }
}

impl Peer for blink_alloc::Blink {
    const NAME: &'static str = "blink-alloc";
    fn with_capacity(bytes: usize) -> Self {
        Self::with_chunk_size(bytes)
    }
    #[inline(always)]
    fn value<T: Copy + 'static>(&self, value: T) -> &mut T {
        self.put_no_drop(value)
    }
    #[inline(always)]
    fn copy(&self, values: &[u64]) -> &mut [u64] {
        self.copy_slice(values)
    }
    fn array(&self, len: usize) -> &mut [MaybeUninit<u8>] {
        let block = self.allocator().allocate(words(len)).expect("memory");
        // SAFETY: the arena gives that many bytes until it is reset.
        unsafe { bytes(block.cast(), len) }
    }
    fn reset(&mut self) {
        self.reset();
    }
}
