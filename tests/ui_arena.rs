//! What must not compile does not: use after a reset, also by a worker or a collection, escape from a scope, sharing what
//! is for one thread, and destructors that could see what is gone. What messages depend on the installed standard library's
//! sources (handles that are not `Sync`) is held by `compile_fail` examples in the documentation instead. After a change of
//! compiler, `TRYBUILD=overwrite` writes the words anew.

#![cfg(not(any(miri, loom)))]

#[test]
fn what_must_not_compile_does_not() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/arena/*.rs");
    if cfg!(feature = "allocator-api2") {
        cases.compile_fail("tests/ui/arena/collections/*.rs");
    }
}
