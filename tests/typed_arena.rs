//! Typed arenas: every value is dropped once, in any way an arena can end, and values may refer to one another.

#![cfg_attr(not(miri), expect(unsafe_code, reason = "looks at raw memory"))]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
#[cfg(not(miri))]
use std::ptr::with_exposed_provenance;
use std::rc::Rc;
#[cfg(not(miri))]
use std::slice;

use zk_nalloc::TypedArena;

/// Counts its drops; unwinds out of the drop of number `bad`.
struct Counted<'c> {
    number: usize,
    bad: usize,
    drops: &'c Cell<usize>,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.drops.set(self.drops.get() + 1);
        if self.number == self.bad {
            resume_unwind(Box::new(()));
        }
    }
}

fn counted(drops: &Cell<usize>, number: usize) -> Counted<'_> {
    Counted { number, bad: usize::MAX, drops }
}

#[test]
fn values_are_dropped_once_at_reset_and_at_the_end() {
    let drops = Cell::new(0);
    let mut arena = TypedArena::new();
    for number in 0..100 {
        assert_eq!(arena.alloc(counted(&drops, number)).number, number);
    }
    arena.reset();
    assert_eq!((drops.get(), arena.len()), (100, 0));
    arena.alloc(counted(&drops, 0));
    arena.reset_and_release();
    arena.alloc(counted(&drops, 0));
    drop(arena);
    assert_eq!(drops.get(), 102);
}

#[test]
fn values_moved_out_are_not_dropped_by_the_arena() {
    let drops = Cell::new(0);
    let arena = TypedArena::new();
    arena.alloc_extend((0..5).map(|number| counted(&drops, number)));
    let values = arena.into_vec();
    assert_eq!((drops.get(), values[4].number), (0, 4));
    drop(values);
    assert_eq!(drops.get(), 5);
}

#[test]
fn a_destructor_that_unwinds_does_not_keep_the_others_from_running() {
    let drops = Cell::new(0);
    let mut arena = TypedArena::new();
    for number in 0..10 {
        arena.alloc(Counted { number, bad: 3, drops: &drops });
    }
    assert!(catch_unwind(AssertUnwindSafe(|| arena.reset())).is_err());
    assert_eq!((drops.get(), arena.len()), (10, 0));
    arena.alloc(Counted { number: 3, bad: 3, drops: &drops });
    assert!(catch_unwind(AssertUnwindSafe(|| drop(arena))).is_err());
    assert_eq!(drops.get(), 11);
}

#[cfg(not(miri))]
#[test]
fn a_wipe_drops_all_and_leaves_zeros_also_if_a_destructor_unwinds() {
    struct Long<'c>([u64; 500], Counted<'c>);
    for bad in [usize::MAX, 3] {
        let drops = Cell::new(0);
        let mut arena = TypedArena::new();
        let long = |number| Long([u64::MAX; 500], Counted { number, bad, drops: &drops });
        (0..100).for_each(|number| assert_eq!(arena.alloc(long(number)).0[499], u64::MAX));
        // What was in use before the last reset has not been overwritten since.
        assert_eq!(catch_unwind(AssertUnwindSafe(|| arena.reset())).is_err(), bad == 3);
        let values = (0..10).map(|number| (&raw const *arena.alloc(long(number))).expose_provenance());
        let first = values.min().unwrap();
        assert_eq!(catch_unwind(AssertUnwindSafe(|| arena.wipe())).is_err(), bad == 3);
        assert_eq!((drops.get(), arena.len()), (110, 0));
        // SAFETY: the pages stay mapped as long as the arena, and nobody writes to them here.
        let words = unsafe {
            slice::from_raw_parts(with_exposed_provenance::<u64>(first), 100 * size_of::<Long<'_>>() / 8)
        };
        assert!(words.iter().all(|&word| word == 0));
        assert_eq!((arena.alloc(long(0)).1.number, arena.len()), (0, 1));
    }
}

