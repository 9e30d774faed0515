//! Collections inside arenas, through `allocator-api2`.

#![expect(unsafe_code, reason = "calls an unsafe trait")]

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use std::alloc::Layout;
use std::ptr::NonNull;
use zk_nalloc::Arena;

#[test]
fn a_vector_at_the_end_grows_in_place_to_the_last_byte() {
    let words = if cfg!(miri) { 8 << 10 } else { 1 << 20 };
    let arena = Arena::with_capacity(8 * words).unwrap();
    let mut vector: Vec<u64, &Arena> = Vec::with_capacity_in(1, &arena);
    let first = vector.as_ptr();
    vector.extend(0..words as u64);
    assert_eq!(vector.as_ptr(), first, "never copied");
    assert_eq!((vector.len(), arena.remaining()), (words, 0));
    assert!(vector.try_reserve(1).is_err());
    assert!(vector.iter().copied().eq(0..words as u64));
    drop(vector);
    assert_eq!(arena.used(), 0, "the last block comes back at once");
}

const PUSHED: u32 = if cfg!(miri) { 500 } else { 10_000 };

#[test]
fn two_vectors_in_turns_keep_their_values() {
    let arena = Arena::with_capacity(4 << 20).unwrap();
    let (mut a, mut b) = (Vec::new_in(&arena), Vec::new_in(&arena));
    for i in 0..PUSHED {
        a.push(i);
        b.push(!i);
    }
    a.shrink_to_fit();
    b.truncate(5);
    b.shrink_to_fit();
    assert!(a.iter().copied().eq(0..PUSHED));
    assert!(b.iter().copied().eq((0..5).map(|i: u32| !i)));
}

const MAPPED: u64 = if cfg!(miri) { 200 } else { 10_000 };

#[test]
fn maps_live_in_arenas_scopes_and_workers() {
    let mut arena = Arena::with_capacity(8 << 20).unwrap();
    let mut map = hashbrown::HashMap::new_in(&arena);
    for i in 0..MAPPED {
        map.insert(i, i * i);
    }
    map.retain(|i, _| i % 2 == 0);
    assert_eq!((map.len() as u64, map[&98]), (MAPPED / 2, 98 * 98));
    drop(map);
    let worker = arena.worker();
    let mut map = hashbrown::HashMap::new_in(&worker);
    map.extend((0..1000).map(|i| (i, -i)));
    assert_eq!(map[&999], -999);
    drop(map);
    drop(worker);
    arena.scope(|scope| {
        let scope = &*scope;
        let mut words: hashbrown::HashMap<&str, Vec<u32, _>, hashbrown::DefaultHashBuilder, _> =
            hashbrown::HashMap::new_in(scope);
        for (i, word) in "a rose is a rose is a rose".split(' ').enumerate() {
            words.entry(word).or_insert_with(|| Vec::new_in(scope)).push(i as u32);
        }
        assert_eq!(words["rose"], [1, 4, 7]);
    });
}

#[test]
fn boxes_drop_what_an_arena_alone_would_not() {
    let arena = Arena::with_capacity(1 << 20).unwrap();
    let shared = std::rc::Rc::new(1);
    let boxed = Box::new_in(shared.clone(), &arena);
    assert_eq!(std::rc::Rc::strong_count(&boxed), 2);
    drop(boxed);
    assert_eq!(std::rc::Rc::strong_count(&shared), 1);
}

#[test]
fn memory_freed_in_place_is_not_taken_for_zeros() {
    let arena = Arena::with_capacity(1 << 20).unwrap();
    for _ in 0..3 {
        let mut vector = Vec::with_capacity_in(1000, &arena);
        vector.resize(1000, u64::MAX);
        vector.truncate(10);
        vector.shrink_to_fit();
        let zeros = arena.alloc_zeroed::<u64>(2000);
        assert!(zeros.iter().all(|&zero| zero == 0));
        zeros.fill(u64::MAX);
        drop(vector);
    }
    let layout = Layout::from_size_align(100, 8).unwrap();
    let block = (&arena).allocate(layout).unwrap();
    // SAFETY: the block is ours, of 100 bytes, and grows to 4000.
    unsafe {
        block.cast::<u8>().write_bytes(0xFF, 100);
        (&arena).deallocate(block.cast(), layout);
        let block = (&arena).allocate_zeroed(Layout::from_size_align(9, 8).unwrap()).unwrap();
        let wide = Layout::from_size_align(4000, 8).unwrap();
        let block = (&arena).grow_zeroed(block.cast(), Layout::from_size_align(9, 8).unwrap(), wide).unwrap();
        assert!(block.as_ref().iter().all(|&byte| byte == 0));
    }
}

