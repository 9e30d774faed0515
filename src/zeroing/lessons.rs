//! What blocks of each length were touched like, of late: what the choice of a way to make zeros learns from.
//!
//! Shares are kept of blocks of about the same length: of the chunks that were touched (what untouched huge pages
//! cost), of the pages (what zeroing all of a block is worth), and how far from its start a block was touched (a
//! vector with more room than content leaves its end alone). All are hints about speed and memory: each is an atomic by
//! itself, and a lost update costs nothing that the next lesson does not mend. Each is kept for a length, and again for each
//! rank of it (`kinds`), which is asked first. A kind of which nothing is known is taken to be like others (`akin`).

mod akin;

use core::ops::RangeInclusive;

use super::grown::{Grown, hardly_beyond};
use super::kinds::{Kind, RANKED, RANKED_MIN, RANKS, Ranks};
use super::parallel::{Alone, CPUS_MIN, Faults, PARALLEL_MIN};
use super::{WHOLE, Way};
use crate::os::{CHUNK, GRANULE};
use crate::sync::process::{AtomicU8, AtomicUsize, Ordering::Relaxed};

/// Up to this many bytes a block is zeroed where it is: it fits in a huge page that its first touch makes
/// resident as a whole anyhow, and a `memset` of it costs less than that fault. These are the blocks that have a class,
/// a granule for the colour included.
const ALWAYS_WRITTEN: usize = CHUNK + GRANULE;

/// Of blocks shorter than this nobody sees which chunks are touched: it is a huge page or two. They are written unless they
/// are barely touched.
pub(crate) const WORTH_A_LOOK: usize = 4 << 20;

/// What grows to this length or more is looked at when it is freed, in bytes: shorter ones begin with room, or are copied at no great cost.
pub(crate) const GROWN_MIN: usize = 16 << 20;

/// Lengths are told apart by quarters of a power of two.
pub(super) const LENGTHS: usize = 48 * 4;

/// Nothing known yet.
const UNKNOWN: u8 = u8::MAX;

/// Up to this share of its pages touched, a block is cheaper in small pages that the kernel makes one by one: a fault
/// takes 1.7 µs (measured), which is as long as zeroing 25 pages at 60 GB/s.
const THIN: usize = WHOLE / 30;

/// Every so often a block that is written, though a quarter of what is within reach stays untouched or more, is left to the
/// kernel to see whether whole chunks of it do; and one that its thread touches alone, to see whether that still does.
pub(super) const LOOK_AGAIN: u8 = 32;

/// Of so many blocks that were zeroed here one is looked at when it is freed, after eight turns or nine, because a program's
/// rounds have lengths of their own. With every eighth, a program that takes a barely touched block and a dense one in turns
/// showed the first alone, and the second was faulted in page by page for ever.
const SAMPLE_EVERY: usize = 8;

/// How many samples in a row have to say that blocks are barely touched before that is believed again, once a block in small pages has
/// turned out to be touched all over: samples mistake written zeros for untouched memory, and of blocks that are used in two ways many in a
/// row are of the one.
const DISTRUST: u8 = 64;

#[derive(Debug)]
struct Lesson {
    /// Share of the chunks of a zeroed block that was touched.
    chunks: AtomicU8,
    /// Share of its pages.
    pages: AtomicU8,
    /// Share of a block, from its start, beyond which nothing was touched; of a zeroed one.
    reach: AtomicU8,
    reach_zeroed: AtomicU8,
    /// Samples yet to be disbelieved.
    distrust: AtomicU8,
    turns: AtomicU8,
    /// How much of it the thread that takes it touches by itself.
    alone: Alone,
}

#[expect(clippy::declare_interior_mutable_const, reason = "the initial value of an array's elements")]
const NEW: Lesson = Lesson::after(0);

/// Those of the ranks of one length, which look at their blocks in turn: in one and the same round, all that is
/// left to the kernel to be looked at would be there at once.
#[expect(clippy::declare_interior_mutable_const, reason = "the initial value of an array's elements")]
const NEW_RANKS: [Lesson; RANKS] = {
    let mut ranks = [NEW; RANKS];
    let mut rank = 0;
    while rank < RANKS {
        ranks[rank] = Lesson::after((rank * LOOK_AGAIN as usize / RANKS) as u8);
        rank += 1;
    }
    ranks
};

