//! What is asked for: the measures, and what a refusal means.
//!
//! Invariant: the measures that need nobody's leave (guard pages, canary, wiping) are always asked for.
//! Never here: what the kernel answered; that is [`Status`](super::Status).

use core::fmt;

/// One measure that protects a secret. Its `Display` is what tables call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Measure {
    /// An inaccessible page on each side of the secret's own pages. Always asked for.
    GuardPages,
    /// Random bytes in what the secret leaves free of its pages, checked on drop, which ends the process if they differ. Always
    /// asked for.
    ///
    /// Where nothing is left free the guard pages touch the secret on both sides.
    Canary,
    /// Zeroed on drop, before unlocking and unmapping. Always asked for.
    Wipe,
    /// Kept out of swap: `mlock(2)`. Limited by `RLIMIT_MEMLOCK`.
    MemoryLock,
    /// Left out of core dumps: `MADV_DONTDUMP`.
    NoDump,
    /// Reads as zero in a forked child: `MADV_WIPEONFORK`.
    WipeOnFork,
    /// Never part of a transparent huge page, which the kernel copies and splits at will: `MADV_NOHUGEPAGE`.
    NoHugePages,
    /// Never merged with equal pages (KSM), which tells others that they are equal: `MADV_UNMERGEABLE`.
    NoMerging,
    /// Inaccessible outside of [`expose`](super::SecretBuf::expose) scopes. Only on request.
    Sealed,
    /// Taken out of the kernel's own map of memory: `memfd_secret(2)`. Only on request; see
    /// [`Protection::with_memfd_secret`].
    MemfdSecret,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Measure {
    /// All of them, in the order in which a [`Status`](super::Status) lists them.
    pub const ALL: &'static [Self] = &Self::EACH;

    pub(super) const EACH: [Self; 10] = [
        Self::GuardPages,
        Self::Canary,
        Self::Wipe,
        Self::MemoryLock,
        Self::NoDump,
        Self::WipeOnFork,
        Self::NoHugePages,
        Self::NoMerging,
        Self::Sealed,
        Self::MemfdSecret,
    ];

    const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// What it is called in a table.
    const fn name(self) -> &'static str {
        match self {
            Self::GuardPages => "guard pages",
            Self::Canary => "canary",
            Self::Wipe => "wiped on drop",
            Self::MemoryLock => "locked in memory",
            Self::NoDump => "not in core dumps",
            Self::WipeOnFork => "zero in a child",
            Self::NoHugePages => "no huge pages",
            Self::NoMerging => "no page merging",
            Self::Sealed => "sealed between uses",
            Self::MemfdSecret => "memfd_secret",
        }
    }

    /// The call that puts it in force, for messages.
    pub(super) const fn call(self) -> &'static str {
        match self {
            Self::GuardPages | Self::Canary | Self::Wipe => "mmap",
            Self::MemoryLock => "mlock",
            Self::NoDump => "madvise(MADV_DONTDUMP)",
            Self::WipeOnFork => "madvise(MADV_WIPEONFORK)",
            Self::NoHugePages => "madvise(MADV_NOHUGEPAGE)",
            Self::NoMerging => "madvise(MADV_UNMERGEABLE)",
            Self::Sealed => "mprotect",
            Self::MemfdSecret => "memfd_secret",
        }
    }
}

/// What it means that the kernel refuses a measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The secret is made all the same, and its [`status`](super::SecretBuf::status) shows the refusal.
    #[default]
    BestEffort,
    /// It is an error, and there is no secret.
    Strict,
}

/// Which measures protect a secret, and what a refusal means.
///
/// ```
/// use zk_nalloc::SecretBuf;
/// use zk_nalloc::secret::{Measure, Policy, Protection};
///
/// let careful = Protection::sealed().with_policy(Policy::Strict).without(Measure::MemoryLock);
/// let key = SecretBuf::with_protection(32, careful)?;
/// assert!(key.status().all_in_force());
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protection {
    policy: Policy,
    asked: u16,
}

impl Protection {
    const ALWAYS: u16 = Measure::GuardPages.bit() | Measure::Canary.bit() | Measure::Wipe.bit();

