//! The real kernel keeps to the contract, and the fake one counts VMAs as it does.

use super::*;
use crate::os::fake::Fake;
use crate::os::{CHUNK, GRANULE};
use crate::sync::Lock;
use crate::sync::process::Ordering;

fn put(addr: usize, byte: u8) {
    // SAFETY: an open byte of this test's own mapping.
    unsafe { ptr(addr).cast::<u8>().write_volatile(byte) }
}

fn get(addr: usize) -> u8 {
    // SAFETY: as in `put`.
    unsafe { ptr(addr).cast::<u8>().read_volatile() }
}

/// A reservation, unmapped at the end.
struct Mapping(usize, usize);

impl Mapping {
    fn reserved(len: usize) -> Self {
        Self(Linux.reserve(len, CHUNK).unwrap(), len)
    }

    fn opened(len: usize) -> Self {
        let mapping = Self::reserved(len);
        Linux.open(mapping.0, len).unwrap();
        mapping
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _ = Linux.unmap(self.0, self.1);
    }
}

#[test]
fn errno_stays_whatever_fails() {
    const MINE: i32 = 12_345;
    let set = |value| {
        // SAFETY: errno of this thread (O1).
        unsafe { *libc::__errno_location() = value }
    };
    let mapping = Mapping::reserved(CHUNK);
    // The first page of the address space: nobody's, and not to be had.
    let (nobodys, page) = (0, Linux.facts().page);
    let calls: [&dyn Fn() -> bool; 15] = [
        &|| Linux.reserve(usize::MAX / 2, CHUNK).is_err(),
        &|| Linux.map(1 << 56, GRANULE).is_err(),
        &|| Linux.open(nobodys, page).is_err(),
        &|| Linux.purge(nobodys, page).is_err(),
        &|| Linux.soften(nobodys, page).is_err(),
        &|| Linux.move_pages(nobodys, mapping.0, page).is_err(),
        &|| Linux.plug(mapping.0, page, Huge::Leave).is_err(),
        &|| !Linux.mapped(nobodys, page),
        &|| Linux.advise(nobodys, page, Huge::Advise).is_err(),
        &|| Linux.resident(nobodys, page).is_none(),
        &|| Linux.unmap(1, page).is_err(),
        &|| Linux.facts().page == page,
        &|| Linux.room(0).is_some(),
        &|| {
            Linux.environment(&mut |_| {});
            true
        },
        &|| {
            Linux.wait(&AtomicU32::new(0), 1);
            true
        },
    ];
    for (index, call) in calls.into_iter().enumerate() {
        set(MINE);
        assert!(call(), "call {index}");
        assert_eq!(errno(), MINE, "call {index}");
    }
}

#[test]
fn alignments_and_lengths() {
    for align in [GRANULE, 64 << 10, CHUNK, 1 << 30] {
        for len in [1, GRANULE, 3 * CHUNK + GRANULE] {
            let addr = Linux.map(len, align).unwrap();
            assert!(addr.is_multiple_of(align));
            put(addr + len - 1, 1);
            Linux.unmap(addr, len.next_multiple_of(GRANULE)).unwrap();
        }
    }
    for len in [0, usize::MAX, isize::MAX as usize + 1, isize::MAX as usize] {
        assert_eq!(Linux.reserve(len, CHUNK), Err(Errno(libc::ENOMEM)));
    }
    assert!(Linux.reserve(GRANULE, 1 << 62).is_err());
}

#[test]
fn zero_after_everything_that_promises_it() {
    let mapping = Mapping::opened(4 * CHUNK);
    let at = mapping.0;
    let dirty = || (put(at, 1), put(at + CHUNK - 1, 2));
    let zero = || (get(at), get(at + CHUNK - 1)) == (0, 0);
    assert!(zero());
    dirty();
    Linux.purge(at, CHUNK).unwrap();
    assert!(zero());
    dirty();
    Linux.close(at, CHUNK).unwrap();
    Linux.open(at, CHUNK).unwrap();
    assert!(zero());
    dirty();
    Linux.heal(at, CHUNK, Huge::Forbid).unwrap();
    assert!(zero());
    dirty();
    assert_eq!(Linux.resident(at, CHUNK), Some(2 * GRANULE));
    // From within one page, as a kernel of larger pages would see every range.
    assert_eq!(Linux.resident(at + 1, 1), Some(1));
    assert_eq!(Linux.resident(at + GRANULE - 1, 2), Some(1));
    assert_eq!(Linux.resident(at, 4 * CHUNK), Some(2 * GRANULE));
}

