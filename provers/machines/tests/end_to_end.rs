//! The binary as a user starts it, at a small size: parent, children, proofs, verification, table.

use std::process::Command;

#[test]
fn every_statement_is_proved_under_both_allocators() {
    let output = Command::new(env!("CARGO_BIN_EXE_prove-machines"))
        .args("--rows 2^6 --rounds 2 --turns 1 --threads 2".split(' '))
        .output()
        .expect("the prover starts");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for statement in ["miden 2^6", "nova 2^6", "spartan 2^6"] {
        assert_eq!(table.lines().filter(|line| line.contains(statement)).count(), 3, "{table}");
    }
    assert!(table.contains("NAlloc / System") && table.contains("12 proofs, each verified"), "{table}");
}
