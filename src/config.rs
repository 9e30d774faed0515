//! The knobs: what the binary says in code, what the environment says, and which of them is in force.
//!
//! What it is: [`Config`], the public builder; [`Settings`], what is in force once the environment has been
//! heard; and the pure functions between them. Why it is here, left of the layer that can read an
//! environment: a rule about what a string means needs no kernel, and is tested without one.
//!
//! Invariants: the environment wins over code; a value that cannot be read counts as unset and is reported
//! in one line; nothing allocates, formats or panics, since all of this runs inside somebody's first allocation.
//! Never here: reading the environment itself, and what a setting means on this host. Both belong to `os`.

mod read;
#[cfg(test)]
mod tests;
mod variables;

pub(crate) use variables::{Scan, Variable, Variables};

/// What the allocator does about transparent huge pages. Environment: `ZK_NALLOC_THP`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Thp {
    /// Asks for them by advice (`MADV_HUGEPAGE`), unless a huge page of this host is larger than 32 MiB.
    #[default]
    Auto,
    /// Asks for them by advice, however large they are.
    Always,
    /// Refuses them by advice (`MADV_NOHUGEPAGE`), even where the host gives them to everyone.
    Never,
}

/// Whether resident pages may be moved to where they are needed. Environment: `ZK_NALLOC_MOVES`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Moves {
    /// Moves them where the kernel can do it (Linux 5.7 and later), and can do it safely (not 6.16 to 6.18.8, nor candidates of 6.19:
    /// CVE-2026-23077).
    #[default]
    Auto,
    /// Never moves a page: purges and faults instead.
    Never,
}

/// Where the large side begins unless a binary says otherwise, in bytes of the request: what is shorter is a small
/// part of what a prover allocates, and small allocators serve it well.
pub(crate) const LARGE_FROM: usize = 64 << 10;

/// The least that the large side may begin at: a granule, the unit in which it cuts memory.
pub(crate) const LARGE_FROM_MIN: usize = 4 << 10;

/// The most: what is longer is what the large side is for, whatever the program.
pub(crate) const LARGE_FROM_MAX: usize = 1 << 30;

/// What a binary may decide about its allocator: a builder that works in a `static`.
///
/// Every knob has a default that suits a prover that knows nothing about its host, and, but for
/// [`tune_glibc`](Self::tune_glibc) and [`large_from`](Self::large_from), a twin in the environment, which wins over what is
/// said here: whoever runs the binary knows the host better than whoever built it.
///
/// ```
/// use zk_nalloc::{Config, Thp};
///
/// // Keep up to 8 GiB of free memory for the life of the process, in ordinary pages.
/// const CONFIG: Config = Config::new().cache_bytes(8 << 30).thp(Thp::Never);
/// # let _ = CONFIG;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    cache_bytes: Option<usize>,
    thp: Thp,
    moves: Moves,
    /// `None`: unless another small side than the system's is named.
    tune_glibc: Option<bool>,
    large_from: usize,
    checked: bool,
    wipe_on_free: bool,
    background: bool,
}

