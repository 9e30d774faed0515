//! Who is compared: each allocator, with each setting that people run it with.
//!
//! To add one: a line in [`ALL`]; a new crate also needs its feature and its `#[global_allocator]` in the child.

/// An allocator with a setting.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its name on the command line, in records and tables.
    pub name: &'static str,
    /// The feature that its child is built with; none for the allocator of the C library.
    pub feature: Option<&'static str>,
    /// The setting, as variables of the child's environment.
    pub environment: &'static [(&'static str, &'static str)],
    /// Whether it is a form of the allocator of this project.
    pub ours: bool,
    /// What the setting is, in words.
    pub about: &'static str,
}

/// Beginnings of variables that change an allocator: none of them is inherited.
pub const VARIABLES: [&str; 6] =
    ["MALLOC_", "GLIBC_TUNABLES", "_RJEM_", "MIMALLOC_", "ZK_ALLOC_", "ZK_NALLOC_"];

/// The main form of ours.
pub const OURS: &str = "nalloc";
/// Who serves the small side of [`OURS`].
pub const SMALL_SIDE: &str = "glibc";
/// Ours over another small side.
pub const OURS_OVER: &str = "nalloc-mimalloc";
/// Who serves the small side of [`OURS_OVER`].
pub const SMALL_SIDE_OVER: &str = "mimalloc";

const fn rival(name: &'static str, feature: Option<&'static str>, about: &'static str) -> Peer {
    Peer { name, feature, environment: &[], ours: false, about }
}

impl Peer {
    const fn with(mut self, environment: &'static [(&'static str, &'static str)]) -> Self {
        self.environment = environment;
        self
    }

    const fn ours(mut self) -> Self {
        self.ours = true;
        self
    }
}

/// Everyone, ours last.
pub const ALL: [Peer; 14] = [
    rival("glibc", None, "the allocator of the C library as it comes"),
    rival("glibc-tuned", None, "with huge pages by advice, nothing trimmed, nothing mapped on its own")
        .with(&[(
            "GLIBC_TUNABLES",
            "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4611686018427387904",
        )]),
    rival("jemalloc", Some("jemalloc"), "as it comes"),
    rival("jemalloc-plonky3", Some("jemalloc"), "with the setting of Plonky3")
        .with(&[("_RJEM_MALLOC_CONF", "thp:always,metadata_thp:auto,retain:true")]),
    rival("jemalloc-openvm", Some("jemalloc"), "with the setting of OpenVM").with(&[(
        "_RJEM_MALLOC_CONF",
        "retain:true,background_thread:true,metadata_thp:always,thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1",
    )]),
    rival("mimalloc", Some("mimalloc"), "version 3 as it comes"),
    rival("mimalloc-keep", Some("mimalloc"), "version 3, never purging").with(&[("MIMALLOC_PURGE_DELAY", "-1")]),
    rival("mimalloc2", Some("mimalloc2"), "version 2 as it comes"),
    rival("mimalloc2-keep", Some("mimalloc2"), "version 2, never purging").with(&[("MIMALLOC_PURGE_DELAY", "-1")]),
    rival("snmalloc", Some("snmalloc"), "as it comes"),
    rival("zk-alloc", Some("zk-alloc"), "every round inside its `phase`"),
    rival("nalloc-still", Some("nalloc"), "this project with page moves off")
        .with(&[("ZK_NALLOC_MOVES", "never")])
        .ours(),
    rival(OURS_OVER, Some("nalloc-mimalloc"), "this project over mimalloc 3").ours(),
    rival(OURS, Some("nalloc"), "this project as it comes").ours(),
];

/// What is locked of the crates that the children are built with.
const LOCKED: &str = include_str!("../../../Cargo.lock");

impl Peer {
    /// The crate that it comes from, with the version that is built; nothing for the C library and for ours.
    #[must_use]
    pub fn origin(&self) -> String {
        let name = match self.feature {
            Some("jemalloc") => "tikv-jemallocator",
            Some("mimalloc" | "mimalloc2" | "nalloc-mimalloc") => "mimalloc",
            Some("snmalloc") => "snmalloc-rs",
            Some("zk-alloc") => "zk-alloc",
            _ => return String::new(),
        };
        let version = LOCKED
            .split_once(&format!("name = \"{name}\"\nversion = \""))
            .and_then(|(_, rest)| rest.split('"').next());
        version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}"))
    }

    /// Its setting, as somebody would type it.
    #[must_use]
    pub fn setting(&self) -> String {
        self.environment.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

/// Finds a peer by its name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Peer> {
    ALL.iter().find(|peer| peer.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rival_from_a_crate_has_its_version() {
        for peer in ALL {
            let is_built_in = peer.feature.is_none_or(|feature| feature == "nalloc");
            assert_eq!(peer.origin().is_empty(), is_built_in, "{}", peer.name);
            assert_eq!(peer.origin().contains(' '), !is_built_in, "{}: {}", peer.name, peer.origin());
        }
    }
}
