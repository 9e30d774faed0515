//! Which of glibc's knobs the environment sets: those are not ours to turn.
//!
//! glibc has read them when the process started, as `MALLOC_…_` or in `GLIBC_TUNABLES`, and `mallopt` would silently
//! replace what they say.

/// What glibc calls a knob, in either way.
type Names = [&'static [u8]; 2];

/// The names of the knobs that [`super::keep_small_top`] turns, in the order in which it takes them.
const NAMES: [Names; 3] = [
    [b"MALLOC_TRIM_THRESHOLD_=", b"glibc.malloc.trim_threshold="],
    [b"MALLOC_TOP_PAD_=", b"glibc.malloc.top_pad="],
    [b"MALLOC_MMAP_THRESHOLD_=", b"glibc.malloc.mmap_threshold="],
];

/// Finds names in an environment that streams past, cut anywhere.
pub(super) struct Seen {
    /// How much of each name the bytes before are.
    matched: [[usize; 2]; NAMES.len()],
    seen: [bool; NAMES.len()],
}

impl Seen {
    pub(super) const fn new() -> Self {
        Self { matched: [[0; 2]; NAMES.len()], seen: [false; NAMES.len()] }
    }

    /// Takes a piece of the environment. A name is looked for anywhere in an entry, since another tunable may stand before
    /// it; one that begins within what might have been the same name, which a separator keeps apart, is not always seen.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        for &byte in piece {
            for ((names, matched), seen) in NAMES.iter().zip(&mut self.matched).zip(&mut self.seen) {
                for (name, matched) in names.iter().zip(matched) {
                    *matched = if name.get(*matched) == Some(&byte) {
                        *matched + 1
                    } else {
                        usize::from(name.first() == Some(&byte))
                    };
                    *seen |= *matched == name.len();
                }
            }
        }
    }

    /// Which knobs were seen.
    pub(super) const fn seen(&self) -> [bool; NAMES.len()] {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("MALLOC_TRIMALLOC_TRIM_THRESHOLD=1\0MMALLOC_MMAP_THRESHOLD_=", [false, false, true]),
        ] {
            for piece in 1..=environment.len().max(1) {
                assert_eq!(seen(environment, piece), expected, "{environment:?} by {piece}");
            }
        }
    }
}