impl Config {
    /// Says nothing: every knob at its default.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            cache_bytes: None,
            thp: Thp::Auto,
            moves: Moves::Auto,
            tune_glibc: None,
            large_from: LARGE_FROM,
            checked: false,
            wipe_on_free: false,
            background: false,
        }
    }

    /// Keeps at most `bytes` of free memory resident, of all threads together; live blocks do not count. They stay however long the pause, unless
    /// the container or the host runs short of memory. A part is set aside for what threads have at hand, whether they use it or not: up to 16 MiB
    /// for each of [`Stats::shards`](crate::Stats::shards), but half of `bytes` at most (three quarters where a shard's part is 8 to 12 MiB). So 1 GiB
    /// on 16 processors leaves about 510 MiB for all.
    ///
    /// Without it, what is allocated and what is cached together are kept within the recent peak of what was allocated, so that
    /// keeping adds nothing to what the program asked for at once (it may have touched less of that).
    /// `0` keeps nothing. Environment: `ZK_NALLOC_CACHE_BYTES`, decimal digits with at most one letter behind
    /// them: K, M or G, of either case, for 2^10, 2^20 or 2^30 bytes.
    #[must_use]
    pub const fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    /// Chooses what is done about transparent huge pages. Environment: `ZK_NALLOC_THP`, one of `auto`, `always`
    /// and `never`.
    #[must_use]
    pub const fn thp(mut self, thp: Thp) -> Self {
        self.thp = thp;
        self
    }

    /// Chooses whether resident pages may be moved. Environment: `ZK_NALLOC_MOVES`, one of `auto` and `never`.
    #[must_use]
    pub const fn moves(mut self, moves: Moves) -> Self {
        self.moves = moves;
        self
    }

    /// Chooses whether glibc is told to keep what bursts of small blocks leave free at the top of its heaps (`M_TRIM_THRESHOLD`,
    /// `M_TOP_PAD`, and `M_MMAP_THRESHOLD` for blocks of C code under 32 MiB). On by default, off
    /// where another small side is named ([`NAlloc::with_small`](crate::NAlloc::with_small) and
    /// [`with_small_and_config`](crate::NAlloc::with_small_and_config)): glibc serves no Rust code then, as a rule.
    ///
    /// glibc then keeps all of that; at most 64 MiB in each heap with [`cache_bytes`](Self::cache_bytes) set, or before the first large
    /// request. After that request glibc is asked to give it back (`malloc_trim`) before more memory would be in use than of late; before it,
    /// only by [`release_cache`](crate::release_cache). Heaps of threads but the first are kept as a whole where bursts fault them in again, while
    /// the process holds at most a quarter more for it than it ever needed.
    ///
    /// With several `NAlloc` values, the setting of the first to free a small block or to serve a large request applies. Without effect
    /// on other C libraries, and on what the environment says of the same knobs (`MALLOC_TRIM_THRESHOLD_`, `GLIBC_TUNABLES`).
    #[must_use]
    pub const fn tune_glibc(mut self, tune: bool) -> Self {
        self.tune_glibc = Some(tune);
        self
    }

    /// This, for an allocator whose small side is not the system's.
    #[must_use]
    pub(crate) const fn beside_another(mut self) -> Self {
        if self.tune_glibc.is_none() {
            self.tune_glibc = Some(false);
        }
        self
    }

    /// Chooses where the large side begins: requests of `bytes` and more are served by the engine, shorter ones by
    /// the small side. 64 KiB by default. `bytes` is raised to 4 KiB where it is less, below which a request would cost more than its
    /// own length again, and lowered to 1 GiB where it is more.
    ///
    /// No variable of the environment says this: when a block comes back, the side that served it is worked out from
    /// its `Layout` and from what was compiled into the program alone, so that nothing that happens in a process
    /// can send a block to the side that it did not come from.
    ///
    /// ```
    /// use zk_nalloc::{Config, NAlloc};
    ///
    /// // Buffers of 16 KiB are kept resident too; each costs a page more than it is long.
    /// static GLOBAL: NAlloc = NAlloc::with_config(Config::new().large_from(16 << 10));
    /// # let _ = &GLOBAL;
    /// ```
    #[must_use]
    pub const fn large_from(mut self, bytes: usize) -> Self {
        self.large_from = match bytes {
            ..LARGE_FROM_MIN => LARGE_FROM_MIN,
            LARGE_FROM_MIN..=LARGE_FROM_MAX => bytes,
            _ => LARGE_FROM_MAX,
        };
        self
    }

    /// Chooses whether misuse is looked for. Off by default, and then it costs nothing. Environment:
    /// `ZK_NALLOC_CHECKED`, `1` or `0`.
    ///
    /// A large block that is freed twice, freed or resized with another size or alignment than it has, or written to
    /// after it was freed, ends the process (`abort`) with one line on standard error that names the block: its
    /// address, its size, and what was wrong. A free is looked at when it happens; a write, when the memory it went to
    /// is used again, given back to the kernel, or asked after by [`release_cache`](crate::release_cache).
    ///
    /// For tests and for the hunt after a fault: freed memory is filled with `0xde` and compared before it is used
    /// again, no stacks stand in front of the heap, no page is moved, nothing is softened, and every live block costs up
    /// to 128 bytes, or 256 where many are freed and taken again. What the small side serves is its own to check.
    #[must_use]
    pub const fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }

    /// Chooses whether freed blocks are overwritten with zeros, for provers whose witness must not linger. Off by
    /// default. Environment: `ZK_NALLOC_WIPE_ON_FREE`, `1` or `0`.
    ///
    /// Every block of either side is wiped, all of the size that it was asked for, before it goes back; so is what a
    /// `realloc` leaves behind: the old block, the end that is cut off, what was not moved. A small block is then
    /// never resized in place. What a large block holds that was never touched, or is swapped out, goes back to the
    /// kernel instead, so that wiping faults nothing in.
    ///
    /// It costs one pass over every freed byte, and large blocks are taken and given back on the slow path. It is no
    /// place for keys: copies in registers, on stacks and in swap are not reached, nor blocks that are never freed;
    /// [`SecretBuf`](crate::SecretBuf) is. It does not reach arenas, whose mappings are their own: see
    /// [`Arena::wipe`](crate::Arena::wipe) and [`TypedArena::wipe`](crate::TypedArena::wipe).
    #[must_use]
    pub const fn wipe_on_free(mut self, wipe: bool) -> Self {
        self.wipe_on_free = wipe;
        self
    }

    /// Chooses whether a thread of the allocator's own applies decay and pressure while the process is silent. Off by
    /// default: a process that neither allocates nor frees then keeps its warm cache until it calls
    /// [`soften_cache`](crate::soften_cache) or [`release_cache`](crate::release_cache). Environment:
    /// `ZK_NALLOC_BACKGROUND`, `1` or `0`.
    ///
    /// The thread is started when 64 MiB or more have been allocated by one thread, or by threads that share a shard, or by
    /// [`prefault`](crate::prefault()), with all signals blocked and a stack of 256 KiB. It sleeps while nothing is handed out
    /// and nothing cached; else it looks four times a second, once a second in silence or while nothing is cached, at what the container
    /// and the host have left. After every ten seconds in which no large block is allocated or freed a peak counts as one window older, so that
    /// what was kept for it goes down to an eighth of RAM or 1 GiB, whichever is less; [`cache_bytes`](Self::cache_bytes) stays what it is.
    ///
    /// A forked child has no such thread until it allocates as much, of which what its parent had counted is a part. At exit
    /// the thread simply ends with the process: it holds nothing that another thread waits for long. A program that unloads
    /// the library it is linked into (`dlclose`) must not use it.
    #[must_use]
    pub const fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Whether a free has more to do than to give the block back, as far as the code says.
    #[inline]
    pub(crate) const fn says_careful(&self) -> bool {
        self.checked || self.wipe_on_free
    }

    /// Whether the code asks that freed blocks be wiped.
    pub(crate) const fn wipe_on_free_said(&self) -> bool {
        self.wipe_on_free
    }

    /// Whether the code asks that misuse be looked for.
    pub(crate) const fn checked_said(&self) -> bool {
        self.checked
    }

    /// Where the large side begins, in bytes.
    #[inline]
    pub(crate) const fn begins_large(&self) -> usize {
        self.large_from
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// What is in force: the code's word, where the environment has not spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The promised ceiling of free resident bytes, or `None` to follow the recent peak.
    pub(crate) cache_bytes: Option<usize>,
    pub(crate) thp: Thp,
    pub(crate) moves: Moves,
    pub(crate) tune_glibc: bool,
    pub(crate) checked: bool,
    pub(crate) wipe_on_free: bool,
    pub(crate) background: bool,
}

