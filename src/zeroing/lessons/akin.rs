//! How far a kind of blocks that nothing is known of yet is expected to be touched: as far as others of its rank, half or twice as long.
//!
//! Why it is here: a program that proves statements of many sizes comes to a new length now and then, when there is much free memory
//! that is resident. All of such a block would be put there, where nobody sees what is touched of it, so that the next one would be
//! as well. But what is new there is mostly the same table with more rows, taken at the same place in the same order.

use super::{Lesson, UNKNOWN, Zeroing};
use crate::sync::process::Ordering::Relaxed;
use crate::zeroing::kinds::Kind;

/// Which lengths are asked, in this order: by how many quarters of a power of two they are longer.
const AKIN: [isize; 4] = [-4, 4, -8, 8];

impl Zeroing {
    /// Takes over how far blocks of a kind are touched from those akin to it, if neither that nor how far its length is touched is known.
    pub(super) fn inherit(&self, kind: Kind) {
        let Some((length, rank)) = kind.place() else { return };
        let known = |lesson: &Lesson, zeroed| {
            Some(lesson.reach(zeroed).load(Relaxed)).filter(|&reach| reach != UNKNOWN)
        };
        for zeroed in [false, true] {
            if self.lessons(kind).any(|lesson| known(lesson, zeroed).is_some()) {
                continue;
            }
            let mut akin = AKIN.iter().filter_map(|&by| self.ranked.get(length.checked_add_signed(by)?));
            if let Some(reach) = akin.find_map(|ranks| known(&ranks[rank], zeroed)) {
                self.ranked[length][rank].reach(zeroed).store(reach, Relaxed);
            }
        }
    }
}
