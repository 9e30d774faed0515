//! Reading what the kernel writes: pure functions over bytes, `None` for anything unexpected.
//!
//! Invariants: no input, however cut or mangled, panics, overflows or allocates.

/// A decimal number and nothing else.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// A hexadecimal number in lower case and nothing else.
pub(super) fn hex(text: &[u8]) -> Option<usize> {
    if text.is_empty() || text.len() > usize::BITS as usize / 4 {
        return None;
    }
    text.iter().try_fold(0_usize, |sum, &byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(sum << 4 | usize::from(digit))
    })
}

/// A decimal number with one newline or none behind it, as a `usize`.
pub(super) fn file_number(text: &[u8]) -> Option<usize> {
    usize::try_from(number(text.trim_ascii_end())?).ok()
}

/// The chosen word of a list such as `always [madvise] never`.
pub(super) fn chosen(text: &[u8]) -> Option<&[u8]> {
    let open = text.iter().position(|&b| b == b'[')?;
    let rest = text.get(open + 1..)?;
    rest.get(..rest.iter().position(|&b| b == b']')?)
}

/// The words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&b| b == b' ' || b == b'\t').filter(|word| !word.is_empty())
}

/// The number of a line `name number`, if it is that name's.
pub(super) fn named(line: &[u8], name: &[u8]) -> Option<u64> {
    let mut words = words(line);
    if words.next()? == name { number(words.next()?) } else { None }
}

/// What stands before and behind the first `byte`.
pub(super) fn cut(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&b| b == byte)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// The three numbers of a kernel release such as `6.18.44-generic`; one that is missing is 0.
pub(super) fn release(text: &[u8]) -> Option<[u64; 3]> {
    let mut rest = text;
    let mut numbers = [0; 3];
    for (index, place) in numbers.iter_mut().enumerate() {
        let len = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
        let Some(part) = number(rest.get(..len)?) else {
            // `6-something` is a release; `generic` is none.
            return (index > 0).then_some(numbers);
        };
        *place = part;
        match rest.get(len..)? {
            [b'.', more @ ..] => rest = more,
            _ => break,
        }
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for text in [&b""[..], b"max", b"-1", b"1 ", b"18446744073709551616", b"\xff", b"1\n"] {
            assert_eq!(number(text), None, "{text:?}");
        }
        assert_eq!(file_number(b"2097152\n"), Some(2 << 20));
        assert_eq!(file_number(b"max\n"), None);
        assert_eq!(file_number(b"\n"), None);
    }

    #[test]
    fn hexadecimal_numbers() {
        assert_eq!((hex(b"7f00"), hex(b"ffffffffff600000")), (Some(0x7f00), Some(0xffff_ffff_ff60_0000)));
        for text in [&b""[..], b"7F", b"g", b"-1", b"10000000000000000", b"0x1"] {
            assert_eq!(hex(text), None, "{text:?}");
        }
    }

    #[test]
    fn chosen_words() {
        assert_eq!(chosen(b"always [madvise] never\n"), Some(&b"madvise"[..]));
        assert_eq!(chosen(b"[always] inherit madvise never\n"), Some(&b"always"[..]));
        for text in [&b""[..], b"always madvise never", b"always [madvise", b"]x[", b"["] {
            assert_eq!(chosen(text), None, "{text:?}");
        }
    }

    #[test]
    fn named_numbers() {
        assert_eq!(named(b"MemAvailable:   24267040 kB", b"MemAvailable:"), Some(24_267_040));
        assert_eq!(named(b"inactive_file 751759360", b"inactive_file"), Some(751_759_360));
        for line in [&b""[..], b"inactive_file", b"inactive_file x", b"total_inactive_file 3", b"\t"] {
            assert_eq!(named(line, b"inactive_file"), None);
        }
    }

    #[test]
    fn releases() {
        for (text, expected) in [
            (&b"6.18.44-fc-v669"[..], Some([6, 18, 44])),
            (b"6.18.8", Some([6, 18, 8])),
            (b"6.19.0-rc3", Some([6, 19, 0])),
            (b"6.19-rc3", Some([6, 19, 0])),
            (b"5.15.0-1051-aws", Some([5, 15, 0])),
            (b"4.4.0", Some([4, 4, 0])),
            (b"7", Some([7, 0, 0])),
            (b"6.", Some([6, 0, 0])),
            (b"6.18.x", Some([6, 18, 0])),
            (b"", None),
            (b"generic", None),
            (b".6", None),
            (b"99999999999999999999.1", None),
        ] {
            assert_eq!(release(text), expected, "{text:?}");
        }
    }
}
