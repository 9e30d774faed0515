//! Which of glibc's knobs the environment sets: those are not ours to turn.
//!
//! glibc has read them when the process started, as `MALLOC_…_` or in `GLIBC_TUNABLES`, and `mallopt` would silently
//! replace what they say.

use crate::sync::process::{AtomicU8, Ordering};

/// What glibc calls a knob, in either way.
type Names = [&'static [u8]; 2];

/// The names of the knobs that [`super::keep_small_top`] turns, in the order in which it takes them.
const NAMES: [Names; 3] = [
    [b"MALLOC_TRIM_THRESHOLD_=", b"glibc.malloc.trim_threshold="],
    [b"MALLOC_TOP_PAD_=", b"glibc.malloc.top_pad="],
    [b"MALLOC_MMAP_THRESHOLD_=", b"glibc.malloc.mmap_threshold="],
];

/// In which variable the second ones stand, one after another, with a colon between.
const TUNABLES: &[u8] = b"GLIBC_TUNABLES=";

/// Finds names in an environment that streams past, cut anywhere.
pub(super) struct Seen {
    /// How much of each name what has come of this variable or tunable is, or more than any is long where it is none.
    matched: [usize; NAMES.len()],
    /// How much of the name above this variable is, likewise.
    tunables: usize,
    seen: [bool; NAMES.len()],
}

impl Seen {
    pub(super) const fn new() -> Self {
        Self { matched: [0; NAMES.len()], tunables: 0, seen: [false; NAMES.len()] }
    }

    /// Takes a piece of the environment: variables, a NUL byte after each.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        for &byte in piece {
            self.take(byte);
        }
    }

    fn take(&mut self, byte: u8) {
        let within = self.tunables == TUNABLES.len();
        match byte {
            0 => *self = Self { seen: self.seen, ..Self::new() },
            b':' if within => self.matched = [0; NAMES.len()],
            _ => {
                for ((names, matched), seen) in NAMES.iter().zip(&mut self.matched).zip(&mut self.seen) {
                    let name = names[usize::from(within)];
                    *matched = if name.get(*matched) == Some(&byte) { *matched + 1 } else { usize::MAX };
                    *seen |= *matched == name.len();
                }
                if !within {
                    let is_next = TUNABLES.get(self.tunables) == Some(&byte);
                    self.tunables = if is_next { self.tunables + 1 } else { usize::MAX };
                    if self.tunables == TUNABLES.len() {
                        self.matched = [0; NAMES.len()];
                    }
                }
            }
        }
    }

    /// Which knobs were seen.
    pub(super) const fn seen(&self) -> [bool; NAMES.len()] {
        self.seen
    }
}

/// Which knobs an environment sets, asked once in a process: where libc's own has to be walked, `setenv` may be at work later.
pub(super) struct Once(AtomicU8);

impl Once {
    /// Beside a bit for each knob.
    const ASKED: u8 = 1 << NAMES.len();

    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Which knobs `stream` sets, or did when it was first asked.
    pub(super) fn seen(&self, stream: impl FnOnce(&mut dyn FnMut(&[u8]))) -> [bool; NAMES.len()] {
        // Relaxed, both: the value says everything, and whoever asks twice is told the same.
        let mut known = self.0.load(Ordering::Relaxed);
        if known == 0 {
            let mut seen = Seen::new();
            stream(&mut |piece| seen.feed(piece));
            known = (0..).zip(seen.seen()).fold(Self::ASKED, |known, (at, is)| known | u8::from(is) << at);
            self.0.store(known, Ordering::Relaxed);
        }
        core::array::from_fn(|at| known & 1 << at != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libc's environment was walked again whenever glibc was told to keep heaps or not, while another thread might be in `setenv`.
    #[test]
    fn an_environment_is_asked_once() {
        for (environment, expected) in
            [("A=1\0", [false; 3]), ("MALLOC_TOP_PAD_=1\0MALLOC_MMAP_THRESHOLD_=2\0", [false, true, true])]
        {
            let once = Once::new();
            assert_eq!(once.seen(|each| each(environment.as_bytes())), expected);
            assert_eq!(once.seen(|_| panic!("asked again")), expected);
        }
    }

    fn seen(environment: &str, piece: usize) -> [bool; 3] {
        let mut seen = Seen::new();
        environment.as_bytes().chunks(piece).for_each(|piece| seen.feed(piece));
        seen.seen()
    }

    #[test]
    fn knobs_are_seen_by_both_names_however_the_environment_is_cut() {
        for (environment, expected) in [
            ("", [false; 3]),
            ("MALLOC_ARENA_MAX=2\0GLIBC_TUNABLES=glibc.malloc.tcache_count=0\0", [false; 3]),
            ("A=1\0MALLOC_TRIM_THRESHOLD_=1\0", [true, false, false]),
            ("MALLOC_TOP_PAD_=1\0MALLOC_MMAP_THRESHOLD_=2\0", [false, true, true]),
            (
                "GLIBC_TUNABLES=glibc.malloc.check=1:glibc.malloc.top_pad=3:glibc.malloc.trim_threshold=9\0",
                [true, true, false],
            ),
            ("MALLOC_TRIMALLOC_TRIM_THRESHOLD=1\0MALLOC_MMAP_THRESHOLD_=", [false, false, true]),
            // In a variable of anybody else's, who may be about to start another program with it.
            ("T=glibc.malloc.trim_threshold=9\0A=MALLOC_TOP_PAD_=1\0MMALLOC_MMAP_THRESHOLD_=1\0", [false; 3]),
            ("B=GLIBC_TUNABLES=glibc.malloc.top_pad=3:glibc.malloc.mmap_threshold=1\0", [false; 3]),
            ("GLIBC_TUNABLES=xglibc.malloc.top_pad=3:MALLOC_MMAP_THRESHOLD_=1\0", [false; 3]),
        ] {
            for piece in 1..=environment.len().max(1) {
                assert_eq!(seen(environment, piece), expected, "{environment:?} by {piece}");
            }
        }
    }
}
