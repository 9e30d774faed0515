//! The fake kernel keeps to the contract, and its callers.

#![expect(unsafe_code, reason = "reads and writes the memory under test")]

use std::ops::Range;

use super::{Access, Call, Fake, MoveFailure, PurgeFailure, RemapFailure, When};
use crate::error::Errno;
use crate::os::{CHUNK, GRANULE, Huge, Os, Outcome};

const SPACE: usize = 64 << 20;

fn put(addr: usize, byte: u8) {
    // SAFETY: an open byte of the fake kernel, used by this test alone.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(addr).write(byte) }
}

fn get(addr: usize) -> u8 {
    // SAFETY: as in `put`.
    unsafe { std::ptr::with_exposed_provenance::<u8>(addr).read() }
}

/// A kernel with `chunks` open chunks at the start of a reservation of all its space.
fn opened(chunks: usize) -> (Fake, usize) {
    let os = Fake::new(SPACE);
    let base = os.reserve(SPACE, CHUNK).unwrap();
    os.open(base, chunks * CHUNK).unwrap();
    (os, base)
}

fn only(range: Range<usize>) -> Vec<Range<usize>> {
    std::iter::once(range).collect()
}

fn refused<R: std::fmt::Debug>(call: impl FnOnce() -> R) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn a_reservation_opens_in_steps_of_one_vma() {
    let (os, base) = opened(2);
    assert_eq!(os.vma_count(), 2);
    os.open(base + 2 * CHUNK, CHUNK).unwrap();
    assert_eq!((os.vma_count(), os.open_bytes(), os.mapped_bytes()), (2, 3 * CHUNK, SPACE));
    os.close(base + CHUNK, CHUNK).unwrap();
    assert_eq!(os.vma_count(), 4);
    os.close(base, CHUNK).unwrap();
    os.close(base + 2 * CHUNK, CHUNK).unwrap();
    assert_eq!((os.vma_count(), os.open_bytes()), (1, 0));
    os.unmap(base, SPACE).unwrap();
    assert_eq!(os.mapped_bytes(), 0);
}

#[test]
fn addresses_are_aligned_and_full_is_full() {
    let os = Fake::new(SPACE);
    let small = os.map(1, GRANULE).unwrap();
    let large = os.reserve(CHUNK, 16 << 20).unwrap();
    assert!(large.is_multiple_of(16 << 20) && large != small);
    assert_eq!(os.reserve(SPACE, CHUNK), Err(Errno(libc::ENOMEM)));
    os.limit_mapped_bytes(os.mapped_bytes() + GRANULE);
    assert_eq!(os.map(2 * GRANULE, GRANULE), Err(Errno(libc::ENOMEM)));
    assert!(os.map(GRANULE, GRANULE).is_ok());
    assert!(refused(|| os.reserve(CHUNK, 3 << 20)).contains("no power of two"));
}

#[test]
fn memory_is_what_was_written_until_it_is_purged() {
    let (os, base) = opened(2);
    assert_eq!(os.resident_bytes(), 0);
    put(base + 5, 1);
    put(base + CHUNK, 2);
    assert_eq!(os.resident_bytes(), 2 * GRANULE);
    assert_eq!(os.resident(base, CHUNK), Some(GRANULE));
    os.purge(base, CHUNK).unwrap();
    assert_eq!((get(base + 5), get(base + CHUNK)), (0, 2));
    os.close(base + CHUNK, CHUNK).unwrap();
    os.open(base + CHUNK, CHUNK).unwrap();
    assert_eq!(get(base + CHUNK), 0);
    os.touch(base, CHUNK);
    assert_eq!(os.resident(base, CHUNK), Some(CHUNK));
}

