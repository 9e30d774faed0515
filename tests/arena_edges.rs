//! An arena's corners: sizes of nothing and of everything, alignments, capacity to the last byte, lying iterators, and
//! closures that allocate or unwind.

#![expect(unsafe_code, reason = "looks at raw memory")]

use std::alloc::Layout;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use zk_nalloc::{Arena, MapFailed};

const PAGE: usize = 64 << 10;

fn arena() -> Arena {
    Arena::with_capacity(PAGE).unwrap()
}

fn unwinds(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(|| {
        work();
    }))
    .is_err()
}

#[test]
fn capacity_is_used_to_the_last_byte_and_is_a_hard_bound() {
    let arena = arena();
    for _ in 0..PAGE / 8 {
        arena.alloc(1_u64);
    }
    assert_eq!((arena.remaining(), arena.used()), (0, PAGE));
    let error = arena.try_alloc(1_u8).unwrap_err();
    assert_eq!((error.requested(), error.remaining()), (1, 0));
    assert!(unwinds(|| _ = arena.alloc(1_u8)));
}

#[test]
fn a_refused_request_says_what_was_asked_and_what_is_left_and_leaves_the_rest_usable() {
    let arena = arena();
    arena.alloc_array::<u8>(PAGE - 64);
    let error = arena.try_alloc_array::<u64>(9).unwrap_err();
    assert_eq!((error.requested(), error.align(), error.remaining()), (72, 8, 64));
    assert_eq!(error.to_string(), "the arena has 64 bytes left, not 72 at a multiple of 8");
    assert_eq!(arena.alloc_array::<u64>(8).len(), 8);
}

#[test]
fn values_without_size_take_nothing_even_from_a_full_arena() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(align(4096))]
    struct Nothing;
    let arena = arena();
    arena.alloc_array::<u8>(PAGE);
    assert_eq!(*arena.alloc(Nothing), Nothing);
    assert_eq!(arena.alloc_slice_copy(&[Nothing; 3]), [Nothing; 3]);
    assert_eq!(arena.alloc_slice_fill_with(1000, |_| ()).len(), 1000);
    assert_eq!(arena.alloc_array::<()>(usize::MAX).len(), usize::MAX);
    assert_eq!(arena.alloc_zeroed::<u64>(0), []);
    let empty = arena.alloc_layout(Layout::from_size_align(0, 1 << 20).unwrap());
    assert_eq!(empty.addr().get() % (1 << 20), 0);
    assert_eq!(arena.used(), PAGE);
}

#[test]
fn alignments_up_to_a_huge_page_and_beyond() {
    let arena = Arena::with_capacity(64 << 20).unwrap();
    for shift in 0..25 {
        let layout = Layout::from_size_align(3, 1 << shift).unwrap();
        assert_eq!(arena.alloc_layout(layout).addr().get() % (1 << shift), 0);
    }
    #[repr(align(512))]
    struct Wide([u8; 512]);
    let wide = arena.alloc_with(|| Wide([1; 512]));
    assert_eq!((std::ptr::from_ref(wide).addr() % 512, wide.0[511]), (0, 1));
}

#[test]
fn absurd_sizes_are_refused_and_change_nothing() {
    let arena = arena();
    for n in [usize::MAX, usize::MAX / 8, isize::MAX as usize, isize::MAX as usize / 8] {
        assert!(arena.try_alloc_array::<u64>(n).is_err());
        assert!(arena.try_alloc_zeroed::<u64>(n).is_err());
        assert!(arena.try_alloc_slice_fill_with(n, |_| 1_u64).is_err());
        assert!(unwinds(|| _ = arena.alloc_array::<u64>(n)));
    }
    for align in [1_usize << 40, 1 << 61, 1 << 62] {
        let layout = Layout::from_size_align(1, align).unwrap();
        assert!(arena.try_alloc_layout(layout).is_err());
    }
    assert_eq!(arena.used(), 0);
    for bytes in [usize::MAX, isize::MAX as usize, 1 << 62] {
        for error in [Arena::with_capacity(bytes).unwrap_err(), Arena::reserve(bytes).unwrap_err()] {
            assert_eq!(MapFailed::os_error(&error), 12, "out of memory, and no panic");
            assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::OutOfMemory);
        }
    }
}

#[test]
fn an_iterator_that_ends_early_gives_a_shorter_slice_and_one_that_goes_on_is_stopped() {
    struct Lying {
        says: usize,
        has: usize,
    }
    impl Iterator for Lying {
        type Item = usize;
        fn next(&mut self) -> Option<usize> {
            self.has = self.has.checked_sub(1)?;
            Some(self.has)
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (self.says, Some(self.says))
        }
    }
    impl ExactSizeIterator for Lying {
        fn len(&self) -> usize {
            self.says
        }
    }
    let arena = arena();
    assert_eq!(arena.alloc_slice_fill_iter(Lying { says: 5, has: 2 }), [1, 0]);
    assert_eq!(arena.alloc_slice_fill_iter(Lying { says: 2, has: 5 }), [4, 3]);
    assert_eq!(arena.alloc_slice_fill_iter(Lying { says: 0, has: 5 }), []);
    assert!(arena.try_alloc_slice_fill_iter(Lying { says: usize::MAX, has: 5 }).is_err());
}

#[test]
fn closures_may_allocate_from_the_arena_they_fill() {
    let arena = arena();
    let outer = arena.alloc_with(|| (*arena.alloc(1_u64), arena.alloc(2_u64)));
    assert_eq!((outer.0, &*outer.1), (1, &2));
    let rows = arena.alloc_slice_fill_with(4, |i| arena.alloc_slice_fill_with(i, |j| 10 * i + j));
    assert_eq!(rows[3], [30, 31, 32]);
    assert_eq!(rows[1], [10]);
}