    /// Every measure but [`Sealed`](Measure::Sealed) and [`MemfdSecret`](Measure::MemfdSecret), best effort.
    ///
    /// ```
    /// use zk_nalloc::secret::{Measure, Protection};
    /// assert!(Protection::standard().asks_for(Measure::MemoryLock));
    /// assert!(!Protection::standard().asks_for(Measure::Sealed));
    /// ```
    #[must_use]
    pub const fn standard() -> Self {
        let usual = Measure::MemoryLock.bit()
            | Measure::NoDump.bit()
            | Measure::WipeOnFork.bit()
            | Measure::NoHugePages.bit()
            | Measure::NoMerging.bit();
        Self { policy: Policy::BestEffort, asked: Self::ALWAYS | usual }
    }

    /// The standard, and inaccessible outside of `expose` scopes.
    ///
    /// A scope costs two `mprotect` calls, about two microseconds.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// use zk_nalloc::secret::Protection;
    ///
    /// let mut key = SecretBuf::with_protection(32, Protection::sealed())?;
    /// key.expose_mut(|bytes| bytes.fill(7));
    /// assert!(key.expose(|bytes| bytes.iter().all(|&b| b == 7)));
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub const fn sealed() -> Self {
        Self::standard().with(Measure::Sealed)
    }

    /// Says what a refusal means.
    ///
    /// ```
    /// use zk_nalloc::secret::{Policy, Protection};
    /// assert_eq!(Protection::standard().with_policy(Policy::Strict).policy(), Policy::Strict);
    /// ```
    #[must_use]
    pub const fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Adds pages that the kernel takes out of its own map of memory (`memfd_secret(2)`, Linux 5.14).
    ///
    /// What that buys: the kernel itself, and whoever makes it read memory for them, finds no address for
    /// these pages. What it costs, and why it is never the default:
    /// - the whole machine cannot hibernate while one such secret lives;
    /// - each page is cut out of the kernel's huge mappings, which slows the kernel down for everybody;
    /// - it counts against `RLIMIT_MEMLOCK`, and an administrator may have turned it off (`secretmem.enable`);
    /// - `O_DIRECT`, `io_uring` buffers, `vmsplice` and whatever else pins pages refuse it; plain `read(2)`
    ///   and `write(2)` work;
    /// - **a forked child shares the pages**, as they cannot be zeroed for it: [`Measure::WipeOnFork`] is
    ///   refused, and [`Policy::Strict`] makes that an error unless it is left out by
    ///   [`without`](Self::without). A child that drops such a secret leaves the bytes to the parent.
    ///
    /// ```
    /// use zk_nalloc::SecretBuf;
    /// use zk_nalloc::secret::{Measure, Protection, State};
    ///
    /// let key = SecretBuf::with_protection(32, Protection::standard().with_memfd_secret())?;
    /// if key.status().get(Measure::MemfdSecret) == State::InForce {
    ///     assert!(matches!(key.status().get(Measure::WipeOnFork), State::Refused(_)));
    /// }
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    #[must_use]
    pub const fn with_memfd_secret(self) -> Self {
        self.with(Measure::MemfdSecret)
    }

    /// Leaves a measure out. The three that are always asked for stay.
    ///
    /// ```
    /// use zk_nalloc::secret::{Measure, Protection};
    /// let unlocked = Protection::standard().without(Measure::MemoryLock).without(Measure::Wipe);
    /// assert!(!unlocked.asks_for(Measure::MemoryLock));
    /// assert!(unlocked.asks_for(Measure::Wipe));
    /// ```
    #[must_use]
    pub const fn without(self, measure: Measure) -> Self {
        Self { asked: (self.asked & !measure.bit()) | Self::ALWAYS, ..self }
    }

    /// Whether a measure is asked for.
    #[must_use]
    pub const fn asks_for(self, measure: Measure) -> bool {
        self.asked & measure.bit() != 0
    }

    /// What a refusal means.
    #[must_use]
    pub const fn policy(self) -> Policy {
        self.policy
    }

    const fn with(self, measure: Measure) -> Self {
        Self { asked: self.asked | measure.bit(), ..self }
    }
}

impl Default for Protection {
    /// [`Protection::standard`].
    fn default() -> Self {
        Self::standard()
    }
}
