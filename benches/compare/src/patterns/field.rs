//! The 64-bit field that many provers compute in, and the transform over it: just enough to do real work.
//!
//! What it is: arithmetic modulo 2^64 − 2^32 + 1, a radix-2 transform in place, and Horner's rule as the reference it is
//! checked against. Invariant: every value is reduced, that is below [`MODULUS`].

/// The modulus, 2^64 − 2^32 + 1.
pub(super) const MODULUS: u64 = 0xffff_ffff_0000_0001;
/// A generator of the multiplicative group.
const GENERATOR: u64 = 7;
/// 2^32 divides the order of the group, and no higher power of two does.
const TWO_ADICITY: u32 = 32;

/// Adds.
#[inline]
pub(super) const fn add(a: u64, b: u64) -> u64 {
    let (sum, over) = a.overflowing_add(b);
    let (less, under) = sum.overflowing_sub(MODULUS);
    if over || !under { less } else { sum }
}

/// Subtracts.
#[inline]
pub(super) const fn sub(a: u64, b: u64) -> u64 {
    let (difference, under) = a.overflowing_sub(b);
    if under { difference.wrapping_add(MODULUS) } else { difference }
}

/// Multiplies.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the product is split into its halves")]
pub(super) const fn mul(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    let (low, high) = (product as u64, (product >> 64) as u64);
    // 2^64 = 2^32 − 1 and 2^96 = −1 modulo this prime.
    let (difference, under) = low.overflowing_sub(high >> 32);
    let difference = if under { difference.wrapping_sub(0xffff_ffff) } else { difference };
    let middle = (high & 0xffff_ffff) * 0xffff_ffff;
    let (sum, over) = difference.overflowing_add(middle);
    let sum = if over { sum.wrapping_add(0xffff_ffff) } else { sum };
    if sum >= MODULUS { sum - MODULUS } else { sum }
}

/// Raises to a power.
pub(super) const fn pow(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = mul(result, base);
        }
        base = mul(base, base);
        exponent >>= 1;
    }
    result
}

/// Returns the inverse of a number other than zero.
pub(super) const fn inverse(a: u64) -> u64 {
    pow(a, MODULUS - 2)
}

/// Returns a primitive root of unity of order `2^log`.
pub(super) const fn root(log: u32) -> u64 {
    assert!(log <= TWO_ADICITY, "there is no such root");
    pow(GENERATOR, (MODULUS - 1) >> log)
}

/// Returns a number that is in no subgroup of powers of two: the shift of a coset.
pub(super) const fn shift() -> u64 {
    GENERATOR
}

/// Returns the powers of a root that a transform of `2 * count` values needs.
pub(super) fn powers(root: u64, count: usize) -> Vec<u64> {
    let mut power = 1;
    let next = |_| {
        let this = power;
        power = mul(power, root);
        this
    };
    (0..count).map(next).collect()
}

/// Transforms in place: coefficients become values at the powers of the root that `powers` begins with.
pub(super) fn transform(values: &mut [u64], powers: &[u64]) {
    let log = values.len().ilog2();
    for i in 0..values.len() {
        let j = i.reverse_bits() >> (usize::BITS - log);
        if i < j {
            values.swap(i, j);
        }
    }
    for layer in 0..log {
        let half = 1 << layer;
        let step = powers.len() >> layer;
        for pair in values.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for ((a, b), &power) in low.iter_mut().zip(high).zip(powers.iter().step_by(step)) {
                let product = mul(*b, power);
                (*a, *b) = (add(*a, product), sub(*a, product));
            }
        }
    }
}

/// Evaluates a polynomial by Horner's rule.
pub(super) fn evaluate(coefficients: &[u64], at: u64) -> u64 {
    coefficients.iter().rev().fold(0, |value, &coefficient| add(mul(value, at), coefficient))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Random;

    #[test]
    fn arithmetic_agrees_with_wide_integers() {
        let mut random = Random::new(3);
        let edges = [0, 1, 2, MODULUS - 1, MODULUS - 2, 0xffff_ffff, 1 << 32, (1 << 32) + 1, 1 << 63];
        let numbers: Vec<u64> =
            edges.into_iter().chain((0..200).map(|_| random.next_word() % MODULUS)).collect();
        let wide = u128::from(MODULUS);
        for &a in &numbers {
            for &b in &numbers {
                let (x, y) = (u128::from(a), u128::from(b));
                assert_eq!(u128::from(add(a, b)), (x + y) % wide);
                assert_eq!(u128::from(sub(a, b)), (x + wide - y) % wide);
                assert_eq!(u128::from(mul(a, b)), x * y % wide);
            }
            assert!(a == 0 || mul(a, inverse(a)) == 1);
        }
    }

    #[test]
    fn roots_have_their_order() {
        for log in 1..=TWO_ADICITY {
            assert_eq!(pow(root(log), 1 << (log - 1)), MODULUS - 1, "2^{log}");
        }
    }

    #[test]
    fn a_transform_evaluates_and_its_inverse_interpolates() {
        for log in [1, 2, 5, 9] {
            let mut random = Random::new(u64::from(log));
            let coefficients: Vec<u64> = (0..1 << log).map(|_| random.next_word() % MODULUS).collect();
            let mut values = coefficients.clone();
            transform(&mut values, &powers(root(log), coefficients.len() / 2));
            for (i, &value) in (0..).zip(&values) {
                assert_eq!(value, evaluate(&coefficients, pow(root(log), i)), "value {i} of 2^{log}");
            }
            transform(&mut values, &powers(inverse(root(log)), coefficients.len() / 2));
            let scale = inverse(1 << log);
            assert!(values.iter().map(|&value| mul(value, scale)).eq(coefficients));
        }
    }
}
