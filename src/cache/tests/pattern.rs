//! What a test writes into a block, and how it is found again.
//!
//! Three ways of writing, chosen by the block's seed: all of it, a word in every so many bytes, or its ends alone,
//! so that blocks that are hardly touched occur too. Words are sown at absolute multiples of a stride, which is
//! where [`assert_zero`] looks in long blocks: a stale page is found wherever it comes to lie.

#![expect(unsafe_code, reason = "reads and writes blocks by address")]

const PAGE: usize = 4096;

/// Up to this many bytes blocks are written, and read for zeros, whole.
pub(super) const WHOLE_MAX: usize = 4 << 20;

/// The step between the words of longer blocks.
const STEP: usize = PAGE;

/// The step where even that is too much.
const LONG_STEP: usize = 256 << 10;

/// Blocks beyond this are sown with [`LONG_STEP`].
const LONG: usize = 32 << 20;

/// A pattern that was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    seed: u64,
    /// Bytes it was written over.
    len: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Whole,
    /// The offset of the first word, and the step.
    Words(usize, usize),
    Ends,
    /// Kept by the kernel.
    InShort,
}

/// splitmix64.
pub(super) const fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn bytes(p: usize, len: usize) -> &'static [u8] {
    // SAFETY: the tests read only blocks that they hold, and keep no reference past the call.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(p), len) }
}

fn put(p: usize, word: u64) {
    // SAFETY: a word of a block that the test holds.
    unsafe { std::ptr::with_exposed_provenance_mut::<u64>(p).write_unaligned(word) };
}

fn get(p: usize) -> u64 {
    // SAFETY: as in `put`.
    unsafe { std::ptr::with_exposed_provenance::<u64>(p).read_unaligned() }
}

impl Pattern {
    /// A pattern for the block at `p`.
    pub(super) fn new(p: usize, len: usize, seed: u64) -> Self {
        let step = if len > LONG { LONG_STEP } else { STEP };
        let kind = match mix(seed) % 8 {
            0 => Kind::Ends,
            1..4 if len <= WHOLE_MAX => Kind::Whole,
            _ => Kind::Words(p.wrapping_neg() % step, step),
        };
        Self { seed, len, kind }
    }

    /// A pattern that the kernel writes and compares.
    pub(super) const fn in_short(seed: u64) -> Self {
        Self { seed, len: 0, kind: Kind::InShort }
    }

    pub(super) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether a word or more lies in every page.
    pub(super) fn touches_all(&self) -> bool {
        matches!(self.kind, Kind::Whole | Kind::Words(_, ..=PAGE))
    }

    /// Writes it over the block, which lies at `p`.
    pub(super) fn write(&self, p: usize) {
        let len = self.len;
        if matches!(self.kind, Kind::Whole) {
            let page = self.page();
            for at in (0..len).step_by(PAGE) {
                // SAFETY: a part of a block that the test holds.
                let to = unsafe {
                    std::slice::from_raw_parts_mut(
                        std::ptr::with_exposed_provenance_mut(p + at),
                        PAGE.min(len - at),
                    )
                };
                to.copy_from_slice(&page[..to.len()]);
            }
        }
        for at in self.words(len) {
            put(p + at, self.word(at));
        }
    }

    /// What whole pages are filled with between the words.
    fn page(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        for (i, word) in page.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&mix(self.seed ^ !(i as u64)).to_le_bytes());
        }
        page
    }

    fn word(&self, at: usize) -> u64 {
        // Never 0, so that lost memory is never taken for kept.
        mix(self.seed ^ at as u64) | 1
    }

    /// The offsets of the words that lie in the first `len` bytes.
    fn words(&self, len: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, step) = match self.kind {
            Kind::Whole => (0, PAGE),
            Kind::Words(first, step) => (first, step),
            Kind::Ends | Kind::InShort => (self.len, PAGE),
        };
        let last = self.len - 8;
        // Words do not overlap: those that would reach into the last one are left out.
        let inner = (first..last.saturating_sub(8)).step_by(step);
        std::iter::once(0)
            .chain(inner.filter(|&at| at >= 8))
            .chain(std::iter::once(last))
            .take_while(move |at| at + 8 <= len)
    }

    /// Checks the first `len` bytes of the block, which lies at `p` now.
    pub(super) fn check(&self, p: usize, len: usize, context: &str) {
        for at in self.words(len) {
            let found = get(p + at);
            assert_eq!(
                found,
                self.word(at),
                "{context}: {self:x?} at {at:#x} of {p:#x}, {len:#x} bytes kept"
            );
        }
        if matches!(self.kind, Kind::Whole) {
            let page = self.page();
            for at in (0..len).step_by(PAGE) {
                // Less the words at its two ends.
                let end = PAGE.min(len - at).min((self.len - 8).saturating_sub(at));
                if end > 8 {
                    assert!(
                        bytes(p + at + 8, end - 8) == &page[8..end],
                        "{context}: {self:x?}: page {at:#x} of {p:#x}"
                    );
                }
            }
        }
    }
}

/// Checks that a block reads as zero: all of it if it is short or `whole`, else where words are sown, and at its
/// ends.
pub(super) fn assert_zero(p: usize, len: usize, whole: bool) {
    let is_zero =
        |part: &[u8]| part.split_first().is_none_or(|(&b, rest)| b == 0 && *rest == part[..rest.len()]);
    let stale = |at: usize| -> ! {
        let first = bytes(p + at, (len - at).min(PAGE)).iter().position(|&b| b != 0);
        panic!("stale memory at {:#x}+{first:x?} of {p:#x} of {len:#x} bytes", at)
    };
    if whole || len <= WHOLE_MAX {
        for at in (0..len).step_by(PAGE) {
            if !is_zero(bytes(p + at, PAGE.min(len - at))) {
                stale(at);
            }
        }
        return;
    }
    // No more than what all longer blocks have sown: looking makes pages resident, and blocks that are not are wanted.
    let sown = (p.wrapping_neg() % LONG_STEP..len - 8).step_by(LONG_STEP);
    if let Some(at) = [0, len - 8].into_iter().chain(sown).find(|&at| get(p + at) != 0) {
        stale(at);
    }
}

/// Makes every byte of a block something else than zero.
pub(super) fn soil(p: usize, len: usize) {
    // SAFETY: a block that the test holds.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(p).write_bytes(0xa5, len) };
}
