//! Arenas side by side: least and median time of several turns, peers taken in turns (A B B A), and the ratio of medians
//! to the reference of each table. `bench-arenas [--quick] [--raw] [group]...`; the groups are [`GROUPS`]. The
//! comparison of allocators runs this program too, group by group, and keeps what `--raw` prints.
//! `bench-arenas instructions PEER SIZE N` runs one small workload once, for `instructions.sh`.

mod arrays;
mod graph;
mod harness;
mod objects;
mod peers;
mod shared;
mod vectors;

use harness::Scale;
use peers::Peer;

/// What can be run: its name, and how.
type Group = (&'static str, fn(Scale));

const GROUPS: [Group; 8] = [
    ("objects", objects::run),
    ("arrays", arrays::run),
    ("rounds", arrays::run_rounds),
    ("vectors", vectors::run),
    ("shared", shared::run),
    ("build", graph::run_build),
    ("search-40", graph::run_bare),
    ("search-64", graph::run_gates),
];

fn instructions<P: Peer>(size: &str, n: usize) {
    let arena = P::with_capacity(n.max(1000) * 300);
    match size.strip_prefix("words") {
        Some(words) => objects::fill_slices(&arena, &vec![1; words.parse().expect("a number of words")], n),
        None => objects::of_size::<P>(size.parse().expect("a size in bytes"))(
            &arena,
            n,
            &mut objects::NONE.clone(),
        ),
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
    let is = |option: &str| args.iter().any(|arg| arg == option);
    let scale = Scale { quick: is("--quick"), raw: is("--raw") };
    if is("--list") {
        return GROUPS.iter().for_each(|(name, _)| println!("{name}"));
    }
    let named: Vec<&str> = args.iter().map(String::as_str).filter(|arg| !arg.starts_with("--")).collect();
    if let Some(unknown) = named.iter().find(|name| GROUPS.iter().all(|(group, _)| group != *name)) {
        eprintln!("no group is called {unknown}; --list shows them");
        std::process::exit(2);
    }
    for (name, run) in GROUPS {
        if named.is_empty() || is(name) {
            run(scale);
        }
    }
}
