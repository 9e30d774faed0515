//! Text and ticks.

/// Writes text so that it stands for itself in HTML and XML. What XML cannot hold at all becomes a question mark.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if (letter.is_control() && letter != '\n') || "\u{fffe}\u{ffff}".contains(letter) => {
                out.push('?')
            }
            letter => out.push(letter),
        }
    }
    out
}

/// A round distance between the ticks of an axis that goes up to `max`, for five of them or so: 1, 2 or 5 times a power
/// of ten.
pub(super) fn decimal_step(max: f64) -> f64 {
    let raw = (max / 8.0).max(1.0);
    let power = 10_f64.powf(raw.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= raw).unwrap_or(10.0);
    times * power
}

/// The same for bytes: a power of two.
pub(super) fn binary_step(max: u64) -> u64 {
    (max / 6).max(1).checked_next_power_of_two().unwrap_or(1 << 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_to_a_browser_does_not() {
        assert_eq!(escaped("a<b> & \"c\" 'd'\u{1}"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;?");
    }

    #[test]
    fn steps_are_round() {
        assert!((decimal_step(6.1e9) - 1e9).abs() < 1.0 && (decimal_step(1500.0) - 200.0).abs() < 1.0);
        assert_eq!([binary_step(0), binary_step(2087 << 20), binary_step(u64::MAX)], [1, 512 << 20, 1 << 62]);
    }
}