/// Says what is in force, and calls `report` with a line (in parts) for each value that cannot be read, and without a variable for
/// one that there is not.
pub(crate) fn resolve(
    config: &Config,
    environment: &Variables,
    report: &mut dyn FnMut(Option<Variable>, &[&str]),
) -> Settings {
    let mut settings = Settings {
        cache_bytes: config.cache_bytes,
        thp: config.thp,
        moves: config.moves,
        tune_glibc: config.tune_glibc.unwrap_or(true),
        checked: config.checked,
        wipe_on_free: config.wipe_on_free,
        background: config.background,
    };
    for variable in Variable::ALL {
        let Some(value) = environment.get(variable) else { continue };
        let understood = value.whole().is_some_and(|bytes| match variable {
            Variable::CacheBytes => put(read::bytes(bytes).map(Some), &mut settings.cache_bytes),
            Variable::Thp => put(read::thp(bytes), &mut settings.thp),
            Variable::Moves => put(read::moves(bytes), &mut settings.moves),
            Variable::Checked => put(read::switch(bytes), &mut settings.checked),
            Variable::WipeOnFree => put(read::switch(bytes), &mut settings.wipe_on_free),
            Variable::Background => put(read::switch(bytes), &mut settings.background),
        });
        if !understood {
            let shown = value.shown();
            let [wants, instead] = complaint(variable, &settings);
            let name = variable.name();
            report(Some(variable), &["zk-nalloc: ", name, "=\"", shown.as_str(), "\" ", wants, instead]);
        }
    }
    if let Some(name) = environment.unknown() {
        report(
            None,
            &["zk-nalloc: ", name.shown().as_str(), ": there is no such variable; it changes nothing"],
        );
    }
    settings
}

/// Puts a value that could be read in its place, and says whether it could.
fn put<T>(value: Option<T>, place: &mut T) -> bool {
    value.map(|v| *place = v).is_some()
}

/// What a variable takes, and what is taken in place of a value that cannot be read.
fn complaint(variable: Variable, settings: &Settings) -> [&'static str; 2] {
    match variable {
        Variable::CacheBytes => [
            "is not a number of bytes (digits, then K, M, G or nothing); taken instead: ",
            match settings.cache_bytes {
                None => "the recent peak of live memory",
                Some(_) => "the ceiling set in the program",
            },
        ],
        Variable::Thp => [
            "is none of auto, always, never; taken instead: ",
            match settings.thp {
                Thp::Auto => "auto",
                Thp::Always => "always",
                Thp::Never => "never",
            },
        ],
        Variable::Moves => [
            "is none of auto, never; taken instead: ",
            match settings.moves {
                Moves::Auto => "auto",
                Moves::Never => "never",
            },
        ],
        Variable::Checked => switch(settings.checked),
        Variable::WipeOnFree => switch(settings.wipe_on_free),
        Variable::Background => switch(settings.background),
    }
}

const fn switch(on: bool) -> [&'static str; 2] {
    ["is none of 0, 1; taken instead: ", if on { "1" } else { "0" }]
}
