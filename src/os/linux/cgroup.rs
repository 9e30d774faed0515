//! Where our memory cgroup is, from what `/proc/self/cgroup` and `/proc/self/mountinfo` say.
//!
//! Two hierarchies may be there at once: v1 with the memory controller mounted somewhere, and v2. In a container
//! the mount may show a part of the hierarchy alone (its root is then not `/`), and without a cgroup namespace
//! the two files name that part differently; where they do not fit together, the mount point itself is taken:
//! it is what the container runtime meant us to see.
//! Never here: reading limits, and what follows from them.

use core::ops::ControlFlow;

use super::files;
use super::path::Path;
use super::text::{cut, words};

/// The two versions of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// A cgroup directory.
pub(super) struct Place {
    pub(super) directory: Path,
    /// How much of it is the mount point: no parent is shorter.
    pub(super) top: usize,
}

/// Finds our memory cgroup of `version`, if that is mounted.
pub(super) fn find(version: Version) -> Option<Place> {
    let mut ours = None;
    files::lines(c"/proc/self/cgroup", &mut |line| match membership(line) {
        Some((v, path)) if v == version => {
            ours = Path::new(path);
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    })?;
    let ours = ours?;
    let mut place = None;
    files::lines(c"/proc/self/mountinfo", &mut |line| {
        let Some(mount) = mount(line).filter(|mount| mount.version == version) else {
            return ControlFlow::Continue(());
        };
        let fits = below(ours.as_bytes(), mount.root);
        // The same hierarchy may be mounted more than once: one that shows our cgroup wins.
        if fits.is_some() || place.is_none() {
            place = directory(&mount, fits.unwrap_or(b""));
        }
        if fits.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    place
}

/// A line of `/proc/self/cgroup`, `ID:controllers:path`, if it is about memory.
fn membership(line: &[u8]) -> Option<(Version, &[u8])> {
    let (id, rest) = cut(line, b':')?;
    let (controllers, path) = cut(rest, b':')?;
    if !path.starts_with(b"/") {
        return None;
    }
    // The kernel marks a cgroup that has been removed; its parent is what is left.
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    if id == b"0" && controllers.is_empty() {
        return Some((Version::V2, path));
    }
    controllers.split(|&b| b == b',').any(|c| c == b"memory").then_some((Version::V1, path))
}

/// A line of `/proc/self/mountinfo` that is a mount of cgroups, with memory if of v1.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'a> {
    version: Version,
    /// What part of the hierarchy it shows, as written.
    root: &'a [u8],
    /// Where, as written.
    point: &'a [u8],
}

fn mount(line: &[u8]) -> Option<Mount<'_>> {
    // `ID parent major:minor root point options [optional fields …] - type source superoptions`
    let mut words = words(line);
    let root = words.nth(3)?;
    let point = words.next()?;
    let _options = words.next()?;
    words.find(|&word| word == b"-")?;
    let version = match words.next()? {
        b"cgroup2" => Version::V2,
        b"cgroup" => Version::V1,
        _ => return None,
    };
    let _source = words.next()?;
    let of_memory = words.next()?.split(|&b| b == b',').any(|o| o == b"memory");
    (version == Version::V2 || of_memory).then_some(Mount { version, root, point })
}

/// The rest of `path` under `root`, if it is `root` or lies under it. A path with `..` leads out of what a
/// namespace shows, and lies under nothing.
fn below<'a>(path: &'a [u8], root: &[u8]) -> Option<&'a [u8]> {
    if path.split(|&b| b == b'/').any(|part| part == b"..") {
        return None;
    }
    let rest = path.strip_prefix(root.strip_suffix(b"/").unwrap_or(root))?;
    let rest = rest.strip_suffix(b"/").unwrap_or(rest);
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

fn directory(mount: &Mount<'_>, rest: &[u8]) -> Option<Place> {
    let mut directory = Path::new(b"")?;
    unescape(mount.point, &mut directory)?;
    let top = directory.len();
    directory.push(rest)?;
    Some(Place { directory, top })
}

/// Puts a path of mountinfo, with blanks written as `\040`, behind `path`.
fn unescape(text: &[u8], path: &mut Path) -> Option<()> {
    let mut rest = text;
    while let [first, more @ ..] = rest {
        rest = more;
        let mut byte = *first;
        if let [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..] = more
            && byte == b'\\'
        {
            byte = (a - b'0') * 64 + (b - b'0') * 8 + (c - b'0');
            rest = behind;
        }
        path.push(&[byte])?;
    }
    Some(())
}