#[test]
fn a_move_takes_content_and_leaves_zeros_and_a_foreign_offset() {
    let (os, base) = opened(8);
    let target = base + 4 * CHUNK;
    put(base + 7, 7);
    put(target + 9, 9);
    os.soften(base, GRANULE).unwrap();
    os.move_pages(base, target, 2 * CHUNK).unwrap();
    assert_eq!((get(base + 7), get(target + 7), get(target + 9)), (0, 7, 0));
    assert_eq!(os.vma_count(), 4);
    assert_eq!(os.at(target).unwrap().shift, -4 * CHUNK.cast_signed());
    // The softened page went along.
    assert_eq!(os.reclaim(|_| true), GRANULE);
    assert_eq!(get(target + 7), 0);
    // Purging heals nothing, mapping afresh does.
    os.purge(target, 2 * CHUNK).unwrap();
    assert_eq!(os.vma_count(), 4);
    os.heal(target, 2 * CHUNK, Huge::Leave).unwrap();
    assert_eq!(os.vma_count(), 2);
}

#[test]
fn pages_that_come_home_merge_again() {
    let (os, base) = opened(8);
    os.move_pages(base, base + 4 * CHUNK, CHUNK).unwrap();
    os.move_pages(base + CHUNK, base + 5 * CHUNK, CHUNK).unwrap();
    // The two moved by the same distance are one.
    assert_eq!(os.vma_count(), 4);
    os.move_pages(base + 4 * CHUNK, base, CHUNK).unwrap();
    assert_eq!(os.vma_count(), 4);
    os.move_pages(base + CHUNK, base + 4 * CHUNK, CHUNK).unwrap();
    // The two moved by different distances are not.
    assert_eq!((os.vma_count(), os.at(base).unwrap().shift), (5, 0));
}

#[test]
fn advice_splits_and_merges() {
    let (os, base) = opened(4);
    os.advise(base, SPACE, Huge::Advise).unwrap();
    assert_eq!(os.vma_count(), 2);
    os.advise(base + CHUNK, CHUNK, Huge::Forbid).unwrap();
    assert_eq!((os.vma_count(), os.advice_at(base + CHUNK)), (4, Some(Huge::Forbid)));
    os.heal(base + CHUNK, CHUNK, Huge::Advise).unwrap();
    assert_eq!(os.vma_count(), 2);
    // A closed range has lost its advice.
    os.close(base, 4 * CHUNK).unwrap();
    assert_eq!((os.vma_count(), os.advice_at(base)), (2, Some(Huge::Leave)));
}

#[test]
fn calls_are_counted_and_fail_as_planned() {
    let (os, base) = opened(4);
    os.reset_calls();
    os.fail(Call::Purge, When::Nth(2), libc::EINVAL);
    os.fail(Call::Soften, When::Every(2), libc::EAGAIN);
    let purges: Vec<_> = (0..4).map(|_| os.purge(base, CHUNK).is_ok()).collect();
    let softs: Vec<_> = (0..4).map(|_| os.soften(base, CHUNK)).collect();
    assert_eq!(purges, [true, false, true, true]);
    assert_eq!(softs, [Ok(()), Err(Errno(libc::EAGAIN)), Ok(()), Err(Errno(libc::EAGAIN))]);
    assert_eq!((os.calls(Call::Purge), os.calls_total(), os.calls_failed()), (4, 8, 3));
    os.fail_no_more();
    os.fail(None, When::From(2), libc::ENOMEM);
    assert!(os.purge(base, CHUNK).is_ok());
    assert!(os.open(base + 4 * CHUNK, CHUNK).is_err());
    assert_eq!(os.resident(base, CHUNK), None);
    assert!(os.is_mapped(base, SPACE));
    assert_eq!(os.at(base + 4 * CHUNK).unwrap().access, Access::Reserved);
}

#[test]
fn locked_memory_is_not_purged() {
    let (os, base) = opened(2);
    put(base, 1);
    put(base + CHUNK, 2);
    os.lock(base + CHUNK, 1, true);
    assert_eq!(os.purge(base, 2 * CHUNK), Err(Errno(libc::EINVAL)));
    assert!(os.soften(base, 2 * CHUNK).is_err());
    assert_eq!((get(base), get(base + CHUNK)), (1, 2));
    os.fail_purges_by(PurgeFailure::Halfway);
    assert!(os.purge(base, 2 * CHUNK).is_err());
    assert_eq!((get(base), get(base + CHUNK)), (0, 2));
    os.lock(base + CHUNK, 1, false);
    assert!(os.purge(base, 2 * CHUNK).is_ok());
    assert_eq!(os.vma_count(), 2);
}

