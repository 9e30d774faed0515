//! How hard the kernel works for memory: stalls, limits that were hit, and what of us is swapped.
//!
//! All are to be compared with what they were before; a counter that cannot be read is none. Never here: what a difference means.

use core::ffi::CStr;
use core::ops::ControlFlow;

use super::cgroup::{self, Place, Version};
use super::files;
use super::text::{file_number, named, number, words};
use crate::os::Strain;

/// What a cgroup of version 2 itself ran into; before Linux 5.2 the second file says that, since then that of all below it too
/// (Documentation/admin-guide/cgroup-v2.rst, `memory.events.local`).
const EVENTS: &[&[u8]] = &[b"/memory.events.local", b"/memory.events"];

/// The same of version 1.
const FAILURES: &[&[u8]] = &[b"/memory.failcnt"];

/// Reads all of them.
pub(super) fn now() -> Strain {
    let mut strain = Strain {
        stalled: [None, stalled(c"/proc/pressure/memory")],
        hits: None,
        swapped: swapped(c"/proc/self/status"),
    };
    if let Some(place) = &mut cgroup::find(Version::V2) {
        strain.stalled[0] = place.directory.with(b"/memory.pressure", stalled);
        strain.hits = hits(place, EVENTS, events);
    }
    if let Some(place) = &mut cgroup::find(Version::V1) {
        let more = hits(place, FAILURES, count);
        strain.hits = strain.hits.map_or(more, |hits| Some(hits.saturating_add(more.unwrap_or(0))));
    }
    strain
}

/// Microseconds in which some task waited for memory, so far: the `total` of the line `some` of a file of pressures.
fn stalled(path: &CStr) -> Option<u64> {
    let mut total = None;
    files::lines(path, &mut |line| {
        if words(line).next() == Some(b"some") {
            total = words(line).find_map(|word| number(word.strip_prefix(b"total=")?));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    total
}

/// How often our cgroup or a parent ran into a limit of its own, from the first of some files that is there. What all that a parent
/// holds ran into is other containers' business.
fn hits(place: &mut Place, names: &[&[u8]], read: fn(&CStr) -> Option<u64>) -> Option<u64> {
    let mut hits: Option<u64> = None;
    loop {
        let own = names.iter().find_map(|name| place.directory.with(name, read));
        hits = own.map(|own| own.saturating_add(hits.unwrap_or(0))).or(hits);
        if !place.up() {
            return hits;
        }
    }
}

/// How often a cgroup of version 2 was over `memory.high`, or about to be over `memory.max`.
fn events(path: &CStr) -> Option<u64> {
    let mut sum = 0_u64;
    files::lines(path, &mut |line| {
        let hits = named(line, b"high").or_else(|| named(line, b"max")).unwrap_or(0);
        sum = sum.saturating_add(hits);
        ControlFlow::Continue(())
    })?;
    Some(sum)
}

/// How often one of version 1 was about to be over its limit.
fn count(path: &CStr) -> Option<u64> {
    file_number(files::head(path, &mut [0; 32])?).map(|count| count as u64)
}

/// Bytes of this process that are swapped out.
fn swapped(path: &CStr) -> Option<usize> {
    const KIB: usize = 1 << 10;
    let mut kib = None;
    files::lines(path, &mut |line| {
        kib = named(line, b"VmSwap:");
        if kib.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    usize::try_from(kib?).ok()?.checked_mul(KIB)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;
    use crate::os::linux::path::Path;

    /// A file that is removed at the end.
    struct Temporary(std::path::PathBuf);

    impl Temporary {
        fn new(name: &str, content: &str) -> Self {
            let path = std::env::temp_dir().join(format!("zk-nalloc-strain-{}-{name}", std::process::id()));
            std::fs::write(&path, content).unwrap();
            Self(path)
        }

        fn path(&self) -> CString {
            CString::new(self.0.as_os_str().as_encoded_bytes()).unwrap()
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn pressures_are_read_from_their_first_line() {
        for (content, expected) in [
            (
                "some avg10=0.00 avg60=0.12 avg300=3.00 total=343036\nfull avg10=0.00 avg60=0.00 total=9\n",
                Some(343_036),
            ),
            ("full avg10=0.00 total=9\nsome avg10=0.00 total=7\n", Some(7)),
            ("some avg10=0.00 total=\n", None),
            ("some avg10=0.00 total=-1\n", None),
            ("some", None),
            ("", None),
            ("\u{fffd}\u{fffd} total=3\n", None),
        ] {
            let file = Temporary::new("pressure", content);
            assert_eq!(stalled(&file.path()), expected, "{content:?}");
        }
        assert_eq!(stalled(c"/nowhere"), None);
    }

    #[test]
    fn limits_that_were_hit_are_added_up_to_the_root() {
        let top = std::env::temp_dir().join(format!("zk-nalloc-strain-{}-tree", std::process::id()));
        let file = |name: &str, content: &str| {
            let path = top.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        file("a/b/memory.events", "low 5\nhigh 3\nmax 4\noom 1\noom_kill 1\n");
        file("a/memory.events", "low 0\nhigh 10\nmax x\n");
        file("a/b/memory.failcnt", "12\n");
        file("memory.failcnt", "100\n");
        let place = || {
            let mut directory = Path::new(top.as_os_str().as_encoded_bytes()).unwrap();
            let top = directory.len();
            directory.push(b"/a/b").unwrap();
            Place { directory, top }
        };
        assert_eq!(hits(&mut place(), EVENTS, events), Some(17), "before Linux 5.2");
        assert_eq!(hits(&mut place(), FAILURES, count), Some(112));
        assert_eq!(hits(&mut place(), &[b"/no-such-file"], count), None);
        // Since then a parent counts what another of its children ran into, which has a file for its own.
        file("a/b/memory.events.local", "low 0\nhigh 1\nmax 1\n");
        file("a/memory.events", "low 0\nhigh 500\nmax 7\n");
        file("a/memory.events.local", "low 0\nhigh 20\nmax 0\n");
        assert_eq!(hits(&mut place(), EVENTS, events), Some(22));
        std::fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn this_process_is_read() {
        let file = Temporary::new("status", "Name:\tx\nVmRSS:\t 10 kB\nVmSwap:\t  20 kB\n");
        assert_eq!(swapped(&file.path()), Some(20 << 10));
        assert_eq!(swapped(c"/proc/self/comm"), None);
        let (first, second) = (now(), now());
        assert!(first.stalled[1] <= second.stalled[1] && first.hits <= second.hits);
    }
}
