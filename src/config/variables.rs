//! Finding our variables in an environment that streams past.
//!
//! What it is: [`Scan`], which is fed the environment in pieces of any length, entries separated by NUL bytes,
//! and [`Variables`], what it found. Why a stream: the environment may be megabytes long, and the buffer it
//! is read through lies on the stack of whichever thread allocates first.
//!
//! Invariants: the first entry of a name counts, as with `getenv`; a value is kept up to [`VALUE_MAX`] bytes
//! and known to be longer; cutting the stream elsewhere changes nothing. Never allocates, never panics.

/// The longest value that can mean anything is 20 digits and a letter, the longest name has 24; the rest is kept to be shown.
const VALUE_MAX: usize = 48;

/// A variable of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    CacheBytes,
    Thp,
    Moves,
    Checked,
    WipeOnFree,
    Background,
}

/// How many there are.
const COUNT: usize = Variable::ALL.len();

impl Variable {
    pub(crate) const ALL: [Self; 6] =
        [Self::CacheBytes, Self::Thp, Self::Moves, Self::Checked, Self::WipeOnFree, Self::Background];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CacheBytes => "ZK_NALLOC_CACHE_BYTES",
            Self::Thp => "ZK_NALLOC_THP",
            Self::Moves => "ZK_NALLOC_MOVES",
            Self::Checked => "ZK_NALLOC_CHECKED",
            Self::WipeOnFree => "ZK_NALLOC_WIPE_ON_FREE",
            Self::Background => "ZK_NALLOC_BACKGROUND",
        }
    }

    /// A bit of its own, for sets of variables.
    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The value of a variable, or a name, cut at [`VALUE_MAX`] bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    bytes: [u8; VALUE_MAX],
    /// As long as it really is, or as much of that as a `usize` can say.
    len: usize,
}

impl Value {
    const EMPTY: Self = Self { bytes: [0; VALUE_MAX], len: 0 };

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
        }
        self.len = self.len.saturating_add(1);
    }

    /// The value, unless it was cut.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len)
    }

    /// The value, or what is kept of it.
    fn kept(&self) -> &[u8] {
        self.whole().unwrap_or(&self.bytes)
    }

    /// The value as it may be written to a terminal: printable ASCII, the rest as question marks.
    pub(super) fn shown(&self) -> Shown {
        let mut text = [b'?'; SHOWN_MAX];
        let mut len = 0;
        for (place, &byte) in text.iter_mut().zip(self.kept()) {
            if byte == b' ' || (byte.is_ascii_graphic() && byte != b'"') {
                *place = byte;
            }
            len += 1;
        }
        if self.len > VALUE_MAX {
            for place in text.iter_mut().skip(len).take(3) {
                *place = b'.';
                len += 1;
            }
        }
        Shown { text, len }
    }
}

const SHOWN_MAX: usize = VALUE_MAX + 3;

/// A value made safe to show.
pub(super) struct Shown {
    text: [u8; SHOWN_MAX],
    len: usize,
}

impl Shown {
    pub(super) fn as_str(&self) -> &str {
        self.text.get(..self.len).and_then(|text| core::str::from_utf8(text).ok()).unwrap_or("?")
    }
}

/// What the names of all our variables begin with.
const OURS: &[u8] = b"ZK_NALLOC_";

/// Those that are read elsewhere: each is a path, or goes with one.
const ELSEWHERE: [&[u8]; 3] = [b"ZK_NALLOC_TRACE", b"ZK_NALLOC_REPORT", b"ZK_NALLOC_REPORT_SIGNALS"];

/// What the names of variables begin with that tests read.
const TESTS: &[u8] = b"ZK_NALLOC_TEST_";

/// The variables of ours that an environment holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variables {
    values: [Option<Value>; COUNT],
    unknown: Option<Value>,
}

impl Variables {
    pub(crate) fn get(&self, variable: Variable) -> Option<&Value> {
        self.values.get(variable as usize)?.as_ref()
    }

    /// The first name that begins as ours do and is none of them: misspelt, or another version's.
    pub(super) fn unknown(&self) -> Option<&Value> {
        self.unknown.as_ref()
    }
}

/// Where in an entry the stream is.
#[derive(Clone, Copy, Debug)]
enum At {
    Name,
    /// In the value of a variable of ours.
    Value(Variable),
    /// In the value of any other.
    Other,
}

/// Looks an environment through as it streams past.
#[derive(Debug)]
pub(crate) struct Scan {
    found: Variables,
    /// What there is so far of the name or the value that the stream is in.
    text: Value,
    at: At,
}

impl Scan {
    pub(crate) const fn new() -> Self {
        let found = Variables { values: [None; COUNT], unknown: None };
        Self { found, text: Value::EMPTY, at: At::Name }
    }

