//! The one error that mapping memory can end in, and the kernel's number for it.
//!
//! Never allocates: it can be made on the allocation path.

use core::fmt;

/// An `errno` as the kernel gave it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Errno(pub(crate) i32);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({})", self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

/// Which setting of the host stood in the way, where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Obstacle {
    /// Nothing more is known than the kernel's error number.
    Unknown,
    /// The size is beyond what any address space holds; the kernel was not asked.
    Absurd,
    /// `RLIMIT_AS` (`ulimit -v`), in bytes.
    AddressSpace { allowed: usize },
    /// `RLIMIT_DATA` (`ulimit -d`), in bytes.
    Data { allowed: usize },
    /// `RLIMIT_MEMLOCK` (`ulimit -l`), in bytes.
    LockedMemory { needed: usize, allowed: usize },
    /// `vm.overcommit_memory`, as the host has it.
    Overcommit { mode: u8 },
    /// A call that protects a secret, and that the caller insisted on.
    Measure { call: &'static str },
    /// The kernel gave no random bytes (`getrandom`).
    Entropy,
}

/// How a host lets a process lock more memory. A capability of the program's file makes the process one that reads no variables
/// (`AT_SECURE`), wiping included; an ambient one does not.
pub(crate) const RAISE_MEMLOCK: &str = "raise it with `ulimit -l`, `LimitMEMLOCK=` (systemd) or \
                                        `--ulimit memlock=` (containers), or grant CAP_IPC_LOCK \
                                        (AmbientCapabilities=; setcap turns ZK_NALLOC_ variables off)";

/// The kernel refused to map memory, a measure that protects it, or random bytes to fill it with; or the size asked for cannot
/// exist.
///
/// Returned by the constructors of this crate that map memory of their own (`TypedArena::new` panics instead), where a measure
/// is refused only if it was insisted on, and by what fills a secret with random bytes. It names how much was asked
/// for, what the kernel answered and, where that can be told, the setting that refused.
///
/// ```
/// let refused = zk_nalloc::Arena::with_capacity(usize::MAX).unwrap_err();
/// assert_eq!(refused.requested(), usize::MAX);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MapFailed {
    requested: usize,
    errno: Errno,
    obstacle: Obstacle,
}

impl MapFailed {
    /// The kernel answered `errno` to a request for `requested` bytes.
    pub(crate) const fn new(requested: usize, errno: Errno, obstacle: Obstacle) -> Self {
        Self { requested, errno, obstacle }
    }

    /// `requested` bytes cannot exist; the kernel was not asked.
    pub(crate) const fn absurd(requested: usize) -> Self {
        Self::new(requested, Errno(12), Obstacle::Absurd)
    }

    /// How many bytes were asked for.
    #[must_use]
    pub const fn requested(&self) -> usize {
        self.requested
    }

    /// The kernel's error number (`ENOMEM` where it was not asked at all).
    #[must_use]
    pub const fn os_error(&self) -> i32 {
        self.errno.0
    }
}

impl fmt::Display for MapFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.obstacle {
            Obstacle::Measure { .. } => "protect",
            Obstacle::Entropy => "fill",
            _ => "map",
        };
        write!(f, "could not {what} {} bytes: ", self.requested)?;
        match self.obstacle {
            Obstacle::Absurd => write!(f, "no address space is that large"),
            Obstacle::Unknown => write!(f, "{}", self.errno),
            Obstacle::AddressSpace { allowed } => {
                write!(f, "{}; RLIMIT_AS (ulimit -v) allows {allowed} bytes", self.errno)
            }
            Obstacle::Data { allowed } => {
                write!(f, "{}; RLIMIT_DATA (ulimit -d) allows {allowed} bytes", self.errno)
            }
            Obstacle::LockedMemory { needed, allowed } => write!(
                f,
                "{}; RLIMIT_MEMLOCK (ulimit -l): needed {needed} bytes, allowed {allowed}; {RAISE_MEMLOCK}",
                self.errno
            ),
            Obstacle::Overcommit { mode } => {
                write!(f, "{}; vm.overcommit_memory is {mode}", self.errno)
            }
            Obstacle::Measure { call } => write!(f, "{call} was refused: {}", self.errno),
            Obstacle::Entropy => write!(f, "getrandom gave no bytes: {}", self.errno),
        }
    }
}

impl std::error::Error for MapFailed {}

/// So that `?` works in code that reads secrets from files.
impl From<MapFailed> for std::io::Error {
    fn from(failed: MapFailed) -> Self {
        let kind = Self::from_raw_os_error(failed.os_error()).kind();
        Self::new(kind, failed)
    }
}