/// What a block was shrunk by is its own still, as far as it ends where it did.
#[test]
fn what_grows_after_it_shrank_is_zero_where_it_is_new() {
    let layout = |size| Layout::from_size_align(size, 1).unwrap();
    let zeros_behind = |allocator: &dyn Allocator, least: usize, most: usize| {
        // SAFETY: the block is ours, of the sizes that are given.
        let block = unsafe {
            let block = allocator.allocate(layout(8)).unwrap().cast::<u8>();
            block.write_bytes(0xFF, 8);
            let block = allocator.shrink(block, layout(8), layout(least)).unwrap().cast();
            allocator.grow_zeroed(block, layout(least), layout(most)).unwrap()
        };
        // SAFETY: as above; all of it was written.
        let (old, new) = unsafe { &block.as_ref()[..most] }.split_at(least);
        assert!(old.iter().all(|&byte| byte == 0xFF) && new.iter().all(|&byte| byte == 0), "{least} {most}");
    };
    for least in 1..8 {
        for most in [8, 100] {
            let mut arena = Arena::with_capacity(1 << 16).unwrap();
            zeros_behind(&&arena, least, most);
            zeros_behind(&&arena.worker(), least, most);
            zeros_behind(&&*arena.checkpoint().scope(), least, most);
        }
    }
}

#[test]
fn blocks_without_size_and_with_rising_alignment() {
    let arena = Arena::with_capacity(1 << 20).unwrap();
    let layout = |size, align| Layout::from_size_align(size, align).unwrap();
    let arena = &arena;
    // SAFETY: each call passes the block and layout that the last one gave.
    unsafe {
        let none = arena.allocate(layout(0, 64)).unwrap().cast::<u8>();
        let some = arena.grow(none, layout(0, 64), layout(10, 64)).unwrap().cast::<u8>();
        some.write_bytes(5, 10);
        let wide = arena.grow(some, layout(10, 64), layout(20, 4096)).unwrap().cast::<u8>();
        assert_eq!((wide.addr().get() % 4096, wide.add(9).read()), (0, 5));
        let narrow = arena.shrink(wide, layout(20, 4096), layout(5, 8192)).unwrap().cast::<u8>();
        assert_eq!((narrow.addr().get() % 8192, narrow.read()), (0, 5));
        let none = arena.shrink(narrow, layout(5, 8192), layout(0, 1)).unwrap();
        assert_eq!(none.len(), 0);
        arena.deallocate(none.cast(), layout(0, 1));
        arena.deallocate(NonNull::dangling(), layout(0, 1));
    }
}

#[test]
fn a_vector_may_grow_and_go_on_another_thread() {
    let arena = Arena::with_capacity(4 << 20).unwrap();
    let mut vector = Vec::new_in(&arena);
    vector.extend(0..100_u64);
    let beside = arena.alloc(7_u64);
    std::thread::scope(|scope| {
        let vector = scope.spawn(|| {
            vector.extend(100..1000);
            vector
        });
        let mut vector = vector.join().unwrap();
        vector.extend(1000..2000);
        assert!(vector.iter().copied().eq(0..2000));
        scope.spawn(move || drop(vector));
    });
    assert_eq!(*beside, 7);
}

#[test]
fn a_vector_of_any_thread_grows_in_place() {
    let arena = Arena::with_capacity(1 << 20).unwrap();
    arena.alloc(1_u64);
    std::thread::scope(|scope| {
        let grown = scope.spawn(|| {
            let mut vector: Vec<u64, &Arena> = Vec::with_capacity_in(1, &arena);
            vector.push(0);
            let first = vector.as_ptr();
            vector.extend(1..1000);
            assert_eq!(vector.as_ptr(), first, "nothing lies behind it");
            drop(vector);
            assert_eq!(arena.used(), 8, "what it had is free again");
        });
        grown.join().unwrap();
    });
}
