//! A record of what the large side was asked for, in a file: `ZK_NALLOC_TRACE=file`.
//!
//! What it is: [`Trace`], which puts each event into a ring of slots that is written out piece by piece by whoever fills a
//! piece, the rest when the process exits. Why it is here: a picture of a proof's memory, and a replay of it under other
//! allocators, need every block in order, which no counter keeps. `docs/TRACE.md` describes the file.
//!
//! Invariants: off, it is never called (see `cache::careful`). On, nothing here waits for another thread while the
//! process runs; what finds no place is counted, never silently lost; the file is written to only while it is the one
//! that was opened, and only by the process that opened it. Nothing allocates or formats.
//! Never here: which calls are events.

#![expect(unsafe_code, reason = "the slots lie in a mapping")]

mod path;
mod record;
mod ring;

#[cfg(test)]
mod tests;

use core::alloc::Layout;
use core::cell::Cell;

use crate::os::{self, Facts, GRANULE, Os, Output};
use crate::sync::process::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use path::Path;
use record::{Event, HEADER_BYTES, Header, NAME_PIECE};
pub(crate) use record::{Outcome, PARTS_MAX, Touched};
use ring::{RING_BYTES, Ring};

thread_local! {
    /// This thread's number in traces; 0 before its first event. Without a destructor, as the shard's.
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// Nanoseconds between two samples of the process at first: a sample takes five microseconds.
const SAMPLE_EVERY: u64 = 2_000_000;

/// Samples after which they come half as often: a trace of hours has a few thousand more than one of seconds.
const SAMPLES: u32 = 4096;

/// Nanoseconds between two looks at how much lies in huge pages, at least; and how many times as long as a look takes:
/// the kernel walks all memory for it, and faults wait meanwhile.
const HUGE_EVERY: u64 = 20_000_000;
const HUGE_SHARE: u64 = 200;

/// How often the end of the process naps (50 microseconds) for threads that are in the middle of an event.
const NAPS: u32 = 400;

/// The longest name of a phase that is kept, in bytes.
const NAME_MAX: usize = 64;

/// What is known of the process at a sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Free bytes that are held, and what is in use and held together, as far as it is presumed to be resident.
    pub(crate) cached: usize,
    pub(crate) resident: usize,
}

/// Where a process records to, or that it does not.
pub(crate) struct Trace {
    on: AtomicBool,
    ring: Ring,
    /// The file, as [`Output`] has it.
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// [`os::fork::mark`] of the process that opened it.
    mark: AtomicU64,
    began: AtomicU64,
    threads: AtomicU32,
    last_sample: AtomicU64,
    samples: AtomicU32,
    /// When huge pages are looked at next.
    next_huge: AtomicU64,
    header: Constants,
}

/// What the header says from the first.
struct Constants {
    page: AtomicUsize,
    huge_page: AtomicUsize,
    cpus: AtomicUsize,
    ram: AtomicUsize,
    faults: AtomicU64,
}