impl Lesson {
    /// One that knows nothing, after so many turns.
    const fn after(turns: u8) -> Self {
        Self {
            chunks: AtomicU8::new(UNKNOWN),
            pages: AtomicU8::new(UNKNOWN),
            reach: AtomicU8::new(UNKNOWN),
            reach_zeroed: AtomicU8::new(UNKNOWN),
            distrust: AtomicU8::new(0),
            turns: AtomicU8::new(turns),
            alone: Alone::new(),
        }
    }

    /// Share of a block, from its start, beyond which nothing was touched.
    const fn reach(&self, zeroed: bool) -> &AtomicU8 {
        if zeroed { &self.reach_zeroed } else { &self.reach }
    }
}

#[derive(Debug)]
pub(crate) struct Zeroing {
    lessons: [Lesson; LENGTHS],
    ranked: [[Lesson; RANKS]; RANKED],
    ranks: Ranks,
    grown: [Grown; LENGTHS],
    /// From how many bytes on blocks may be zeroed by all threads: none before the start, and none where that is no gain. Relaxed:
    /// set once, and published with the shards.
    parallel_min: AtomicUsize,
}

/// `part` of `whole` as a share, rounded up.
pub(super) fn share(part: usize, whole: usize) -> usize {
    part.min(whole).saturating_mul(WHOLE).div_ceil(whole.max(1))
}

/// Whether the block of a turn is looked at: of 256 turns 32, as many of every residue of powers of two up to 16. They are the multiples
/// of -33 (31 times 33 is one less than 1024), each eight or nine after the one before, but for turn 1, which follows turn 0.
fn is_looked_at(turn: u8) -> bool {
    usize::from(turn.wrapping_mul(31)) < 256 / SAMPLE_EVERY
}

/// A quarter of what is new: four blocks change its mind.
pub(super) fn blend(place: &AtomicU8, share: usize) {
    let now = match place.load(Relaxed) {
        UNKNOWN => share,
        before if usize::from(before) > share => (usize::from(before) * 3 + share) / 4,
        before => (usize::from(before) * 3 + share).div_ceil(4),
    };
    place.store(now as u8, Relaxed);
}

impl Zeroing {
    pub(crate) const fn new() -> Self {
        Self {
            lessons: [NEW; LENGTHS],
            ranked: [NEW_RANKS; RANKED],
            ranks: Ranks::new(),
            grown: [Grown::NEW; LENGTHS],
            parallel_min: AtomicUsize::new(usize::MAX),
        }
    }

    /// To be told before the first block: of how many processors there is the time, and whether what is faulted in comes in huge pages.
    pub(crate) fn start(&self, cpus: usize, is_huge: bool) {
        if cpus >= CPUS_MIN && is_huge {
            self.parallel_min.store(PARALLEL_MIN, Relaxed);
        }
    }

    /// Whether blocks of `len` bytes may be zeroed by all threads.
    pub(crate) fn may_be_parallel(&self, len: usize) -> bool {
        len >= self.parallel_min.load(Relaxed)
    }

    /// What kind a block of `len` bytes is of that is taken now. It has a rank, perhaps, until [`Zeroing::leave`].
    pub(crate) fn enter(&self, len: usize) -> Kind {
        let kind = self.ranks.take(len);
        self.inherit(kind);
        kind
    }

    /// Makes the rank of a block free that is none of its kind any more.
    pub(crate) fn leave(&self, kind: Kind) {
        self.ranks.leave(kind);
    }

    /// Makes all ranks free.
    pub(crate) fn leave_all(&self) {
        self.ranks.clear();
    }

    /// The lesson of a length, and before it that of the rank, if there is one.
    fn lessons(&self, kind: Kind) -> impl Iterator<Item = &Lesson> {
        let ranked = kind.place().map(|(length, rank)| &self.ranked[length][rank]);
        ranked.into_iter().chain([&self.lessons[kind.length()]])
    }

