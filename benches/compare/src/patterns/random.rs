//! Workloads that nobody chose, each drawn from a number: `random/7` is the same each time.
//!
//! Why they are here: the other patterns are known to whoever works on the allocator, and what is watched gets better. These
//! say how it does where nobody looked. A few are part of the list; any other can be named (`--pattern =random/12345`).

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use rayon::current_num_threads;

use super::fill::{check_sparse, touch_sparse};
use super::growth::grown;
use super::{Case, Pattern};
use crate::block::{Random, add_dense, check_dense, check_filled, filled, zeroed};
use crate::scale::{KIB, MIB, Scale};

/// So many are part of the list, those of the first numbers.
const LISTED: u64 = 24;
/// What a round asks for, all threads together, once as much is alive as shall be.
const VOLUME: usize = 384 * MIB;
/// One word in so many bytes of a sparse block is touched.
const STEP: usize = 64 * KIB;
/// Blocks of each thread on their way to another.
const ON_THE_WAY: usize = 4;

pub(super) fn list() -> Vec<Pattern> {
    (0..LISTED).map(of_seed).collect()
}

/// Returns the workload of that name, whether it is part of the list or not.
pub(super) fn named(name: &str) -> Option<Pattern> {
    name.strip_prefix("random/")?.parse().ok().map(of_seed)
}

fn of_seed(seed: u64) -> Pattern {
    let load = Load::drawn(seed);
    let about = load.to_string();
    Pattern::new(format!("random/{seed}"), about, move |scale| load.clone().case(scale, seed))
}

/// How long blocks are.
#[derive(Clone, Debug)]
enum Lengths {
    OneOf(Vec<usize>),
    /// As often of one doubling as of another.
    Between(usize, usize),
}

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Filled,
    ZeroedDense,
    ZeroedSparse,
    HalfUsed,
    Pushed,
}

const USES: [Use; 5] = [Use::Filled, Use::ZeroedDense, Use::ZeroedSparse, Use::HalfUsed, Use::Pushed];

/// Which block is freed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Any,
    Oldest,
    Youngest,
    /// All that are alive.
    All,
}

const ORDERS: [Order; 4] = [Order::Any, Order::Oldest, Order::Youngest, Order::All];

#[derive(Clone, Debug)]
struct Load {
    lengths: Lengths,
    uses: Vec<Use>,
    order: Order,
    /// What is alive at once at most, all threads together, in bytes.
    alive: usize,
    alone: bool,
    /// Whether threads free what others took.
    passes: bool,
}

/// Returns a number from `low` to `high`, as often of one doubling as of another.
#[expect(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "lengths, far below 2^52")]
#[expect(clippy::cast_possible_truncation, reason = "no more than `high`")]
fn of_any_doubling(random: &mut Random, low: usize, high: usize) -> usize {
    let part = random.between(0, 1 << 20) as f64 / f64::from(1 << 20);
    (low as f64 * (high as f64 / low as f64).powf(part)) as usize
}

impl Load {
    fn drawn(seed: u64) -> Self {
        let random = &mut Random::new(seed);
        let about = of_any_doubling(random, 16 * KIB, 32 * MIB);
        let lengths = if random.between(0, 2) == 0 {
            let is_power = random.between(0, 2) == 0;
            let one = |_| {
                let bytes = of_any_doubling(random, about / 4, about * 4);
                if is_power { bytes.next_power_of_two() } else { bytes }
            };
            Lengths::OneOf((0..1 + seed % 4).map(one).collect())
        } else {
            let times = random.between(2, 9);
            Lengths::Between(about / times, about * times)
        };
        let mut uses: Vec<Use> =
            (0..random.between(1, 4)).map(|_| USES[random.between(0, USES.len())]).collect();
        uses.dedup();
        Self {
            lengths,
            uses,
            order: ORDERS[random.between(0, ORDERS.len())],
            alive: of_any_doubling(random, 2 * MIB, 512 * MIB),
            alone: random.between(0, 3) == 0,
            passes: random.between(0, 4) == 0,
        }
    }

