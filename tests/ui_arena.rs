//! What must not compile does not: use after a reset, escape from a scope, sharing what is for one thread, and
//! destructors that could see what is gone. What messages depend on the installed standard library's sources (handles
//! that are not `Sync`) is held by `compile_fail` examples in the documentation instead. After a change of compiler,
//! `TRYBUILD=overwrite` writes the words anew.

#![cfg(not(any(miri, loom)))]

#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("tests/ui/arena/*.rs");
}