/// What `moves_several` says is what a block that grows relies on: where it is false, a refused move has taken nothing.
#[test]
fn a_move_of_two_vmas_is_done_or_takes_nothing_as_was_found_out() {
    let facts = Linux.facts();
    if !facts.moves && !facts.moves_unsafely {
        return eprintln!("skipped: this kernel moves no pages");
    }
    let mapping = Mapping::opened(4 * CHUNK);
    let (from, to) = (mapping.0, mapping.0 + 2 * CHUNK);
    Linux::madvise(from + CHUNK, CHUNK, libc::MADV_DONTDUMP).unwrap();
    put(from, 1);
    put(from + CHUNK, 2);
    let moved = Linux.move_pages(from, to, 2 * CHUNK).is_ok();
    assert_eq!(moved, facts.moves_several);
    let at = if moved { to } else { from };
    assert_eq!((get(at), get(at + CHUNK)), (1, 2));
    if !moved {
        // Its target may be somebody else's by now.
        std::mem::forget(mapping);
    }
}

#[test]
fn a_move_takes_the_pages_and_leaves_a_mapping() {
    if !Linux.facts().moves {
        return;
    }
    let mapping = Mapping::opened(4 * CHUNK);
    let (from, to) = (mapping.0, mapping.0 + 2 * CHUNK);
    put(from + 7, 7);
    put(to + 9, 9);
    Linux.move_pages(from, to, CHUNK).unwrap();
    assert_eq!((get(from + 7), get(to + 7), get(to + 9)), (0, 7, 0));
    assert!(Linux.mapped(from, 4 * CHUNK));
}

#[test]
fn a_plug_goes_into_a_hole_and_over_nothing() {
    let mapping = Mapping::opened(3 * CHUNK);
    let hole = mapping.0 + CHUNK;
    put(mapping.0, 1);
    assert_eq!(Linux.plug(mapping.0, CHUNK, Huge::Leave), Err(Errno(libc::EEXIST)));
    Linux.unmap(hole, CHUNK).unwrap();
    assert!(!Linux.mapped(mapping.0, 3 * CHUNK) && Linux.mapped(mapping.0, CHUNK));
    // No race here: nothing maps at a place of this size between two lines but by chance.
    assert_eq!(Linux.plug(hole - GRANULE, CHUNK, Huge::Leave), Err(Errno(libc::EEXIST)));
    assert_eq!(Linux.plug(hole, CHUNK, Huge::Leave), Ok(()));
    assert_eq!((get(mapping.0), get(hole)), (1, 0));
}

#[test]
fn the_lock_sleeps_and_wakes_on_the_real_futex() {
    let lock: Lock<usize> = Lock::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..500 {
                    let mut guard = lock.lock(&Linux);
                    *guard += 1;
                    if round % 50 == 0 {
                        std::thread::sleep(std::time::Duration::from_micros(200));
                    }
                }
            });
        }
    });
    assert_eq!(*lock.lock(&Linux), 2000);
}

#[test]
fn hooks_are_called_around_a_fork() {
    use std::sync::atomic::AtomicUsize;
    static CALLED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn prepare() {
        CALLED.fetch_add(1, Ordering::Relaxed);
    }
    extern "C" fn parent() {
        CALLED.fetch_add(10, Ordering::Relaxed);
    }
    extern "C" fn child() {
        CALLED.fetch_add(100, Ordering::Relaxed);
    }
    at_fork(prepare, parent, child).unwrap();
    let before = CALLED.load(Ordering::Relaxed);
    // SAFETY: the child only exits.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit((CALLED.load(Ordering::Relaxed) - before) as i32);
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        status
    };
    // At least: other tests fork too.
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) >= 101);
    assert!(CALLED.load(Ordering::Relaxed) - before >= 11);
}

/// The first allocation may be made by a thread with the smallest of stacks.
#[test]
fn everything_fits_on_a_small_stack() {
    const STACK: usize = if cfg!(debug_assertions) { 48 << 10 } else { 24 << 10 };
    let ask = || {
        let settings = crate::os::settings(&crate::Config::new(), &Linux, &crate::os::Reported::new());
        (settings, Linux.facts(), Linux.room(0).is_some(), Linux.resident(0, GRANULE))
    };
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(ask).unwrap();
    assert!(thread.join().is_ok());
}