impl Place {
    /// Goes to the parent; `false` at the mount point.
    pub(super) fn up(&mut self) -> bool {
        let below = self.directory.as_bytes().get(self.top..).unwrap_or(&[]);
        let Some(slash) = below.iter().rposition(|&b| b == b'/') else { return false };
        self.directory.truncate(self.top + slash);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with both versions, as systemd's hybrid mode sets it up.
    const HYBRID_CGROUP: &[&str] = &["9:name=systemd:/", "8:pids:/", "4:memory:/api/f16e", "1:cpu:/", "0::/"];
    const HYBRID_MOUNTS: &[&str] = &[
        "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755",
        "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu",
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory",
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw",
    ];

    #[test]
    fn memberships() {
        let found: Vec<_> = HYBRID_CGROUP.iter().filter_map(|line| membership(line.as_bytes())).collect();
        assert_eq!(found, [(Version::V1, &b"/api/f16e"[..]), (Version::V2, b"/")]);
        for (line, expected) in [
            (
                "0::/user.slice/user-0.slice/session-1.scope",
                Some((Version::V2, &b"/user.slice/user-0.slice/session-1.scope"[..])),
            ),
            ("0::/../..", Some((Version::V2, b"/../.."))),
            ("0::/gone (deleted)", Some((Version::V2, b"/gone"))),
            ("11:cpu,memory,pids:/docker/ab:c", Some((Version::V1, b"/docker/ab:c"))),
            ("0:cpu:/", None),
            ("3:memoryx:/", None),
            ("0::", None),
            ("0:", None),
            ("", None),
            ("::::", None),
        ] {
            assert_eq!(membership(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn mounts() {
        let found: Vec<_> = HYBRID_MOUNTS.iter().filter_map(|line| mount(line.as_bytes())).collect();
        assert_eq!(
            found,
            [
                Mount { version: Version::V1, root: b"/", point: b"/sys/fs/cgroup/memory" },
                Mount { version: Version::V2, root: b"/", point: b"/sys/fs/cgroup/unified" },
            ]
        );
        let line =
            b"718 712 0:26 /docker/4a /sys/fs/cgroup ro,nosuid master:4 propagate_from:2 - cgroup2 cgroup rw";
        assert_eq!(
            mount(line).unwrap(),
            Mount { version: Version::V2, root: b"/docker/4a", point: b"/sys/fs/cgroup" }
        );
        // Cut anywhere, a line is a mount only once it is told of what.
        for len in 0..line.len() - 2 {
            assert_eq!(mount(&line[..len]), None, "{len}");
        }
        assert_eq!(mount(b"1 2 3 / /a - - - - - - -"), None);
        assert_eq!(mount(&[0xff; 300]), None);
    }

    #[test]
    fn paths_below_a_root() {
        for (path, root, expected) in [
            ("/", "/", Some("")),
            ("/a/b", "/", Some("/a/b")),
            ("/a/b/", "/", Some("/a/b")),
            ("/docker/4a", "/docker/4a", Some("")),
            ("/docker/4a/x", "/docker/4a", Some("/x")),
            ("/docker/4ab", "/docker/4a", None),
            ("/", "/docker/4a", None),
            ("/../b", "/", None),
            ("/a/..", "/", None),
            ("/a..b", "/", Some("/a..b")),
        ] {
            assert_eq!(below(path.as_bytes(), root.as_bytes()), expected.map(str::as_bytes), "{path} {root}");
        }
    }

    #[test]
    fn up_to_the_mount_point_and_not_over_it() {
        let mount = Mount { version: Version::V2, root: b"/", point: b"/mnt/with\\040blank\\\\134" };
        let mut place = directory(&mount, b"/a/bc").unwrap();
        let mut seen = vec![place.directory.as_bytes().to_vec()];
        while place.up() {
            seen.push(place.directory.as_bytes().to_vec());
        }
        assert_eq!(
            seen,
            [&b"/mnt/with blank\\\\/a/bc"[..], b"/mnt/with blank\\\\/a", b"/mnt/with blank\\\\"]
        );
    }

    #[test]
    fn this_process_is_found_wherever_a_memory_cgroup_is_mounted() {
        for version in [Version::V1, Version::V2] {
            if let Some(place) = find(version) {
                assert!(place.directory.as_bytes().starts_with(b"/"));
                assert!(
                    std::path::Path::new(std::str::from_utf8(place.directory.as_bytes()).unwrap()).is_dir()
                );
            }
        }
    }
}