    /// The first lesson that knows something of the kind by `field`; else that of its length.
    fn of(&self, kind: Kind, field: impl Fn(&Lesson) -> &AtomicU8) -> &Lesson {
        let mut lessons = self.lessons(kind);
        lessons.find(|lesson| field(lesson).load(Relaxed) != UNKNOWN).unwrap_or(&self.lessons[kind.length()])
    }

    fn of_chunks(&self, kind: Kind) -> &Lesson {
        self.of(kind, |lesson| &lesson.chunks)
    }

    fn of_pages(&self, kind: Kind) -> &Lesson {
        self.of(kind, |lesson| &lesson.pages)
    }

    /// How far from its start a block of `len` bytes is expected to be touched, as a share of it. Zeroed ones that are
    /// too short to be worth it are zeroed as a whole: what has a reach is not cut where it fits best.
    fn reach_share(&self, kind: Kind, len: usize, zeroed: bool) -> usize {
        if zeroed && len < RANKED_MIN {
            return WHOLE;
        }
        match self.of(kind, |lesson| lesson.reach(zeroed)).reach(zeroed).load(Relaxed) {
            UNKNOWN => WHOLE,
            reach => usize::from(reach),
        }
    }

    /// Decides for a block of `len` bytes that shall read as zero.
    pub(crate) fn way(&self, kind: Kind, len: usize) -> Way {
        if len <= ALWAYS_WRITTEN {
            return Way::Written;
        }
        let chunks = self.of_chunks(kind).chunks.load(Relaxed);
        let lesson = self.of_pages(kind);
        let pages = usize::from(lesson.pages.load(Relaxed));
        let looked_at = len >= WORTH_A_LOOK;
        if looked_at && chunks == UNKNOWN {
            return Way::Kernel;
        }
        if pages <= THIN && lesson.distrust.load(Relaxed) == 0 {
            return Way::Thin;
        }
        if !looked_at {
            return Way::Written;
        }
        // What lies beyond its reach is left untouched in any case.
        let reach = self.reach_share(kind, len, true);
        if usize::from(chunks) * 2 < reach {
            return Way::Kernel;
        }
        let looks = pages * 4 < reach * 3;
        if looks && lesson.turns.load(Relaxed) % LOOK_AGAIN == LOOK_AGAIN - 1 {
            lesson.turns.fetch_add(1, Relaxed);
            return Way::Kernel;
        }
        if self.may_be_parallel(len) && self.is_parallel(kind) {
            return Way::Parallel;
        }
        Way::Written
    }

    /// Whether other threads than the one that takes such a block touch most of it, or it is time to see.
    fn is_parallel(&self, kind: Kind) -> bool {
        let is = |lesson: &Lesson| {
            lesson.alone.is_little() || lesson.turns.load(Relaxed) % LOOK_AGAIN == LOOK_AGAIN / 2
        };
        self.lessons(kind).next().is_some_and(is)
    }

    /// Learns from the page faults while a zeroed block was out of which `bytes` were faulted in who touched those.
    pub(crate) fn learn_alone(&self, kind: Kind, before: Faults, now: Faults, bytes: usize) {
        if let Some(share) = before.alone(now, bytes) {
            self.lessons(kind).for_each(|lesson| lesson.alone.learn(share));
        }
    }

    /// How many bytes of a zeroed block of `len` that is handed out untouched are expected to stay so.
    pub(crate) fn absent(&self, kind: Kind, len: usize) -> usize {
        match self.of_chunks(kind).chunks.load(Relaxed) {
            UNKNOWN => 0,
            touched => len - (len / WHOLE * usize::from(touched)).min(len),
        }
    }

    /// How far from its start a block of `len` is expected to be touched, in bytes.
    pub(crate) fn reach(&self, kind: Kind, len: usize, zeroed: bool) -> usize {
        let share = self.reach_share(kind, len, zeroed);
        if share == WHOLE {
            return len;
        }
        // A share is rounded up, by less than one of `WHOLE`. What is touched of a chunk makes all of it resident: so it ends with the
        // last one that may have been rounded to that, or else with the next.
        let unit = len / WHOLE;
        let chunks = (unit + 1).saturating_mul(share) & !(CHUNK - 1);
        let may_be = chunks + unit > unit * share;
        let reach = if may_be { chunks } else { chunks + CHUNK };
        // No huge page is left untouched behind it; and one vector that was hardly used teaches as much of all that are as long, which
        // would begin with a huge page each.
        if reach.saturating_add(CHUNK) > len { len } else { reach }
    }

