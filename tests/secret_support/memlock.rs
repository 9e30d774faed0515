//! The limit of locked memory.

#![expect(unsafe_code, reason = "sets a limit")]

/// Sets how many bytes an ordinary process may lock; `false` where the hard limit is lower.
pub(crate) fn limit_locked_memory(bytes: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit), 0);
        limit.rlim_cur = bytes;
        bytes <= limit.rlim_max && libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) == 0
    }
}
