//! The naive model: a map of the blocks that are live, what was asked for each, and what was written into it.
//!
//! [`Model`] does each operation with the cache, by the methods that `NAlloc` itself calls, and checks what comes of
//! it; [`Model::audit`] has the heap walker compare the books with the map, and over the fake kernel with the kernel.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::pattern::{Pattern, WHOLE_MAX, assert_zero, mix};
use crate::cache::Cache;
use crate::cache::hot::HOT_MAX;
use crate::cache::keeper::Watch;
use crate::config::Config;
use crate::geometry::Block;
use crate::heap::{Span, State};
use crate::os::fake::{Access, Fake};
use crate::os::{CHUNK, Linux, Os};

/// A kernel that a model can be run over.
pub(super) trait World: Os + Clone {
    /// Compares a free piece with what the kernel knows.
    fn check_piece(&self, span: Span, state: State, deep: bool);
    /// Compares the shift of a chunk, in chunks, with what the kernel knows.
    fn check_chunk(&self, at: usize, shift: i32);
    /// What else can be said.
    fn check_all(&self) {}
    /// Is told of memory of which every page is about to be read or written.
    fn expect_touches(&self, _p: usize, _len: usize) {}
    /// The same kernel, if it keeps the content of memory in short.
    fn in_short(&self) -> Option<&Fake> {
        None
    }
}

impl World for Linux {
    fn check_piece(&self, span: Span, state: State, deep: bool) {
        if state == State::Zero && deep {
            // Its ends: reading all of it would touch it.
            assert_zero(span.start, 4096, true);
            assert_zero(span.end() - 4096, 4096, true);
        }
    }
    fn check_chunk(&self, _: usize, _: i32) {}
}

impl World for Fake {
    fn check_piece(&self, span: Span, state: State, deep: bool) {
        let access = if state == State::Closed { Access::Reserved } else { Access::Open };
        assert!(
            self.has_access(span.start, span.len, access),
            "H2: {span:x?}, booked {state:?}, is not ours and {access:?}"
        );
        if state == State::Zero && deep {
            assert!(self.is_zero(span.start, span.len), "H2: {span:x?} is booked Zero and is not");
        }
    }

    fn check_chunk(&self, at: usize, shift: i32) {
        // What is closed, lost or retired has no pages that could have been moved.
        if let Some(attributes) = self.at(at).filter(|a| a.access == Access::Open) {
            let real = attributes.shift / CHUNK as isize;
            assert_eq!(isize::try_from(shift), Ok(real), "the shift of the chunk at {at:#x}");
        }
    }

    fn check_all(&self) {
        assert!(self.foreign_intact(), "a foreign mapping was written to");
        assert!(self.lost().is_empty(), "every range that a failed call lost was plugged or retired");
    }

    fn expect_touches(&self, p: usize, len: usize) {
        self.populate(p, len);
    }

    fn in_short(&self) -> Option<&Fake> {
        self.is_in_short().then_some(self)
    }
}

/// A live block.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) p: usize,
    pub(super) layout: Layout,
    /// `None` while nothing has been written to it.
    pattern: Option<Pattern>,
    zeroed: bool,
}

impl Live {
    pub(super) fn block(&self) -> Span {
        let block = Block::of(self.layout).expect("a layout that was served");
        Span::new(Block::start(self.p, self.layout), block.len.bytes())
    }
}

impl Live {
    /// The block, written to by somebody else than the model.
    pub(super) fn soiled(self) -> Self {
        Self { pattern: None, zeroed: false, ..self }
    }
}

/// A cache beside the map of what is live in it.
pub(super) struct Model<O: World> {
    pub(super) cache: Box<Cache<O>>,
    pub(super) config: Config,
    /// Start and end of every live block.
    live: Mutex<BTreeMap<usize, usize>>,
    /// Whether null may be answered.
    pub(super) may_refuse: bool,
    refused: AtomicU64,
    /// What the background thread remembers.
    watch: Mutex<Watch>,
}

impl<O: World> Model<O> {
    pub(super) fn new(os: O, reserve: usize, config: Config) -> Self {
        let cache = Box::new(Cache::with_reserve(os.clone(), os, reserve, None));
        Self {
            cache,
            config,
            live: Mutex::new(BTreeMap::new()),
            may_refuse: false,
            refused: AtomicU64::new(0),
            watch: Mutex::default(),
        }
    }