    /// Takes the next piece of the stream.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        for &byte in piece {
            match (self.at, byte) {
                (_, 0) => self.end_entry(),
                (At::Name, b'=') => self.end_name(),
                (At::Name | At::Value(_), _) => self.text.push(byte),
                (At::Other, _) => {}
            }
        }
    }

    /// Ends the stream; an entry without a NUL behind it counts.
    pub(crate) fn finish(mut self) -> Variables {
        self.end_entry();
        self.found
    }

    fn end_entry(&mut self) {
        if let At::Value(variable) = self.at
            && let Some(place) = self.found.values.get_mut(variable as usize)
            && place.is_none()
        {
            *place = Some(self.text);
        }
        self.text = Value::EMPTY;
        self.at = At::Name;
    }

    fn end_name(&mut self) {
        let name = core::mem::replace(&mut self.text, Value::EMPTY);
        let is = |v: &Variable| name.whole() == Some(v.name().as_bytes());
        self.at = Variable::ALL.into_iter().find(is).map_or(At::Other, At::Value);
        let is_known = || name.kept().starts_with(TESTS) || ELSEWHERE.contains(&name.kept());
        if matches!(self.at, At::Other)
            && self.found.unknown.is_none()
            && name.kept().starts_with(OURS)
            && !is_known()
        {
            self.found.unknown = Some(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(environment: &[u8], piece: usize) -> [Option<String>; COUNT] {
        let mut scan = Scan::new();
        environment.chunks(piece).for_each(|piece| scan.feed(piece));
        let found = scan.finish();
        Variable::ALL.map(|v| found.get(v).map(|value| value.shown().as_str().to_owned()))
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn wherever_the_stream_is_cut() {
        let environment = b"A=1\0ZK_NALLOC_THP=never\0\0ZK_NALLOC=x\0ZK_NALLOC_THPX=y\0XZK_NALLOC_MOVES=z\0\
            ZK_NALLOC_MOVES\0ZK_NALLOC_CACHE_BYTES=4G\0ZK_NALLOC_WIPE_ON_FREE=1\0ZK_NALLOC_THP=always\0ZK_NALLOC_MOVES=";
        for piece in 1..environment.len() + 1 {
            assert_eq!(
                found(environment, piece),
                [some("4G"), some("never"), some(""), None, some("1"), None],
                "{piece}"
            );
        }
    }

    #[test]
    fn nothing_is_found_in_nothing_or_in_noise() {
        let noise: Vec<u8> = (0..70_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for environment in
            [&b""[..], b"\0\0\0", b"=", b"ZK_NALLOC_THP", b"\xff\xff", b"a=ZK_NALLOC_THP=never", &noise]
        {
            assert_eq!(found(environment, 64), [const { None }; COUNT]);
        }
    }

    #[test]
    fn a_long_value_is_cut_and_known_to_be() {
        for len in [VALUE_MAX - 1, VALUE_MAX, VALUE_MAX + 1, 100_000] {
            let environment = [b"ZK_NALLOC_THP=".to_vec(), vec![b'a'; len], b"\0X=1\0".to_vec()].concat();
            let mut scan = Scan::new();
            scan.feed(&environment);
            let variables = scan.finish();
            let value = variables.get(Variable::Thp).unwrap();
            assert_eq!(value.whole().is_some(), len <= VALUE_MAX);
            assert_eq!(value.shown().as_str().ends_with("..."), len > VALUE_MAX);
            assert!(value.shown().as_str().len() <= SHOWN_MAX);
        }
    }

    #[test]
    fn the_first_name_that_is_nearly_one_of_ours_is_known() {
        let unknown = |environment: &[u8], piece: usize| {
            let mut scan = Scan::new();
            environment.chunks(piece).for_each(|piece| scan.feed(piece));
            scan.finish().unknown().map(|name| name.shown().as_str().to_owned())
        };
        let environment = b"ZK_NALLOC_THP=never\0ZK_NALLOC_TRACE=t\0ZK_NALLOC_REPORT=1\0ZK_NALLOC_REPORT_SIGNALS=1\0\
            ZK_NALLOC_TEST_X=1\0ZK_NALLOC_NO_VALUE\0A=ZK_NALLOC_B=1\0XZK_NALLOC_C=1\0ZK_NALLOC=1\0zk_nalloc_thp=1\0";
        let misspelt = [&environment[..], b"ZK_NALLOC_WIPE_ONFREE=1\0ZK_NALLOC_CACHE=4G\0"].concat();
        for piece in 1..=misspelt.len() {
            assert_eq!(unknown(environment, piece), None);
            assert_eq!(unknown(&misspelt, piece), some("ZK_NALLOC_WIPE_ONFREE"));
        }
        assert_eq!(unknown(b"ZK_NALLOC_THP\x1b[31m=1", 9), some("ZK_NALLOC_THP?[31m"));
        let long = [b"ZK_NALLOC_THP".to_vec(), vec![b'P'; 100], b"=never".to_vec()].concat();
        assert!(unknown(&long, 64).unwrap().ends_with("PPP..."));
    }

    #[test]
    fn what_could_harm_a_terminal_is_not_shown() {
        let [_, thp, ..] = found(b"ZK_NALLOC_THP=\x1b]0;x\x07\r\n\"\x7f\xe2\x82\xac ok\0", 7);
        assert_eq!(thp.unwrap(), "?]0;x???????? ok");
    }
}
