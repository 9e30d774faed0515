//! What a trace says: the lives of blocks, what was live when, the phases, and the process.
//!
//! Invariant: a step names a block of this story, each block is taken once and freed at most once, in this order.

use std::collections::HashMap;

use crate::file::{Event, Outcome, Trace, What};

/// What of a block was resident when it was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// How much of it, in bytes.
    pub resident: u64,
    /// The block in parts of this length, in bytes; 0 if all of it was.
    pub part: u64,
    /// A bit for each part of which something was, the first one's lowest.
    pub parts: u64,
}

/// The life of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// When it was taken, in nanoseconds.
    pub taken: u64,
    /// When it was freed, if it was.
    pub freed: Option<u64>,
    /// On which thread it was taken.
    pub thread: u16,
    /// Its last size, in bytes.
    pub size: u64,
    /// The size that it was taken with.
    pub size_first: u64,
    /// The logarithm of its alignment.
    pub align_log2: u8,
    /// Whether it was to read as zero.
    pub zeroed: bool,
    /// How much of it was not resident when it was taken.
    pub fresh: u64,
    /// How often it was resized.
    pub resized: u32,
    /// What of it was touched, where that is known: it was wholly fresh when it was taken, and looked at when it was freed.
    pub touched: Option<Touched>,
}

/// What is done to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It is taken.
    Taken,
    /// It is freed.
    Freed,
    /// It is resized from one size to another.
    Resized {
        /// From so many bytes.
        from: u64,
        /// To so many.
        to: u64,
        /// What became of it.
        outcome: Outcome,
    },
}

/// A step of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub nanoseconds: u64,
    /// On which thread, from 1.
    pub thread: u16,
    /// Which block of [`Story::blocks`].
    pub block: u32,
    /// What is done to it.
    pub deed: Deed,
    /// Bytes live after it.
    pub live: u64,
}

/// What was held at a time, and what the kernel said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub nanoseconds: u64,
    /// Free and held by the allocator, in bytes.
    pub cached: u64,
    /// Resident by the allocator, as far as it presumes.
    pub resident: u64,
    /// Anonymous memory of the process that is resident.
    pub anonymous: u64,
    /// Page faults of the process so far.
    pub faults: u64,
    /// Of the process, in huge pages, where that was looked at.
    pub huge: Option<u64>,
}

/// A phase, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What it is called.
    pub name: String,
    /// From when.
    pub begins: u64,
    /// To when: the end of the trace, if it never ended.
    pub ends: u64,
    /// On which thread it began.
    pub thread: u16,
    /// How many phases it lay in.
    pub depth: u32,
}

/// What a trace says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// Every block, in the order in which they were taken.
    pub blocks: Vec<Block>,
    /// Every step.
    pub steps: Vec<Step>,
    /// What was looked at now and then.
    pub samples: Vec<Sample>,
    /// Every phase, in the order in which they began.
    pub phases: Vec<Phase>,
    /// The most that was live, in bytes, and when.
    pub peak_live: u64,
    /// See `peak_live`.
    pub peak_live_at: u64,
    /// How long it is, in nanoseconds.
    pub nanoseconds: u64,
    /// Threads that took, freed or resized.
    pub threads: usize,
    /// Requests that the kernel had no memory for.
    pub refused: u64,
    /// Events of blocks that nobody has taken: some were lost.
    pub strays: u64,
}

/// What is known while the story is read.
#[derive(Default)]
struct Reader {
    story: Story,
    /// Live blocks by address.
    here: HashMap<u64, u32>,
    /// The block that a thread is resizing, and the parts that it has told of the one that it frees next.
    resizing: HashMap<u16, u32>,
    parts: HashMap<u16, (u64, u64, u64)>,
    /// Phases that have not ended, by their number; and the last that a thread has begun, with the bytes of its name.
    open: HashMap<u64, usize>,
    named: HashMap<u16, (usize, Vec<u8>)>,
    /// The sample that a thread is taking.
    sampling: HashMap<u16, usize>,
    live: u64,
    threads: Vec<bool>,
}

impl Story {
    /// Puts a trace in order.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let mut reader = Reader { threads: vec![false; 1 << 16], ..Reader::default() };
        for event in &trace.events {
            // Two threads may look at the clock in one order and be recorded in the other, nanoseconds apart.
            let nanoseconds = event.nanoseconds.max(reader.story.nanoseconds);
            reader.story.nanoseconds = nanoseconds;
            reader.read(&Event { nanoseconds, ..*event });
        }
        reader.finish(trace.header.nanoseconds)
    }

    /// The block of a step.
    #[must_use]
    pub fn block(&self, step: &Step) -> Option<&Block> {
        self.blocks.get(step.block as usize)
    }
}

impl Reader {
    fn read(&mut self, event: &Event) {
        let Event { nanoseconds, thread, what } = *event;
        match what {
            What::Taken { address, size, align_log2, zeroed, fresh } => {
                let block = Block {
                    taken: nanoseconds,
                    freed: None,
                    thread,
                    size,
                    size_first: size,
                    align_log2,
                    zeroed,
                    fresh,
                    resized: 0,
                    touched: None,
                };
                let Ok(index) = u32::try_from(self.story.blocks.len()) else { return };
                self.story.blocks.push(block);
                if let Some(lost) = self.here.insert(address, index) {
                    // Its free was lost.
                    self.story.strays += 1;
                    self.end(event, lost, None);
                }
                self.live = self.live.saturating_add(size);
                self.step(event, index, Deed::Taken);
            }
            What::Freed { address, resident } => match self.here.remove(&address) {
                Some(block) => self.end(event, block, resident),
                None => self.story.strays += 1,
            },
            What::Parts { address, parts, part } => {
                self.parts.insert(thread, (address, parts, part));
            }
            What::Resizing { address } => match self.here.remove(&address) {
                Some(block) => {
                    self.resizing.insert(thread, block);
                }
                None => self.story.strays += 1,
            },
            What::Resized { address, size, outcome } => self.resized(event, address, size, outcome),
            What::Refused { .. } => self.story.refused += 1,
            What::Held { .. } | What::Process { .. } | What::Huge { .. } => self.sample(event),
            What::PhaseBegins { .. } | What::Name { .. } | What::PhaseEnds { .. } => self.phase(event),
        }
    }

