//! Phases: stretches of a program that have a name, measured, and helped where that is asked for.
//!
//! What they are not: an arena. Nothing that is allocated in a phase belongs to it; freeing, keeping and moving memory
//! across phases is all legal, on any thread, nested in any way. The price is two readings of counters ([`reading`]); what
//! they come to is added up by name ([`table`]).
//!
//! Invariants: nothing here allocates or blocks; a phase that is never ended costs its place and nothing else.

mod event;
mod open;
mod reading;
mod report;
mod table;

use crate::global::ENGINE;
use crate::os::fork;
use event::{Event, event};
use open::Open;

pub use report::{PhaseReport, Phases, phases};

/// What phases are called that nobody named.
const UNNAMED: &str = "phase";

/// What happens to cached memory at the end of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Trim {
    /// Nothing: it stays warm.
    #[default]
    Keep = 0,
    /// As [`soften_cache`](crate::soften_cache): warm until the kernel needs it.
    Soften = 1,
    /// As [`release_cache`](crate::release_cache): given back, and what glibc keeps of small blocks too.
    Release = 2,
}

/// A name for phases, and what is known of the phases of that name.
///
/// ```
/// use zk_nalloc::Phase;
///
/// let commit = Phase::named("commit");
/// for _ in 0..3 {
///     let columns = commit.run(|| vec![vec![0_u64; 1 << 16]; 8]);
///     drop(columns); // here, or in another phase, or never
/// }
/// assert_eq!(commit.report().count(), 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Phase {
    line: usize,
}

impl Phase {
    /// The phases called `name`. There is room for 63 names; all others count together, as `(other)`.
    #[must_use]
    pub fn named(name: &'static str) -> Self {
        Self { line: table::number(name) }
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        table::line(self.line).name()
    }

    /// Runs `work` as a phase of this name.
    pub fn run<R>(self, work: impl FnOnce() -> R) -> R {
        let _guard = self.begin();
        work()
    }

    /// Begins a phase of this name, which ends when the guard is dropped, on whatever thread.
    pub fn begin(self) -> PhaseGuard {
        PhaseGuard { open: begin(self.line) }
    }

    /// Chooses what happens to cached memory at the end of each phase of this name from now on. Without effect on `(other)`, which
    /// is the phases of many names.
    pub fn trim(self, trim: Trim) -> Self {
        if table::is_shared(self.line) {
            return self;
        }
        // Relaxed: the value says everything.
        table::line(self.line).trim.store(trim as u8, crate::sync::process::Ordering::Relaxed);
        self
    }

    /// Faults in, on all CPUs, what the last phase of this name needed beyond what is live and cached now, as
    /// [`prefault`](crate::prefault()) does, within the same bounds. Gives the bytes; 0 if no phase of this name has ended,
    /// and for `(other)`.
    ///
    /// For a first proof after a pause or a [`release_cache`](crate::release_cache).
    pub fn prefault(self) -> usize {
        if table::is_shared(self.line) {
            return 0;
        }
        let needed = table::line(self.line).live_last().saturating_sub(ENGINE.live());
        let needed = usize::try_from(needed).unwrap_or(usize::MAX);
        if needed <= ENGINE.cached_bytes().saturating_sub(ENGINE.inherited_bytes()) {
            return 0;
        }
        // Blocks are rounded up, by an eighth at most and by less on average.
        crate::prefault::prefault(needed.saturating_add(needed / 16))
    }

    /// What was measured of the phases of this name so far.
    #[must_use]
    pub fn report(self) -> PhaseReport {
        table::line(self.line).report()
    }
}

/// A phase that ends when this is dropped: on return, on `?`, while a panic unwinds, on another thread.
///
/// ```
/// use zk_nalloc::PhaseGuard;
///
/// let guard = PhaseGuard::named("quotient");
/// let quotient = vec![1_u64; 1 << 16];
/// drop(guard);
/// assert_eq!(quotient[7], 1);
/// ```
#[derive(Debug)]
#[must_use = "the phase ends when the guard is dropped"]
pub struct PhaseGuard {
    open: Open,
}

