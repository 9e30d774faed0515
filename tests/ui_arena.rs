//! What must not compile does not: use after a reset, escape from a scope, sharing what is for one thread, and
//! destructors that could see what is gone.

#![cfg(not(any(miri, loom)))]

#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("tests/ui/arena/*.rs");
}