    fn resized(&mut self, event: &Event, address: u64, size: u64, outcome: Outcome) {
        let Some(index) = self.resizing.remove(&event.thread) else {
            self.story.strays += 1;
            return;
        };
        let Some(block) = self.story.blocks.get_mut(index as usize) else { return };
        let from = block.size;
        self.here.insert(address, index);
        if outcome == Outcome::Refused {
            self.story.refused += 1;
            return;
        }
        block.size = size;
        block.resized += 1;
        self.live = self.live.saturating_sub(from).saturating_add(size);
        self.step(event, index, Deed::Resized { from, to: size, outcome });
    }

    /// Ends the life of a block.
    fn end(&mut self, event: &Event, index: u32, resident: Option<u64>) {
        let told = self.parts.remove(&event.thread);
        let Some(block) = self.story.blocks.get_mut(index as usize) else { return };
        block.freed = Some(event.nanoseconds);
        // What was resident already tells nothing; a block that was moved or copied is another one.
        let whole = block.resized == 0 && block.fresh.saturating_mul(8) >= block.size.saturating_mul(7);
        block.touched = resident.filter(|_| whole).map(|resident| match told {
            Some((_, parts, part)) => Touched { resident: resident.min(block.size), part, parts },
            None => Touched { resident: block.size, part: 0, parts: 0 },
        });
        self.live = self.live.saturating_sub(block.size);
        self.step(event, index, Deed::Freed);
    }

    fn step(&mut self, event: &Event, block: u32, deed: Deed) {
        let Event { nanoseconds, thread, .. } = *event;
        if let Some(seen) = self.threads.get_mut(usize::from(thread)) {
            *seen = true;
        }
        if self.live > self.story.peak_live {
            self.story.peak_live = self.live;
            self.story.peak_live_at = nanoseconds;
        }
        self.story.steps.push(Step { nanoseconds, thread, block, deed, live: self.live });
    }

    fn sample(&mut self, event: &Event) {
        let Event { nanoseconds, thread, what } = *event;
        if let What::Held { cached, resident } = what {
            self.sampling.insert(thread, self.story.samples.len());
            // Until the kernel's word comes, its last one.
            let last = self.story.samples.last().copied().unwrap_or_default();
            self.story.samples.push(Sample { nanoseconds, cached, resident, huge: None, ..last });
            return;
        }
        let index = self.sampling.get(&thread);
        let Some(sample) = index.and_then(|&index| self.story.samples.get_mut(index)) else { return };
        match what {
            What::Process { anonymous, faults } => {
                sample.anonymous = anonymous;
                sample.faults = faults;
            }
            What::Huge { bytes } => sample.huge = Some(bytes),
            _ => {}
        }
    }

    fn phase(&mut self, event: &Event) {
        let Event { nanoseconds, thread, what } = *event;
        match what {
            What::PhaseBegins { phase } => {
                self.open.insert(phase, self.story.phases.len());
                self.begin(thread, nanoseconds);
            }
            What::Name { text } => {
                if let Some((index, name)) = self.named.get_mut(&thread) {
                    name.extend(text.iter().take_while(|&&byte| byte != 0));
                    name.truncate(256);
                    if let Some(phase) = self.story.phases.get_mut(*index) {
                        phase.name = String::from_utf8_lossy(name).into_owned();
                    }
                }
            }
            What::PhaseEnds { phase } => {
                let index = self.open.remove(&phase);
                // It had begun before the trace did; its name follows.
                let index = index.unwrap_or_else(|| self.begin(thread, 0));
                self.named.insert(thread, (index, Vec::new()));
                if let Some(phase) = self.story.phases.get_mut(index) {
                    phase.ends = nanoseconds;
                }
            }
            _ => {}
        }
    }

    /// Begins a phase whose name follows.
    fn begin(&mut self, thread: u16, begins: u64) -> usize {
        let index = self.story.phases.len();
        self.named.insert(thread, (index, Vec::new()));
        self.story.phases.push(Phase { name: String::new(), begins, ends: u64::MAX, thread, depth: 0 });
        index
    }

    fn finish(mut self, nanoseconds: u64) -> Story {
        let end = self.story.nanoseconds.max(nanoseconds);
        self.story.nanoseconds = end;
        for phase in self.story.phases.iter_mut().filter(|phase| phase.ends == u64::MAX) {
            phase.ends = end;
        }
        self.story.phases.sort_by_key(|phase| (phase.begins, u64::MAX - phase.ends));
        // Those of other threads lie beside a phase, not around it.
        let mut around: HashMap<u16, Vec<u64>> = HashMap::new();
        for phase in &mut self.story.phases {
            let ends = around.entry(phase.thread).or_default();
            ends.retain(|&end| end > phase.begins);
            phase.depth = u32::try_from(ends.len()).unwrap_or(u32::MAX);
            ends.push(phase.ends);
        }
        self.story.threads = self.threads.iter().filter(|&&seen| seen).count();
        self.story
    }
}
