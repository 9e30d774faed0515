//! How much processor time our cgroups allow: the quotas of `cpu.max` (Documentation/admin-guide/cgroup-v2.rst).
//!
//! Why: a container with a quota may run on every processor of its host, by its mask, and gets the time of a few. Of cgroups of version 2
//! alone: in version 1 that controller has a hierarchy of its own. Never here: what follows from it.

use super::cgroup::{self, Version};
use super::files;
use super::text::{number, words};

/// The time of so many processors, rounded up, by the least quota of our cgroup and all above it; `None` where there is none.
pub(super) fn processors() -> Option<usize> {
    let mut place = cgroup::find(Version::V2)?;
    let mut least: Option<usize> = None;
    loop {
        if let Some(here) = place.directory.with(b"/cpu.max", |path| of(files::head(path, &mut [0; 64])?)) {
            least = Some(least.map_or(here, |least| least.min(here)));
        }
        if !place.up() {
            return least;
        }
    }
}

/// What a file says: `max 100000`, or a quota and the period that it is for, in microseconds.
fn of(text: &[u8]) -> Option<usize> {
    let mut words = words(text.trim_ascii_end());
    let (quota, period) = (number(words.next()?)?, number(words.next()?)?);
    let processors = if period > 0 { quota.div_ceil(period).max(1) } else { return None };
    usize::try_from(processors).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_whole_processors_rounded_up() {
        for (text, expected) in [
            (&b"max 100000\n"[..], None),
            (b"400000 100000\n", Some(4)),
            (b"250000 100000\n", Some(3)),
            (b"50000 100000", Some(1)),
            (b"0 100000\n", Some(1)),
            (b"1 0\n", None),
            (b"", None),
            (b"100000\n", None),
            (b"-1 100000\n", None),
            (b"99999999999999999999 1\n", None),
        ] {
            assert_eq!(of(text), expected, "{text:?}");
        }
    }

    #[test]
    fn there_is_no_less_than_one_processor() {
        assert!(processors().is_none_or(|processors| processors > 0));
    }
}
