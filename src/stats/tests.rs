//! The table adds up, and the documentation knows each of its lines.

use super::Stats;
use super::table::{Row, Value};
use crate::cache::Snapshot;
use crate::heap::Books;

/// Every number another one, and sums as the engine keeps them.
fn sample() -> Stats {
    const MIB: usize = 1 << 20;
    let books = Books {
        dirty: 5 * MIB,
        soft: 7 * MIB,
        moved: 9 << 20,
        gathered: 4 << 20,
        refused_moves: 3,
        refused_growth: 5,
        over_budget: 11,
        ..Books::default()
    };
    let snapshot = Snapshot {
        allocations: 40,
        stack_hits: 13,
        stolen: 3,
        runs: 20,
        gathered: 2,
        misses: 7,
        thin: 1,
        zeroed_here: 3 << 20,
        zeroed_by_kernel: 2 << 20,
        allocated: 100 << 20,
        fresh: 20 << 20,
        fresh_beside: 5 << 20,
        left_to_threads: 1 << 20,
        stacked: 2 * MIB,
        shards: 8,
        shards_used: 4,
        busiest: 20,
        fault_unit: 4096,
        books,
        ..Snapshot::default()
    };
    Stats { snapshot, resident: Some(64 * MIB) }
}

fn number(rows: &[Row], wanted: &str) -> f64 {
    let found = rows.iter().find_map(|row| match row {
        Row::Line(key, _, value) if *key == wanted => Some(*value),
        _ => None,
    });
    match found {
        Some(Value::Count(n) | Value::Bytes(n)) => n as f64,
        Some(Value::Share(n) | Value::Factor(n)) => n,
        other => panic!("{wanted}: {other:?}"),
    }
}

/// Only what was fresh when a block was taken was shown.
#[test]
fn what_blocks_grow_by_counts_as_faulted_in_and_not_as_requested() {
    let sample = sample();
    assert_eq!(number(&sample.rows(None), "fresh_bytes"), f64::from(26 << 20));
    assert_eq!(sample.faults_avoided(), (79 << 20) / 4096);
}

/// The faults of prefault were among those avoided.
#[test]
fn what_was_faulted_in_ahead_was_not_avoided() {
    let mut sample = sample();
    let before = sample.faults_avoided();
    sample.snapshot.ahead = 8 << 20;
    assert_eq!(before - sample.faults_avoided(), (8 << 20) / 4096);
}

#[test]
fn sums_are_the_sums_of_their_lines() {
    let rows = sample().rows(None);
    for (sum, parts) in [
        ("hits", &["stack_hits", "stolen", "run_hits", "gathered"][..]),
        ("served", &["hits", "misses"]),
        ("cached_bytes", &["cached_in_stacks_bytes", "cached_in_runs_bytes", "softened_bytes"]),
        ("zeroed_bytes", &["zeroed_by_writing_bytes", "zeroed_by_kernel_bytes"]),
        ("moved_bytes", &["gathered_bytes", "grown_by_moving_bytes"]),
        ("fall_backs", &["refused_moves", "refused_growth", "over_budget"]),
    ] {
        assert_eq!(number(&rows, sum), parts.iter().map(|part| number(&rows, part)).sum::<f64>(), "{sum}");
    }
    assert_eq!(number(&rows, "faults_avoided"), f64::from(79 << 8));
    assert_eq!(number(&rows, "busiest_shard"), 2.0);
}

#[test]
fn every_line_has_a_key_of_its_own_and_stands_in_the_documentation() {
    let documentation = include_str!("../../docs/STATS.md");
    let mut keys = std::collections::BTreeSet::new();
    for row in sample().rows(None) {
        if let Row::Line(key, name, _) = row {
            assert!(keys.insert(key), "{key} twice");
            assert!(
                documentation.contains(&format!("| {name} |")),
                "docs/STATS.md does not explain \"{name}\""
            );
            assert!(documentation.contains(&format!("`{key}`")), "docs/STATS.md does not name `{key}`");
        }
    }
    let table = sample().to_string();
    assert!(table.lines().all(|line| line.len() <= 52 && !line.ends_with(' ')), "{table}");
}

#[cfg(feature = "serde")]
#[test]
fn json_says_what_the_table_says() {
    let value = serde_json::to_value(sample()).unwrap();
    assert_eq!(value["hits"], 38);
    assert_eq!(value["cached_bytes"], 14 << 20);
    assert_eq!(value["busiest_shard"], 2.0);
    assert_eq!(
        value.as_object().unwrap().len(),
        sample().rows(None).iter().filter(|r| matches!(r, Row::Line(..))).count()
    );
    let phase = crate::Phase::named("json");
    phase.run(|| ());
    assert_eq!(serde_json::to_value(phase.report()).unwrap()["count"], 1);
}
