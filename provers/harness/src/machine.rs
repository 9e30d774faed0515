//! The machine in a few words, because a ratio without its machine says little.
//!
//! Why it is here: huge-page mode, core count and memory decide what faulting costs. Everything is read from
//! `/proc` and `/sys`; what cannot be read is `unknown` and stops nothing.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

/// Where a comparison ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor, with its generation where the name of one of AMD's leaves that out.
    pub processor: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Physical memory, in MiB.
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Mode of transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: String,
    /// Vector instructions that the provers were compiled for.
    pub vectors: String,
}

impl Machine {
    /// Describes this machine.
    #[must_use]
    pub fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            processor: processor(&read("/proc/cpuinfo")).unwrap_or_else(|| std::env::consts::ARCH.into()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: field(&read("/proc/meminfo"), "MemTotal").map_or(0, |total| mib(&total)),
            kernel: or_unknown(read("/proc/sys/kernel/osrelease").trim()),
            huge_pages: or_unknown(selected(&read("/sys/kernel/mm/transparent_hugepage/enabled"))),
            vectors: Self::vectors(|feature| match feature {
                "avx512f" => cfg!(target_feature = "avx512f"),
                "avx2" => cfg!(target_feature = "avx2"),
                _ => false,
            })
            .into(),
        }
    }
}

impl Machine {
    /// The widest vectors that a compiler which has these features may use: provers choose their field arithmetic by it.
    #[must_use]
    pub fn vectors(has: impl Fn(&str) -> bool) -> &'static str {
        if has("avx512f") {
            "AVX-512"
        } else if has("avx2") {
            "AVX2"
        } else if cfg!(target_arch = "aarch64") {
            "NEON"
        } else {
            "the baseline (RUSTFLAGS=-Ctarget-cpu=native is faster)"
        }
    }

    /// Says in what this one is another than `there`, if it is; not by what somebody who knows more has added in brackets.
    #[must_use]
    pub fn differs_from(&self, there: &Self) -> Option<String> {
        let bare = |name: &str| name.split(" (").next().unwrap_or_default().to_owned();
        let parts = |machine: &Self| {
            [
                ("processor", bare(&machine.processor)),
                ("cpus", machine.cpus.to_string()),
                ("MiB of memory", machine.memory_mib.to_string()),
                ("kernel", machine.kernel.clone()),
                ("huge pages", machine.huge_pages.clone()),
                ("compiled for", machine.vectors.clone()),
            ]
        };
        let mut both = parts(self).into_iter().zip(parts(there));
        both.find_map(|((what, here), (_, there))| {
            (here != there).then(|| format!("{what}: {here} here, {there} there"))
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, cpus, memory_mib, kernel, huge_pages, vectors } = self;
        write!(f, "{processor}, {cpus} cpus, {memory_mib} MiB, Linux {kernel}, ")?;
        write!(f, "huge pages {huge_pages}, compiled for {vectors}")
    }
}

fn or_unknown(text: &str) -> String {
    if text.is_empty() { "unknown" } else { text }.into()
}

/// The model name of the first processor. A virtual machine's `AMD EPYC` may be any of its generations, which differ in
/// their caches and vectors; family and model tell which (Linux, `bsp_init_amd` of arch/x86/kernel/cpu/amd.c).
fn processor(cpuinfo: &str) -> Option<String> {
    let name = field(cpuinfo, "model name")?;
    if field(cpuinfo, "vendor_id").as_deref() != Some("AuthenticAMD") {
        return Some(name);
    }
    let number = |key| field(cpuinfo, key).and_then(|number| number.parse::<u32>().ok());
    let generation = match (number("cpu family"), number("model")) {
        (Some(0x17), Some(0x00..=0x2f | 0x50..=0x5f)) => 1,
        (Some(0x17), Some(_)) => 2,
        (Some(0x19), Some(0x00..=0x0f | 0x20..=0x5f)) => 3,
        (Some(0x19), Some(_)) => 4,
        (Some(0x1a), Some(0x00..=0x4f | 0x60..=0x7f)) => 5,
        _ => return Some(name),
    };
    Some(format!("{name} (Zen {generation})"))
}

/// Finds `name : value` in one of the kernel's lists.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().into())
    })
}

/// Reads `16384 kB` as MiB.
fn mib(kib: &str) -> u64 {
    kib.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// The word in brackets in `always [madvise] never`.
fn selected(modes: &str) -> &str {
    modes.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::{Machine, field, mib, processor, selected};

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(field("a\t: b\nmodel name\t: X 9000\n", "model name").as_deref(), Some("X 9000"));
        assert_eq!(field("a: b", "c"), None);
        assert_eq!(mib("16384 kB"), 16);
        assert_eq!(mib("lots"), 0);
        assert_eq!(selected("always [madvise] never\n"), "madvise");
        assert_eq!(selected(""), "");
    }

    /// A record of one generation had been called by the name of the next, by hand.
    #[test]
    fn amds_processors_are_told_apart_by_family_and_model() {
        let told = |family: u32, model: u32| {
            let list = format!(
                "vendor_id\t: AuthenticAMD\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: AMD EPYC\n"
            );
            processor(&list).expect("it has a name")
        };
        assert_eq!(told(25, 1), "AMD EPYC (Zen 3)", "Milan");
        assert_eq!(told(25, 17), "AMD EPYC (Zen 4)", "Genoa");
        assert_eq!(told(26, 2), "AMD EPYC (Zen 5)", "Turin");
        assert_eq!((told(23, 1), told(23, 49)), ("AMD EPYC (Zen 1)".into(), "AMD EPYC (Zen 2)".into()));
        assert_eq!(told(99, 1), "AMD EPYC", "of another time");
        assert_eq!(processor("vendor_id: GenuineIntel\nmodel name: X\n").as_deref(), Some("X"));
        assert_eq!(processor(""), None);
    }

    #[test]
    fn another_machine_is_told_from_the_same_with_words_added() {
        let here = Machine { processor: "AMD EPYC (Zen 3)".into(), ..Machine::here() };
        let of = |processor: &str| Machine { processor: processor.into(), ..here.clone() };
        assert_eq!(here.differs_from(&of("AMD EPYC")), None);
        assert_eq!(here.differs_from(&of("Xeon")).as_deref(), Some("processor: AMD EPYC here, Xeon there"));
        let other = Machine { kernel: "2.4".into(), ..here.clone() };
        assert!(here.differs_from(&other).is_some_and(|line| line.starts_with("kernel: ")));
    }

    #[test]
    fn a_machine_without_proc_still_has_a_line() {
        let line = Machine::here().to_string();
        assert!(line.contains("cpus") && !line.contains('\n'), "{line}");
    }
}
