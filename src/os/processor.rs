//! Who made the processor: some of what is measured differs by that, and the C library does not tell.
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

/// The vendor's name for itself.
#[cfg(target_arch = "x86_64")]
fn name() -> [u8; 12] {
    // `__cpuid` of `core` is `unsafe` in some of the compilers that this is for, and in others not.
    let (first, second, third): (u32, u32, u32);
    // SAFETY: every x86-64 processor has the instruction; leaf 0 writes these four registers and nothing else. The compiler
    // keeps `rbx` to itself, so it is put back.
    unsafe {
        core::arch::asm!(
            "mov {kept:r}, rbx",
            "cpuid",
            "xchg {kept:r}, rbx",
            kept = out(reg) first,
            inout("eax") 0 => _,
            out("ecx") third,
            out("edx") second,
            options(nomem, nostack, preserves_flags)
        );
    }
    let mut name = [0; 12];
    for (part, word) in name.chunks_exact_mut(4).zip([first, second, third]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    name
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
}
