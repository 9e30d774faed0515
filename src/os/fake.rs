//! A kernel for tests: it keeps to the contract of [`Os`], and holds the page heap to its side of it.
//!
//! What it is: an address space over ordinary memory that counts every call, fails the ones a test names, has
//! a clock, a host and an environment to set, and knows of every range whether it is ours. Why: the real kernel
//! refuses only what it happens to refuse, forgives what it should not, and does not say how many VMAs it has.
//!
//! Invariants: a call that breaks the contract (memory that is not ours, ranges that overlap, a retired range
//! touched) panics with the call and its range before anything happens; memory behaves as under Linux. What a
//! test can set and ask is in `hooks`, how calls fail in `plan`, the calls themselves in `calls`.
//! Never here: a stricter contract than the one that `Os` states.

mod calls;
mod cells;
mod hooks;
mod memory;
mod plan;
mod space;
#[cfg(all(test, not(loom)))]
mod tests;

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use plan::{Call, MoveFailure, PurgeFailure, RemapFailure, When};
pub(crate) use space::{Access, Attributes, Owner};

use super::{CHUNK, Facts, Huge, HugeMode, NOTHING_DONE, Outcome, Room, Strain, Vendor};
use crate::error::Errno;
use memory::Memory;
use plan::Plans;
use space::{Ranges, Space};

/// What a call may be made to fail with.
pub(crate) mod errno {
    pub(crate) use libc::ENOMEM;
    #[cfg(test)]
    pub(crate) use libc::{EACCES, ENOSPC};
    #[cfg(all(test, not(loom)))]
    pub(crate) use libc::{EAGAIN, EEXIST, EINVAL};
}

/// A fake kernel. Clones are the same kernel.
#[derive(Clone, Debug)]
pub(crate) struct Fake(Arc<Kernel>);

#[derive(Debug)]
struct Kernel {
    memory: Memory,
    clock: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    space: Space,
    plans: Plans,
    /// Where a move or a remap failed: nothing may be done to it but plugging it.
    lost: Ranges,
    /// Where plugging failed: not ours any more.
    retired: Ranges,
    softened: Ranges,
    facts: Facts,
    room: Option<Room>,
    /// Of the limits on what is mapped.
    mapping_room: Option<Room>,
    strain: Strain,
    environment: Vec<u8>,
    said: Vec<String>,
    /// The name of the one file, and what is in it.
    file: (String, Vec<u8>),
    file_is_open: bool,
    vmas_max: usize,
    mapped_max: usize,
    /// Does not tell where VMAs end, as where no descriptor is left.
    hides_vmas: bool,
    /// Calls all memory absent.
    calls_absent: bool,
    /// Bytes of the process that are in memory and were not mapped by this kernel's user, where that is told.
    beside: Option<usize>,
    /// Page faults: of the thread that asks, whichever, and of all.
    faults: [u64; 2],
    threads: Option<usize>,
    /// Bytes of that which the C library keeps free.
    library_keeps: usize,
    /// Whether it keeps the heaps of its threads.
    library_keeps_heaps: bool,
    /// The most bytes of the process that were in memory.
    resident_max: usize,
    /// Differs from process to process.
    mark: u64,
}

impl Fake {
    /// A kernel with `len` bytes of address space, of which no page is resident yet, on a quiet host of four CPUs
    /// with everything that Linux offers. Addresses start at a multiple of `len` rounded up to a power of two, or
    /// of a GiB if that is less.
    pub(crate) fn new(len: usize) -> Self {
        Self::over(Memory::new(len, Self::align(len)))
    }

    /// The same with the content of its memory kept in short, a word for a granule: for what goes through the calls
    /// alone. Its addresses start at `start` if they can.
    pub(crate) fn in_short(len: usize, start: usize) -> Self {
        Self::over(Memory::in_short(len, Self::align(len), start))
    }

    fn align(len: usize) -> usize {
        len.next_power_of_two().clamp(CHUNK, 1 << 30)
    }

