//! The binary as a user starts it, at a small size: parent, children, proofs, verification, table.

use std::process::Command;

#[test]
fn a_number_is_proved_under_both_allocators() {
    let output = Command::new(env!("CARGO_BIN_EXE_prove-triton"))
        .args("--rows 2^9 --rounds 2 --turns 1 --threads 2".split(' '))
        .output()
        .expect("the prover starts");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(table.lines().filter(|line| line.contains("triton 2^9")).count(), 3, "{table}");
    assert!(table.contains("NAlloc / System") && table.contains("4 proofs, each verified"), "{table}");
}
