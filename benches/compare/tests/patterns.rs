//! Every pattern is right: run small, with every byte checked, under the allocator of the C library.
//!
//! One process for all: what is tested here is the patterns, not an allocator. The same under every allocator is
//! `cargo run --release -p zk-compare -- --quick --turns 1`.

use std::collections::BTreeSet;

use zk_compare::patterns::all;
use zk_compare::scale::{GIB, Scale};
use zk_compare::watch::Watch;

#[test]
fn every_pattern_keeps_its_data_and_counts_its_time_and_memory() {
    let scale = Scale { quick: true, memory_bytes: 2 * GIB };
    for pattern in all() {
        let mut case = pattern.prepare(scale);
        for round in 0..2 {
            let mut watch = Watch::default();
            let live = (case.round)(&mut watch);
            assert!(watch.seconds > 0.0, "{} took no time in round {round}", pattern.name);
            let counted = live > 0 || case.operations.is_some();
            assert!(counted && live < 2 * GIB, "{} had {live} bytes alive", pattern.name);
        }
    }
}

#[test]
fn names_are_unique() {
    let patterns = all();
    let names: BTreeSet<_> = patterns.iter().map(|pattern| &pattern.name).collect();
    assert_eq!(names.len(), patterns.len());
    let peers: BTreeSet<_> = zk_compare::peers::ALL.iter().map(|peer| peer.name).collect();
    assert_eq!(peers.len(), zk_compare::peers::ALL.len());
}
