//! The calls of the fake kernel: check the caller's side, count, fail if that is the plan, else do it.

use std::sync::atomic::Ordering;

use super::space::{Access, Attributes};
use super::{Call, Fake, PurgeFailure, violation};
use crate::error::Errno;
use crate::os::{CHUNK, Facts, GRANULE, Huge, Linux, Os, Outcome, Output, Room, Strain};
use crate::sync::{Park, atomic::AtomicU32};

const fn is_open(a: &Attributes) -> bool {
    matches!(a.access, Access::Open)
}

const fn is_reserved(a: &Attributes) -> bool {
    matches!(a.access, Access::Reserved)
}

fn is_any(_: &Attributes) -> bool {
    true
}

impl Park for Fake {
    fn nap(&self) {
        #[cfg(not(all(test, loom)))]
        std::thread::yield_now();
        #[cfg(all(test, loom))]
        loom::thread::yield_now();
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        let _ = self.state().plans.begin(Call::Wait);
        // Under loom no thread sleeps in the kernel: waking for no reason is allowed.
        if cfg!(all(test, loom)) {
            return self.nap();
        }
        Linux.wait(word, expected);
    }

    fn wake_one(&self, word: &AtomicU32) {
        let _ = self.state().plans.begin(Call::Wake);
        if !cfg!(all(test, loom)) {
            Linux.wake_one(word);
        }
    }
}

impl Os for Fake {
    fn facts(&self) -> Facts {
        self.state().facts
    }

    fn strain(&self) -> Strain {
        self.state().strain
    }

    fn host_room(&self) -> Option<Room> {
        self.state().room
    }

    fn mapping_room(&self, _: usize) -> Option<Room> {
        self.state().mapping_room
    }

    fn rooms(&self, _: usize) -> (Option<Room>, Option<usize>) {
        let mut state = self.state();
        let _ = state.plans.begin(Call::Room);
        (state.room, state.room.map(|room| room.left))
    }

    fn reserve(&self, len: usize, align: usize) -> Result<usize, Errno> {
        self.place(Call::Reserve, len, align, Access::Reserved)
    }

    fn map(&self, len: usize, align: usize) -> Result<usize, Errno> {
        self.place(Call::Map, len, align, Access::Open)
    }

    fn open(&self, addr: usize, len: usize) -> Outcome {
        let range = addr..addr + len;
        let mut state = self.state();
        state.check(Call::Open, &range, is_reserved, "is open already");
        state.begin(Call::Open, &range)?;
        state.space.update(&range, |a| a.access = Access::Open);
        Ok(())
    }

    fn close(&self, addr: usize, len: usize) -> Outcome {
        let range = addr..addr + len;
        self.state().check(Call::Close, &range, is_open, "is not open");
        self.remap(Call::Close, &range, Attributes::fresh(Access::Reserved, Huge::Leave))
    }

    fn unmap(&self, addr: usize, len: usize) -> Outcome {
        let range = addr..addr + len;
        let mut state = self.state();
        state.check(Call::Unmap, &range, is_any, "");
        state.begin(Call::Unmap, &range)?;
        state.space.remove(&range);
        state.softened.remove(&range);
        self.memory().unmap(&range);
        Ok(())
    }

    fn purge(&self, addr: usize, len: usize) -> Outcome {
        let range = addr..addr + len;
        let mut state = self.state();
        state.check(Call::Purge, &range, is_open, "is not open");
        let locked = !state.space.covered(&range, |a| !a.locked);
        // Dropping pages splits no VMA.
        if let Some(errno) = state.plans.begin(Call::Purge).or(locked.then_some(Errno(libc::EINVAL))) {
            if state.plans.purges == PurgeFailure::Halfway {
                let page = state.facts.page;
                self.memory().drop_pages(&(addr..addr + len / 2 / page * page));
            }
            return Err(errno);
        }
        state.softened.remove(&range);
        self.memory().drop_pages(&range);
        Ok(())
    }

