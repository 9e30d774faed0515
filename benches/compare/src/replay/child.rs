//! The child: one trace, one allocator, once.
//!
//! Invariants: R1, a worker takes the turn of its next step when all steps before it have had theirs, and passes it on
//! when its request has been answered; R2, a block is written to by the worker that took or resized it last, which says so when it
//! has done, and whoever resizes or frees it waits for that. So requests are in order, and faults are not.

#![expect(unsafe_code, reason = "blocks of a trace have no owner that the language knows")]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::hint::spin_loop;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use prove_harness::Error;
use prove_harness::usage::{Usage, peak_resident_bytes};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use zk_nalloc_trace::{Block, Deed, Step, Story, Touched, Trace};

use crate::child::Hooks;

/// The unit in which blocks are written to, in bytes: the smallest page of all kernels.
const PAGE: usize = 4096;

/// Blocks from this length on are written to by all threads, as provers do, a part of this length each, in bytes.
const SHARED: usize = 8 << 20;

/// The most workers: traces of more threads share them.
const WORKERS_MAX: usize = 64;

/// What a replay comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// Wall time, in seconds.
    pub seconds: f64,
    /// What the kernel charged meanwhile.
    pub minor_faults: u64,
    /// See `minor_faults`.
    pub user_seconds: f64,
    /// See `minor_faults`.
    pub kernel_seconds: f64,
    /// The most that was live, in bytes.
    pub peak_live_bytes: u64,
    /// Highest resident size of the process (`VmHWM`).
    pub peak_resident_bytes: u64,
    /// Requests that were not served.
    pub refused: u64,
}

/// A block of the story, here.
#[derive(Default)]
struct Place {
    address: AtomicUsize,
    size: AtomicUsize,
    /// Whether it has been written to.
    ready: AtomicBool,
}

/// What the workers share.
struct Stage<'a> {
    story: &'a Story,
    places: Vec<Place>,
    /// The step whose turn it is.
    next: AtomicUsize,
    live: AtomicU64,
    peak_live: AtomicU64,
    refused: AtomicU64,
    /// Zeroed blocks that were not zero.
    dirty: AtomicU64,
    rest: Rest,
}

/// Replays a trace in this process and prints a [`Replayed`] on standard output.
///
/// # Errors
/// When the trace cannot be read, or the allocator hands out zeroed memory that is not zero.
pub fn serve(file: &Path, hooks: &Hooks) -> Result<(), Error> {
    let trace = Trace::read(file).map_err(|cause| Error::new(cause.to_string()))?;
    let story = Story::of(&trace);
    drop(trace);
    let mut replayed = None;
    (hooks.around_round)(&mut || replayed = Some(replay(&story)));
    let replayed = replayed.ok_or_else(|| Error::new("nothing was replayed"))??;
    let line = serde_json::to_string(&replayed).map_err(|cause| Error::doing("writing the result", cause))?;
    println!("{line}");
    Ok(())
}

fn replay(story: &Story) -> Result<Replayed, Error> {
    let mut parts: Vec<Vec<usize>> = vec![Vec::new(); WORKERS_MAX];
    for (index, step) in story.steps.iter().enumerate() {
        parts[usize::from(step.thread) % WORKERS_MAX].push(index);
    }
    parts.retain(|part| !part.is_empty());
    let stage = Stage {
        story,
        places: story.blocks.iter().map(|_| Place::default()).collect(),
        next: AtomicUsize::new(0),
        live: AtomicU64::new(0),
        peak_live: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        dirty: AtomicU64::new(0),
        rest: Rest::of(story)?,
    };
    let start = Barrier::new(parts.len() + 1);
    let (seconds, spent) = thread::scope(|scope| {
        let workers: Vec<_> = parts
            .iter()
            .map(|part| {
                scope.spawn(|| {
                    start.wait();
                    part.iter().for_each(|&index| stage.perform(index));
                })
            })
            .collect();
        // Every worker has its stack, and this library its threads.
        rayon::broadcast(|_| ());
        let before = Usage::now();
        let clock = Instant::now();
        start.wait();
        for worker in workers {
            // A panic of a worker goes on when the scope ends.
            let _ = worker.join();
        }
        (clock.elapsed().as_secs_f64(), Usage::now().since(before))
    });
    if stage.dirty.load(Ordering::Relaxed) > 0 {
        return Err(Error::new("memory that was to be zero was not"));
    }
    Ok(Replayed {
        seconds,
        minor_faults: spent.minor_faults,
        user_seconds: spent.user_seconds,
        kernel_seconds: spent.kernel_seconds,
        peak_live_bytes: stage.peak_live.load(Ordering::Relaxed),
        peak_resident_bytes: peak_resident_bytes()
            .ok_or_else(|| Error::new("no VmHWM in /proc/self/status"))?,
        refused: stage.refused.load(Ordering::Relaxed),
    })
}