    /// About how long a block is, in bytes.
    fn mean(&self) -> usize {
        match &self.lengths {
            Lengths::OneOf(lengths) => lengths.iter().sum::<usize>() / lengths.len(),
            Lengths::Between(low, high) => (high - low) * 10 / (high / low).ilog2().max(1) as usize / 7,
        }
    }

    fn case(self, scale: Scale, seed: u64) -> Case {
        let mut round = 0;
        Case::new(scale.rounds(8), move |watch| {
            round += 1;
            watch.timed(|| {
                let shared = Mutex::new(VecDeque::new());
                let threads = if self.alone { 1 } else { current_num_threads() };
                let lives = rayon::broadcast(|context| {
                    if context.index() >= threads {
                        return 0;
                    }
                    let random =
                        Random::new(seed.wrapping_mul(1_000_003) + round * 1000 + context.index() as u64);
                    let shared = self.passes.then_some(&shared);
                    Worker {
                        load: &self,
                        scale,
                        threads,
                        random,
                        blocks: VecDeque::new(),
                        shared,
                        live: 0,
                        peak: 0,
                    }
                    .run()
                });
                let on_the_way = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
                on_the_way.iter().for_each(|block: &Block| block.check(scale));
                lives.into_iter().sum()
            })
        })
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kib = |bytes: usize| bytes.div_ceil(KIB);
        match &self.lengths {
            Lengths::OneOf(lengths) => {
                let lengths: Vec<String> = lengths.iter().map(|&bytes| kib(bytes).to_string()).collect();
                write!(out, "blocks of {} KiB", lengths.join(", "))?;
            }
            Lengths::Between(low, high) => write!(out, "blocks of {} to {} KiB", kib(*low), kib(*high))?,
        }
        let uses: Vec<&str> = self
            .uses
            .iter()
            .map(|one| match one {
                Use::Filled => "filled",
                Use::ZeroedDense => "zeroed and written",
                Use::ZeroedSparse => "zeroed and barely touched",
                Use::HalfUsed => "half used",
                Use::Pushed => "pushed",
            })
            .collect();
        let threads = if self.alone { "on one thread" } else { "on all threads" };
        let order = match self.order {
            Order::Any => "any freed next",
            Order::Oldest => "the oldest freed next",
            Order::Youngest => "the youngest freed next",
            Order::All => "freed together",
        };
        let passes = match (self.passes, self.alone) {
            (false, _) => "",
            (true, false) => ", by whichever thread",
            (true, true) => ", each once four more are to be",
        };
        write!(
            out,
            ", {}, about {} MiB alive, {threads}, {order}{passes}",
            uses.join(" or "),
            self.alive / MIB
        )
    }
}

/// A block, and what it should hold.
enum Block {
    Filled(u8, Vec<u8>),
    Dense(u64, Vec<u64>),
    Sparse(u64, Vec<u64>),
}

impl Block {
    #[expect(clippy::cast_possible_truncation, reason = "any byte of the number will do")]
    fn new(how: Use, bytes: usize, seed: u64) -> Self {
        match how {
            Use::Filled => Self::Filled(seed as u8, filled(bytes, seed as u8)),
            Use::ZeroedDense => {
                let mut block = zeroed(bytes);
                add_dense(&mut block, seed);
                Self::Dense(seed, block)
            }
            Use::ZeroedSparse => {
                let mut block = zeroed(bytes);
                touch_sparse(&mut block, STEP, seed);
                Self::Sparse(seed, block)
            }
            Use::HalfUsed => {
                let mut block = Vec::with_capacity(bytes / 8);
                block.extend((seed..).take(bytes / 16));
                Self::Dense(seed, black_box(block))
            }
            Use::Pushed => Self::Dense(seed, grown(bytes / 8, seed)),
        }
    }

    fn check(&self, scale: Scale) {
        match self {
            Self::Filled(value, block) => check_filled(block, *value, scale),
            Self::Dense(seed, block) => check_dense(block, *seed, scale),
            Self::Sparse(seed, block) => check_sparse(block, STEP, *seed, scale),
        }
    }

    /// What of it was asked for, or, where that is less, used.
    const fn bytes(&self) -> usize {
        match self {
            Self::Filled(_, block) => block.len(),
            Self::Dense(_, block) | Self::Sparse(_, block) => block.len() * 8,
        }
    }
}

