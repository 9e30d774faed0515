//! What is in force in this process: the binary's [`Config`] and the environment, seen on this host.
//!
//! Why it is here: `config` knows what the words mean but cannot read an environment, and what huge-page
//! advice is right depends on the host. Invariant: each unreadable variable is reported once in the life of a
//! process, however many ask. Never here: a default of a knob.

use crate::config::{self, Config, Moves, Scan, Settings, Thp, Variable};
use crate::os::{CHUNK, Facts, Huge, HugeMode, Linux, Os};
use crate::sync::process::{AtomicU8, Ordering};

/// Where a huge page is larger than this (512 MiB with 64 KiB pages on aarch64), none is asked for by default: a
/// block of 64 KiB would become resident by half a gigabyte.
const HUGE_PAGE_MAX: usize = 32 << 20;

impl Facts {
    /// The huge-page advice that `thp` comes to on this host.
    pub(crate) fn advice(&self, thp: Thp) -> Huge {
        match thp {
            Thp::Never => Huge::Forbid,
            Thp::Auto | Thp::Always if self.huge_page == 0 => Huge::Leave,
            Thp::Auto if self.huge_page > HUGE_PAGE_MAX => Huge::Leave,
            Thp::Auto | Thp::Always => Huge::Advise,
        }
    }

    /// Whether memory with this advice is faulted in by whole chunks, as far as there are free ones.
    pub(crate) fn is_huge(&self, advice: Huge) -> bool {
        let asked = match advice {
            Huge::Advise => self.huge_mode != HugeMode::Never,
            Huge::Leave => self.huge_mode == HugeMode::Always,
            Huge::Forbid => false,
        };
        asked && self.huge_page == CHUNK
    }

    /// Whether `moves` lets pages be moved on this host.
    pub(crate) fn moving(&self, moves: Moves) -> bool {
        match moves {
            Moves::Never => false,
            Moves::Auto => self.moves,
        }
    }
}

/// Which variables have been reported: bits of [`Variable::bit`], and [`NONE`] for one that there is not.
#[derive(Debug)]
pub(crate) struct Reported(AtomicU8);

const NONE: u8 = 1 << 7;
const _: () = assert!(Variable::ALL.len() <= 7);

impl Reported {
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Whether this is the first report of `variable`.
    fn first(&self, variable: Option<Variable>) -> bool {
        let bit = variable.map_or(NONE, Variable::bit);
        // Relaxed: one bit decides one report; nothing else is published by it.
        self.0.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

/// What this process has reported.
pub(crate) static REPORTED: Reported = Reported::new();

/// Reads the environment and says what is in force; writes a line for each variable that cannot be read, unless
/// `reported` says that it has been.
pub(crate) fn settings<O: Os>(config: &Config, os: &O, reported: &Reported) -> Settings {
    resolved(config, os, &mut |variable, line| {
        if reported.first(variable) {
            os.say(line);
        }
    })
}

fn resolved<O: Os>(config: &Config, os: &O, report: &mut dyn FnMut(Option<Variable>, &[&str])) -> Settings {
    let mut scan = Scan::new();
    os.environment(&mut |piece| scan.feed(piece));
    config::resolve(config, &scan.finish(), report)
}

/// The huge-page advice in force process-wide, as [`code`] has it; 0 before anybody asked or said.
static HUGE: AtomicU8 = AtomicU8::new(UNKNOWN);

const UNKNOWN: u8 = 0;

const fn code(huge: Huge) -> u8 {
    match huge {
        Huge::Advise => 1,
        Huge::Forbid => 2,
        Huge::Leave => 3,
    }
}

/// Sets the process-wide huge-page advice. For the global allocator, at its start.
pub(crate) fn set_huge(huge: Huge) {
    // Relaxed: the value says everything; it publishes nothing else.
    HUGE.store(code(huge), Ordering::Relaxed);
}

/// The huge-page advice in force process-wide: what the global allocator has set, else what the environment
/// says. Works in a process that installs no allocator of ours.
pub(crate) fn huge() -> Huge {
    // Relaxed: as in `set_huge`.
    match HUGE.load(Ordering::Relaxed) {
        1 => Huge::Advise,
        2 => Huge::Forbid,
        3 => Huge::Leave,
        _ => huge_slow(),
    }
}

#[cold]
fn huge_slow() -> Huge {
    // Of the variables only the one asked about is reported: what the others come to is for the global allocator to say.
    let settings = resolved(&Config::new(), &Linux, &mut |variable, line| {
        if matches!(variable, None | Some(Variable::Thp)) && REPORTED.first(variable) {
            Linux.say(line);
        }
    });
    let huge = Linux.facts().advice(settings.thp);
    // The allocator's word stands if it came meanwhile. Relaxed: as in `set_huge`.
    let _ = HUGE.compare_exchange(UNKNOWN, code(huge), Ordering::Relaxed, Ordering::Relaxed);
    huge
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::Vendor;

    const FACTS: Facts = Facts {
        page: 4096,
        huge_page: 2 << 20,
        huge_mode: HugeMode::Madvise,
        ram: 8 << 30,
        cpus: 4,
        quota: None,
        l1_ways: 8,
        vendor: Vendor::Other,
        moves: true,
        moves_unsafely: false,
        moves_several: true,
        residency: true,
        soften: true,
    };

    #[test]
    fn huge_pages_are_asked_for_where_they_are_of_a_sane_size() {
        for (huge_page, auto, always) in [
            (0, Huge::Leave, Huge::Leave),
            (2 << 20, Huge::Advise, Huge::Advise),
            (32 << 20, Huge::Advise, Huge::Advise),
            (512 << 20, Huge::Leave, Huge::Advise),
        ] {
            let facts = Facts { huge_page, ..FACTS };
            assert_eq!(facts.advice(Thp::Auto), auto);
            assert_eq!(facts.advice(Thp::Always), always);
            assert_eq!(facts.advice(Thp::Never), Huge::Forbid);
        }
    }

    #[test]
    fn memory_is_huge_where_it_is_asked_for_or_everybodys_is() {
        for (huge_page, huge_mode, advised, left) in [
            (2 << 20, HugeMode::Madvise, true, false),
            (2 << 20, HugeMode::Always, true, true),
            (2 << 20, HugeMode::Never, false, false),
            (32 << 20, HugeMode::Always, false, false),
            (0, HugeMode::Always, false, false),
        ] {
            let facts = Facts { huge_page, huge_mode, ..FACTS };
            assert_eq!([Huge::Advise, Huge::Leave].map(|advice| facts.is_huge(advice)), [advised, left]);
            assert!(!facts.is_huge(Huge::Forbid));
        }
    }

    #[test]
    fn pages_are_never_moved_where_that_is_unsafe() {
        let unsafely = Facts { moves: false, moves_unsafely: true, ..FACTS };
        let neither = Facts { moves: false, ..FACTS };
        for (facts, auto) in [(FACTS, true), (unsafely, false), (neither, false)] {
            assert_eq!(facts.moving(Moves::Auto), auto);
            assert!(!facts.moving(Moves::Never));
        }
    }

    #[test]
    fn the_word_of_the_global_allocator_stands() {
        let asked = huge();
        assert_eq!(asked, huge());
        for huge_now in [Huge::Forbid, Huge::Leave, Huge::Advise, asked] {
            set_huge(huge_now);
            assert_eq!(huge(), huge_now);
        }
    }
}
