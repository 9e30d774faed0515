//! Large requests: blocks of the cache turned into pointers and back, and the ladder of `realloc`.
//!
//! Written over any [`Os`], so that tests drive over the fake kernel the very code that a process runs. Nothing here
//! panics, unwinds or allocates; a `reallocate` that fails leaves the old block as it was.
//! Never here: which side serves a request, and the `static` engine.

use core::alloc::Layout;
use core::ptr;

use crate::cache::{Cache, Grown, Handed, Mine, Started};
use crate::config::Config;
use crate::geometry::Block;
use crate::heap::Span;
use crate::misuse::Deed;
use crate::os::{GRANULE, Os};
use crate::trace::Outcome;
use crate::zeroing::write_zeros;

/// The pointer to an address of the engine's memory.
fn pointer(address: usize) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address)
}

impl<O: Os> Cache<O> {
    /// Starts the cache with `config` if nobody has, and calls `on_start` if it was this call.
    #[cold]
    fn allocate_slow(
        &self,
        block: Block,
        layout: Layout,
        zeroed: bool,
        config: &Config,
        on_start: fn(Started),
    ) -> Option<Handed> {
        self.see_child();
        if !self.has_started() {
            let started = self.start(config)?;
            if started.first {
                on_start(started);
            }
        }
        if self.is_careful() {
            return self.allocate_carefully(block, layout, zeroed);
        }
        self.take_slow(block, layout.size(), zeroed)
    }

    /// Serves a request with more to do than to take a block.
    #[cold]
    fn allocate_carefully(&self, block: Block, layout: Layout, zeroed: bool) -> Option<Handed> {
        let as_ever = self.take_traced(block, layout.size());
        let Some(handed) = as_ever.or_else(|| self.take_slow(block, layout.size(), zeroed)) else {
            self.trace_refused(layout);
            return None;
        };
        let p = handed.start + self.colour(handed.turn, layout);
        if self.note_born(p, layout) {
            self.trace_taken(p, layout, zeroed, handed.fresh);
            return Some(handed);
        }
        self.give_slowly(handed.start, block, layout.size());
        None
    }

    /// Serves a large request, or gives null. `config` and `on_start` are for the first one.
    #[inline]
    pub(crate) fn allocate(&self, layout: Layout, config: &Config, on_start: fn(Started)) -> *mut u8 {
        let mine = Mine::now();
        if let Some(block) = Block::of(layout)
            && block.align == GRANULE
            && let Some(class) = block.class
            && let Some(taken) = self.take_at_hand(mine, class, layout.size())
        {
            let p = pointer(taken.start + self.colour(taken.turn, layout));
            return if taken.tick { self.tick_slow_after(p) } else { p };
        }
        self.allocate_otherwise(layout, config, on_start)
    }

    /// Tells the limits what was allocated, and gives `p` back.
    #[cold]
    #[inline(never)]
    fn tick_slow_after(&self, p: *mut u8) -> *mut u8 {
        self.tick_here_slow();
        p
    }

    /// Serves a large request for which nothing was at hand.
    #[inline(never)]
    fn allocate_otherwise(&self, layout: Layout, config: &Config, on_start: fn(Started)) -> *mut u8 {
        let Some(block) = Block::of(layout) else { return ptr::null_mut() };
        if block.align == GRANULE
            && let Some(class) = block.class
            && let Some((start, turn)) = self.take(class, layout.size())
        {
            return pointer(start + self.colour(turn, layout));
        }
        match self.allocate_slow(block, layout, false, config, on_start) {
            Some(handed) => pointer(handed.start + self.colour(handed.turn, layout)),
            None => ptr::null_mut(),
        }
    }

    /// Serves a large request with memory that reads as zero, or gives null.
    pub(crate) fn allocate_zeroed(&self, layout: Layout, config: &Config, on_start: fn(Started)) -> *mut u8 {
        let Some(block) = Block::of(layout) else { return ptr::null_mut() };
        if block.align == GRANULE
            && let Some(class) = block.class
            && let Some((start, turn)) = self.take(class, layout.size())
        {
            let p = pointer(start + self.colour(turn, layout));
            // The block is ours until it is handed out, and `size` bytes fit behind the colour (G2).
            self.os().zero(p.addr(), layout.size());
            self.zeroed(layout.size(), layout.size());
            return p;
        }
        let Some(handed) = self.allocate_slow(block, layout, true, config, on_start) else {
            return ptr::null_mut();
        };
        let p = pointer(handed.start + self.colour(handed.turn, layout));
        // As above; what is not in `unclean` reads as zero (H2).
        let written = write_zeros(self.os(), &handed.unclean, Span::new(p.addr(), layout.size()));
        self.zeroed(layout.size(), written);
        p
    }

