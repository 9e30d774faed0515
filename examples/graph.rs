//! A circuit as a graph: gates that refer to one another, in cycles too, each with a name of its own that has a
//! destructor. Everything lies side by side in one typed arena and is dropped with it.
//!
//! `cargo run --release --example graph [gates]`

use std::cell::{Cell, RefCell};
use std::time::Instant;

use zk_nalloc::TypedArena;

struct Gate<'a> {
    name: String,
    inputs: [Cell<Option<&'a Gate<'a>>>; 2],
    /// Who reads this gate: the way back, so that there are cycles.
    readers: RefCell<Vec<&'a Gate<'a>>>,
    depth: Cell<u32>,
}

fn main() {
    let count: usize = std::env::args().nth(1).map_or(100_000, |n| n.parse().expect("a number of gates"));
    let start = Instant::now();
    let arena = TypedArena::new();
    let gates: Vec<&Gate<'_>> = (0..count)
        .map(|i| {
            let gate = Gate {
                name: format!("gate {i}"),
                inputs: Default::default(),
                readers: RefCell::default(),
                depth: Cell::new(0),
            };
            &*arena.alloc(gate)
        })
        .collect();

    // Each gate reads two earlier ones, chosen by a small generator.
    let mut seed = 1_usize;
    for (i, gate) in gates.iter().enumerate().skip(1) {
        for input in &gate.inputs {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let from = gates[(seed >> 33) % i];
            input.set(Some(from));
            from.readers.borrow_mut().push(gate);
            gate.depth.set(gate.depth.get().max(from.depth.get() + 1));
        }
    }
    println!("{count} gates linked in {:?}", start.elapsed());

    let start = Instant::now();
    let deepest = gates.iter().max_by_key(|gate| gate.depth.get()).expect("at least one gate");
    let mut path = vec![deepest.name.as_str()];
    let mut at = *deepest;
    while let Some(input) = at.inputs.iter().filter_map(Cell::get).max_by_key(|gate| gate.depth.get()) {
        // One edge there and one back: the graph has a cycle through every pair of neighbours.
        assert!(input.readers.borrow().iter().any(|&reader| std::ptr::eq(reader, at)));
        path.push(&input.name);
        at = input;
    }
    println!("depth {}, from {} down to {}, in {:?}", path.len(), path[0], at.name, start.elapsed());
    assert_eq!(at.name, "gate 0");
}