    /// How far from its start a block is expected to be touched that grows from `from` to `len` bytes, in bytes.
    pub(crate) fn reach_grown(&self, from: usize, len: usize) -> usize {
        let stays = len >= GROWN_MIN && self.grown[Kind::of(len).length()].stays();
        if stays { hardly_beyond(from, len) } else { len }
    }

    /// Whether a block that grew from `from` to `len` bytes and was touched up to `end`, or the next one like it, stays hardly longer
    /// than it was.
    pub(crate) fn stays(&self, from: usize, len: usize, end: usize) -> bool {
        let hardly = hardly_beyond(from, len);
        hardly < len && (end <= hardly || self.reach_grown(from, len) < len)
    }

    /// Learns that a block that had grown from `from` to `len` bytes was touched up to `end` and not beyond.
    pub(crate) fn learn_grown(&self, from: usize, len: usize, end: usize) {
        let hardly = hardly_beyond(from, len);
        // What grows in small steps is touched hardly further by each, however full it gets.
        if hardly < len {
            self.grown[Kind::of(len).length()].learn(end <= hardly);
        }
    }

    /// Whether a zeroed block that is freed now is to be looked at.
    pub(crate) fn samples(&self, kind: Kind) -> bool {
        let turn = self.of_pages(kind).turns.fetch_add(1, Relaxed);
        self.lessons(kind).any(|lesson| lesson.pages.load(Relaxed) == UNKNOWN) || is_looked_at(turn)
    }

    /// Learns that of a zeroed block that was handed out untouched, `resident` of `seen` bytes, in whole
    /// chunks, have been touched.
    pub(crate) fn learn_chunks(&self, kind: Kind, resident: usize, seen: usize) {
        self.lessons(kind).for_each(|lesson| blend(&lesson.chunks, share(resident, seen)));
    }

    /// Learns that of a zeroed block `hits` of the `seen` pages that were looked at hold something.
    pub(crate) fn learn_pages(&self, kind: Kind, hits: usize, seen: usize) {
        for lesson in self.lessons(kind) {
            match lesson.distrust.load(Relaxed) {
                0 => blend(&lesson.pages, share(hits, seen)),
                // There are still such among them. What it says is no less believed for that.
                _ if share(hits, seen) > THIN => {
                    lesson.distrust.store(DISTRUST, Relaxed);
                    blend(&lesson.pages, share(hits, seen));
                }
                left => lesson.distrust.store(left - 1, Relaxed),
            }
        }
    }

    /// Whether small pages are cheapest for blocks of which so many of the bytes that were looked at are touched.
    pub(crate) fn is_thin(resident: usize, seen: usize) -> bool {
        share(resident, seen) <= THIN
    }

    /// Learns that of a block in small pages `resident` of the `seen` bytes that were looked at have been touched.
    pub(crate) fn learn_thin(&self, kind: Kind, resident: usize, seen: usize) {
        let touched = share(resident, seen);
        for lesson in self.lessons(kind) {
            if touched <= THIN {
                blend(&lesson.pages, touched);
            } else {
                lesson.pages.store(touched as u8, Relaxed);
                lesson.distrust.store(DISTRUST, Relaxed);
            }
        }
    }

    /// Learns that a block of `len` bytes was touched up to somewhere in `end` and not beyond.
    pub(crate) fn learn_reach(&self, kind: Kind, len: usize, zeroed: bool, end: RangeInclusive<usize>) {
        let (least, most) = (share(*end.start(), len), share(*end.end(), len));
        for lesson in self.lessons(kind) {
            let reach = lesson.reach(zeroed);
            match reach.load(Relaxed) {
                UNKNOWN => reach.store(most as u8, Relaxed),
                // Too much costs memory for a while, too little faults.
                before if usize::from(before) > most => blend(reach, most),
                before if usize::from(before) < least => reach.store(most as u8, Relaxed),
                // As far as is known it was right.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
