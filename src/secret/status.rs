//! What came of each measure, as the kernel answered; nothing is swallowed, nothing is assumed.
//!
//! Invariant: a measure is in force here only if the call that puts it in force succeeded on these pages, or
//! needs no call.

use core::fmt;

use super::protection::{Measure, Protection};
use crate::error::{Errno, Obstacle, RAISE_MEMLOCK};

/// What became of one measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// The effect holds.
    InForce,
    /// The kernel refused.
    Refused(Refusal),
    /// The [`Protection`] left it out.
    NotAskedFor,
    /// It was in force when the secret was made, and the fork that made this process ended it here.
    LostInFork,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InForce => f.write_str("in force"),
            Self::Refused(refusal) => write!(f, "refused: {refusal}"),
            Self::NotAskedFor => f.write_str("not asked for"),
            Self::LostInFork => f.write_str("lost in this forked child"),
        }
    }
}

/// Why the kernel refused a measure. Its `Display` is the kernel's text, and the limit where one was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    errno: Errno,
    limit: Option<Limit>,
}

/// `RLIMIT_MEMLOCK` as it stood in the way, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Limit {
    pub(super) needed: usize,
    pub(super) allowed: usize,
}

impl Refusal {
    /// The kernel's error number.
    #[must_use]
    pub const fn os_error(&self) -> i32 {
        self.errno.0
    }

    /// Where `RLIMIT_MEMLOCK` stood in the way: how many locked bytes this process would have had.
    #[must_use]
    pub fn locked_bytes_needed(&self) -> Option<usize> {
        self.limit.map(|limit| limit.needed)
    }

    /// Where `RLIMIT_MEMLOCK` stood in the way: how many bytes it allows.
    #[must_use]
    pub fn locked_bytes_allowed(&self) -> Option<usize> {
        self.limit.map(|limit| limit.allowed)
    }
}

impl core::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.errno)?;
        let Some(Limit { needed, allowed }) = self.limit else { return Ok(()) };
        write!(f, "; RLIMIT_MEMLOCK: needed {needed} bytes, allowed {allowed}; {RAISE_MEMLOCK}")
    }
}

/// What became of every measure of one secret.
///
/// `Display` prints a table, a line for each measure.
///
/// ```
/// use zk_nalloc::SecretBuf;
/// use zk_nalloc::secret::{Measure, State};
///
/// let key = SecretBuf::new(32)?;
/// match key.status().get(Measure::MemoryLock) {
///     State::Refused(why) => eprintln!("this host may swap the key: {why}"),
///     state => assert_eq!(state, State::InForce),
/// }
/// println!("{}", key.status());
/// # Ok::<(), zk_nalloc::MapFailed>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status {
    states: [Code; Measure::EACH.len()],
    limit: Option<Limit>,
}

/// A [`State`] in four bytes: a status lives in every secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    InForce,
    Refused(u16),
    NotAskedFor,
    LostInFork,
}

impl Status {
    /// Everything that is asked for counts as in force until the kernel says otherwise.
    pub(super) fn asked(protection: Protection) -> Self {
        let state = |m| if protection.asks_for(m) { Code::InForce } else { Code::NotAskedFor };
        Self { states: Measure::EACH.map(state), limit: None }
    }

    pub(super) fn refuse(&mut self, measure: Measure, errno: Errno, obstacle: Obstacle) {
        self.states[measure as usize] = Code::Refused(u16::try_from(errno.0).unwrap_or(u16::MAX));
        if let Obstacle::LockedMemory { needed, allowed } = obstacle {
            self.limit = Some(Limit { needed, allowed });
        }
    }

    /// A measure that had been refused is in force after all.
    pub(super) fn grant(&mut self, measure: Measure) {
        self.states[measure as usize] = Code::InForce;
    }

    /// What was refused of `earlier` is refused here too.
    pub(super) fn carry(&mut self, earlier: Self) {
        for (state, was) in self.states.iter_mut().zip(earlier.states) {
            if *state == Code::InForce && matches!(was, Code::Refused(_)) {
                *state = was;
                self.limit = self.limit.or(earlier.limit);
            }
        }
    }

    pub(super) fn lose(&mut self, measure: Measure) {
        let state = &mut self.states[measure as usize];
        if *state == Code::InForce {
            *state = Code::LostInFork;
        }
    }

    /// What became of one measure.
    #[must_use]
    pub fn get(&self, measure: Measure) -> State {
        match self.states[measure as usize] {
            Code::InForce => State::InForce,
            Code::NotAskedFor => State::NotAskedFor,
            Code::LostInFork => State::LostInFork,
            Code::Refused(errno) => {
                let locks = matches!(measure, Measure::MemoryLock | Measure::MemfdSecret);
                State::Refused(Refusal {
                    errno: Errno(i32::from(errno)),
                    limit: self.limit.filter(|_| locks),
                })
            }
        }
    }

    /// Every measure and what became of it.
    ///
    /// ```
    /// use zk_nalloc::{SecretBuf, secret::State};
    ///
    /// let key = SecretBuf::new(32)?;
    /// for (measure, state) in key.status().iter() {
    ///     if let State::Refused(why) = state {
    ///         eprintln!("{measure}: {why}");
    ///     }
    /// }
    /// # Ok::<(), zk_nalloc::MapFailed>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (Measure, State)> + use<> {
        let status = *self;
        Measure::EACH.into_iter().map(move |m| (m, status.get(m)))
    }

    /// Whether every measure that was asked for is in force.
    #[must_use]
    pub fn all_in_force(&self) -> bool {
        self.states.iter().all(|state| matches!(state, Code::InForce | Code::NotAskedFor))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (measure, state)) in self.iter().enumerate() {
            let end = if n + 1 < Measure::EACH.len() { "\n" } else { "" };
            write!(f, "{measure:<20} {state}{end}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
