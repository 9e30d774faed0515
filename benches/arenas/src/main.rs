//! Arenas side by side, in one table: least and median time of several turns, peers taken in turns (A B B A), and the
//! ratio of medians to the reference of each row. `bench-arenas [group]`; groups are named below.
//! `bench-arenas instructions PEER SIZE N` runs one small workload once, for `instructions.sh`.

mod arrays;
mod graph;
mod harness;
mod objects;
mod peers;
mod shared;
mod vectors;

use peers::Peer;

fn instructions<P: Peer>(size: &str, n: usize) {
    let arena = P::with_capacity(n.max(1000) * 300);
    match size.strip_prefix("words") {
        Some(words) => objects::fill_slices(&arena, &vec![1; words.parse().expect("a number of words")], n),
        None => objects::of_size::<P>(size.parse().expect("a size in bytes"))(&arena, n),
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, peer, size, n] = args.as_slice()
        && mode == "instructions"
    {
        let n = n.parse().expect("a number of allocations");
        return match peer.as_str() {
            "zk-nalloc" => instructions::<zk_nalloc::Arena>(size, n),
            "bumpalo" => instructions::<bumpalo::Bump>(size, n),
            "bump-scope" => instructions::<bump_scope::Bump>(size, n),
            "blink-alloc" => instructions::<blink_alloc::Blink>(size, n),
            other => panic!("no peer is called {other}"),
        };
    }
    let wanted = |group: &str| args.is_empty() || args.iter().any(|arg| arg == group);
    let groups: [(&str, fn()); 6] = [
        ("objects", objects::run),
        ("arrays", arrays::run),
        ("rounds", arrays::run_rounds),
        ("graph", graph::run),
        ("vectors", vectors::run),
        ("shared", shared::run),
    ];
    for (name, run) in groups {
        if wanted(name) {
            run();
        }
    }
}
