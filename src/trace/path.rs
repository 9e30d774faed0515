//! The name of the file, from the environment: `ZK_NALLOC_TRACE`, in which `%p` stands for the process's number.
//!
//! Why not with the other variables: those are a word each; this one is as long as a path. Never allocates.

use core::ffi::CStr;

/// The variable, and what stands between it and its value.
const NAME: &[u8] = b"ZK_NALLOC_TRACE=";

/// The longest path that is taken, in bytes.
const PATH_MAX: usize = 1023;

/// Finds the variable in an environment that streams past: entries with a NUL byte after each, cut anywhere.
pub(super) struct Path {
    text: [u8; PATH_MAX],
    /// As long as it really is.
    len: usize,
    /// Bytes of `NAME` that this entry began with; `None` in another entry.
    matched: Option<usize>,
    found: bool,
}

impl Path {
    pub(super) const fn new() -> Self {
        Self { text: [0; PATH_MAX], len: 0, matched: Some(0), found: false }
    }

    /// Takes the next piece of the stream.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        for &byte in piece {
            match (byte, self.matched) {
                // The first entry of a name counts.
                (0, matched) => {
                    self.found |= matched == Some(NAME.len());
                    self.matched = if self.found { None } else { Some(0) };
                }
                (_, Some(all)) if all == NAME.len() => {
                    if let Some(place) = self.text.get_mut(self.len) {
                        *place = byte;
                    }
                    self.len = self.len.saturating_add(1);
                }
                (_, Some(matched)) => {
                    self.matched = (NAME.get(matched) == Some(&byte)).then_some(matched + 1);
                }
                (_, None) => {}
            }
        }
    }

    /// The path, if there is one.
    pub(super) fn finish(mut self) -> Option<Self> {
        self.feed(b"\0");
        (self.len > 0).then_some(self)
    }

    /// As it may be written to a terminal, cut where it is long.
    pub(super) fn shown(&self) -> &str {
        let text = self.text.get(..self.len.min(200)).unwrap_or(&[]);
        match core::str::from_utf8(text) {
            Ok(text) if !text.chars().any(char::is_control) => text,
            _ => "the file",
        }
    }

    /// The path of `process`, whose number stands where `%p` does, and a percent sign where `%%` does; `None` if it is too long.
    pub(super) fn name(&self, process: u32) -> Option<Name> {
        let mut name = Name { bytes: [0; PATH_MAX + 1], len: 0 };
        let mut text = self.text.get(..self.len)?.iter().peekable();
        while let Some(&byte) = text.next() {
            match (byte, text.peek()) {
                (b'%', Some(b'p')) => {
                    text.next();
                    name.number(process)?;
                }
                (b'%', Some(b'%')) => {
                    text.next();
                    name.push(byte)?;
                }
                _ => name.push(byte)?,
            }
        }
        Some(name)
    }
}

/// A path with a NUL byte behind it.
pub(super) struct Name {
    bytes: [u8; PATH_MAX + 1],
    len: usize,
}

impl Name {
    fn push(&mut self, byte: u8) -> Option<()> {
        // The last byte stays 0.
        *self.bytes.get_mut(..PATH_MAX)?.get_mut(self.len)? = byte;
        self.len += 1;
        Some(())
    }

    fn number(&mut self, number: u32) -> Option<()> {
        let mut power = 1_u32;
        while number / power >= 10 {
            power *= 10;
        }
        while power > 0 {
            self.push(b'0' + (number / power % 10) as u8)?;
            power /= 10;
        }
        Some(())
    }

    pub(super) fn c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(environment: &[u8], piece: usize) -> Option<String> {
        let mut path = Path::new();
        environment.chunks(piece).for_each(|piece| path.feed(piece));
        Some(path.finish()?.name(4021)?.c_str().to_str().unwrap().to_owned())
    }

    #[test]
    fn the_first_of_its_name_wherever_the_stream_is_cut() {
        let environment =
            b"A=1\0XZK_NALLOC_TRACE=x\0ZK_NALLOC_TRACED=y\0ZK_NALLOC_TRACE\0ZK_NALLOC_TRACE=/tmp/a=%p.%%p%d%\0\
            ZK_NALLOC_TRACE=z\0B=";
        for piece in 1..=environment.len() {
            assert_eq!(found(environment, piece).as_deref(), Some("/tmp/a=4021.%p%d%"), "{piece}");
        }
    }

    #[test]
    fn nothing_is_nothing() {
        for environment in [&b""[..], b"ZK_NALLOC_TRACE=", b"ZK_NALLOC_TRACE=\0ZK_NALLOC_TRACE=z", b"\0\0=\0"]
        {
            assert_eq!(found(environment, 5), None);
        }
        assert_eq!(found(b"ZK_NALLOC_TRACE=t", 3).as_deref(), Some("t"));
    }

    #[test]
    fn a_path_too_long_is_none() {
        for (len, fits) in [(PATH_MAX, true), (PATH_MAX + 1, false), (100_000, false)] {
            let environment = [NAME, &vec![b'a'; len]].concat();
            assert_eq!(found(&environment, 512).is_some(), fits, "{len}");
        }
        // The number makes it too long.
        assert_eq!(found(&[NAME, &vec![b'a'; PATH_MAX - 3], b"%p"].concat(), 512), None);
        let mut long = Path::new();
        long.feed(&[NAME, &vec![b'a'; 5000]].concat());
        assert_eq!(long.finish().unwrap().shown().len(), 200);
    }
}
