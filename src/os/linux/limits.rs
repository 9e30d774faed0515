//! The limits that make the kernel refuse a mapping, for whoever has to explain a refusal.

#![expect(unsafe_code, reason = "system calls")]

use super::files;
use super::sys::KeepErrno;
use super::text::file_number;

/// A limit of the process, in bytes (`getrlimit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// `RLIMIT_AS`: all that is mapped, reserved or not.
    AddressSpace,
    /// `RLIMIT_DATA`: what is private and writable.
    Data,
    /// `RLIMIT_MEMLOCK`: what is locked.
    Locked,
    /// `RLIMIT_FSIZE`: how long a file may become.
    File,
}

impl Limit {
    /// What is allowed now, or `None` if that is unlimited or unknown.
    pub(crate) fn allowed(self) -> Option<usize> {
        let _keep = KeepErrno::new();
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        let which = match self {
            Self::AddressSpace => libc::RLIMIT_AS,
            Self::Data => libc::RLIMIT_DATA,
            Self::Locked => libc::RLIMIT_MEMLOCK,
            Self::File => libc::RLIMIT_FSIZE,
        };
        // SAFETY: `limit` is a valid place to write to.
        let known = unsafe { libc::getrlimit(which, &raw mut limit) } == 0;
        (known && limit.rlim_cur != libc::RLIM_INFINITY)
            .then(|| usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
    }
}

/// `vm.overcommit_memory`: 0 heuristic, 1 always, 2 never.
pub(crate) fn overcommit_mode() -> Option<u8> {
    u8::try_from(file_number(files::head(c"/proc/sys/vm/overcommit_memory", &mut [0; 8])?)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        for limit in [Limit::AddressSpace, Limit::Data, Limit::Locked, Limit::File] {
            assert_ne!(limit.allowed(), Some(0));
        }
        assert!(overcommit_mode().is_none_or(|mode| mode <= 2));
    }
}
