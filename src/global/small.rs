//! Small requests that have more to do than to go to the small side.
//!
//! Why it is here: whoever asks that freed blocks be wiped means all of them, and a large block that is freed as a
//! small one would otherwise be the small side's to choke on. What the environment says is kept in one byte of the
//! process, so that a free of a small block costs a look at it and no more where nothing was asked for. The first free is
//! where glibc is told what to keep, too.

#![expect(unsafe_code, reason = "blocks are copied, wiped and handed to the small side")]

use core::alloc::{GlobalAlloc, Layout};

use super::{ENGINE, NAlloc, tell_library_slow};
use crate::config::{Config, Settings};
use crate::misuse::Deed;
use crate::os::{self, Linux, Os};
use crate::sync::process::{AtomicU8, Ordering};

/// What the environment says: [`UNKNOWN`], or [`KNOWN`] with a bit for each word that it has said.
static SAID: AtomicU8 = AtomicU8::new(UNKNOWN);

const UNKNOWN: u8 = 0;
const KNOWN: u8 = 1;
const CHECKED: u8 = 1 << 1;
const NOT_CHECKED: u8 = 1 << 2;
const WIPES: u8 = 1 << 3;
const WIPES_NOT: u8 = 1 << 4;

/// Whether any was freed or resized.
pub(super) fn has_freed() -> bool {
    // Relaxed: the byte says everything.
    SAID.load(Ordering::Relaxed) != UNKNOWN
}

/// Whether a small block goes straight to the small side: neither the code nor the environment asks for more.
#[inline]
pub(super) fn is_plain(config: &Config) -> bool {
    // Relaxed: the byte says everything.
    !config.says_careful() && SAID.load(Ordering::Relaxed) == KNOWN
}

/// What the environment says, for a program that says `config`. Reads it the first time, and has glibc keep what it frees.
#[cold]
fn said_slow(config: &Config) -> u8 {
    let said = SAID.load(Ordering::Relaxed);
    if said != UNKNOWN {
        return said;
    }
    // The first reading reports what cannot be read; two more, of opposite minds, tell what was said at all.
    let settings = os::settings(config, &Linux, &os::REPORTED);
    let [off, on] = [false, true]
        .map(|word| os::settings(&config.checked(word).wipe_on_free(word), &Linux, &os::REPORTED));
    let bits = |of: fn(&Settings) -> bool, yes: u8, no: u8| match (of(&off), of(&on)) {
        (false, true) => 0,
        (true, _) => yes,
        (false, false) => no,
    };
    let said = KNOWN | bits(|s| s.checked, CHECKED, NOT_CHECKED) | bits(|s| s.wipe_on_free, WIPES, WIPES_NOT);
    SAID.store(said, Ordering::Relaxed);
    if settings.tune_glibc && !ENGINE.has_started() {
        // It is told as the engine starts, but a program may never make a large request.
        tell_library_slow();
    }
    said
}

impl<S: GlobalAlloc> NAlloc<S> {
    /// Whether freed blocks are wiped, and whether misuse is looked for.
    fn cares_slow(&self) -> (bool, bool) {
        let said = said_slow(&self.config);
        let wipes = said & WIPES != 0 || (self.config.wipe_on_free_said() && said & WIPES_NOT == 0);
        let checked = said & CHECKED != 0 || (self.config.checked_said() && said & NOT_CHECKED == 0);
        (wipes, checked)
    }

    /// Serves a small request that the small side has refused: what is cached may be what it lacks.
    ///
    /// # Safety
    /// As for `alloc`.
    #[cold]
    pub(super) unsafe fn alloc_small_slow(&self, layout: Layout) -> *mut u8 {
        let _released = ENGINE.release_in_need();
        // SAFETY: as our caller promised.
        unsafe { self.small.alloc(layout) }
    }

    /// As [`NAlloc::alloc_small_slow`], zeroed.
    ///
    /// # Safety
    /// As for `alloc_zeroed`.
    #[cold]
    pub(super) unsafe fn alloc_zeroed_small_slow(&self, layout: Layout) -> *mut u8 {
        let _released = ENGINE.release_in_need();
        // SAFETY: as our caller promised.
        unsafe { self.small.alloc_zeroed(layout) }
    }

    /// Takes back a small block.
    ///
    /// # Safety
    /// As for `dealloc`.
    #[cold]
    pub(super) unsafe fn dealloc_small_slow(&self, p: *mut u8, layout: Layout) {
        let (wipes, checked) = self.cares_slow();
        if checked {
            ENGINE.look_at_small(p.addr(), layout, Deed::Freed);
        }
        if wipes {
            Linux.wipe(p.expose_provenance(), layout.size());
        }
        // SAFETY: as our caller promised; the small side served this layout (G1).
        unsafe { self.small.dealloc(p, layout) }
    }

    /// Resizes a small block that stays small, or that the small side has refused to resize.
    ///
    /// # Safety
    /// As for `realloc`, with `new` the layout that it asks for.
    #[cold]
    pub(super) unsafe fn realloc_small_slow(&self, p: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
        let (wipes, checked) = self.cares_slow();
        if checked {
            ENGINE.look_at_small(p.addr(), layout, Deed::Resized);
        }
        if !wipes {
            // SAFETY: as our caller promised; the small side served this layout and serves the new one (G1). A block
            // that it refuses to resize is as it was.
            return unsafe {
                match self.small.realloc(p, layout, new.size()) {
                    refused if refused.is_null() => {
                        let _released = ENGINE.release_in_need();
                        self.small.realloc(p, layout, new.size())
                    }
                    to => to,
                }
            };
        }
        // The small side would leave a copy behind that nobody can reach.
        // SAFETY: as our caller promised.
        unsafe { self.replace(p, layout, new) }
    }

    /// Takes another block, copies what fits into it, and gives the old one back; null, and nothing has changed, if
    /// there is none.
    ///
    /// # Safety
    /// As for `realloc`, with `new` the layout that it asks for.
    pub(super) unsafe fn replace(&self, p: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
        // SAFETY: `new` has the size that our caller promised is not zero; both blocks are as long as what is copied,
        // and a new block does not overlap one that is still owned.
        unsafe {
            let to = self.alloc(new);
            if !to.is_null() {
                to.copy_from_nonoverlapping(p, layout.size().min(new.size()));
                self.dealloc(p, layout);
            }
            to
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn another_small_side_leaves_glibc_alone_unless_that_is_said() {
        let system = std::alloc::System;
        let untuned = Config::new().tune_glibc(false);
        assert_eq!(NAlloc::with_small(system).config, untuned);
        assert_eq!(NAlloc::with_small_and_config(system, Config::new()).config, untuned);
        let tuned = Config::new().tune_glibc(true);
        assert_eq!(NAlloc::with_small_and_config(system, tuned).config, tuned);
        assert_eq!(NAlloc::with_config(Config::new()).config, Config::new());
    }
}
