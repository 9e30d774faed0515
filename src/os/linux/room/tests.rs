//! Rooms of cgroup trees that look like real ones, and of broken ones.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::os::linux::path::Path;

const GIB: usize = 1 << 30;

/// A tree of cgroups in a directory that is removed at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let top = std::env::temp_dir().join(format!("zk-nalloc-{}-{name}", std::process::id()));
        for (file, content) in files {
            let path = top.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        Self(top)
    }

    fn room(&self, version: Version, group: &str) -> Option<Room> {
        let mut directory = Path::new(self.0.as_os_str().as_encoded_bytes()).unwrap();
        let top = directory.len();
        directory.push(group.as_bytes()).unwrap();
        let mut scarce = Scarce::default();
        each_above(version, &mut Place { directory, top }, &mut |room| scarce.see(room));
        scarce.scarcest
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const STAT_2: &str = "anon 1048576\nfile 3221225472\nkernel_stack 16384\nshmem 0\ninactive_anon 4096\nactive_anon 8192\n\
    inactive_file 2147483648\nactive_file 1073741824\nunevictable 0\nworkingset_refault_file 9\n";

#[test]
fn version_2_walks_up_and_counts_page_cache_as_left() {
    let tree = Tree::new(
        "v2",
        &[
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.high", "max\n"),
            ("a/b/memory.current", "4294967296\n"),
            ("a/memory.max", "17179869184\n"),
            ("a/memory.high", "8589934592\n"),
            ("a/memory.current", "6442450944\n"),
            ("a/memory.stat", STAT_2),
            // The root has no limit and no files of it.
            ("memory.stat", STAT_2),
        ],
    );
    let expected = Some(Room { limit: 8 * GIB, left: 5 * GIB });
    assert_eq!(tree.room(Version::V2, "/a/b"), expected);
    assert_eq!(tree.room(Version::V2, "/a"), expected);
    assert_eq!(tree.room(Version::V2, ""), None);
    assert_eq!(tree.room(Version::V2, "/gone/b"), None);
}

#[test]
fn version_2_over_its_limit_has_nothing_left() {
    let tree = Tree::new("v2-over", &[("memory.max", "1073741824\n"), ("memory.current", "1073745920\n")]);
    assert_eq!(tree.room(Version::V2, ""), Some(Room { limit: GIB, left: 0 }));
    let tree = Tree::new(
        "v2-cache",
        &[("memory.max", "1073741824\n"), ("memory.current", "4096\n"), ("memory.stat", STAT_2)],
    );
    assert_eq!(tree.room(Version::V2, ""), Some(Room { limit: GIB, left: GIB }));
}

const STAT_1: &str = "cache 0\nrss 4096\ninactive_file 5\nactive_file 6\nhierarchical_memory_limit 4294967296\n\
    hierarchical_memsw_limit 9223372036854771712\ntotal_cache 0\ntotal_inactive_file 536870912\n\
    total_active_file 536870912\n";

#[test]
fn version_1_hears_of_a_parent_that_it_cannot_see() {
    let tree = Tree::new(
        "v1",
        &[
            ("c/memory.limit_in_bytes", "9223372036854771712\n"),
            ("c/memory.usage_in_bytes", "3221225472\n"),
            ("c/memory.stat", STAT_1),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.usage_in_bytes", "3221225472\n"),
            ("memory.stat", "hierarchical_memory_limit 9223372036854771712\n"),
        ],
    );
    assert_eq!(tree.room(Version::V1, "/c"), Some(Room { limit: 4 * GIB, left: 2 * GIB }));
    assert_eq!(tree.room(Version::V1, ""), None);
}

#[test]
fn the_tightest_level_wins_by_share_and_not_by_size() {
    let tree = Tree::new(
        "share",
        &[
            ("a/memory.max", "1073741824\n"),
            ("a/memory.current", "536870912\n"),
            ("memory.max", "8589934592\n"),
            ("memory.current", "8053063680\n"),
        ],
    );
    assert_eq!(tree.room(Version::V2, "/a"), Some(Room { limit: 8 * GIB, left: GIB / 2 }));
    // What has the smaller share left may have more left than another.
    let mut scarce = Scarce::default();
    [Room { limit: 128, left: 10 }, Room { limit: 8, left: 1 }, Room { limit: 9, left: 2 }]
        .into_iter()
        .for_each(|room| scarce.see(room));
    assert_eq!((scarce.scarcest.map(|room| room.limit), scarce.least), (Some(128), Some(1)));
    let (a, b) = (Room { limit: 8, left: 4 }, Room { limit: 4, left: 2 });
    assert_eq!(scarcer(Some(a), Some(b)), Some(b));
    assert_eq!(scarcer(Some(b), Some(a)), Some(b));
    assert_eq!(scarcer(None, Some(a)), Some(a));
    assert_eq!(scarcer(Some(a), None), Some(a));
    let most = Room { limit: usize::MAX, left: usize::MAX };
    assert_eq!(scarcer(Some(most), Some(a)), Some(a));
}

#[test]
fn files_that_are_cut_empty_or_noise_are_as_if_they_were_not_there() {
    for noise in
        ["", "\n", "max", "12cats\n", "-1\n", "99999999999999999999999\n", "\u{fffd}\u{fffd}", "1 2 3"]
    {
        let tree = Tree::new(
            "noise",
            &[
                ("memory.max", noise),
                ("memory.high", noise),
                ("memory.current", "4096\n"),
                ("memory.stat", noise),
            ],
        );
        assert_eq!(tree.room(Version::V2, ""), None, "{noise:?}");
        let tree = Tree::new(
            "noise-stat",
            &[
                ("memory.max", "8192"),
                ("memory.high", noise),
                ("memory.current", "4096"),
                ("memory.stat", noise),
            ],
        );
        assert_eq!(tree.room(Version::V2, ""), Some(Room { limit: 8192, left: 4096 }), "{noise:?}");
        let tree = Tree::new("noise-1", &[("memory.limit_in_bytes", noise), ("memory.stat", noise)]);
        assert_eq!(tree.room(Version::V1, ""), None, "{noise:?}");
    }
    // A statistic cut in the middle of a line.
    let tree = Tree::new(
        "cut",
        &[
            ("memory.max", "8192"),
            ("memory.current", "8192"),
            ("memory.stat", "active_file 4096\ninactive_fi"),
        ],
    );
    assert_eq!(tree.room(Version::V2, ""), Some(Room { limit: 8192, left: 4096 }));
}

#[test]
fn this_host_has_room() {
    let host = host().unwrap();
    assert!(host.left > 0 && host.left <= host.limit);
    assert!(spare(0, 20).unwrap() <= host.left);
    let room = rooms(0).0.unwrap();
    assert!(
        room.left <= room.limit
            && room.left as u128 * host.limit as u128 <= host.left as u128 * room.limit as u128 * 2
    );
}

#[test]
fn the_kernel_tells_of_the_host_without_a_file() {
    let (told, read) = (of_kernel().unwrap(), of_files().unwrap());
    // A container may be shown a file that says less. Pages, and KiB.
    assert!(told.limit + (64 << 10) >= read.limit, "{told:?} {read:?}");
    assert!(told.left > 0 && told.left <= told.limit);
}