impl Stage<'_> {
    /// Waits for the turn of a step, does it, and passes the turn on.
    fn perform(&self, index: usize) {
        let Some(step) = self.story.steps.get(index) else { return };
        let (Some(block), Some(place)) = (self.story.block(step), self.places.get(step.block as usize))
        else {
            return;
        };
        // Acquire: pairs with the release below; what earlier steps did to places is seen.
        wait(|| self.next.load(Ordering::Acquire) == index);
        self.rest.reach(step.nanoseconds);
        if step.deed != Deed::Taken {
            // Acquire: pairs with the release at the end, so that the writes are over (R2).
            wait(|| place.ready.load(Ordering::Acquire));
        }
        let touch = self.request(step, block, place);
        // Release: see above.
        self.next.store(index + 1, Ordering::Release);
        if let Some((from, to)) = touch {
            self.touch(block, place, from, to);
        }
        // Release: see above.
        place.ready.store(true, Ordering::Release);
    }

    /// Makes the request of a step; gives which bytes are to be written to.
    fn request(&self, step: &Step, block: &Block, place: &Place) -> Option<(usize, usize)> {
        let address = place.address.load(Ordering::Relaxed);
        let old = place.size.load(Ordering::Relaxed);
        let layout =
            |size: usize| Layout::from_size_align(size, 1 << block.align_log2).ok().filter(|_| size > 0);
        let (new, from) = match step.deed {
            Deed::Taken => {
                place.ready.store(false, Ordering::Relaxed);
                let size = usize::try_from(block.size_first).ok()?;
                // SAFETY: the size is not 0.
                let p = layout(size)
                    .map(|layout| unsafe { if block.zeroed { alloc_zeroed(layout) } else { alloc(layout) } });
                (p.filter(|p| !p.is_null()).map(|p| (p.expose_provenance(), size)), 0)
            }
            Deed::Freed => {
                if let Some(layout) = layout(old).filter(|_| address != 0) {
                    // SAFETY: the block was taken with this layout, or resized to it, and nobody writes to it (R2); it is
                    // forgotten here.
                    unsafe { dealloc(std::ptr::with_exposed_provenance_mut(address), layout) };
                    self.live.fetch_sub(old as u64, Ordering::Relaxed);
                    place.address.store(0, Ordering::Relaxed);
                }
                return None;
            }
            Deed::Resized { to, .. } => {
                let size = usize::try_from(to).ok().filter(|&size| layout(size).is_some())?;
                let layout = layout(old).filter(|_| address != 0)?;
                place.ready.store(false, Ordering::Relaxed);
                // SAFETY: as above, and the new size is one that a layout can have.
                let p = unsafe { realloc(std::ptr::with_exposed_provenance_mut(address), layout, size) };
                ((!p.is_null()).then(|| (p.expose_provenance(), size)), old)
            }
        };
        let Some((address, size)) = new else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        place.address.store(address, Ordering::Relaxed);
        place.size.store(size, Ordering::Relaxed);
        // One at a time, by R1.
        let live = (self.live.load(Ordering::Relaxed) + size as u64).saturating_sub(from as u64);
        self.live.store(live, Ordering::Relaxed);
        self.peak_live.fetch_max(live, Ordering::Relaxed);
        Some((from, size))
    }

    /// Writes to `from..to` of a block as far as the recorded process did.
    fn touch(&self, block: &Block, place: &Place, from: usize, to: usize) {
        let address = place.address.load(Ordering::Relaxed);
        let zeroed = block.zeroed && block.resized == 0;
        let part = |start: usize| {
            let end = to.min(start + SHARED);
            let dirty =
                (start..end).step_by(PAGE).filter(|&at| is_touched(block.touched, at)).fold(0, |bits, at| {
                    let byte: *mut u8 = std::ptr::with_exposed_provenance_mut(address + at);
                    // One access, which writes: a read before a write is a fault of its own.
                    // SAFETY: the byte lies in a block that this worker has to itself (R2).
                    let before = unsafe { AtomicU8::from_ptr(byte) }.swap(1, Ordering::Relaxed);
                    bits | if zeroed { before } else { 0 }
                });
            if dirty != 0 {
                self.dirty.fetch_add(1, Ordering::Relaxed);
            }
        };
        if to.saturating_sub(from) >= 2 * SHARED {
            (from..to).step_by(SHARED).collect::<Vec<_>>().into_par_iter().for_each(part);
        } else {
            (from..to).step_by(SHARED).for_each(part);
        }
    }
}

