//! What the environment asks for: `ZK_NALLOC_REPORT` and `ZK_NALLOC_REPORT_SIGNALS`.
//!
//! Pure functions over a stream of bytes, as for the other variables, which are read by `config`. These stand apart because
//! a path may be as long as it likes, and is needed again at the end of the process only. Nothing here allocates but
//! what its caller collects a value into.

/// The variable that asks for a report.
pub(super) const REPORT: &str = "ZK_NALLOC_REPORT";

/// The variable that asks for one at signals too.
pub(super) const SIGNALS: &str = "ZK_NALLOC_REPORT_SIGNALS";

/// Finds the value of one variable in an environment that streams past; the first entry of a name counts.
pub(super) struct Find<'a> {
    name: &'static str,
    at: At,
    found: bool,
    /// Is given the bytes of the value.
    value: &'a mut dyn FnMut(u8),
}

/// Where in an entry the stream is.
#[derive(Clone, Copy, Debug)]
enum At {
    /// As many bytes into the name, all of which match.
    Name(usize),
    Value,
    Other,
}

impl<'a> Find<'a> {
    pub(super) fn new(name: &'static str, value: &'a mut dyn FnMut(u8)) -> Self {
        Self { name, at: At::Name(0), found: false, value }
    }

    /// Takes the next piece of the stream: entries `NAME=VALUE`, a NUL byte after each.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        for &byte in piece {
            self.at = match (self.at, byte) {
                (_, 0) => At::Name(0),
                (At::Name(len), b'=') if len == self.name.len() && !self.found => {
                    self.found = true;
                    At::Value
                }
                (At::Name(len), _) if self.name.as_bytes().get(len) == Some(&byte) => At::Name(len + 1),
                (At::Value, _) => {
                    (self.value)(byte);
                    At::Value
                }
                _ => At::Other,
            };
        }
    }
}

/// Where a report is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nowhere,
    StandardError,
    /// To the file that the variable names.
    File,
    /// The value means nothing.
    Unclear,
}

/// What a value of [`REPORT`] asks for: `1`, `0` or nothing, or a path, which has a slash or a dot in it, so that `yes`
/// becomes no file of that name.
pub(super) fn wish(value: &[u8]) -> Wish {
    match value {
        b"" | b"0" => Wish::Nowhere,
        b"1" => Wish::StandardError,
        path if path.iter().any(|byte| matches!(byte, b'/' | b'.')) => Wish::File,
        _ => Wish::Unclear,
    }
}

/// The path that a value names: `%p` is the number of the process, `%%` a percent sign.
pub(super) fn path(value: &[u8], process: u32) -> Vec<u8> {
    let mut path = Vec::with_capacity(value.len() + 8);
    let mut rest = value.iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => match rest.next() {
                Some(b'p') => path.extend(process.to_string().bytes()),
                Some(b'%') => path.push(b'%'),
                other => path.extend([b'%'].into_iter().chain(other)),
            },
            byte => path.push(byte),
        }
    }
    path
}

/// The path as it may be written to a terminal.
pub(super) fn shown(path: &[u8]) -> String {
    path.iter().map(|&byte| char::from(harmless(byte))).collect()
}

/// Printable ASCII, the rest as question marks.
fn harmless(byte: u8) -> u8 {
    if byte.is_ascii_graphic() || byte == b' ' { byte } else { b'?' }
}

/// What a value of [`SIGNALS`] says; `None` if it means nothing.
pub(super) fn switch(value: &[u8]) -> Option<bool> {
    match value {
        b"" | b"0" => Some(false),
        b"1" => Some(true),
        _ => None,
    }
}

/// The first bytes of a value, made safe to show.
#[derive(Debug)]
pub(super) struct Head {
    bytes: [u8; Self::MAX],
    len: usize,
    /// Whether a byte of it, wherever, makes it a path.
    is_path: bool,
}

impl Head {
    const MAX: usize = 48;

    pub(super) const fn new() -> Self {
        Self { bytes: [0; Self::MAX], len: 0, is_path: false }
    }

    pub(super) fn push(&mut self, byte: u8) {
        self.is_path |= matches!(byte, b'/' | b'.');
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    /// What it asks for, with what was cut off.
    pub(super) fn wish(&self) -> Wish {
        if self.is_path { Wish::File } else { wish(self.bytes()) }
    }

    /// It as it may be written to a terminal.
    pub(super) fn shown(&mut self) -> &str {
        self.bytes.iter_mut().for_each(|byte| *byte = harmless(*byte));
        core::str::from_utf8(self.bytes()).unwrap_or("?")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(environment: &[u8], name: &'static str, piece: usize) -> Vec<u8> {
        let mut value = Vec::new();
        let mut push = |byte| value.push(byte);
        let mut find = Find::new(name, &mut push);
        environment.chunks(piece).for_each(|piece| find.feed(piece));
        value
    }

    #[test]
    fn the_first_of_a_name_wherever_the_stream_is_cut() {
        let environment =
            b"A=1\0ZK_NALLOC_REPORT_SIGNALS=1\0ZK_NALLOC_REPORTS=x\0XZK_NALLOC_REPORT=y\0ZK_NALLOC_REPORT\0\
            ZK_NALLOC_REPORT=/tmp/a=b\0ZK_NALLOC_REPORT=z\0";
        for piece in 1..=environment.len() {
            assert_eq!(found(environment, REPORT, piece), b"/tmp/a=b", "{piece}");
            assert_eq!(found(environment, SIGNALS, piece), b"1", "{piece}");
        }
        assert_eq!(found(b"ZK_NALLOC_REPORT=last", REPORT, 3), b"last");
        for nothing in [&b""[..], b"\0\0", b"=", b"ZK_NALLOC_REPORT", b"a=ZK_NALLOC_REPORT=1"] {
            assert_eq!(found(nothing, REPORT, 64), b"");
        }
    }

    #[test]
    fn what_values_mean() {
        for (value, meant) in [
            ("", Wish::Nowhere),
            ("0", Wish::Nowhere),
            ("1", Wish::StandardError),
            ("/tmp/x", Wish::File),
            ("report.txt", Wish::File),
            ("./1", Wish::File),
            ("yes", Wish::Unclear),
            ("2", Wish::Unclear),
            ("01", Wish::Unclear),
            (" 1", Wish::Unclear),
        ] {
            assert_eq!(wish(value.as_bytes()), meant, "{value:?}");
            let mut head = Head::new();
            value.bytes().for_each(|byte| head.push(byte));
            assert_eq!(head.wish(), meant, "{value:?}");
        }
        let mut long = Head::new();
        "a".repeat(100).bytes().chain(*b"/x").for_each(|byte| long.push(byte));
        assert_eq!((long.wish(), long.bytes().len()), (Wish::File, Head::MAX));
        assert_eq!(
            [switch(b"1"), switch(b"0"), switch(b""), switch(b"on")],
            [Some(true), Some(false), Some(false), None]
        );
    }

    #[test]
    fn paths_with_the_number_of_the_process() {
        for (value, meant) in [
            ("/a", "/a"),
            ("r-%p.txt", "r-77.txt"),
            ("100%%.%p", "100%.77"),
            ("./%x%", "./%x%"),
            ("%p%p/", "7777/"),
        ] {
            assert_eq!(String::from_utf8(path(value.as_bytes(), 77)).unwrap(), meant);
        }
    }

    #[test]
    fn what_could_harm_a_terminal_is_not_shown() {
        let mut head = Head::new();
        b"\x1b]0;x\x07 \xff ok".iter().for_each(|&byte| head.push(byte));
        assert_eq!(head.shown(), "?]0;x? ? ok");
    }
}