impl PhaseGuard {
    /// Begins a phase without a name of its own.
    pub fn new() -> Self {
        Self::named(UNNAMED)
    }

    /// Begins a phase called `name`.
    pub fn named(name: &'static str) -> Self {
        Phase::named(name).begin()
    }

    /// The phases of this one's name.
    #[must_use]
    pub fn phase(&self) -> Phase {
        Phase { line: self.open.line }
    }
}

impl Default for PhaseGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for PhaseGuard {
    fn drop(&mut self) {
        end(self.open);
    }
}

/// Runs `work` as a phase, and gives what it returns.
///
/// ```
/// let proof = zk_nalloc::phase(|| vec![1_u8; 1 << 17]);
/// assert_eq!(proof.len(), 1 << 17); // what a phase made may be kept
/// ```
pub fn phase<R>(work: impl FnOnce() -> R) -> R {
    phase_named(UNNAMED, work)
}

/// Runs `work` as a phase called `name`, and gives what it returns.
///
/// ```
/// let sum = zk_nalloc::phase_named("commit", || {
///     zk_nalloc::phase_named("commit: hash", || 40) + 2
/// });
/// assert_eq!(sum, 42);
/// print!("{}", zk_nalloc::phases());
/// ```
pub fn phase_named<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    Phase::named(name).run(work)
}

/// Begins a phase, which [`end_phase`] ends. See [`begin_phase_named`].
pub fn begin_phase() -> Phase {
    begin_phase_named(UNNAMED)
}

/// Begins a phase called `name`, which [`end_phase`] ends, and gives its name's handle, which may be dropped.
///
/// Phases may be begun in phases, and ended on another thread. One that nobody ends is never counted. At most 512 are
/// measured at a time, guards included.
///
/// ```
/// zk_nalloc::begin_phase_named("open");
/// let openings = vec![3_u64; 1 << 15];
/// zk_nalloc::end_phase();
/// assert_eq!(openings[0], 3);
/// ```
pub fn begin_phase_named(name: &'static str) -> Phase {
    let phase = Phase::named(name);
    open::leave(begin(phase.line));
    phase
}

/// Ends the phase that this thread began last; if it has begun none, the one that any thread began last; if there is
/// none at all, does nothing. Phases with guards end with those alone.
pub fn end_phase() {
    if let Some(open) = open::take() {
        end(open);
    }
}

fn begin(line: usize) -> Open {
    let began = reading::now();
    // Not as of a reading that is used again: a gibibyte may have been freed since.
    let place = ENGINE.peaks().watch(ENGINE.live());
    let open = Open { line, place, began, process: fork::mark() };
    event(Event::Begins, &open, table::line(line).name());
    open
}

fn end(open: Open) {
    let line = table::line(open.line);
    let ended = reading::now();
    event(Event::Ends, &open, line.name());
    let Some(place) = open.place else {
        table::missed();
        return;
    };
    reading::look_at_resident(ended.at.saturating_sub(open.began.at));
    // In a child the place may be that of a phase which it has begun.
    let is_here = open.process == fork::mark();
    let (live, mut resident) = if is_here { ENGINE.peaks().end(place) } else { (0, 0) };
    if ended.resident_max > open.began.resident_max {
        // The process has never had more than in this phase, and the kernel knows how much that was.
        resident = resident.max(ended.resident_max);
    }
    line.add(&open.began, &ended, live, resident);
    // Relaxed: the value says everything.
    match line.trim.load(crate::sync::process::Ordering::Relaxed) {
        trim if trim == Trim::Soften as u8 => _ = ENGINE.soften(),
        trim if trim == Trim::Release as u8 => _ = ENGINE.release(),
        _ => {}
    }
}
