//! Graphs of nodes that refer to one another: building one, and a depth-first search over it.
//!
//! Neighbours are chosen at random from a seed, anywhere in the graph, so that almost every step misses the caches
//! whatever the arena; what differs between arenas is where nodes lie and in which pages. Two kinds of node: a bare
//! one, 40 bytes, four neighbours; and a gate, 64 bytes, a 256-bit value with three neighbours. A node is marked
//! when it is visited, as in any textbook.

use std::cell::Cell;
use std::hint::black_box;

use crate::harness::{Random, Way, head, row, seconds};

pub struct Node<'a, const WORDS: usize, const DEGREE: usize> {
    seen: Cell<u32>,
    number: u32,
    value: [u64; WORDS],
    neighbours: [Cell<Option<&'a Self>>; DEGREE],
}

type Bare<'a> = Node<'a, 0, 4>;
type Gate<'a> = Node<'a, 4, 3>;

impl<const WORDS: usize, const DEGREE: usize> Node<'_, WORDS, DEGREE> {
    fn new(i: usize) -> Self {
        let neighbours = std::array::from_fn(|_| Cell::new(None));
        Self { seen: Cell::new(0), number: i as u32, value: [i as u64; WORDS], neighbours }
    }
}

fn link<'a, const WORDS: usize, const DEGREE: usize>(nodes: &[&'a Node<'a, WORDS, DEGREE>]) {
    let mut random = Random(42);
    for node in nodes {
        for neighbour in &node.neighbours {
            neighbour.set(Some(nodes[random.below(nodes.len())]));
        }
    }
}

fn search<'a, const WORDS: usize, const DEGREE: usize>(
    first: &'a Node<'a, WORDS, DEGREE>,
    mark: u32,
    stack: &mut Vec<&'a Node<'a, WORDS, DEGREE>>,
) -> u64 {
    let mut sum = 0;
    stack.push(first);
    while let Some(node) = stack.pop() {
        if node.seen.replace(mark) != mark {
            sum += u64::from(node.number) + node.value.iter().sum::<u64>();
            stack.extend(node.neighbours.iter().filter_map(Cell::get));
        }
    }
    sum
}

/// Builds a graph of `$n` nodes in `$arena` for `$body`.
macro_rules! with_graph {
    ($arena:expr, $node:ident, $n:expr, |$nodes:ident| $body:expr) => {{
        let arena = $arena;
        let $nodes: Vec<&$node<'_>> = (0..$n).map(|i| &*arena.alloc($node::new(i))).collect();
        link(&$nodes);
        $body
    }};
}

/// Seconds of a build: the arena made, the nodes allocated, and the arena dropped; not the linking.
macro_rules! build {
    ($name:literal, $arena:expr, $node:ident, $n:expr) => {{
        let n = $n;
        let time = move || {
            seconds(|| {
                for _ in 0..repeats(n) {
                    let arena = $arena;
                    for i in 0..n {
                        black_box(arena.alloc($node::new(i)));
                    }
                }
            })
        };
        ($name, Box::new(time) as Box<dyn FnMut() -> f64>)
    }};
}

/// Seconds of searches over a graph that was made and searched once before the clock starts.
macro_rules! walk {
    ($name:literal, $arena:expr, $node:ident, $n:expr) => {{
        let n = $n;
        let time = move || {
            with_graph!($arena, $node, n, |nodes| {
                let mut stack = Vec::with_capacity(n);
                black_box(search(nodes[0], 1, &mut stack));
                seconds(|| {
                    for turn in 0..repeats(n) as u32 {
                        black_box(search(nodes[0], turn + 2, &mut stack));
                    }
                })
            })
        };
        ($name, Box::new(time) as Box<dyn FnMut() -> f64>)
    }};
}

/// How often small work is repeated between two readings of the clock.
fn repeats(n: usize) -> usize {
    (100_000 / n).max(1)
}

fn turns(n: usize) -> usize {
    if n >= 10_000_000 { 3 } else { 9 }
}

const SIZES: [usize; 6] = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Runs `$work` for all sizes and arenas.
macro_rules! compare {
    ($what:literal, $work:ident, $node:ident) => {
        head($what, "ns a node", "typed-arena");
        for n in SIZES {
            let mut ways: [Way<'_>; 3] = [
                $work!("zk-nalloc", zk_nalloc::TypedArena::new(), $node, n),
                $work!("typed-arena", typed_arena::Arena::new(), $node, n),
                $work!("bumpalo", bumpalo::Bump::new(), $node, n),
            ];
            row(&n.to_string(), 1e9 / (n * repeats(n)) as f64, turns(n), "typed-arena", &mut ways);
        }
    };
}

pub fn run() {
    compare!("Graph of bare nodes (40 B): arena made, nodes allocated, arena dropped", build, Bare);
    compare!("Graph of bare nodes (40 B): depth-first search", walk, Bare);
    compare!("Graph of gates (64 B): depth-first search", walk, Gate);
}
