//! Where the heap's address space comes from: reservations, and plain mappings where those are refused.

use super::pieces::{Fit, Span};
use super::pool::State;
use super::region::Kind;
use super::{Growth, Inner, take};
use crate::os::{CHUNK, Os};

impl Inner {
    /// Sets more address space aside, or maps `len` bytes outright; `false` if the kernel refuses both.
    pub(super) fn add_region<O: Os>(&mut self, fit: Fit, os: &O) -> bool {
        if self.setup.growth == Growth::Never && !self.regions.all().is_empty() {
            return false;
        }
        let Some(wanted) = fit.len.checked_add(fit.modulus.max(CHUNK)) else { return false };
        let Some(wanted) = wanted.checked_next_multiple_of(CHUNK) else { return false };
        let align = CHUNK.max(fit.modulus);
        if let Some(reserve) = wanted.checked_mul(2).map(|w| w.max(self.setup.reserve))
            && self.setup.reserve > 0
            && let Some(reserve) = reserve.checked_next_multiple_of(CHUNK)
            && let Ok(start) = os.reserve(reserve, align.max(1 << 30))
        {
            let span = Span::new(start, reserve);
            if self.regions.add(span, Kind::Reserved, os) {
                // To the whole at once, so that what is opened later is one VMA with its neighbours. A
                // refused advice costs speed alone.
                let _ = os.advise(span.start, span.len, self.setup.huge);
                self.pieces.insert(span, State::Closed, span);
                return true;
            }
            let _ = os.unmap(start, reserve);
        }
        self.setup.growth == Growth::Any && self.add_plain(wanted, align, os)
    }

    /// Maps accessible memory outright: as much as an eighth of what is open, or just enough.
    fn add_plain<O: Os>(&mut self, wanted: usize, align: usize, os: &O) -> bool {
        /// The least that is mapped at once, where the limits let it.
        const PLAIN_MIN: usize = 32 << 20;
        /// The most beyond what is asked for while there are few regions: others of the process share the limits, and all of it is
        /// resident at once where memory has been locked since the last one was mapped.
        const PLAIN_MAX: usize = 1 << 30;
        let generous = match self.eager {
            true => wanted,
            false => {
                // However much that is once they are many: there can be no more than so many.
                let most = if self.regions.are_few() { PLAIN_MAX } else { usize::MAX };
                wanted.max((self.opened / 8).max(PLAIN_MIN).min(most).next_multiple_of(CHUNK))
            }
        };
        for len in [generous, wanted] {
            if let Ok(start) = os.map(len, align) {
                let span = Span::new(start, len);
                if self.regions.add(span, Kind::Plain, os) {
                    let _ = os.advise(start, len, self.setup.huge);
                    self.opened += len;
                    self.pieces.insert(span, State::Zero, span);
                    if take::is_resident_at_end(span, &self.setup, os) {
                        self.eager = true;
                        // It is zero either way; a refusal costs memory alone.
                        let _ = os.purge(start, len);
                    }
                    return true;
                }
                let _ = os.unmap(start, len);
                break;
            }
        }
        self.refused_growth += 1;
        false
    }
}
