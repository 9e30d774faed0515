//! Zeros that go past the caches, for what none of them holds, on processors that are faster so.
//!
//! Why it is here: to write a line, an Intel core reads it first, and what one core has of the way to memory bounds a
//! `memset` of a trace that all others wait for: 512 MiB took 54 ms, by stores past the caches 27, and with a pass over it
//! 97 and 70 (Granite Rapids). Below about 90 MiB, where a cache may hold what was zeroed until it is read, that loses up to
//! two thirds, and on AMD it loses at any length (docs/EXPERIMENTS.md, "Zeros past the caches").
//!
//! Never here: system calls. Where nothing is known of the processor, `memset` zeroes everything.

#![expect(unsafe_code, reason = "instructions and memory by address")]

use core::arch::asm;

use super::processor::{Vendor, vendor_slow};

/// From so many bytes on. On a host whose third-level cache is its own, a block of this length might stay in it; its prover
/// has others beside it.
const FROM: usize = 128 << 20;

/// A cache line, which is written whole or costs as much as before.
const LINE: usize = 64;

/// Whether zeros are to be written past the caches over so many bytes.
#[inline]
pub(super) fn is_faster(len: usize) -> bool {
    len >= FROM && vendor_slow() == Vendor::Intel
}

/// Writes zeros past the caches over a range that its caller owns (O2).
pub(super) fn zero(addr: usize, len: usize) {
    let head = (addr.next_multiple_of(LINE) - addr).min(len);
    let body = (len - head) & !(LINE - 1);
    super::bytes::write(addr, head);
    if body > 0 {
        let to: *mut u8 = core::ptr::with_exposed_provenance_mut(addr + head);
        // SAFETY: `to` begins at a multiple of 64, as these stores demand, and goes on by 64 until `body` bytes, a multiple of it
        // and not none, are written; they are of the range, which the caller owns and may write (O2). Every x86-64 processor has
        // these instructions. The fence orders the stores as all others are, which whoever the block is handed to relies on.
        unsafe {
            asm!(
                "pxor {zero}, {zero}",
                "2:",
                "movntdq [{to}], {zero}",
                "movntdq [{to} + 16], {zero}",
                "movntdq [{to} + 32], {zero}",
                "movntdq [{to} + 48], {zero}",
                "add {to}, 64",
                "sub {left}, 64",
                "jnz 2b",
                "sfence",
                zero = out(xmm_reg) _,
                to = inout(reg) to => _,
                left = inout(reg) body => _,
                options(nostack)
            );
        }
    }
    super::bytes::write(addr + head + body, len - head - body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_range_is_zero_and_nothing_beside_it() {
        for start in [0, 1, 15, 16, 63, 64, 100] {
            for len in [0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 1000, 1024] {
                let mut bytes = vec![0xff_u8; 64 + 100 + 1024 + 64];
                let first = bytes.as_mut_ptr().align_offset(LINE) + start;
                zero(bytes.as_mut_ptr().expose_provenance() + first, len);
                for (at, &byte) in bytes.iter().enumerate() {
                    assert_eq!(byte == 0, (first..first + len).contains(&at), "{start} {len}: {at}");
                }
            }
        }
    }

    #[test]
    fn what_no_cache_holds_goes_past_them_on_intel() {
        assert!(!is_faster(FROM - 1));
        assert_eq!(is_faster(FROM), vendor_slow() == Vendor::Intel);
    }
}