    pub(super) fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn os(&self) -> &O {
        self.cache.os()
    }

    /// How often null was answered.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn refuse(&self, what: std::fmt::Arguments<'_>) {
        assert!(self.may_refuse, "{what} was refused");
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, live: &Live) {
        let span = live.block();
        assert!(live.p.is_multiple_of(live.layout.align()), "{live:x?} is not aligned");
        assert!(live.p + live.layout.size() <= span.end(), "{live:x?} reaches out of {span:x?}");
        let mut map = self.live();
        let below = map.range(..span.end()).next_back();
        assert!(
            below.is_none_or(|(_, &end)| end <= span.start),
            "two live blocks overlap: {live:x?}, {below:x?}"
        );
        map.insert(span.start, span.end());
    }

    fn leave(&self, live: &Live) {
        let span = live.block();
        assert_eq!(self.live().remove(&span.start), Some(span.end()));
    }

    /// Allocates, and writes a pattern into what is got unless `seed` says not to.
    pub(super) fn allocate(&self, layout: Layout, zeroed: bool, seed: u64) -> Option<Live> {
        let p = if zeroed {
            self.cache.allocate_zeroed(layout, &self.config, |_| ())
        } else {
            self.cache.allocate(layout, &self.config, |_| ())
        };
        if p.is_null() {
            self.refuse(format_args!("{layout:?}"));
            return None;
        }
        let mut live = Live { p: p.expose_provenance(), layout, pattern: None, zeroed };
        self.enter(&live);
        if zeroed {
            let whole = mix(seed ^ 1).is_multiple_of(4);
            if whole || layout.size() <= WHOLE_MAX {
                self.os().expect_touches(live.p, layout.size());
            }
            self.check_zero(&live, layout.size(), whole);
        }
        if !self.writes_nothing(seed) {
            self.write(&mut live, seed);
        }
        Some(live)
    }

    /// Whether a block that is allocated with `seed` is left as it came.
    pub(super) fn writes_nothing(&self, seed: u64) -> bool {
        mix(seed ^ 2).is_multiple_of(8)
    }

    /// Writes a pattern into a block.
    pub(super) fn write(&self, live: &mut Live, seed: u64) {
        let pattern = match self.os().in_short() {
            Some(os) => {
                os.sow(live.p, live.layout.size(), seed);
                live.pattern = Some(Pattern::in_short(seed));
                return;
            }
            None => Pattern::new(live.p, live.layout.size(), seed),
        };
        if pattern.touches_all() {
            self.os().expect_touches(live.p, live.layout.size());
        }
        pattern.write(live.p);
        live.pattern = Some(pattern);
    }

    /// Checks what a block holds.
    pub(super) fn check(&self, live: &Live, context: &str) {
        self.check_first(live, live.layout.size(), context);
    }

    /// Checks what is left of a block's content in its first `kept` bytes.
    fn check_first(&self, live: &Live, kept: usize, context: &str) {
        match (live.pattern, self.os().in_short()) {
            (Some(pattern), None) => pattern.check(live.p, kept, context),
            (Some(pattern), Some(os)) => {
                if let Some(other) = os.find_other(live.p, kept, pattern.seed()) {
                    panic!("{context}: {live:x?}, {kept:#x} bytes kept: {other:#x} is another's");
                }
            }
            (None, _) if live.zeroed => self.check_zero(live, kept, false),
            (None, _) => {}
        }
    }

    /// Checks that the first `len` bytes of a block read as zero.
    fn check_zero(&self, live: &Live, len: usize, whole: bool) {
        match self.os().in_short() {
            Some(os) => assert!(os.is_zero(live.p, len), "stale memory in {live:x?}"),
            None => assert_zero(live.p, len, whole),
        }
    }

    pub(super) fn free(&self, live: Live) {
        self.check(&live, "at its free");
        self.leave(&live);
        self.cache.deallocate(std::ptr::with_exposed_provenance_mut(live.p), live.layout);
    }

    /// Resizes a block. Gives whether that was possible; if not, it is as it was.
    pub(super) fn resize(&self, live: &mut Live, size: usize, seed: u64) -> bool {
        self.check(live, "before it is resized");
        let Ok(new) = Layout::from_size_align(size, live.layout.align()) else { return false };
        self.leave(live);
        let p = self.cache.reallocate(std::ptr::with_exposed_provenance_mut(live.p), live.layout, new);
        if p.is_null() {
            self.refuse(format_args!("resizing {live:?} to {size} bytes"));
            self.enter(live);
            self.check(live, "after its resizing was refused");
            return false;
        }
        let kept = size.min(live.layout.size());
        live.p = p.expose_provenance();
        live.layout = new;
        self.enter(live);
        self.check_first(live, kept, "after it was resized");
        // What it grew by holds anything.
        live.zeroed = false;
        live.pattern = None;
        if !mix(seed ^ 3).is_multiple_of(8) {
            self.write(live, seed);
        }
        true
    }

    /// Compares the books with the map, when no thread is in the cache. `deep`: free zero memory is read.
    pub(super) fn audit(&self, deep: bool) {
        let mut blocks: Vec<Span> =
            self.live().iter().map(|(&start, &end)| Span::between(start, end)).collect();
        let (live, out) = (blocks.len(), blocks.iter().map(|b| b.len).sum::<usize>());
        let mut tokens = 0;
        for shard in self.cache.shards() {
            let stacks = shard.lock(self.os());
            let stacked = stacks.blocks().iter().map(|b| b.len).sum::<usize>();
            let runs: Vec<Span> = stacks.runs.all().collect();
            assert_eq!(stacks.runs.bytes(), runs.iter().map(|b| b.len).sum::<usize>());
            assert_eq!(stacks.bytes(), stacked + stacks.hot.rest().len + stacks.runs.bytes());
            assert!(stacks.is_in_step(&shard.counts), "a stack that nobody would find, or find empty");
            blocks.extend(stacks.blocks());
            let merge = |a: &Span, b: &Span| a.end() == b.start && stacks.runs.merges_at(b.start);
            assert!(!runs.iter().any(|a| runs.iter().any(|b| merge(a, b))), "two free runs touch");
            let excess = stacks.hot.excess();
            let most = self.cache.bounds().bytes + stacks.more + HOT_MAX;
            assert!(stacks.bytes() - excess <= most, "a shard holds too much");
            assert!(excess == 0 || self.cache.ceiling().is_none(), "room beyond a ceiling");
            let free = runs.len() + usize::from(!stacks.hot.rest().is_empty());
            assert!(stacks.tokens >= runs.len() + usize::from(stacks.hot.is_begun()), "H6: too few nodes");
            tokens += stacks.tokens - free;
            blocks.extend(runs);
            blocks.extend(Some(stacks.hot.rest()).filter(|rest| !rest.is_empty()));
        }
        blocks.sort_by_key(|b| b.start);
        let os = self.os();
        let (thin, thick) = blocks.iter().partition::<Vec<_>, _>(|block| self.cache.is_thin(**block));
        for (heap, blocks, tokens) in [(&self.cache.heap, thick, tokens), (&self.cache.thin, thin, 0)] {
            heap.audit(
                &blocks,
                tokens,
                |span, state| os.check_piece(span, state, deep),
                |at, shift| os.check_chunk(at, shift),
            );
        }
        os.check_all();
        let snapshot = self.cache.snapshot();
        assert_eq!(snapshot.stacked, blocks.iter().map(|b| b.len).sum::<usize>() - out);
        let (allocated, freed) = (snapshot.allocations, snapshot.frees);
        assert_eq!(allocated, freed + live as u64, "every free is of an allocation");
    }

    /// Once all blocks are freed: nothing is held, and after a release nothing is resident.
    pub(super) fn audit_empty(&self, released: bool) {
        assert!(self.live().is_empty());
        assert_eq!(self.cache.live(), 0, "bytes requested and not freed");
        self.cache.drain();
        self.audit(true);
        assert_eq!(self.cache.snapshot().books.out, 0);
        if released {
            self.cache.release();
            self.audit(true);
            let books = self.cache.snapshot().books;
            assert_eq!((books.dirty, books.soft), (0, 0), "all is purged: {books:?}");
            assert_eq!(self.cache.cached_bytes(), 0);
        }
    }
}
