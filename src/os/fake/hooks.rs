//! What a test can set and ask of the fake kernel.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::space::{Access, Attributes, Owner, Vma};
use super::{Call, Fake, MoveFailure, PurgeFailure, RemapFailure, When};
use crate::os::{Facts, GRANULE, Huge, Room, Strain};

/// What foreign mappings are filled with.
pub(super) const FOREIGN_BYTE: u8 = 0xf7;

/// What fails.
impl Fake {
    /// Whether the whole range is mapped, by anybody.
    pub(crate) fn is_mapped(&self, addr: usize, len: usize) -> bool {
        self.state().space.covered(&(addr..addr + len), |_| true)
    }

    /// Makes calls fail: those of one kind, or with `None` of any kind that can fail. Plans add up.
    pub(crate) fn fail(&self, call: impl Into<Option<Call>>, when: When, errno: i32) {
        self.state().plans.add(call.into(), when, errno);
    }

    /// Drops all plans.
    pub(crate) fn fail_no_more(&self) {
        self.state().plans.clear();
    }

    /// Chooses what a failing move leaves behind.
    pub(crate) fn fail_moves_by(&self, failure: MoveFailure) {
        self.state().plans.moves = failure;
    }

    /// Chooses what a failing `heal` or `close` leaves behind.
    pub(crate) fn fail_remaps_by(&self, failure: RemapFailure) {
        self.state().plans.remaps = failure;
    }

    /// Chooses what a failing purge leaves behind.
    pub(crate) fn fail_purges_by(&self, failure: PurgeFailure) {
        self.state().plans.purges = failure;
    }

    /// Chooses whether a source of several VMAs is refused (`EFAULT`, the target unmapped), as by old kernels.
    pub(crate) fn refuse_moves_of_several_vmas(&self, refuse: bool) {
        self.state().facts.moves_several = !refuse;
    }

    /// Chooses whether it tells where VMAs end.
    pub(crate) fn hide_vmas(&self, hide: bool) {
        self.state().hides_vmas = hide;
    }

    /// Sets the number of VMAs beyond which calls that need more of them are refused.
    pub(crate) fn limit_vmas(&self, max: usize) {
        self.state().vmas_max = max;
    }

    /// Sets how much may be reserved and mapped in all, as `RLIMIT_AS` does.
    pub(crate) fn limit_mapped_bytes(&self, max: usize) {
        self.state().mapped_max = max;
    }
}

/// The host.
impl Fake {
    pub(crate) fn set_facts(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.state().facts);
    }

    pub(crate) fn set_room(&self, room: Option<Room>) {
        self.state().room = room;
    }

    /// The same of the limits on what the process maps.
    pub(crate) fn set_mapping_room(&self, room: Option<Room>) {
        self.state().mapping_room = room;
    }

    pub(crate) fn set_strain(&self, change: impl FnOnce(&mut Strain)) {
        change(&mut self.state().strain);
    }

    /// Chooses whether `resident` calls all memory absent, as if it had been swapped out.
    pub(crate) fn call_absent(&self, absent: bool) {
        self.state().calls_absent = absent;
    }

    /// Sets how many threads the process has: 64 at first.
    pub(crate) fn set_threads(&self, threads: Option<usize>) {
        self.state().threads = threads;
    }

    /// Counts page faults more: of the thread that asks next, and of others.
    pub(crate) fn add_faults(&self, own: u64, others: u64) {
        let mut state = self.state();
        let [before, all] = state.faults;
        state.faults = [before + own, all + own + others];
    }

    /// Sets how many bytes the process has in memory beside what was mapped here.
    pub(crate) fn set_beside(&self, bytes: Option<usize>) {
        self.state().beside = bytes;
    }

    /// Sets how many bytes of that the C library keeps free.
    #[cfg(test)]
    pub(crate) fn set_library_keeps(&self, bytes: usize) {
        self.state().library_keeps = bytes;
    }

    /// Whether the C library keeps the heaps of its threads.
    #[cfg(test)]
    pub(crate) fn library_keeps_heaps(&self) -> bool {
        self.state().library_keeps_heaps
    }

    /// Sets how many bytes of the process were in memory at most.
    #[cfg(test)]
    pub(crate) fn set_resident_max(&self, bytes: usize) {
        self.state().resident_max = bytes;
    }

    /// From here on this is the child of the process that it was.
    pub(crate) fn become_child(&self) {
        self.state().mark += 1;
    }

    /// Sets the environment, from `NAME=VALUE` entries.
    pub(crate) fn set_environment(&self, entries: &[&str]) {
        self.state().environment =
            entries.iter().flat_map(|e| [e.as_bytes(), b"\0"]).collect::<Vec<_>>().concat();
    }

    /// Puts the clock forward.
    pub(crate) fn pass(&self, nanoseconds: u64) {
        // Relaxed: as in `now`.
        self.0.clock.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// The name of the file that was opened, and what is in it.
    pub(crate) fn file(&self) -> (String, Vec<u8>) {
        self.state().file.clone()
    }

    /// Whether that file is open.
    pub(crate) fn file_is_open(&self) -> bool {
        self.state().file_is_open
    }

    /// The lines written to standard error so far; forgets them.
    pub(crate) fn said(&self) -> Vec<String> {
        std::mem::take(&mut self.state().said)
    }
}

/// What others do to the address space.
impl Fake {
    /// Another part of the program maps `len` bytes, at `addr` if that is given. Fails if they are not free.
    pub(crate) fn map_foreign(&self, addr: Option<usize>, len: usize) -> Option<usize> {
        let mut state = self.state();
        let start = addr.or_else(|| state.space.find(len, state.facts.page))?;
        let range = start..start + len;
        let bounds = state.space.bounds();
        if start < bounds.start || range.end > bounds.end || !state.space.empty(&range) {
            return None;
        }
        state.space.insert(&range, Attributes::FOREIGN);
        self.memory().fill(&range, FOREIGN_BYTE);
        Some(start)
    }

