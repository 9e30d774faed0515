//! What the words of the environment mean: pure functions over bytes, `None` for anything unexpected.
//!
//! Strict on purpose: a value that is nearly right is a mistake that its author wants to hear of. No sign, no
//! space, no fraction, no `B` or `iB`; an empty value is not a number. Words may be written in either case.
//! Never here: defaults, and what is done about a value that cannot be read.

use super::{Moves, Thp};

/// Reads decimal digits with at most one of K, M, G (either case) behind them; `None` also beyond `usize`.
pub(super) fn bytes(value: &[u8]) -> Option<usize> {
    let (digits, shift) = match value.split_last()? {
        (b'k' | b'K', digits) => (digits, 10),
        (b'm' | b'M', digits) => (digits, 20),
        (b'g' | b'G', digits) => (digits, 30),
        _ => (value, 0),
    };
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_usize;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(usize::from(digit - b'0'))?;
    }
    number.checked_mul(1 << shift)
}

/// Reads `auto`, `always` or `never`.
pub(super) fn thp(value: &[u8]) -> Option<Thp> {
    pick(value, &[("auto", Thp::Auto), ("always", Thp::Always), ("never", Thp::Never)])
}

/// Reads `auto` or `never`.
pub(super) fn moves(value: &[u8]) -> Option<Moves> {
    pick(value, &[("auto", Moves::Auto), ("never", Moves::Never)])
}

/// Reads `1` or `0`.
pub(super) fn switch(value: &[u8]) -> Option<bool> {
    pick(value, &[("1", true), ("0", false)])
}

fn pick<T: Copy>(value: &[u8], words: &[(&str, T)]) -> Option<T> {
    words.iter().find(|(word, _)| value.eq_ignore_ascii_case(word.as_bytes())).map(|&(_, meaning)| meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_and_without_a_unit() {
        for (text, expected) in [
            ("0", 0),
            ("1", 1),
            ("007", 7),
            ("0g", 0),
            ("65536", 65_536),
            ("4k", 4 << 10),
            ("4K", 4 << 10),
            ("300m", 300 << 20),
            ("300M", 300 << 20),
            ("64g", 64 << 30),
            ("64G", 64 << 30),
            ("18446744073709551615", usize::MAX),
            ("17179869183G", usize::MAX - ((1 << 30) - 1)),
        ] {
            assert_eq!(bytes(text.as_bytes()), Some(expected), "{text}");
        }
    }

    #[test]
    fn anything_else_is_no_number_of_bytes() {
        for text in [
            "",
            "K",
            "g",
            "12cats",
            "-1",
            "+1",
            " 1",
            "1 ",
            "1.5G",
            "1GB",
            "1GiB",
            "1kk",
            "0x10",
            "1e9",
            "1_000",
            "4T",
            "\u{661}",
            "1\0",
            "18446744073709551616",
            "17179869184G",
            "99999999999999999999999999",
        ] {
            assert_eq!(bytes(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(bytes(b"\xff\xfe"), None);
    }

    #[test]
    fn words_in_either_case_and_nothing_near_them() {
        assert_eq!(thp(b"auto"), Some(Thp::Auto));
        assert_eq!(thp(b"Always"), Some(Thp::Always));
        assert_eq!(thp(b"NEVER"), Some(Thp::Never));
        assert_eq!(moves(b"auto"), Some(Moves::Auto));
        assert_eq!(moves(b"never"), Some(Moves::Never));
        assert_eq!(moves(b"always"), None, "there are kernels on which that frees memory in use");
        assert_eq!((switch(b"1"), switch(b"0")), (Some(true), Some(false)));
        for text in ["", "2", "01", "yes", "true", "on", " 1"] {
            assert_eq!(switch(text.as_bytes()), None, "{text:?}");
        }
        for text in ["", "aut", "autos", " auto", "never ", "1", "madvise", "off"] {
            assert_eq!(thp(text.as_bytes()), None, "{text:?}");
            assert_eq!(moves(text.as_bytes()), None, "{text:?}");
        }
    }
}
