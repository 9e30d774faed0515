//! Graphs of nodes that refer to one another: building one, and a depth-first search over it.
//!
//! Every node has four neighbours chosen at random from a seed: anywhere, where almost every step misses the caches
//! whatever the arena; or within 2^18 nodes, as gates refer to gates made not long before. What differs between
//! arenas is where nodes lie and in which pages. A node is marked when it is visited, as in any textbook.

use std::cell::Cell;
use std::hint::black_box;

use crate::harness::{Random, Way, head, row, seconds};

const DEGREE: usize = 4;

pub struct Node<'a> {
    seen: Cell<u32>,
    value: u32,
    neighbours: [Cell<Option<&'a Node<'a>>>; DEGREE],
}

impl Node<'_> {
    fn new(i: usize) -> Self {
        Self { seen: Cell::new(0), value: i as u32, neighbours: Default::default() }
    }
}

/// How far away a neighbour may be, in nodes.
const NEAR: usize = 1 << 18;

fn link<'a>(nodes: &[&'a Node<'a>], reach: usize) {
    let mut random = Random(42);
    for (i, node) in nodes.iter().enumerate() {
        let (first, last) = (i.saturating_sub(reach), i.saturating_add(reach).min(nodes.len()));
        for neighbour in &node.neighbours {
            neighbour.set(Some(nodes[first + random.below(last - first)]));
        }
    }
}

fn search<'a>(first: &'a Node<'a>, mark: u32, stack: &mut Vec<&'a Node<'a>>) -> u64 {
    let mut sum = 0;
    stack.push(first);
    while let Some(node) = stack.pop() {
        if node.seen.replace(mark) != mark {
            sum += u64::from(node.value);
            stack.extend(node.neighbours.iter().filter_map(Cell::get));
        }
    }
    sum
}

/// Builds a graph of `$n` nodes in `$arena` for `$body`.
macro_rules! with_graph {
    ($arena:expr, $n:expr, $reach:expr, |$nodes:ident| $body:expr) => {{
        let arena = $arena;
        let $nodes: Vec<&Node<'_>> = (0..$n).map(|i| &*arena.alloc(Node::new(i))).collect();
        link(&$nodes, $reach);
        $body
    }};
}

/// Seconds of a build: the arena made, the nodes allocated, and the arena dropped; not the linking.
macro_rules! build {
    ($name:literal, $arena:expr, $n:expr) => {{
        let n = $n;
        let time = move || {
            seconds(|| {
                for _ in 0..repeats(n) {
                    let arena = $arena;
                    for i in 0..n {
                        black_box(arena.alloc(Node::new(i)));
                    }
                }
            })
        };
        ($name, Box::new(time) as Box<dyn FnMut() -> f64>)
    }};
}

/// Seconds of searches over a graph that was made and searched once before the clock starts.
macro_rules! walk {
    ($name:literal, $arena:expr, $n:expr, $reach:expr) => {{
        let (n, reach) = ($n, $reach);
        let time = move || {
            with_graph!($arena, n, reach, |nodes| {
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

pub fn run() {
    const SIZES: [usize; 6] = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
    head("Graph: arena made, nodes allocated, arena dropped", "ns a node", "typed-arena");
    for n in SIZES {
        let mut ways: [Way<'_>; 3] = [
            build!("zk-nalloc", zk_nalloc::TypedArena::new(), n),
            build!("typed-arena", typed_arena::Arena::new(), n),
            build!("bumpalo", bumpalo::Bump::new(), n),
        ];
        row(&n.to_string(), 1e9 / (n * repeats(n)) as f64, turns(n), "typed-arena", &mut ways);
    }
    for (reach, where_to) in [(usize::MAX, "anywhere"), (NEAR, "within 2^18 nodes")] {
        let what = format!("Graph: depth-first search, neighbours {where_to}");
        head(&what, "ns a node", "typed-arena");
        for n in SIZES.into_iter().filter(|&n| n > NEAR || reach == usize::MAX) {
            let mut ways: [Way<'_>; 3] = [
                walk!("zk-nalloc", zk_nalloc::TypedArena::new(), n, reach),
                walk!("typed-arena", typed_arena::Arena::new(), n, reach),
                walk!("bumpalo", bumpalo::Bump::new(), n, reach),
            ];
            row(&n.to_string(), 1e9 / (n * repeats(n)) as f64, turns(n), "typed-arena", &mut ways);
        }
    }
}
