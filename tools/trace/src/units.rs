//! Numbers as people read them.

/// Writes bytes in the largest binary unit that leaves a whole number before the point.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let (value, unit) = match bytes {
        0x4000_0000.. => (bytes as f64 / f64::from(1 << 30), "GiB"),
        0x10_0000.. => (bytes as f64 / f64::from(1 << 20), "MiB"),
        0x400.. => (bytes as f64 / 1024.0, "KiB"),
        _ => return format!("{bytes} B"),
    };
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

/// Writes a time in nanoseconds.
#[must_use]
pub fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        1_000_000_000.. => format!("{:.3} s", value / 1e9),
        1_000_000.. => format!("{:.2} ms", value / 1e6),
        1_000.. => format!("{:.1} µs", value / 1e3),
        _ => format!("{nanoseconds} ns"),
    }
}

/// Writes a number with a thin space between thousands.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index % 3 == first {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 10, "1.00 KiB"),
            (64 << 10, "64.0 KiB"),
            (328 << 20, "328 MiB"),
            (5 << 29, "2.50 GiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(
            [time(9), time(9_500), time(1_250_000), time(2_000_000_000)],
            ["9 ns", "9.5 µs", "1.25 ms", "2.000 s"]
        );
        assert_eq!(
            [count(7), count(123), count(1234), count(1_234_567)].map(|text| text.replace('\u{202f}', " ")),
            ["7", "123", "1 234", "1 234 567"]
        );
    }
}