    /// Takes back what a large request of `layout` was given.
    #[inline]
    pub(crate) fn deallocate(&self, p: *mut u8, layout: Layout) {
        let mine = Mine::now();
        if let Some(block) = Block::of(layout)
            && block.align == GRANULE
            && let Some(class) = block.class
            && self.give_at_hand(mine, class, Block::start(p.expose_provenance(), layout), layout.size())
        {
            return;
        }
        self.deallocate_otherwise(p, layout);
    }

    /// Takes back a block for which no place was at hand.
    #[inline(never)]
    fn deallocate_otherwise(&self, p: *mut u8, layout: Layout) {
        // No large request was ever served without a block.
        let Some(block) = Block::of(layout) else { return };
        if !self.give(Block::start(p.expose_provenance(), layout), block, layout.size()) {
            self.deallocate_slow(p, layout);
        }
    }

    /// Takes back a block with more to do than that, or while a thread forks.
    #[cold]
    fn deallocate_slow(&self, p: *mut u8, layout: Layout) {
        let Some(block) = Block::of(layout) else { return };
        self.see_child();
        self.note_dies(p.addr(), layout, Deed::Freed);
        self.trace_freed(p.addr(), layout);
        if self.wipes() {
            self.wipe(p.addr(), layout.size());
        }
        self.give_slowly(Block::start(p.addr(), layout), block, layout.size());
    }

    /// Resizes a large block that stays large.
    pub(crate) fn reallocate(&self, p: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
        self.see_child();
        if self.is_careful() || !self.has_started() {
            return self.reallocate_slow(p, layout, new);
        }
        self.resize(p, layout, new).0
    }

    /// Resizes a block with more to do than that.
    #[cold]
    fn reallocate_slow(&self, p: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
        self.note_dies(p.expose_provenance(), layout, Deed::Resized);
        self.trace_resizing(p.addr(), layout);
        let (to, outcome) = self.resize(p, layout, new);
        let (now, layout) = if to.is_null() { (p.addr(), layout) } else { (to.addr(), new) };
        self.note_reborn(now, layout);
        self.trace_resized(now, layout, outcome);
        to
    }

    fn resize(&self, p: *mut u8, layout: Layout, new: Layout) -> (*mut u8, Outcome) {
        let (Some(old_block), Some(block)) = (Block::of(layout), Block::of(new)) else {
            return (ptr::null_mut(), Outcome::Refused);
        };
        let span = Span::new(Block::start(p.expose_provenance(), layout), old_block.len.bytes());
        let cut = Span::between(p.addr() + new.size().min(layout.size()), p.addr() + layout.size());
        if block.len == old_block.len || (block.len < old_block.len && self.shrink(span, block.len, cut)) {
            if self.wipes() {
                let kept = cut.common(Span::new(span.start, block.len.bytes()));
                self.wipe(kept.start, kept.len);
            }
            self.resized(layout.size(), new.size());
            return (p, Outcome::InPlace);
        }
        let colour = p.addr() - span.start;
        let shorter = block.len < old_block.len;
        match if shorter { self.elsewhere(block) } else { self.grow(span, block) } {
            Grown::InPlace => {
                self.resized(layout.size(), new.size());
                (p, Outcome::InPlace)
            }
            Grown::Moved(moved) => {
                let start = moved.span.start + colour;
                let end = p.addr() + layout.size();
                // The two ends of the old block that are not whole chunks, and what the kernel refused to move.
                for part in [
                    Span::between(p.addr(), moved.moved.start),
                    Span::between(moved.moved.end().max(p.addr()), end),
                ] {
                    // `part` lies in the old block, which its caller owns and gives up; its place in the new block is
                    // ours and accessible; the two blocks do not overlap (H1).
                    self.os().copy(part.start, part.start - p.addr() + start, part.len);
                    self.copied(part.len);
                    if self.wipes() {
                        self.wipe(part.start, part.len);
                    }
                }
                self.finish_move(span, moved);
                self.resized(layout.size(), new.size());
                (pointer(start), Outcome::Moved)
            }
            Grown::Copy(start) => {
                let to = pointer(start + colour);
                // As above.
                self.os().copy(p.addr(), to.addr(), layout.size().min(new.size()));
                self.copied(layout.size().min(new.size()));
                self.copied_whole();
                if self.wipes() {
                    self.wipe(p.addr(), layout.size());
                }
                self.give_slowly(span.start, old_block, 0);
                self.resized(layout.size(), new.size());
                (to, Outcome::Copied)
            }
            Grown::Refused => (ptr::null_mut(), Outcome::Refused),
        }
    }
}
