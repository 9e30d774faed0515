//! Contents that are quick to write and to check, page by page, in a debug build too.

const PAGE: usize = 4096;

/// The first bytes of each page: which one it is.
const MARK: usize = 8;

/// A stream of numbers, the same in every run.
#[derive(Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number under `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap() % end
    }

    /// A length from `least` to `most` bytes whose logarithm is evenly spread, and hardly ever a round number.
    pub(crate) fn length(&mut self, least: usize, most: usize) -> usize {
        let octaves = (most / least).ilog2() + 1;
        let low = least << self.below(octaves as usize);
        (low + self.below(low)).min(most)
    }
}

fn mark(seed: u64, page: usize) -> [u8; MARK] {
    (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ page as u64).to_ne_bytes()
}

/// Writes every byte.
pub(crate) fn write(seed: u64, into: &mut [u8]) {
    into.fill(seed as u8);
    for (page, bytes) in into.chunks_mut(PAGE).enumerate() {
        let len = bytes.len().min(MARK);
        bytes[..len].copy_from_slice(&mark(seed, page)[..len]);
    }
}

/// Whether every byte is as [`write`] left it, in the first part of what was written too.
pub(crate) fn holds(seed: u64, bytes: &[u8]) -> bool {
    let filling = [seed as u8; PAGE];
    bytes.chunks(PAGE).enumerate().all(|(page, bytes)| {
        let len = bytes.len().min(MARK);
        bytes[..len] == mark(seed, page)[..len] && bytes[len..] == filling[len..bytes.len()]
    })
}

/// Whether every byte is zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(PAGE).all(|page| page == &[0; PAGE][..page.len()])
}

/// Makes a vector longer, in place if it has the capacity: `resize` goes byte by byte in a debug build.
fn extend(bytes: &mut Vec<u8>, len: usize) {
    while bytes.len() < len {
        let more = (len - bytes.len()).min(PAGE);
        bytes.extend_from_slice(&[0; PAGE][..more]);
    }
}

/// Bytes with a pattern, and what it is.
#[derive(Debug)]
pub(crate) struct Patterned {
    seed: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Patterned {
    /// Memory with whatever it held, filled.
    pub(crate) fn new(seed: u64, len: usize) -> Self {
        let mut bytes = vec![1; len];
        write(seed, &mut bytes);
        Self { seed, bytes }
    }

    /// Zeroed memory, checked, then filled.
    pub(crate) fn from_zeroed(seed: u64, len: usize) -> Self {
        let mut bytes = vec![0; len];
        assert!(is_zero(&bytes), "{len} zeroed bytes are not zero");
        write(seed, &mut bytes);
        Self { seed, bytes }
    }

    /// Makes it longer or shorter by `realloc`, checks what stayed, and fills it anew.
    pub(crate) fn resize(&mut self, len: usize) {
        let kept = self.bytes.len().min(len);
        let before = self.bytes.len();
        if len > before {
            self.bytes.reserve_exact(len - before);
            self.check(&format!("growth from {before} to {len} bytes"));
            extend(&mut self.bytes, len);
        } else {
            self.bytes.truncate(len);
            self.bytes.shrink_to_fit();
        }
        assert!(holds(self.seed, &self.bytes[..kept]), "resized from {before} to {len} bytes: not whole");
        write(self.seed, &mut self.bytes);
    }

    pub(crate) fn check(&self, what: &str) {
        assert!(holds(self.seed, &self.bytes), "{what}: {} bytes are not whole", self.bytes.len());
    }
}