/// What one thread does in a round.
struct Worker<'a> {
    load: &'a Load,
    scale: Scale,
    threads: usize,
    random: Random,
    blocks: VecDeque<Block>,
    shared: Option<&'a Mutex<VecDeque<Block>>>,
    live: usize,
    peak: usize,
}

impl Worker<'_> {
    /// Returns the most that was alive.
    fn run(mut self) -> usize {
        let mean = self.scale.bytes(self.load.mean());
        let alive = (self.scale.bytes(self.load.alive) / self.threads / mean).max(1);
        let more = (self.scale.bytes(VOLUME) / self.threads / mean).max(1);
        (0..alive).for_each(|_| self.take());
        for _ in 0..more {
            match self.load.order {
                Order::Any => {
                    let place = self.random.between(0, self.blocks.len());
                    let block = self.blocks.swap_remove_back(place);
                    self.free(block);
                }
                Order::Oldest => {
                    let block = self.blocks.pop_front();
                    self.free(block);
                }
                // Half of the time one more, so that it goes up and down.
                Order::Youngest => {
                    while self.blocks.len() >= alive
                        || !self.blocks.is_empty() && self.random.between(0, 2) == 0
                    {
                        let block = self.blocks.pop_back();
                        self.free(block);
                    }
                }
                Order::All => {
                    if self.blocks.len() >= alive {
                        while let Some(block) = self.blocks.pop_front() {
                            self.free(Some(block));
                        }
                    }
                }
            }
            self.take();
        }
        while let Some(block) = self.blocks.pop_front() {
            self.free(Some(block));
        }
        self.peak
    }

    fn take(&mut self) {
        let bytes = match &self.load.lengths {
            Lengths::OneOf(lengths) => self.scale.bytes(lengths[self.random.between(0, lengths.len())]),
            Lengths::Between(low, high) => {
                let (low, high) = (self.scale.bytes(*low), self.scale.bytes(*high));
                of_any_doubling(&mut self.random, low, high.max(low + 1))
            }
        };
        let how = self.load.uses[self.random.between(0, self.load.uses.len())];
        // So low that sums of it and of positions do not wrap.
        let block = Block::new(how, bytes, self.random.next_word() >> 1);
        self.live += block.bytes();
        self.peak = self.peak.max(self.live);
        self.blocks.push_back(block);
    }

    /// Frees a block, or passes it on and frees one that another thread passed on.
    fn free(&mut self, block: Option<Block>) {
        let Some(block) = block else { return };
        block.check(self.scale);
        let Some(shared) = self.shared else {
            self.live -= block.bytes();
            return;
        };
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.push_back(block);
        let last = if shared.len() > ON_THE_WAY * self.threads { shared.pop_front() } else { None };
        drop(shared);
        if let Some(last) = last {
            last.check(self.scale);
            // What it has put there itself is alive until then.
            self.live = self.live.saturating_sub(last.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_of_any_number_can_be_named_and_is_always_the_same() {
        let about = |name: &str| named(name).map(|pattern| (pattern.name, pattern.about));
        assert_eq!(about("random/77"), about("random/77"));
        assert_ne!(about("random/77").map(|(_, about)| about), about("random/78").map(|(_, about)| about));
        assert!(about("random/x").is_none() && about("fill/1M").is_none());
    }

    #[test]
    fn workloads_differ_in_everything_that_is_drawn() {
        let loads: Vec<Load> = (0..LISTED).map(Load::drawn).collect();
        for how in USES {
            assert!(loads.iter().any(|load| load.uses.contains(&how)), "{how:?}");
        }
        for order in ORDERS {
            assert!(loads.iter().any(|load| load.order == order), "{order:?}");
        }
        let both = |is: fn(&Load) -> bool| loads.iter().any(is) && !loads.iter().all(is);
        assert!(both(|load| load.alone) && both(|load| load.passes));
        assert!(both(|load| matches!(load.lengths, Lengths::OneOf(_))));
        assert!(loads.iter().all(|load| load.mean() >= 2 * KIB && load.mean() <= 256 * MIB), "{loads:?}");
    }
}
