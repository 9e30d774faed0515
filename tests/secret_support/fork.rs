//! Forking, as C programs do.

#![expect(unsafe_code, reason = "forks")]

/// Runs `body` in a forked child and returns its exit code, or what killed it as a negative number.
pub(crate) fn forked(body: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child runs `body` alone, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(99);
        // SAFETY: ends the child without running what its parent registered.
        unsafe { libc::_exit(i32::from(code)) };
    }
    let mut status = 0;
    // SAFETY: `status` is ours to write to, and the child is ours to wait for.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}