    /// Whether no foreign mapping has been written to.
    pub(crate) fn foreign_intact(&self) -> bool {
        let state = self.state();
        state
            .space
            .all()
            .filter(|vma| vma.attributes.owner == Owner::Foreign)
            .all(|vma| self.memory().is_all(&vma.range, FOREIGN_BYTE))
    }

    /// The user locks (`mlock`) or unlocks memory: purging and softening it fails.
    pub(crate) fn lock(&self, addr: usize, len: usize, locked: bool) {
        let page = self.state().facts.page;
        let range = addr / page * page..(addr + len).next_multiple_of(page);
        self.state().space.update(&range, |a| a.locked = locked);
    }

    /// Somebody touches every page of `addr..addr + len`: they are resident, with the content they have.
    pub(crate) fn touch(&self, addr: usize, len: usize) {
        self.memory().touch(&(addr / GRANULE * GRANULE..addr + len));
    }

    /// Makes resident at once what is about to be touched granule by granule; its content stays.
    pub(crate) fn populate(&self, addr: usize, len: usize) {
        self.memory().populate(&(addr..addr + len));
    }

    /// The kernel needs memory: takes every softened granule that `free` says is part of no block. Gives how many
    /// bytes it took. (Which pages have been written since is not seen, hence the question.)
    pub(crate) fn reclaim(&self, mut free: impl FnMut(usize) -> bool) -> usize {
        let mut state = self.state();
        let mut taken = 0;
        for range in state.softened.all().collect::<Vec<_>>() {
            let mut at = range.start;
            while at < range.end {
                // As much as is free in a row.
                let start = at;
                while at < range.end && free(at) {
                    at += GRANULE;
                }
                if at > start {
                    self.memory().drop_pages(&(start..at));
                    state.softened.remove(&(start..at));
                    taken += at - start;
                }
                at += GRANULE;
            }
        }
        taken
    }
}

/// Content that is kept in short.
impl Fake {
    /// Whether it is.
    pub(crate) fn is_in_short(&self) -> bool {
        self.memory().cells().is_some()
    }

    /// Writes a pattern over the granules that begin in a range.
    pub(crate) fn sow(&self, addr: usize, len: usize, seed: u64) {
        if let Some(cells) = self.memory().cells() {
            cells.sow(&(addr..addr + len), seed);
        }
    }

    /// Finds the first granule of a range that does not hold what was sown.
    pub(crate) fn find_other(&self, addr: usize, len: usize, seed: u64) -> Option<usize> {
        self.memory().cells()?.find_other(&(addr..addr + len), seed)
    }
}

/// Questions.
impl Fake {
    /// How often a call was made, failed or not.
    pub(crate) fn calls(&self, call: Call) -> usize {
        self.state().plans.count(call)
    }

    /// How many calls were made in all.
    pub(crate) fn calls_total(&self) -> usize {
        self.state().plans.total()
    }

    /// How many calls a plan made fail.
    pub(crate) fn calls_failed(&self) -> usize {
        self.state().plans.failed()
    }

    pub(crate) fn reset_calls(&self) {
        self.state().plans.reset_counts();
    }

    /// The VMAs that are ours, by address.
    pub(crate) fn vmas(&self) -> Vec<Vma> {
        self.state().space.all().filter(|vma| vma.attributes.owner == Owner::Ours).collect()
    }

    /// How many VMAs are ours.
    pub(crate) fn vma_count(&self) -> usize {
        self.vmas().len()
    }

    fn bytes(&self, wanted: impl Fn(&Attributes) -> bool) -> usize {
        self.vmas().iter().filter(|vma| wanted(&vma.attributes)).map(|vma| vma.range.len()).sum()
    }

    /// Bytes of ours, reserved or open.
    pub(crate) fn mapped_bytes(&self) -> usize {
        self.bytes(|_| true)
    }

    /// Bytes of ours that can be read and written.
    pub(crate) fn open_bytes(&self) -> usize {
        self.bytes(|a| a.access == Access::Open)
    }

    /// Bytes of ours that are resident: written since they were opened, purged or healed.
    pub(crate) fn resident_bytes(&self) -> usize {
        self.vmas().iter().map(|vma| self.memory().resident(&vma.range)).sum()
    }

    /// What is at an address of ours.
    pub(crate) fn at(&self, addr: usize) -> Option<Attributes> {
        self.vmas().into_iter().find(|vma| vma.range.contains(&addr)).map(|vma| vma.attributes)
    }

    /// Whether a whole range is ours and accessible, or ours and not.
    pub(crate) fn has_access(&self, addr: usize, len: usize, access: Access) -> bool {
        self.state().space.covered(&(addr..addr + len), |a| a.owner == Owner::Ours && a.access == access)
    }

    /// Whether a range of ours reads as zero. Looks at resident memory alone.
    pub(crate) fn is_zero(&self, addr: usize, len: usize) -> bool {
        self.memory().is_zero(&(addr..addr + len))
    }

    /// The huge-page advice at an address of ours.
    pub(crate) fn advice_at(&self, addr: usize) -> Option<Huge> {
        self.at(addr).map(|a| a.huge)
    }

    /// The ranges where plugging failed: they must not be touched.
    pub(crate) fn retired(&self) -> Vec<Range<usize>> {
        self.state().retired.all().collect()
    }

    /// The ranges that a failed call may have unmapped and that were not plugged.
    pub(crate) fn lost(&self) -> Vec<Range<usize>> {
        self.state().lost.all().collect()
    }
}
