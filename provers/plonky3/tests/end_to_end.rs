//! The binary as a user starts it, at the smallest size: parent, children, proofs, verification, table.
//!
//! Why it is here: the choice of the allocator, the re-execution and the words between the processes can only be
//! tested by processes.

use std::process::{Command, Output};

fn prove(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_prove-plonky3"))
        .args(arguments.split_whitespace())
        .output()
        .expect("the prover starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn both_statements_are_proved_under_both_allocators() {
    let output = prove("--rows 2^6 --rounds 2 --turns 1 --threads 2");
    let (table, progress) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{progress}");
    for row in ["keccak 2^6 recursive", "poseidon2 2^6 recursive"] {
        assert_eq!(table.lines().filter(|line| line.contains(row)).count(), 3, "{table}");
    }
    assert_eq!(table.matches("NAlloc / System").count(), 2, "{table}");
    assert!(table.contains("8 proofs, each verified"), "{table}");
    assert_eq!(progress.lines().count(), 4, "one line per process: {progress}");
}

#[test]
fn a_child_started_by_hand_allocates_as_it_was_told() {
    let output = prove("--allocator nalloc --air poseidon2 --dft radix2 --rows 2^6 --rounds 2 --threads 1");
    let lines = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(lines.lines().filter(|line| line.contains(r#""event":"proof""#)).count(), 2, "{lines}");
    assert!(lines.lines().last().is_some_and(|line| line.contains(r#""hit_rate":"#)), "{lines}");
    assert!(!lines.contains(r#""hit_rate":null"#), "only System counts no hits: {lines}");
}

#[test]
fn a_mistake_is_answered_in_one_line() {
    for arguments in ["--rows 100", "--rounds 0", "--air sha3", "--allocator system", "--json /nonexistent/x"]
    {
        let output = prove(arguments);
        let answer = text(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments}");
        assert!(answer.lines().count() == 1 && answer.starts_with("error: "), "{arguments}: {answer}");
    }
}
