//! Who made the processor, and the ways of its first cache: some of what is measured differs by these, and the C library does not tell.
//!
//! Never here: what follows from it.

#![expect(unsafe_code, reason = "an instruction")]

use crate::sync::process::{AtomicU8, Ordering::Relaxed};

/// Whoever made the processor, as far as anything is known to follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vendor {
    Intel,
    Other,
}

/// Tells who that is, and asks once: to ask is a trap on a virtual machine.
#[cold]
pub(super) fn vendor_slow() -> Vendor {
    const UNASKED: u8 = 0;
    const INTEL: u8 = 1;
    const OTHER: u8 = 2;
    static VENDOR: AtomicU8 = AtomicU8::new(UNASKED);
    // Relaxed, here and below: a fact of the host, the same whoever finds it out.
    let mut known = VENDOR.load(Relaxed);
    if known == UNASKED {
        known = if name() == *b"GenuineIntel" { INTEL } else { OTHER };
        VENDOR.store(known, Relaxed);
    }
    if known == INTEL { Vendor::Intel } else { Vendor::Other }
}

/// Tells how many ways the first-level data cache has, as the processor says (Intel's manual, volume 2, CPUID leaf 4; AMD's, volume 3,
/// leaf 8000_001D); 0 where it does not. For C libraries that do not tell; each question is a trap on a virtual machine.
#[cfg(all(target_arch = "x86_64", any(test, not(target_env = "gnu"))))]
#[cold]
pub(super) fn l1_ways_slow() -> usize {
    /// More caches than any processor tells of: four, and an end.
    const CACHES_MAX: u32 = 8;
    let leaf = if vendor_slow() == Vendor::Intel { 4 } else { 0x8000_001d };
    let [leaf_max, ..] = cpuid(leaf & 0x8000_0000, 0);
    if leaf_max < leaf {
        return 0;
    }
    for part in 0..CACHES_MAX {
        let [kind, shape, ..] = cpuid(leaf, part);
        match (kind & 0x1f, kind >> 5 & 7) {
            (0, _) => break,
            // A cache of data, of the first level.
            (1, 1) => return (shape >> 22) as usize + 1,
            _ => {}
        }
    }
    0
}

#[cfg(not(any(target_arch = "x86_64", target_env = "gnu")))]
pub(super) const fn l1_ways_slow() -> usize {
    0
}

/// The vendor's name for itself.
#[cfg(target_arch = "x86_64")]
fn name() -> [u8; 12] {
    let [_, first, third, second] = cpuid(0, 0);
    let mut name = [0; 12];
    for (part, word) in name.chunks_exact_mut(4).zip([first, second, third]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    name
}

/// What the instruction answers about a part of a leaf, in `eax`, `ebx`, `ecx`, `edx`.
#[cfg(target_arch = "x86_64")]
fn cpuid(leaf: u32, part: u32) -> [u32; 4] {
    // `__cpuid` of `core` is `unsafe` in some of the compilers that this is for, and in others not.
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: every x86-64 processor has the instruction; it writes these four registers and nothing else, whatever it is asked. The
    // compiler keeps `rbx` to itself, so it is put back.
    unsafe {
        core::arch::asm!(
            "mov {kept:r}, rbx",
            "cpuid",
            "xchg {kept:r}, rbx",
            kept = out(reg) b,
            inout("eax") leaf => a,
            inout("ecx") part => c,
            out("edx") d,
            options(nomem, nostack, preserves_flags)
        );
    }
    [a, b, c, d]
}

#[cfg(not(target_arch = "x86_64"))]
const fn name() -> [u8; 12] {
    [0; 12]
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// What the kernel says of the same processor.
    #[test]
    fn the_vendor_is_known() {
        let Ok(known) = std::fs::read_to_string("/proc/cpuinfo") else {
            return eprintln!("skipped: no /proc/cpuinfo");
        };
        let name = name();
        assert!(known.contains(std::str::from_utf8(&name).expect("a name")), "{name:?}");
        let vendor = if known.contains("GenuineIntel") { Vendor::Intel } else { Vendor::Other };
        assert_eq!([vendor_slow(), vendor_slow()], [vendor; 2], "asked, and asked again");
    }

    /// What the kernel says of the same cache, where it does.
    #[test]
    fn the_ways_of_the_first_cache_are_known() {
        let read = |file: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index0/{file}");
            std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
        };
        // Of two kinds of cores each tells its own.
        if std::path::Path::new("/sys/devices/cpu_atom").exists() {
            return eprintln!("skipped: not all processors are alike");
        }
        let ways = l1_ways_slow();
        if (read("level"), read("type")) != ("1".to_owned(), "Data".to_owned()) || ways == 0 {
            return eprintln!("skipped: the kernel or the processor does not tell ({ways})");
        }
        assert_eq!(read("ways_of_associativity"), ways.to_string());
    }
}