/// Whether the page at an offset is one of those that were touched: parts are known by their bits, and within them as
/// many pages, evenly, as were resident.
fn is_touched(touched: Option<Touched>, at: usize) -> bool {
    let Some(Touched { resident, part, parts }) = touched.filter(|touched| touched.part > 0) else {
        return true;
    };
    let bit = (at as u64 / part).min(63);
    let inside = u64::from(parts.count_ones()).saturating_mul(part).max(1);
    let every = (inside / resident.max(1)).max(1);
    parts >> bit & 1 == 1 && ((at / PAGE) as u64).is_multiple_of(every)
}

/// Waits for what another worker is about to do.
fn wait(done: impl Fn() -> bool) {
    const SPINS: u32 = 1000;
    for _ in 0..SPINS {
        if done() {
            return;
        }
        spin_loop();
    }
    while !done() {
        thread::yield_now();
    }
}

/// What the recorded process had in memory besides large blocks: small objects, stacks, tables. Touched page by page as it was seen to grow.
struct Rest {
    /// How much there was from which time on, both ascending.
    seen: Vec<(u64, usize)>,
    /// Where that many bytes are mapped.
    address: usize,
    /// What of `seen` has been reached, and how much has been touched.
    reached: AtomicUsize,
    touched: AtomicUsize,
}

impl Rest {
    fn of(story: &Story) -> Result<Self, Error> {
        // Where nobody tells what lies in huge pages, the allocator's own word has to do.
        let told = story.samples.iter().any(|sample| sample.huge.is_some());
        let (mut most, mut huge, mut seen) = (0, 0, Vec::new());
        for sample in &story.samples {
            huge = sample.huge.unwrap_or(huge);
            // What is neither the allocator's nor in huge pages, which small objects never lie in.
            let rest = sample.anonymous.saturating_sub(sample.resident.max(huge));
            if let Ok(rest) = usize::try_from(rest)
                && rest > most
                && sample.huge.is_some() == told
            {
                most = rest;
                seen.push((sample.nanoseconds, rest));
            }
        }
        let address = small_pages(most.next_multiple_of(PAGE).max(PAGE))?;
        Ok(Self { seen, address, reached: AtomicUsize::new(0), touched: AtomicUsize::new(0) })
    }