/// How many VMAs lie in a range.
fn vmas(range: core::ops::Range<usize>) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ends = maps.lines().filter_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
    });
    ends.filter(|&(start, end)| start < range.end && range.start < end).count()
}

/// Does the same to both kernels, and compares the number of VMAs after each step.
#[test]
fn the_fake_kernel_counts_vmas_as_linux_does() {
    const CHUNKS: usize = 24;
    if !Linux.facts().moves {
        return;
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |n: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random >> 33).unwrap() % n
    };
    // What the fake kernel leaves out (see its address space) costs Linux a VMA more here and there.
    const MORE: usize = 8;
    for _ in 0..40 {
        let mapping = Mapping::reserved((CHUNKS + 1) * CHUNK);
        let fake = Fake::new((CHUNKS + 1) * CHUNK);
        let base = fake.reserve((CHUNKS + 1) * CHUNK, CHUNK).unwrap();
        let at = |chunk: usize| (mapping.0 + chunk * CHUNK, base + chunk * CHUNK);
        assert!(Linux.open(at(0).0, CHUNKS * CHUNK).is_ok() && fake.open(base, CHUNKS * CHUNK).is_ok());
        put(mapping.0, 1);
        for _ in 0..60 {
            let len = 1 + below(4);
            let chunk = below(CHUNKS - len);
            let (real, model) = at(chunk);
            let len_bytes = len * CHUNK;
            match below(6) {
                0..=2 => {
                    let target = below(CHUNKS - len);
                    if target.abs_diff(chunk) < len {
                        continue;
                    }
                    // Faulted, as the fake kernel takes everything to be.
                    (chunk..chunk + len).for_each(|c| put(at(c).0, 1));
                    let moved = Linux.move_pages(real, at(target).0, len_bytes);
                    if moved == Err(Errno(libc::EFAULT)) {
                        // A kernel that moves one VMA at a time: there is a hole now.
                        break;
                    }
                    assert_eq!(moved, Ok(()));
                    fake.move_pages(model, at(target).1, len_bytes).unwrap();
                }
                3 => {
                    let huge = [Huge::Advise, Huge::Forbid][below(2)];
                    assert!(
                        Linux.heal(real, len_bytes, huge).is_ok()
                            && fake.heal(model, len_bytes, huge).is_ok()
                    );
                }
                4 => assert!(Linux.purge(real, len_bytes).is_ok() && fake.purge(model, len_bytes).is_ok()),
                _ => {
                    let huge = [Huge::Advise, Huge::Forbid][below(2)];
                    assert!(
                        Linux.advise(real, len_bytes, huge).is_ok()
                            && fake.advise(model, len_bytes, huge).is_ok()
                    );
                }
            }
            let (real, model) = (vmas(mapping.0..mapping.0 + (CHUNKS + 1) * CHUNK), fake.vma_count());
            assert!(
                (model..model + MORE).contains(&real),
                "{real} VMAs of Linux, {model} of the fake kernel"
            );
        }
    }
}

#[test]
fn the_end_of_a_thread_is_told_with_its_last_number() {
    static KEY: ThreadKey = ThreadKey::new(0);
    static TOLD: Lock<Vec<usize>> = Lock::new(Vec::new());
    extern "C" fn ended(number: *mut core::ffi::c_void) {
        TOLD.lock(&Linux).push(number.addr());
    }
    fn life(numbers: &[usize]) {
        for &number in numbers {
            at_thread_end(&KEY, ended, number).unwrap();
        }
        assert!(TOLD.lock(&Linux).iter().all(|told| !numbers.contains(told)), "it has not ended");
    }
    for numbers in [&[1][..], &[2, 3], &[]] {
        // A scope would wait for what a thread does, and not for its end.
        std::thread::spawn(move || life(numbers)).join().unwrap();
    }
    assert_eq!(*TOLD.lock(&Linux), [1, 3]);
    forget_thread_ends(&KEY);
    assert!(at_thread_end(&KEY, ended, 4).is_err());
    forget_thread_ends(&KEY);
}
