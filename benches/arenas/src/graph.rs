//! Graphs of nodes that refer to one another: building one, and a depth-first search over it.
//!
//! Neighbours are chosen at random from a seed, anywhere in the graph, so that almost every step misses the caches
//! whatever the arena; what differs between arenas is where nodes lie and in which pages. Two kinds of node: a bare
//! one, 40 bytes, four neighbours; and a gate, 64 bytes, a 256-bit value with three neighbours. A node is marked
//! when it is visited, as in any textbook.

use std::cell::Cell;
use std::hint::black_box;

use crate::harness::{Random, Scale, Table, Way, seconds};

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

/// Links nodes at random and gives the seconds of searches over them.
fn searches<'a, const WORDS: usize, const DEGREE: usize>(nodes: Vec<&'a Node<'a, WORDS, DEGREE>>) -> f64 {
    let (mut random, n) = (Random(42), nodes.len());
    for node in &nodes {
        node.neighbours.iter().for_each(|neighbour| neighbour.set(Some(nodes[random.below(n)])));
    }
    let first = nodes[0];
    drop(nodes);
    let mut stack = Vec::with_capacity(DEGREE * n);
    black_box(search(first, 1, &mut stack));
    seconds(|| {
        for turn in 0..repeats(n) as u32 {
            black_box(search(first, turn + 2, &mut stack));
        }
    })
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

/// Seconds of searches over a graph that is made anew for each turn, before the clock starts: where its memory happens
/// to lie is then another each time.
macro_rules! walk {
    ($name:literal, $arena:expr, $node:ident, $n:expr) => {{
        let n = $n;
        let time = move || {
            let arena = $arena;
            let nodes: Vec<&$node<'_>> = (0..n).map(|i| &*arena.alloc($node::new(i))).collect();
            searches(nodes)
        };
        ($name, Box::new(time) as Box<dyn FnMut() -> f64>)
    }};
}

/// How often small work is repeated between two readings of the clock.
fn repeats(n: usize) -> usize {
    (100_000 / n).max(1)
}

const TURNS: usize = 11;

/// The largest graph that is also compared with an arena of all types: the next takes minutes.
const ALL_MAX: usize = 1_000_000;

fn sizes(scale: Scale) -> &'static [usize] {
    const SIZES: [usize; 6] = [100, 1_000, 10_000, 100_000, ALL_MAX, 10_000_000];
    if scale.quick { &SIZES[..2] } else { &SIZES }
}

/// Runs `$work` for all sizes and arenas.
macro_rules! compare {
    ($scale:expr, $what:literal, $work:ident, $node:ident) => {
        let table = Table::new($scale, $what, "ns a node", "typed-arena");
        for &n in sizes($scale) {
            let mut ways: Vec<Way<'_>> = vec![
                $work!("zk-nalloc", zk_nalloc::TypedArena::new(), $node, n),
                $work!("typed-arena", typed_arena::Arena::new(), $node, n),
            ];
            if n <= ALL_MAX {
                ways.push($work!("bumpalo", bumpalo::Bump::new(), $node, n));
            }
            table.row(&n.to_string(), 1e9 / (n * repeats(n)) as f64, TURNS, &mut ways);
        }
    };
}

pub fn run_build(scale: Scale) {
    compare!(scale, "graph of nodes of 40 B: arena made, nodes allocated, arena dropped", build, Bare);
}

pub fn run_bare(scale: Scale) {
    compare!(scale, "graph of nodes of 40 B: depth-first search", walk, Bare);
}

pub fn run_gates(scale: Scale) {
    compare!(scale, "graph of nodes of 64 B: depth-first search", walk, Gate);
}