impl Trace {
    pub(crate) const fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            ring: Ring::new(),
            descriptor: AtomicI32::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            mark: AtomicU64::new(0),
            began: AtomicU64::new(0),
            threads: AtomicU32::new(0),
            last_sample: AtomicU64::new(0),
            samples: AtomicU32::new(0),
            next_huge: AtomicU64::new(0),
            header: Constants {
                page: AtomicUsize::new(0),
                huge_page: AtomicUsize::new(0),
                cpus: AtomicUsize::new(0),
                ram: AtomicUsize::new(0),
                faults: AtomicU64::new(0),
            },
        }
    }

    /// Begins a trace if the environment names a file for one, and says whether it did. Before the first block is handed
    /// out, by one thread.
    pub(crate) fn start<O: Os>(&self, os: &O, facts: &Facts) -> bool {
        let mut path = Path::new();
        os.environment(&mut |piece| path.feed(piece));
        let Some(path) = path.finish() else { return false };
        let complain = |why: &str| {
            os.say(&["zk-nalloc: ZK_NALLOC_TRACE: ", path.shown(), why, "; nothing is recorded"]);
            false
        };
        let Some(name) = path.name(os.process()) else { return complain(" is too long for a path") };
        let file = match os.create(name.c_str()) {
            Ok(file) => file,
            Err(errno) => return complain(os::why_not_created(errno)),
        };
        let Ok(slots) = os.map(RING_BYTES, GRANULE) else {
            os.give_up(&file);
            return complain(" has no memory for a buffer");
        };
        // SAFETY: the mapping is fresh, of that length, and stays for ever (T1).
        unsafe { self.ring.begin(slots) };
        // Relaxed, all of it: published by `on`.
        self.descriptor.store(file.descriptor, Ordering::Relaxed);
        self.device.store(file.device, Ordering::Relaxed);
        self.inode.store(file.inode, Ordering::Relaxed);
        self.mark.store(os::fork::mark(), Ordering::Relaxed);
        self.began.store(os.now(), Ordering::Relaxed);
        self.header.page.store(facts.page, Ordering::Relaxed);
        self.header.huge_page.store(facts.huge_page, Ordering::Relaxed);
        self.header.cpus.store(facts.cpus, Ordering::Relaxed);
        self.header.ram.store(facts.ram, Ordering::Relaxed);
        self.header.faults.store(os.faults(), Ordering::Relaxed);
        if !self.write_header(os, false) {
            os.give_up(&file);
            return complain(" cannot be written to");
        }
        // Release: pairs with the acquire in `is_on`. A phase may begin before its thread has seen a block or the shards.
        self.on.store(true, Ordering::Release);
        true
    }

    /// Whether events are recorded: the process that began has not ended its trace, and this is it.
    pub(crate) fn is_on(&self) -> bool {
        // Acquire: pairs with the release in `start`. An event that comes after the end finds the ring closed.
        self.on.load(Ordering::Acquire)
    }

    fn time<O: Os>(&self, os: &O) -> u64 {
        os.now().saturating_sub(self.began.load(Ordering::Relaxed))
    }

    /// The calling thread's number, from 1.
    fn thread(&self) -> u32 {
        let mut mine = THREAD.get();
        if mine == 0 {
            // Relaxed: a number of its own is all there is to it.
            mine = self.threads.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            THREAD.set(mine);
        }
        mine
    }

    /// Records one event.
    fn put<O: Os>(&self, os: &O, event: Event) {
        if !self.is_on() {
            return;
        }
        let words = event.words(self.time(os), self.thread());
        if let Some(full) = self.ring.put(words) {
            self.write_piece_slow(os, full);
        }
    }

    /// Records a block that is about to be handed out; `fresh` bytes of it were not resident before.
    pub(crate) fn taken<O: Os>(&self, os: &O, p: usize, layout: Layout, zeroed: bool, fresh: usize) {
        self.put(os, Event::Taken { p, layout, zeroed, fresh });
    }

    /// Records a request that the kernel had no memory for.
    pub(crate) fn refused<O: Os>(&self, os: &O, layout: Layout) {
        self.put(os, Event::Refused { layout });
    }

    /// Records a block that is about to go back.
    pub(crate) fn freed<O: Os>(&self, os: &O, p: usize, layout: Layout, touched: Option<Touched>) {
        if let Some(touched) = touched.filter(|touched| touched.is_partial()) {
            self.put(os, Event::Parts { p, parts: touched.parts, part: touched.part });
        }
        self.put(os, Event::Freed { p, layout, resident: touched.map(|touched| touched.resident) });
    }

    /// Records that a block is about to be resized. [`Trace::resized`] by the same thread follows.
    pub(crate) fn resizing<O: Os>(&self, os: &O, p: usize, layout: Layout) {
        self.put(os, Event::Resizing { p, layout });
    }

    /// Records what became of it: where it is now, as what.
    pub(crate) fn resized<O: Os>(&self, os: &O, p: usize, layout: Layout, outcome: Outcome) {
        self.put(os, Event::Resized { p, layout, outcome });
    }

    /// Records that the phase of this number begins.
    pub(crate) fn phase_begins<O: Os>(&self, os: &O, phase: u64, name: &str) {
        self.put(os, Event::PhaseBegins { phase, name_len: name.len() });
        self.name(os, name);
    }

    /// Records that the phase of this number ends, on whatever thread. It is named again: it may have begun before
    /// the trace did.
    pub(crate) fn phase_ends<O: Os>(&self, os: &O, phase: u64, name: &str) {
        self.put(os, Event::PhaseEnds { phase, name_len: name.len() });
        self.name(os, name);
    }

    fn name<O: Os>(&self, os: &O, name: &str) {
        let bytes = name.as_bytes();
        let kept = bytes.get(..NAME_MAX).unwrap_or(bytes);
        for (index, piece) in kept.chunks(NAME_PIECE).enumerate() {
            self.put(os, Event::Name { index, piece });
        }
    }

    /// Whether it is time for a sample, which is then the caller's to take.
    pub(crate) fn wants_sample<O: Os>(&self, os: &O) -> bool {
        if !self.is_on() {
            return false;
        }
        let now = self.time(os);
        // Relaxed: the exchange decides who takes it; a moment more or less is nothing.
        let last = self.last_sample.load(Ordering::Relaxed);
        let doublings = (self.samples.load(Ordering::Relaxed) / SAMPLES).min(16);
        let due = last == 0 || now.saturating_sub(last) >= SAMPLE_EVERY << doublings;
        due && self
            .last_sample
            .compare_exchange(last, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Records a sample.
    pub(crate) fn sample<O: Os>(&self, os: &O, sample: Sample) {
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.put(os, Event::Held { cached: sample.cached, resident: sample.resident });
        let anonymous = os.anonymous().unwrap_or(0);
        self.put(os, Event::Process { anonymous, faults: os.faults() });
        let before = self.time(os);
        // Relaxed: one look more or less is nothing.
        if before >= self.next_huge.load(Ordering::Relaxed) {
            if let Some(bytes) = os::huge_page_bytes() {
                self.put(os, Event::Huge { bytes });
            }
            let now = self.time(os);
            let pause = (now.saturating_sub(before) * HUGE_SHARE).max(HUGE_EVERY);
            self.next_huge.store(now + pause, Ordering::Relaxed);
        }
    }

    /// Ends the trace, when the process exits: writes out what there is, and how much that was.
    pub(crate) fn finish<O: Os>(&self, os: &O) {
        if !self.on.swap(false, Ordering::Relaxed) || !self.is_ours() {
            return;
        }
        let end = self.ring.close();
        for piece in Ring::pieces_before(end) {
            // Other threads may still be writing theirs, or be in the middle of an event; or have ended there.
            let mut naps = 0;
            while !self.ring.is_complete(piece, end) && naps < NAPS {
                os.nap();
                naps += 1;
            }
            if !self.ring.is_written(piece) {
                let (address, len) = self.ring.bytes_of(piece, end);
                if os.write_at(&self.output(), Self::place(piece), address, len).is_err() {
                    return say_it_ends(os);
                }
            }
        }
        if !self.write_header(os, true) {
            say_it_ends(os);
        }
    }

    /// After a fork, in the child: the trace is the parent's. Its file is closed here: it would be taken for being written while
    /// the child lives.
    pub(crate) fn after_fork_in_child<O: Os>(&self, os: &O) {
        self.on.store(false, Ordering::Relaxed);
        // Also where the trace had ended before the fork.
        if self.mark.load(Ordering::Relaxed) != 0 {
            os.give_up(&self.output());
        }
    }

    fn output(&self) -> Output {
        // Relaxed: as in `start`.
        Output {
            descriptor: self.descriptor.load(Ordering::Relaxed),
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
        }
    }

    /// Whether this process is the one that opened the file, however it came to be.
    fn is_ours(&self) -> bool {
        self.mark.load(Ordering::Relaxed) == os::fork::mark()
    }

    /// Where in the file a piece lies.
    const fn place(piece: u64) -> u64 {
        HEADER_BYTES as u64 + piece * ring::PIECE_BYTES as u64
    }

    /// Writes a full piece out and makes its slots free again.
    #[cold]
    fn write_piece_slow<O: Os>(&self, os: &O, piece: u64) {
        let (address, len) = self.ring.bytes_of(piece, u64::MAX);
        if !self.is_ours() {
            return;
        }
        if os.write_at(&self.output(), Self::place(piece), address, len).is_ok() {
            self.ring.written(piece);
        } else if self.on.swap(false, Ordering::Relaxed) {
            // Relaxed: the exchange alone decides who says it; `finish` says it where it came first.
            say_it_ends(os);
        }
    }

    fn write_header<O: Os>(&self, os: &O, finished: bool) -> bool {
        let get = |word: &AtomicUsize| word.load(Ordering::Relaxed) as u64;
        let header = Header {
            process: u64::from(os.process()),
            page: get(&self.header.page),
            huge_page: get(&self.header.huge_page),
            cpus: get(&self.header.cpus),
            ram: get(&self.header.ram),
            faults_before: self.header.faults.load(Ordering::Relaxed),
            finished,
            events: self.ring.claimed(),
            lost: self.ring.lost(),
            nanoseconds: self.time(os),
            faults: os.faults(),
        };
        let words = header.words();
        os.write_at(&self.output(), 0, words.as_ptr().expose_provenance(), HEADER_BYTES).is_ok()
    }
}

/// A file that cannot be written to ends the trace.
fn say_it_ends<O: Os>(os: &O) {
    os.say(&["zk-nalloc: ZK_NALLOC_TRACE: the file cannot be written to any more; the trace ends here"]);
}