    fn soften(&self, addr: usize, len: usize) -> Outcome {
        let range = addr..addr + len;
        let mut state = self.state();
        state.check(Call::Soften, &range, is_open, "is not open");
        let refused = !state.facts.soften || !state.space.covered(&range, |a| !a.locked);
        if let Some(errno) = state.plans.begin(Call::Soften).or(refused.then_some(Errno(libc::EINVAL))) {
            return Err(errno);
        }
        state.softened.insert(&range);
        Ok(())
    }

    fn heal(&self, addr: usize, len: usize, huge: Huge) -> Outcome {
        let range = addr..addr + len;
        self.state().check(Call::Heal, &range, is_open, "is not open");
        self.remap(Call::Heal, &range, Attributes::fresh(Access::Open, huge))
    }

    fn move_pages(&self, from: usize, to: usize, len: usize) -> Outcome {
        let (source, target) = (from..from + len, to..to + len);
        let mut state = self.state();
        state.check(Call::Move, &source, is_open, "is not open");
        state.check(Call::Move, &target, is_any, "");
        if !from.is_multiple_of(CHUNK) || !to.is_multiple_of(CHUNK) || !len.is_multiple_of(CHUNK) {
            violation(Call::Move, &source, &format!("to {to:#x}: not whole chunks"));
        }
        if source.start < target.end && target.start < source.end {
            violation(Call::Move, &source, &format!("to {to:#x}: the ranges overlap"));
        }
        let planned = state.plans.begin(Call::Move);
        // mremap leaves itself room for the splits of both ends (mm/mremap.c); nothing has happened by then.
        if planned.is_none() && state.space.count() + 3 >= state.vmas_max {
            state.lost.insert(&target);
            return Err(Errno(libc::ENOMEM));
        }
        if let Some(errno) =
            planned.or((!state.facts.moves && !state.facts.moves_unsafely).then_some(Errno(libc::EINVAL)))
        {
            self.fail_move(&mut state, &source, &target);
            return Err(errno);
        }
        if !state.facts.moves_several && state.space.pieces(&source).count() > 1 {
            self.lose(&mut state, &target);
            return Err(Errno(libc::EFAULT));
        }
        self.carry(&mut state, &source, to);
        Ok(())
    }

    fn plug(&self, addr: usize, len: usize, huge: Huge) -> Outcome {
        let range = addr..addr + len;
        let mut state = self.state();
        if state.retired.touches(&range) {
            violation(Call::Plug, &range, "touches a range that was retired for ever");
        }
        if !state.lost.holds(&range) {
            violation(Call::Plug, &range, "was not lost to a failed call");
        }
        let taken = (!state.space.empty(&range)).then_some(Errno(libc::EEXIST));
        let failure = state.plans.begin(Call::Plug).or(taken);
        state.lost.remove(&range);
        if let Some(errno) = failure {
            state.retired.insert(&range);
            return Err(errno);
        }
        state.space.insert(&range, Attributes::fresh(Access::Open, huge));
        Ok(())
    }

    fn has_mappings_left(&self) -> bool {
        let state = self.state();
        state.space.count() + 3 <= state.vmas_max
    }

    fn vma_end(&self, addr: usize) -> Option<usize> {
        let mut state = self.state();
        let _ = state.plans.begin(Call::VmaEnd);
        if state.hides_vmas {
            return None;
        }
        state.space.pieces(&(addr..addr + 1)).next()?;
        state.space.all().map(|vma| vma.range).find(|r| r.contains(&addr)).map(|r| r.end)
    }

    fn thread(&self) -> u64 {
        Linux.thread()
    }

    fn advise(&self, addr: usize, len: usize, huge: Huge) -> Outcome {
        let range = addr..addr + len;
        let mut state = self.state();
        state.check(Call::Advise, &range, is_any, "");
        state.begin(Call::Advise, &range)?;
        if huge != Huge::Leave {
            state.space.update(&range, |a| a.huge = huge);
        }
        Ok(())
    }