    /// Touches what there was at a time. By whoever has the turn.
    fn reach(&self, nanoseconds: u64) {
        let mut index = self.reached.load(Ordering::Relaxed);
        let mut wanted = 0;
        while let Some(&(_, rest)) = self.seen.get(index).filter(|&&(when, _)| when <= nanoseconds) {
            wanted = rest;
            index += 1;
        }
        if wanted > 0 {
            self.reached.store(index, Ordering::Relaxed);
            for at in (self.touched.load(Ordering::Relaxed)..wanted).step_by(PAGE) {
                let byte: *mut u8 = std::ptr::with_exposed_provenance_mut(self.address + at);
                // SAFETY: a byte of a mapping that nothing else reads or writes, by one worker at a time (R1).
                unsafe { byte.write_volatile(1) };
            }
            self.touched.store(wanted.next_multiple_of(PAGE), Ordering::Relaxed);
        }
    }
}

/// Maps memory that never lies in huge pages; it stays until the process ends.
fn small_pages(len: usize) -> Result<usize, Error> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: maps a fresh range wherever the kernel likes, and gives advice about that range.
    unsafe {
        let p = libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0);
        if p == libc::MAP_FAILED {
            return Err(Error::new("no memory for what lay beside the blocks"));
        }
        // Where there are no huge pages it is refused, and right so.
        libc::madvise(p, len, libc::MADV_NOHUGEPAGE);
        Ok(p.expose_provenance())
    }
}

#[cfg(test)]
mod tests {
    use zk_nalloc_trace::{Block, Deed, Outcome, Sample, Step, Story, Touched};

    use super::{is_touched, replay};

    const BLOCK: Block = Block {
        taken: 0,
        freed: None,
        thread: 1,
        size: 1 << 20,
        size_first: 1 << 20,
        align_log2: 6,
        zeroed: false,
        fresh: 0,
        resized: 0,
        touched: None,
    };

    #[test]
    fn as_many_pages_are_touched_as_were() {
        let touched = |resident, parts| Some(Touched { resident, part: 2 << 20, parts });
        let count = |touched| (0..8 << 20).step_by(4096).filter(|&at| is_touched(touched, at)).count();
        assert_eq!(count(None), 2048);
        assert_eq!(count(Some(Touched { resident: 8 << 20, part: 0, parts: 0 })), 2048);
        assert_eq!(count(touched(4 << 20, 0b0101)), 1024);
        assert_eq!(count(touched(1 << 20, 0b0101)), 256);
        assert_eq!(count(touched(4096, 0b1000)), 1);
        assert_eq!(count(touched(0, 0)), 0);
    }

    #[test]
    fn a_story_is_told_again_to_the_byte() {
        let deeds = [
            (1, 0, Deed::Taken),
            (2, 1, Deed::Taken),
            (2, 0, Deed::Resized { from: 1 << 20, to: 5 << 20, outcome: Outcome::Copied }),
            (1, 1, Deed::Freed),
            (3, 2, Deed::Taken),
            (1, 0, Deed::Freed),
        ];
        let steps = deeds.into_iter().zip(1..).map(|((thread, block, deed), nanoseconds)| Step {
            nanoseconds,
            thread,
            block,
            deed,
            live: 0,
        });
        let sample = Sample { nanoseconds: 2, anonymous: 9 << 20, huge: Some(1 << 20), ..Sample::default() };
        let story = Story {
            blocks: vec![
                Block { size: 5 << 20, resized: 1, ..BLOCK },
                Block { zeroed: true, size: 40 << 20, size_first: 40 << 20, ..BLOCK },
                BLOCK,
            ],
            steps: steps.collect(),
            samples: vec![sample],
            ..Story::default()
        };
        let replayed = replay(&story).expect("it can be");
        assert_eq!((replayed.peak_live_bytes, replayed.refused), (45 << 20, 0));
        // Eight MiB beside the blocks, in small pages.
        assert!(replayed.minor_faults >= 2048, "{replayed:?}");
    }
}
