//! Comparison that does not tell where two secrets differ.
//!
//! Invariant: for equal lengths every byte of both is read, and no branch depends on any of them.

use core::hint::black_box;

/// Whether `a` and `b` are equal, in a time that depends on the lengths alone.
pub(super) fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest = a.remainder().iter().zip(b.remainder()).fold(0, |seen, (&x, &y)| black_box(seen | (x ^ y)));
    // The compiler knows nothing of a value that went through `black_box`, so it can neither stop when it
    // is no longer zero nor leave a step out.
    let seen = a.zip(b).fold(u64::from(rest), |seen, (x, y)| black_box(seen | (word(x) ^ word(y))));
    black_box(seen) == 0
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::equal;

    #[test]
    fn any_one_byte_makes_a_difference() {
        for len in 0..40 {
            let a: Vec<u8> = (0..len).collect();
            assert!(equal(&a, &a.clone()));
            assert!(!equal(&a, &[&a[..], &[0]].concat()));
            for at in 0..a.len() {
                for bit in 0..8 {
                    let mut b = a.clone();
                    b[at] ^= 1 << bit;
                    assert!(!equal(&a, &b), "byte {at} of {len}");
                }
            }
        }
    }
}