    fn resident(&self, addr: usize, len: usize) -> Option<usize> {
        let range = addr..addr + len;
        let mut state = self.state();
        state.check(Call::Resident, &range, is_any, "");
        if state.plans.begin(Call::Resident).is_some() {
            return None;
        }
        if state.calls_absent {
            return Some(0);
        }
        Some(if state.facts.residency { self.memory().resident(&range) } else { len })
    }

    fn zero(&self, addr: usize, len: usize) {
        self.memory().zero(&(addr..addr + len));
    }

    fn copy(&self, from: usize, to: usize, len: usize) {
        self.memory().copy_bytes(&(from..from + len), to);
    }

    fn is_zero(&self, addr: usize) -> bool {
        match self.memory().cells() {
            Some(cells) => cells.is_all(&(addr..addr + GRANULE), 0),
            None => Linux.is_zero(addr),
        }
    }

    fn wipe(&self, addr: usize, len: usize) {
        match self.memory().cells() {
            Some(_) => self.zero(addr, len),
            None => Linux.wipe(addr, len),
        }
    }

    fn wait_for(&self, word: &AtomicU32, expected: u32, nanoseconds: u64) {
        Linux.wait_for(word, expected, nanoseconds);
    }

    fn environment(&self, each: &mut dyn FnMut(&[u8])) {
        let environment = self.state().environment.clone();
        each(&environment);
    }

    fn trim_library(&self) {
        let mut state = self.state();
        let _ = state.plans.begin(Call::TrimLibrary);
        let kept = core::mem::take(&mut state.library_keeps);
        state.beside = state.beside.map(|beside| beside - kept);
    }

    fn keep_library_heaps(&self, keeps: bool) {
        let mut state = self.state();
        let _ = state.plans.begin(Call::KeepLibraryHeaps);
        state.library_keeps_heaps = keeps;
    }

    fn anonymous(&self) -> Option<usize> {
        let mut state = self.state();
        let _ = state.plans.begin(Call::Anonymous);
        let beside = state.beside?;
        drop(state);
        Some(beside + self.resident_bytes())
    }

    fn resident_max(&self) -> usize {
        self.state().resident_max
    }

    fn process(&self) -> u32 {
        4021
    }

    fn mark(&self) -> u64 {
        self.state().mark
    }

    fn faults(&self) -> u64 {
        self.state().faults[1]
    }

    fn threads(&self) -> Option<usize> {
        self.state().threads
    }

    fn own_faults(&self) -> u64 {
        self.state().faults[0]
    }

    fn create(&self, path: &std::ffi::CStr) -> Result<Output, Errno> {
        let mut state = self.state();
        if let Some(errno) = state.plans.begin(Call::Create) {
            return Err(errno);
        }
        state.file = (path.to_str().expect("a test's path is text").to_owned(), Vec::new());
        state.file_is_open = true;
        Ok(Output { descriptor: 3, device: 1, inode: 2 })
    }

    fn give_up(&self, file: &Output) {
        assert_eq!(file.descriptor, 3, "the one file");
        self.state().file_is_open = false;
    }

    fn write_at(&self, file: &Output, at: u64, address: usize, len: usize) -> Outcome {
        assert_eq!(file.descriptor, 3, "the one file");
        let mut state = self.state();
        if let Some(errno) = state.plans.begin(Call::Write) {
            return Err(errno);
        }
        let at = usize::try_from(at).expect("a short file");
        let bytes = &mut state.file.1;
        bytes.resize(bytes.len().max(at + len), 0);
        bytes[at..at + len].copy_from_slice(&super::memory::bytes(address, len));
        Ok(())
    }

    fn now(&self) -> u64 {
        // Relaxed: a number; tests that need an order have one of their own.
        self.0.clock.load(Ordering::Relaxed)
    }

    fn say(&self, parts: &[&str]) {
        self.state().said.push(parts.concat());
    }
}