#[test]
fn values_without_size_are_counted_and_dropped() {
    thread_local!(static DROPS: Cell<usize> = const { Cell::new(0) });
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPS.set(DROPS.get() + 1);
        }
    }
    let mut arena = TypedArena::with_capacity(1).unwrap();
    arena.alloc(Nothing);
    arena.alloc_extend([Nothing, Nothing]);
    assert_eq!((arena.len(), arena.capacity(), arena.iter_mut().count()), (3, usize::MAX, 3));
    arena.reset();
    assert_eq!(DROPS.get(), 3);
    arena.alloc(Nothing);
    drop(arena.into_vec());
    assert_eq!(DROPS.get(), 4);
    let arena = TypedArena::new();
    arena.alloc(Nothing);
    drop(arena);
    assert_eq!(DROPS.get(), 5);
}

#[test]
fn values_stay_where_they_are_and_in_order() {
    let count = if cfg!(miri) { 300 } else { 300_000 };
    let mut arena = TypedArena::new();
    let first: Vec<*const [u64; 3]> = (0..count).map(|i| &raw const *arena.alloc([i; 3])).collect();
    assert!(first.windows(2).all(|pair| pair[0].wrapping_add(1) == pair[1]), "side by side");
    assert!(arena.iter_mut().enumerate().all(|(i, value)| *value == [i as u64; 3]));
    assert_eq!(arena.as_mut_slice().as_ptr(), first[0]);
}

#[test]
fn an_iterator_may_allocate_from_the_arena_it_fills() {
    let mut arena = TypedArena::new();
    let slice = arena.alloc_extend((0..3).map(|i| {
        arena.alloc(format!("inner {i}"));
        format!("outer {i}")
    }));
    assert_eq!(slice, ["outer 0", "outer 1", "outer 2"]);
    assert_eq!(arena.len(), 6);
    arena.as_mut_slice().sort();
    assert_eq!(arena.as_mut_slice()[0], "inner 0");
}

#[test]
fn a_full_arena_refuses_and_drops_what_it_was_offered() {
    let arena = TypedArena::with_capacity(1).unwrap();
    let offered = Rc::new(());
    while arena.try_alloc(Rc::clone(&offered)).is_ok() {}
    assert_eq!(arena.len(), arena.capacity());
    assert_eq!(Rc::strong_count(&offered), arena.len() + 1);
    assert_eq!(arena.try_alloc(Rc::clone(&offered)).unwrap_err().requested(), 8);
    assert!(catch_unwind(AssertUnwindSafe(|| _ = arena.alloc(Rc::clone(&offered)))).is_err());
    drop(arena);
    assert_eq!(Rc::strong_count(&offered), 1);
}

#[test]
fn an_arena_can_be_sent_with_its_values() {
    let arena = TypedArena::new();
    arena.alloc(String::from("a"));
    let arena = std::thread::spawn(move || {
        arena.alloc(String::from("b"));
        arena
    })
    .join()
    .unwrap();
    assert_eq!(arena.into_vec(), ["a", "b"]);
}

/// A node with neighbours, and with fields that have destructors of their own.
struct GraphNode<'a> {
    name: String,
    neighbours: RefCell<Vec<&'a GraphNode<'a>>>,
    one: Cell<Option<&'a GraphNode<'a>>>,
}

#[test]
fn graphs_may_have_cycles_and_destructors_inside() {
    let arena = TypedArena::new();
    let nodes: Vec<&GraphNode<'_>> = (0..50)
        .map(|i| {
            let (name, neighbours, one) = (format!("node {i}"), RefCell::default(), Cell::new(None));
            &*arena.alloc(GraphNode { name, neighbours, one })
        })
        .collect();
    for (i, node) in nodes.iter().enumerate() {
        node.one.set(Some(nodes[(i + 1) % 50]));
        node.neighbours.borrow_mut().extend([nodes[i], nodes[(i * 7) % 50]]);
    }
    let mut at = nodes[0];
    for _ in 0..50 {
        at = at.one.get().unwrap();
    }
    assert_eq!((&*at.name, at.neighbours.borrow().len()), ("node 0", 2));
}

#[test]
fn a_destructor_may_look_at_what_outlives_the_arena() {
    let drops = Cell::new(0);
    {
        let arena = TypedArena::new();
        arena.alloc(counted(&drops, 0));
        assert_eq!(drops.get(), 0);
    }
    assert_eq!(drops.get(), 1);
}