#[test]
fn a_closure_that_unwinds_leaves_the_arena_whole() {
    let mut arena = arena();
    let kept = arena.alloc(7);
    assert!(unwinds(|| _ = arena.alloc_with::<u64>(|| resume_unwind(Box::new(())))));
    let mut calls = 0;
    assert!(unwinds(|| {
        arena.alloc_slice_fill_with(8, |i| {
            calls += 1;
            if i == 3 { resume_unwind(Box::new(())) } else { i }
        });
    }));
    assert_eq!((*kept, *arena.alloc(8), calls), (7, 8, 4));
    arena.reset();
    assert_eq!(arena.used(), 0);
}

#[test]
fn a_scope_that_unwinds_frees_what_it_took_and_nothing_else() {
    let mut arena = arena();
    arena.scope(|outer| {
        let kept = outer.alloc_slice_copy(&[1, 2, 3]);
        let used = outer.used();
        assert!(unwinds(|| {
            outer.scope(|inner| {
                inner.alloc_array::<u8>(1000);
                inner.scope(|innermost| {
                    innermost.alloc(1);
                    resume_unwind(Box::new(()));
                })
            })
        }));
        assert_eq!((outer.used(), &*kept), (used, &[1, 2, 3][..]));
    });
    assert_eq!(arena.used(), 0);
}

#[test]
fn a_checkpoint_that_is_forgotten_frees_later_and_not_earlier() {
    let mut arena = arena();
    let mut outer = arena.checkpoint();
    let mut scope = outer.scope();
    let kept = scope.alloc(1_u64);
    let mut inner = scope.checkpoint();
    inner.scope().alloc(2_u64);
    std::mem::forget(inner);
    let later = scope.alloc(3_u64);
    assert_eq!((*kept, *later, scope.used()), (1, 3, 24));
    drop(outer);
    assert_eq!(arena.used(), 0);
}

#[test]
fn zeros_are_zero_after_dirty_rounds_scopes_and_workers() {
    let mut arena = arena();
    for round in 0..4 {
        arena.scope(|scope| {
            scope.alloc_slice_fill_with(500, |_| u64::MAX);
            let worker = scope.worker_with_chunk(4096);
            worker.alloc_slice_fill_with(100, |_| u64::MAX);
        });
        let zeros = arena.alloc_zeroed::<u64>(PAGE / 8);
        assert!(zeros.iter().all(|&zero| zero == 0), "round {round}");
        zeros.fill(u64::MAX);
        if round % 2 == 0 {
            arena.reset();
        } else {
            arena.reset_and_release();
        }
    }
}

#[test]
fn a_wipe_leaves_zeros_and_an_empty_arena() {
    let mut arena = arena();
    let first = arena.alloc_slice_fill_with(1000, |_| 0xAA_u8).as_ptr();
    arena.worker().alloc([0xAA_u8; 100]);
    arena.wipe();
    let all = arena.alloc_array::<u8>(PAGE);
    assert_eq!(all.as_ptr().cast(), first);
    for byte in all {
        // SAFETY: the arena has written it, or the kernel has.
        assert_eq!(unsafe { byte.assume_init() }, 0);
    }
}

/// All that had been asked for was written.
#[cfg(not(miri))]
#[test]
fn a_wipe_faults_nothing_in() {
    const WORDS: usize = 512 << 20;
    let mut arena = Arena::reserve(5 << 30).unwrap();
    // The first byte does not begin a page, nor the last one end one.
    arena.alloc([0xAA_u8; 1000]);
    let block = arena.alloc_zeroed::<u64>(WORDS);
    let touched = [0, 100_000, WORDS / 2, WORDS - 1];
    touched.iter().for_each(|&at| block[at] = u64::MAX);
    let first = block.as_ptr();
    arena.wipe();
    arena.alloc([0_u8; 1000]);
    let again = arena.alloc_array::<u64>(WORDS);
    assert_eq!(again.as_ptr().cast(), first);
    for at in touched {
        // SAFETY: the arena has written it, or the kernel has.
        assert_eq!(unsafe { again[at].assume_init() }, 0, "{at}");
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: usize = most.trim_end_matches("kB").trim().parse().unwrap();
    assert!(most < 1 << 20, "{most} KiB were resident");
}

#[test]
fn figures_add_up_through_rounds() {
    let mut arena = arena();
    arena.alloc([1_u8; 1000]);
    assert_eq!((arena.used(), arena.remaining(), arena.high_water()), (1000, PAGE - 1000, 1000));
    arena.reset();
    assert_eq!((arena.used(), arena.remaining(), arena.high_water()), (0, PAGE, 1000));
    arena.scope(|scope| _ = scope.alloc([1_u8; 2000]));
    assert_eq!((arena.used(), arena.high_water()), (0, 2000));
    arena.wipe();
    assert_eq!(arena.high_water(), 2000);
}

#[cfg(not(miri))]
#[test]
fn a_reserved_terabyte_is_contiguous_and_opens_as_it_is_used() {
    let mut arena = Arena::reserve(1 << 40).unwrap();
    let a = arena.alloc_array::<u8>(3 << 20);
    let b = arena.alloc_array::<u8>(40 << 30);
    assert_eq!(a.as_ptr_range().end, b.as_ptr_range().start);
    b[(40 << 30) - 1].write(1);
    b[20 << 30].write(1);
    arena.reset_and_release();
    assert_eq!(arena.used(), 0);
    assert!(arena.try_alloc_array::<u8>(1 << 40).is_ok());
}
