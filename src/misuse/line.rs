//! The line that names a misuse, put together without a formatter.

/// A number in digits, on the stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    text: [u8; Self::MAX],
    from: usize,
}

impl Number {
    /// `0x` and sixteen digits, or twenty decimal ones.
    const MAX: usize = 20;

    fn digits(mut number: usize, base: usize) -> Self {
        let mut text = [b'0'; Self::MAX];
        let mut from = Self::MAX;
        loop {
            from -= 1;
            text[from] = b"0123456789abcdef"[number % base];
            number /= base;
            if number == 0 {
                return Self { text, from };
            }
        }
    }

    pub(super) fn decimal(number: usize) -> Self {
        Self::digits(number, 10)
    }

    pub(super) fn hex(number: usize) -> Self {
        let mut hex = Self::digits(number, 16);
        hex.from -= 2;
        hex.text[hex.from + 1] = b'x';
        hex.text[hex.from] = b'0';
        hex
    }

    pub(super) fn as_str(&self) -> &str {
        core::str::from_utf8(&self.text[self.from..]).unwrap_or("?")
    }
}

/// Parts of the longest line, and what it begins with.
const PARTS: usize = 14;

/// Writes the line and ends the process.
#[cold]
pub(super) fn end(parts: &[&str]) -> ! {
    let mut all = [""; PARTS];
    all[0] = "zk-nalloc: misuse, aborting: ";
    for (place, part) in all[1..].iter_mut().zip(parts) {
        *place = part;
    }
    finish(&all)
}

#[cfg(not(test))]
fn finish(parts: &[&str]) -> ! {
    crate::os::die(parts)
}

/// Under test the end of the process is a panic, so that a test can expect it.
#[cfg(test)]
fn finish(parts: &[&str]) -> ! {
    panic!("{}", parts.concat())
}

#[cfg(test)]
mod tests {
    use super::Number;

    #[test]
    fn numbers_read_as_std_writes_them() {
        for number in [0, 1, 9, 10, 4096, 0xdead_beef, usize::MAX - 1, usize::MAX] {
            assert_eq!(Number::decimal(number).as_str(), format!("{number}"));
            assert_eq!(Number::hex(number).as_str(), format!("{number:#x}"));
        }
    }
}