    fn over(memory: Memory) -> Self {
        let facts = Facts {
            page: 4 << 10,
            huge_page: CHUNK,
            huge_mode: HugeMode::Madvise,
            ram: 64 << 20,
            cpus: 4,
            quota: None,
            l1_ways: 8,
            vendor: Vendor::Other,
            moves: true,
            moves_unsafely: false,
            moves_several: true,
            residency: true,
            soften: true,
        };
        let state = State {
            space: Space::new(memory.range()),
            plans: Plans::default(),
            lost: Ranges::default(),
            retired: Ranges::default(),
            softened: Ranges::default(),
            facts,
            room: None,
            mapping_room: None,
            strain: Strain { stalled: [Some(0); 2], hits: Some(0), swapped: Some(0) },
            environment: Vec::new(),
            said: Vec::new(),
            file: Default::default(),
            file_is_open: false,
            vmas_max: 65_530,
            mapped_max: usize::MAX,
            hides_vmas: false,
            calls_absent: false,
            beside: None,
            faults: [0; 2],
            threads: Some(64),
            library_keeps: 0,
            library_keeps_heaps: false,
            resident_max: 0,
            mark: 1,
        };
        Self(Arc::new(Kernel { memory, clock: AtomicU64::new(0), state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A violation panics with the lock held; what the kernel knows is whole even then.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// Maps anywhere.
    fn place(&self, call: Call, len: usize, align: usize, access: Access) -> Result<usize, Errno> {
        let mut state = self.state();
        if !align.is_power_of_two() || align < super::GRANULE {
            violation(
                call,
                &(0..len),
                &format!("alignment {align:#x} is no power of two of at least a granule"),
            );
        }
        if let Some(errno) = state.plans.begin(call) {
            return Err(errno);
        }
        let page = state.facts.page;
        // The kernel rounds a length up to its page.
        let len = len.checked_next_multiple_of(page).filter(|&len| len > 0).ok_or(Errno(libc::ENOMEM))?;
        let mapped: usize = state.space.all().map(|vma| vma.range.len()).sum();
        if mapped.saturating_add(len) > state.mapped_max || state.space.count() >= state.vmas_max {
            return Err(Errno(libc::ENOMEM));
        }
        let start = state.space.find(len, align.max(page)).ok_or(Errno(libc::ENOMEM))?;
        let range = start..start + len;
        // What was retired and is unmapped again may be handed out again: it is ours anew.
        state.retired.remove(&range);
        state.space.insert(&range, Attributes::fresh(access, Huge::Leave));
        Ok(start)
    }

    /// The unlucky end of a call that unmaps and then fails.
    fn lose(&self, state: &mut State, range: &Range<usize>) {
        state.space.remove(range);
        state.softened.remove(range);
        self.memory().drop_pages(range);
        state.lost.insert(range);
    }

    /// Maps afresh over a range of ours.
    fn remap(&self, call: Call, range: &Range<usize>, attributes: Attributes) -> Outcome {
        let mut state = self.state();
        if let Err(errno) = state.begin(call, range) {
            match state.plans.remaps {
                _ if errno == NOTHING_DONE => {}
                RemapFailure::Unmaps => self.lose(&mut state, range),
                RemapFailure::Clean => state.lost.insert(range),
            }
            return Err(errno);
        }
        self.memory().drop_pages(range);
        state.softened.remove(range);
        state.space.insert(range, attributes);
        Ok(())
    }

    /// Moves a source that may be moved, its target unmapped before.
    fn carry(&self, state: &mut State, from: &Range<usize>, to: usize) {
        let target = to..to + from.len();
        state.space.remove(&target);
        state.softened.remove(&target);
        self.memory().drop_pages(&target);
        self.memory().copy(from, to);
        self.memory().drop_pages(from);
        let distance = from.start.wrapping_sub(to).cast_signed();
        let at = |addr: usize| addr - from.start + to;
        for vma in state.space.pieces(from).collect::<Vec<_>>() {
            let moved = Attributes { shift: vma.attributes.shift + distance, ..vma.attributes };
            state.space.insert(&(at(vma.range.start)..at(vma.range.end)), moved);
        }
        for soft in state
            .softened
            .all()
            .filter(|soft| soft.start < from.end && soft.end > from.start)
            .collect::<Vec<_>>()
        {
            state.softened.insert(&(at(soft.start.max(from.start))..at(soft.end.min(from.end))));
        }
        state.softened.remove(from);
    }

    /// Leaves of a failing move what the plan says.
    fn fail_move(&self, state: &mut State, from: &Range<usize>, target: &Range<usize>) {
        let first = state.space.pieces(from).next().map_or(0..0, |vma| vma.range);
        match state.plans.moves {
            MoveFailure::Clean => state.lost.insert(target),
            MoveFailure::MovesFirstPart if first.len() < from.len() => {
                self.carry(state, &first, target.start);
                let rest = target.start + first.len()..target.end;
                self.lose(state, &rest);
                state.lost.insert(target);
            }
            MoveFailure::UnmapsTarget | MoveFailure::MovesFirstPart => self.lose(state, target),
            MoveFailure::LetsForeignIn => {
                self.lose(state, target);
                let page = state.facts.page;
                let middle = (target.start + target.len() / 2) / page * page;
                state.space.insert(&(middle..middle + page), Attributes::FOREIGN);
                self.memory().fill(&(middle..middle + page), hooks::FOREIGN_BYTE);
            }
        }
    }
}

/// The caller broke the contract.
fn violation(call: Call, range: &Range<usize>, what: &str) -> ! {
    panic!("fake kernel: {call:?}({:#x}..{:#x}): {what}", range.start, range.end);
}

impl State {
    /// Checks a range that a call is about: whole pages, all ours, none of it lost or retired.
    fn check(&self, call: Call, range: &Range<usize>, accept: impl Fn(&Attributes) -> bool, what: &str) {
        let page = self.facts.page;
        if range.is_empty() || !range.start.is_multiple_of(page) || !range.len().is_multiple_of(page) {
            violation(call, range, &format!("not whole pages of {page} bytes"));
        }
        if self.retired.touches(range) {
            violation(call, range, "touches a range that was retired for ever");
        }
        if self.lost.touches(range) {
            violation(call, range, "touches a range that was lost to a failed call and not plugged");
        }
        if !self.space.covered(range, |a| a.owner == Owner::Ours) {
            violation(call, range, "is not ours, whole");
        }
        if !self.space.covered(range, accept) {
            violation(call, range, what);
        }
    }

    /// Counts a call, and fails it if a plan or the number of VMAs says so.
    fn begin(&mut self, call: Call, range: &Range<usize>) -> Outcome {
        if let Some(errno) = self.plans.begin(call) {
            return Err(errno);
        }
        if self.space.count() + self.space.splits(range) > self.vmas_max {
            return Err(Errno(libc::ENOMEM));
        }
        Ok(())
    }
}