#[test]
fn a_failing_move_in_each_of_its_ways() {
    for (failure, plugged) in [
        (MoveFailure::Clean, false),
        (MoveFailure::UnmapsTarget, true),
        (MoveFailure::MovesFirstPart, false),
        (MoveFailure::LetsForeignIn, false),
    ] {
        let (os, base) = opened(8);
        let (source, target) = (base + CHUNK, base + 4 * CHUNK);
        // The source is two VMAs.
        os.move_pages(base, source, CHUNK).unwrap();
        put(source, 1);
        put(source + CHUNK, 2);
        os.fail(Call::Move, When::From(1), libc::ENOMEM);
        os.fail_moves_by(failure);
        assert!(os.move_pages(source, target, 2 * CHUNK).is_err());
        let first = if failure == MoveFailure::MovesFirstPart { 0 } else { 1 };
        assert_eq!((get(source), get(source + CHUNK)), (first, 2), "{failure:?}");
        assert_eq!(os.is_mapped(target, 2 * CHUNK), failure == MoveFailure::Clean);
        assert_eq!(os.lost(), only(target..target + 2 * CHUNK));
        assert!(refused(|| os.purge(target, CHUNK)).contains("not plugged"));
        assert_eq!(os.plug(target, 2 * CHUNK, Huge::Leave).is_ok(), plugged, "{failure:?}");
        if plugged {
            assert_eq!((get(target), os.vma_count()), (0, 4));
        } else {
            assert_eq!(os.retired(), only(target..target + 2 * CHUNK));
            assert!(refused(|| os.open(target, CHUNK)).contains("retired"));
            assert!(refused(|| os.plug(target, CHUNK, Huge::Leave)).contains("retired"));
        }
        assert!(os.lost().is_empty() && os.foreign_intact());
    }
}

#[test]
fn an_old_kernel_refuses_a_source_of_two_vmas_and_unmaps_the_target() {
    let (os, base) = opened(8);
    os.refuse_moves_of_several_vmas(true);
    os.move_pages(base, base + CHUNK, CHUNK).unwrap();
    put(base, 3);
    assert_eq!(os.move_pages(base, base + 4 * CHUNK, 2 * CHUNK), Err(Errno(libc::EFAULT)));
    assert_eq!(get(base), 3);
    assert!(!os.is_mapped(base + 4 * CHUNK, CHUNK));
    // The hole may be taken before it is plugged.
    os.map_foreign(Some(base + 5 * CHUNK), GRANULE).unwrap();
    assert_eq!(os.plug(base + 4 * CHUNK, CHUNK, Huge::Leave), Ok(()));
    assert_eq!(os.plug(base + 5 * CHUNK, CHUNK, Huge::Leave), Err(Errno(libc::EEXIST)));
    assert!(os.foreign_intact());
}

#[test]
fn a_failing_heal_may_unmap() {
    let (os, base) = opened(2);
    put(base, 1);
    os.fail(Call::Heal, When::From(1), libc::ENOMEM);
    assert!(os.heal(base, CHUNK, Huge::Advise).is_err());
    assert!(os.is_mapped(base, CHUNK));
    // Mapped, but for all its caller can know by somebody else.
    assert_eq!(os.plug(base, CHUNK, Huge::Leave), Err(Errno(libc::EEXIST)));
    let next = base + CHUNK;
    os.fail_remaps_by(RemapFailure::Unmaps);
    assert!(os.heal(next, CHUNK, Huge::Advise).is_err());
    assert!(!os.is_mapped(next, CHUNK));
    assert_eq!(os.plug(next, CHUNK, Huge::Leave), Ok(()));
    assert_eq!(get(next), 0);
}

