//! What a process can be forbidden, or forbid itself.

#![expect(unsafe_code, reason = "sets limits")]

/// Sets the soft limit of a resource.
pub(crate) fn set_limit(resource: u32, bytes: usize) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &mut limit), 0);
        limit.rlim_cur = (bytes as u64).min(limit.rlim_max);
        assert_eq!(libc::setrlimit(resource, &limit), 0);
    }
}

/// Locks all memory, present and future; `false` where this is refused.
pub(crate) fn lock_all() -> bool {
    // SAFETY: changes no content.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) == 0 }
}

/// Does without huge pages in this process; `false` where this is refused.
pub(crate) fn without_huge_pages() -> bool {
    // SAFETY: changes no content.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0 }
}