#[test]
fn too_many_vmas_are_refused() {
    let (os, base) = opened(8);
    os.limit_vmas(6);
    os.advise(base + CHUNK, CHUNK, Huge::Advise).unwrap();
    assert_eq!(os.vma_count(), 4);
    assert_eq!(os.move_pages(base + 2 * CHUNK, base + 5 * CHUNK, CHUNK), Err(Errno(libc::ENOMEM)));
    os.advise(base + 6 * CHUNK, CHUNK, Huge::Advise).unwrap();
    assert_eq!(os.advise(base + 4 * CHUNK, CHUNK, Huge::Advise), Err(Errno(libc::ENOMEM)));
    assert_eq!(os.vma_count(), 6);
}

#[test]
fn breaking_the_contract_is_told_at_once() {
    let (os, base) = opened(4);
    os.set_facts(|facts| facts.page = 16 << 10);
    let foreign = os.map_foreign(None, GRANULE);
    assert_eq!(foreign, None);
    for (story, call) in [
        ("not whole pages", &(|| os.purge(base, GRANULE)) as &dyn Fn() -> Outcome),
        ("not whole pages", &|| os.purge(base, 0)),
        ("is not ours", &|| os.unmap(base, 2 * SPACE)),
        ("is not open", &|| os.purge(base, SPACE)),
        ("is not open", &|| os.heal(base + 4 * CHUNK, CHUNK, Huge::Leave)),
        ("is not open", &|| os.move_pages(base + 4 * CHUNK, base, CHUNK)),
        ("is open already", &|| os.open(base, CHUNK)),
        ("overlap", &|| os.move_pages(base, base + CHUNK, 2 * CHUNK)),
        ("not whole chunks", &|| os.move_pages(base, base + CHUNK + (16 << 10), CHUNK)),
        ("was not lost", &|| os.plug(base, CHUNK, Huge::Leave)),
    ] {
        let message = refused(call);
        assert!(message.contains(story), "{message}");
    }
    assert_eq!(os.calls_failed(), 0);
}

#[test]
fn a_hole_in_a_reservation_may_become_another_one() {
    let (os, base) = opened(4);
    os.fail(Call::Move, When::From(1), libc::ENOMEM);
    os.fail_moves_by(MoveFailure::LetsForeignIn);
    assert!(os.move_pages(base, base + 2 * CHUNK, 2 * CHUNK).is_err());
    assert!(os.plug(base + 2 * CHUNK, 2 * CHUNK, Huge::Leave).is_err());
    assert_eq!(os.map(CHUNK, CHUNK), Ok(base + 2 * CHUNK));
    assert_eq!(os.purge(base + 2 * CHUNK, CHUNK), Ok(()));
    assert_eq!(os.retired(), only(base + 3 * CHUNK..base + 4 * CHUNK));
}

#[test]
fn settings_come_through_the_kernel_and_are_reported_once() {
    use crate::config::{Config, Moves, Thp};
    use crate::os::{Reported, settings};
    let os = Fake::new(CHUNK);
    os.set_environment(&["ZK_NALLOC_MOVES=never", "ZK_NALLOC_THP=12cats", "ZK_NALLOC_CACHE=4G"]);
    let reported = Reported::new();
    for lines in [2, 0] {
        let settings = settings(&Config::new().thp(Thp::Always), &os, &reported);
        assert_eq!((settings.moves, settings.thp), (Moves::Never, Thp::Always));
        assert_eq!(os.said().len(), lines);
    }
}

#[test]
fn a_clock_that_moves_when_told() {
    let os = Fake::new(CHUNK);
    assert_eq!(os.now(), 0);
    os.pass(5);
    assert_eq!(os.now(), 5);
}

/// The second of two was taken from the standard allocator, which has no 48 GiB to give on most hosts: tests failed where two of
/// them ran at the same time.
#[test]
fn long_spaces_with_short_content_exist_beside_each_other() {
    const LEN: usize = 48 << 30;
    const START: usize = 1 << 45;
    let spaces = [(); 3].map(|()| Fake::in_short(LEN, START));
    let starts = spaces.map(|os| os.reserve(LEN, CHUNK).unwrap() - START);
    assert!(starts.iter().all(|start| start % (1 << 40) == 0), "{starts:x?}");
}
