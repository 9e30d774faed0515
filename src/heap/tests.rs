//! The heap by itself, where what a test needs is out of reach of requests.

use super::pool::State;
use super::trim::Worth;
use super::{
    Behind, End, Fit, Growth, HOLES_MAX, Keep, PageHeap, SEAMS_MAX, SEAMS_MAX_LIVE, Setup, Span, Unit, Wish,
};
use crate::os::fake::{Call, Fake, When, errno};
use crate::os::{CHUNK, GRANULE, Huge};

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

fn setup() -> Setup {
    Setup {
        page: GRANULE,
        huge: Huge::Leave,
        has_huge: false,
        moves: true,
        moves_several: true,
        residency: false,
        soften: true,
        reserve: 32 * GIB,
        growth: Growth::Any,
        wipes: false,
    }
}

fn heap() -> PageHeap<Fake> {
    let heap = PageHeap::new(Fake::in_short(64 * GIB, 1 << 45));
    heap.start(setup());
    heap
}

/// Takes a run that begins with a chunk.
fn taken(heap: &PageHeap<Fake>, len: usize) -> Span {
    heap.take_slow(Fit::aligned(len, CHUNK), Wish::Any, 0).expect("there is memory").span
}

/// Gives parts of a run back, each by its offset and length.
fn give_parts(heap: &PageHeap<Fake>, run: Span, parts: &[(usize, usize)]) {
    assert!(heap.hold_nodes(parts.len()));
    parts.iter().for_each(|&(offset, len)| {
        heap.give(&[Span::new(run.start + offset, len)], 0);
    });
}

/// Where the last purge of one state had stopped, that of another began: what lay above it was never purged.
#[test]
fn a_purge_of_one_state_does_not_begin_where_that_of_another_ended() {
    let heap = heap();
    let run = taken(&heap, 512 * MIB);
    // The longest has no whole chunk, the next one has.
    give_parts(&heap, run, &[(MIB, 3 * MIB - GRANULE), (10 * MIB, 5 * MIB / 2)]);
    assert_eq!(heap.soften(), 11 * MIB / 2 - GRANULE);
    // Many without, and a shorter one with it.
    let without = |nth: usize| ((nth * 8 + 33) * MIB, 2 * MIB + (nth + 1) * GRANULE);
    give_parts(&heap, run, &(0..40).map(without).collect::<Vec<_>>());
    give_parts(&heap, run, &[(24 * MIB, 2 * MIB)]);
    assert_eq!(heap.purge(CHUNK, Unit::Chunks), CHUNK, "the one that was softened");
    assert_eq!(heap.books().soft, 7 * MIB / 2 - GRANULE);
    assert_eq!(heap.purge(CHUNK, Unit::Chunks), CHUNK, "it goes on where it stopped");
    assert_eq!(heap.purge(CHUNK, Unit::Chunks), 0);
    heap.walk();
}

/// A window whose end lay upon more resident memory than its front gained kept that from everybody, and blocks that should have
/// had it were faulted in.
#[test]
fn no_run_lies_where_its_end_covers_more_that_is_resident_than_its_front_gains() {
    let heap = heap();
    let (mixed, _between) = (taken(&heap, 368 * MIB), taken(&heap, CHUNK));
    let (untouched, _behind) = (taken(&heap, 340 * MIB), taken(&heap, CHUNK));
    // Wherever 328 MiB lie in these 368, of which the first half is touched, more is resident under the other half.
    give_parts(&heap, mixed, &[(0, 8 * MIB), (168 * MIB, 100 * MIB)]);
    assert!(heap.hold_nodes(3));
    let part = |offset, len| Span::new(mixed.start + offset * MIB, len * MIB);
    for zero in [part(8, 160), part(268, 100), untouched] {
        assert!(heap.give_purged(zero, 0));
    }
    let run = heap.take_slow(Fit::aligned(328 * MIB, CHUNK), Wish::Any, 164 * MIB).expect("there is memory");
    assert_eq!(run.span.common(untouched), run.span);
    heap.walk();
}

/// Threads that saw the same excess at the same time each purged all of it.
#[test]
fn who_purges_an_excess_that_another_has_purged_leaves_what_is_kept() {
    let heap = heap();
    let (run, rest) = (taken(&heap, 256 * MIB), taken(&heap, 64 * MIB));
    give_parts(&heap, run, &[(0, run.len)]);
    for _ in 0..3 {
        heap.purge_to(Keep::Dirty(192 * MIB), 64 * MIB, Unit::Pages);
        assert_eq!(heap.level().dirty, 192 * MIB);
    }
    for _ in 0..3 {
        heap.purge_to(Keep::Present(rest.len + 128 * MIB), 64 * MIB, Unit::Chunks);
        assert_eq!(heap.level().dirty, 128 * MIB);
    }
    assert_eq!(heap.purge_to(Keep::Present(0), usize::MAX, Unit::Chunks), 128 * MIB);
    heap.walk();
}

/// Each was of a gigabyte at most, and after 512 of them no more could be mapped, however much the limits left.
#[test]
fn plain_mappings_grow_with_what_is_mapped() {
    let heap = PageHeap::new(Fake::in_short(400 * GIB, 1 << 45));
    heap.start(Setup { reserve: 0, ..setup() });
    for _ in 0..300 {
        taken(&heap, GIB);
    }
    assert!(heap.regions().1 < 150, "{:?}", heap.regions());
    heap.walk();
}

/// Where the host gives no huge pages, up to four megabytes that nobody had touched were booked as resident with each block.
#[test]
fn what_shares_a_huge_page_with_a_block_is_resident_where_there_are_any() {
    for has_huge in [true, false] {
        let heap = heap();
        heap.start(Setup { huge: Huge::Advise, has_huge, ..setup() });
        let run = taken(&heap, MIB);
        let dirty = heap.give(&[run], 0);
        assert_eq!(dirty, if has_huge { CHUNK } else { MIB });
    }
}

/// Each look at what is open closed all of it, and the next blocks opened it again.
#[test]
fn no_more_is_closed_than_was_asked_for() {
    let heap = heap();
    let run = taken(&heap, 4 * GIB);
    // What stays between them keeps them apart.
    give_parts(&heap, run, &[0, 1, 2, 3].map(|nth| (nth * GIB, GIB - CHUNK)));
    assert_eq!(heap.purge(usize::MAX, Unit::Pages), 4 * (GIB - CHUNK));
    let zero = heap.level().zero;
    heap.close_free(GIB / 2);
    assert_eq!(zero - heap.level().zero, GIB - CHUNK, "a piece is closed as a whole");
    heap.close_free(usize::MAX);
    assert_eq!(heap.level().zero, zero % CHUNK);
    heap.walk();
}

/// A release made two VMAs of each free stretch of 32 MiB, however many there were, until the process could have no more.
#[test]
fn a_release_leaves_no_more_holes_than_a_fork_can_bear() {
    const STEP: usize = 34 * MIB;
    let heap = heap();
    let run = taken(&heap, (HOLES_MAX + 100) * STEP);
    give_parts(&heap, run, &(0..HOLES_MAX + 100).map(|nth| (nth * STEP, 32 * MIB)).collect::<Vec<_>>());
    heap.release();
    let closed = heap.reenter().pieces.count_of(State::Closed);
    assert_eq!(closed, HOLES_MAX, "with what was never opened");
    // What lay between them does not keep the rest from being closed with it.
    give_parts(
        &heap,
        run,
        &(0..HOLES_MAX + 100).map(|nth| (nth * STEP + 32 * MIB, 2 * MIB)).collect::<Vec<_>>(),
    );
    heap.release();
    assert_eq!((heap.level().zero, heap.reenter().pieces.count_of(State::Closed)), (0, 1));
    heap.walk();
}

/// What went before a request was refused used up the budget of what is long, which was never closed again.
#[test]
fn what_is_long_is_closed_however_many_short_holes_there_are() {
    let heap = heap();
    let run = taken(&heap, 4 * GIB);
    give_parts(&heap, run, &(0..HOLES_MAX).map(|nth| (nth * 4 * MIB, 2 * MIB)).collect::<Vec<_>>());
    heap.release();
    assert_eq!(heap.level().zero, HOLES_MAX * 2 * MIB);
    heap.release_in_need();
    assert_eq!(heap.reenter().pieces.count_of(State::Closed), HOLES_MAX / 2, "with what was never opened");
    let zero = heap.level().zero;
    give_parts(&heap, run, &[(3 * GIB, 512 * MIB)]);
    heap.release();
    assert_eq!(heap.level().zero, zero);
    heap.walk();
}

/// One block kept the mapping in which it lay.
#[test]
fn what_is_free_between_blocks_of_a_plain_mapping_goes_as_far_as_it_is_short() {
    let heap = PageHeap::new(Fake::in_short(64 * GIB, 1 << 45));
    heap.start(Setup { reserve: 0, ..setup() });
    let run = taken(&heap, 2 * GIB);
    assert_eq!(heap.regions().1, 1);
    give_parts(&heap, run, &[(64 * MIB, 32 * MIB), (128 * MIB, 30 * MIB)]);
    heap.purge(usize::MAX, Unit::Pages);
    heap.os.fail(Call::Unmap, When::From(1), errno::ENOMEM);
    heap.trim();
    heap.walk();
    assert_eq!(heap.regions().1, 1, "refused");
    heap.os.fail_no_more();
    heap.trim();
    heap.walk();
    assert_eq!(heap.regions().1, 2, "what is long");
    heap.release_in_need();
    assert_eq!(heap.regions().1, 3);
    // Each makes one more of a mapping, of which there can be so many.
    give_parts(&heap, run, &(0..200).map(|nth| (200 * MIB + nth * 4 * MIB, 2 * MIB)).collect::<Vec<_>>());
    heap.release_in_need();
    let few = heap.regions().1;
    assert!((60..=70).contains(&few), "{few}");
    // A front makes no more of them.
    let zero = heap.level().zero;
    give_parts(&heap, run, &[(0, 48 * MIB)]);
    heap.release();
    assert_eq!((heap.regions().1, heap.level().zero), (few, zero));
    heap.walk();
}

/// The longest eight pieces held no whole chunk, and nothing was gathered from those behind them.
#[test]
fn what_is_gathered_lies_behind_many_pieces_without_a_whole_chunk() {
    let heap = heap();
    let run = taken(&heap, 8 * GIB);
    // In the middle of two chunks each, and ever longer.
    let without = |nth: usize| (nth * 8 * MIB + MIB, 2 * MIB + (nth % 200 + 1) * GRANULE);
    let with = |nth: usize| (nth * 8 * MIB + 4 * MIB, 2 * MIB);
    give_parts(&heap, run, &(0..400).map(without).collect::<Vec<_>>());
    give_parts(&heap, run, &(0..60).map(with).collect::<Vec<_>>());
    let fresh = |len| {
        let run = heap.take_slow(Fit::aligned(len, CHUNK), Wish::Any, len).expect("there is memory");
        run.found.fresh()
    };
    assert_eq!(fresh(40 * MIB), 40 * MIB, "they are more than are looked at in one go");
    assert_eq!(fresh(40 * MIB), 0, "it goes on where it stopped");
    assert_eq!(fresh(80 * MIB), 0, "all of them");
    heap.walk();
}

/// At the limit of seams a block was refused its move, though most of them were between free chunks.
#[test]
fn seams_of_free_memory_are_healed_before_a_live_block_is_refused_its_move() {
    let heap = heap();
    let run = taken(&heap, (SEAMS_MAX_LIVE + 8) * CHUNK);
    let (block, free) = (Span::new(run.start, 4 * CHUNK), Span::between(run.start + 5 * CHUNK, run.end()));
    give_parts(&heap, run, &[(free.start - run.start, free.len)]);
    assert_eq!(heap.purge(usize::MAX, Unit::Chunks), free.len);
    {
        // As if pages had been moved in and out of every second chunk.
        let mut inner = heap.reenter();
        for at in (free.start..free.end()).step_by(2 * CHUNK) {
            inner.regions.set_shift(Span::new(at, CHUNK), 1);
        }
        assert!(inner.regions.seams() >= SEAMS_MAX_LIVE);
    }
    assert!(heap.extend(block, 8 * CHUNK, Behind::Any, usize::MAX).is_none(), "something lies behind it");
    let moved = heap.relocate(block, 8 * CHUNK, GRANULE, usize::MAX).expect("it is moved");
    assert_eq!(moved.moved.len, block.len);
    assert!(heap.books().seams < 8);
    heap.finish_relocation(block, moved);
    heap.walk();
}

/// Where a lock was refused to what should be healed, at the end of what was free, that was found again without end.
#[test]
fn what_cannot_be_healed_is_not_tried_again_at_once() {
    let heap = heap();
    let [run, _behind] = [4, 1].map(|chunks| taken(&heap, chunks * CHUNK));
    give_parts(&heap, run, &[(0, run.len)]);
    assert_eq!(heap.purge(usize::MAX, Unit::Chunks), run.len);
    heap.reenter().regions.set_shift(Span::new(run.start + 3 * CHUNK, CHUNK), 1);
    // Without its mend it would end after ten.
    (1..=10).for_each(|nth| heap.os.fail(Call::Heal, When::Nth(nth), errno::EAGAIN));
    heap.heal_free();
    assert_eq!((heap.os.calls(Call::Heal), heap.books().retired), (1, 0));
    heap.os.fail_no_more();
    heap.heal_free();
    assert_eq!(heap.books().seams, 0);
    heap.walk();
}

/// The kernel unlocks the mapping that a live block is moved out of, too.
#[test]
fn where_all_memory_is_locked_no_live_block_is_moved() {
    for eager in [false, true] {
        let heap = heap();
        let [block, _behind] = [4, 1].map(|chunks| taken(&heap, chunks * CHUNK));
        heap.reenter().eager = eager;
        let moved = heap.relocate(block, 8 * CHUNK, GRANULE, usize::MAX);
        assert_eq!(moved.is_some(), !eager);
        if let Some(moved) = moved {
            heap.finish_relocation(block, moved);
        }
        heap.walk();
    }
}

/// After a pause for which the cache was offered to the kernel it served whole blocks alone: no hot run was cut from it, no vector had room
/// in it or grew into it, and nothing was gathered from it.
#[test]
fn what_was_offered_to_the_kernel_serves_whatever_is_resident() {
    type Use = fn(&PageHeap<Fake>, Span) -> bool;
    let uses: [(&str, Use); 5] = [
        ("a hot run", |heap, _| heap.take_run(MIB, 4 * MIB, 4 * MIB, None).is_some()),
        ("blocks ahead", |heap, _| heap.take_room(MIB, 16 * MIB, End::Low).is_some()),
        ("room behind", |heap, _| heap.take_with_room(Fit::aligned(8 * MIB, CHUNK)).is_some()),
        ("growth", |heap, block| heap.extend(block, 48 * MIB, Behind::Resident, usize::MAX).is_some()),
        ("gathered", |heap, _| {
            let run = heap.take_slow(Fit::aligned(60 * MIB, CHUNK), Wish::Any, usize::MAX);
            run.is_some_and(|run| run.found.fresh() == 0)
        }),
    ];
    for (what, serves) in uses {
        let heap = heap();
        let blocks: Vec<Span> = (0..4).map(|_| taken(&heap, 32 * MIB)).collect();
        give_parts(&heap, blocks[1], &[(0, 30 * MIB)]);
        give_parts(&heap, blocks[3], &[(0, 30 * MIB)]);
        assert_eq!(heap.soften(), 60 * MIB);
        assert!(serves(&heap, blocks[0]), "{what}");
        heap.walk();
    }
}

/// A block that is touched a little beyond its half took all of it from what was resident, and others faulted as much in: eight
/// huge pages for one that was not moved.
#[test]
fn what_stays_untouched_of_half_a_block_does_not_lie_on_resident_memory_where_pages_can_be_moved() {
    for (moves, resident) in [(true, 9 * CHUNK), (false, 16 * CHUNK)] {
        let heap = PageHeap::new(Fake::in_short(64 * GIB, 1 << 45));
        heap.start(Setup { moves, ..setup() });
        let [before, dirty, behind] = [1, 40, 1].map(|chunks| taken(&heap, chunks * CHUNK));
        assert!(before.end() == dirty.start && dirty.end() == behind.start);
        give_parts(&heap, dirty, &[(0, dirty.len)]);
        let half =
            heap.take_slow(Fit::aligned(16 * CHUNK, CHUNK), Wish::Any, 9 * CHUNK).expect("there is memory");
        assert_eq!(half.unclean.bytes(), resident, "{moves}");
        assert_eq!(heap.books().dirty, 40 * CHUNK - resident, "{moves}");
        heap.walk();
    }
}

/// A heap in huge pages with nine free tables of 16 chunks between live blocks, and where a half-used block of four chunks and a granule
/// lay: three of its chunks are resident, the rest of its last two is zero.
fn tables_and_a_place() -> (PageHeap<Fake>, Span) {
    let heap = PageHeap::new(Fake::in_short(64 * GIB, 1 << 45));
    heap.start(Setup { huge: Huge::Advise, has_huge: true, ..setup() });
    let tables: Vec<[Span; 2]> = (0..9).map(|_| [16, 1].map(|chunks| taken(&heap, chunks * CHUNK))).collect();
    let [front, end, _behind] = [3, 2, 1].map(|chunks| taken(&heap, chunks * CHUNK));
    tables.into_iter().for_each(|[table, _]| give_parts(&heap, table, &[(0, table.len)]));
    give_parts(&heap, front, &[(0, front.len)]);
    assert!(heap.give_purged(end, 0) && end.start == front.end());
    (heap, Span::between(front.start, end.end()))
}

const HALF_USED: Fit = Fit::aligned(4 * CHUNK + GRANULE, CHUNK);

/// Only the eight longest pieces were looked at: where longer ones were free, each such block was gathered anew in every round.
#[test]
fn a_half_used_block_lies_where_one_has_lain_before_pages_are_moved_for_it() {
    let (heap, place) = tables_and_a_place();
    let half = |reach| heap.take_slow(HALF_USED, Wish::Any, reach).expect("there is memory");
    let first = half(3 * CHUNK);
    assert_eq!((first.span.start, first.unclean.bytes()), (place.start, 3 * CHUNK));
    assert_eq!(heap.books().gathered, 0);
    // The next one is gathered, and spoils no chunk of a table.
    let second = half(3 * CHUNK);
    assert_eq!((second.unclean.bytes(), heap.books().gathered), (3 * CHUNK, 3 * CHUNK as u64));
    assert_eq!(heap.books().dirty, 9 * 16 * CHUNK - 3 * CHUNK);
    heap.walk();
}

/// Where four threads gather, a fifth would have had all of it faulted in, though there was a place with three resident chunks.
#[test]
fn a_half_used_block_lies_on_what_is_resident_where_no_pages_can_be_moved_for_it() {
    for (movers, refused) in [(4, false), (0, true)] {
        let (heap, _place) = tables_and_a_place();
        heap.take_slow(HALF_USED, Wish::Any, 3 * CHUNK).expect("there is memory");
        if refused {
            heap.os.fail(Call::Move, When::From(1), errno::ENOMEM);
            heap.take_slow(HALF_USED, Wish::Any, 3 * CHUNK).expect("there is memory");
            heap.os.fail_no_more();
        }
        heap.pretend_movers(movers);
        let run = heap.take_slow(HALF_USED, Wish::Any, 3 * CHUNK).expect("there is memory");
        assert_eq!(run.unclean.bytes(), 4 * CHUNK + GRANULE, "{movers}");
        assert_eq!(heap.books().gathered, 0);
        heap.pretend_movers(0);
        heap.walk();
    }
}

/// Each such block asks for a VMA or two of its own, and of many nothing was left for whoever gathers more.
#[test]
fn half_used_blocks_leave_half_of_the_seams_to_others() {
    let heap = PageHeap::new(Fake::in_short(64 * GIB, 1 << 45));
    heap.start(Setup { huge: Huge::Advise, has_huge: true, ..setup() });
    let [dirty, _behind] = [4000, 1].map(|chunks| taken(&heap, chunks * CHUNK));
    give_parts(&heap, dirty, &[(0, dirty.len)]);
    for _ in 0..600 {
        heap.take_slow(HALF_USED, Wish::Any, 3 * CHUNK).expect("there is memory");
    }
    assert!((SEAMS_MAX / 2..SEAMS_MAX / 2 + 8).contains(&heap.books().seams), "{}", heap.books().seams);
    heap.walk();
}

/// Where no memory could be opened any more, each such block was refused, and the cache given up for it.
#[test]
fn half_used_blocks_lie_on_what_is_resident_once_no_more_can_be_opened() {
    let (heap, _place) = tables_and_a_place();
    heap.os.fail(Call::Open, When::From(1), errno::ENOMEM);
    let refused = (0..20).filter(|_| heap.take_slow(HALF_USED, Wish::Any, 3 * CHUNK).is_none()).count();
    assert_eq!(refused, 1);
    heap.walk();
}

/// Zeros of which 46 of 329 MiB were untouched memory lay upon what was resident for the rest: half of them nobody touched.
#[test]
fn zeros_lie_upon_little_that_is_resident_where_memory_can_be_opened_for_them() {
    for (dirty, resident) in [(28, 0), (4, 4), (5, 0)] {
        let heap = heap();
        let [free, _behind] = [32, 1].map(|chunks| taken(&heap, chunks * CHUNK));
        let zero = free.len - dirty * CHUNK;
        give_parts(&heap, free, &[(zero, dirty * CHUNK)]);
        assert!(heap.hold_nodes(1) && heap.give_purged(Span::new(free.start, zero), 0));
        let fit = Fit::aligned(free.len, CHUNK);
        let zeros = heap.take_slow(fit, Wish::Zeroed, fit.len).expect("there is memory");
        assert_eq!(zeros.unclean.bytes(), resident * CHUNK, "{dirty}");
        heap.walk();
    }
}

/// What is not expected to be touched of a block that grows is left to be faulted in.
#[test]
fn pages_are_moved_only_as_far_as_a_block_reaches_that_grows() {
    let heap = heap();
    let (dirty, block) = (taken(&heap, 21 * CHUNK), taken(&heap, 8 * CHUNK));
    give_parts(&heap, dirty, &[(0, 20 * CHUNK)]);
    let grown = heap.extend(block, 28 * CHUNK, Behind::Any, 12 * CHUNK).expect("nothing lies behind it");
    assert_eq!(grown.found.fresh(), 16 * CHUNK);
    let (block, _behind) = (taken(&heap, 8 * CHUNK), taken(&heap, CHUNK));
    let moved = heap.relocate(block, 28 * CHUNK, GRANULE, 12 * CHUNK).expect("it is moved");
    assert_eq!((moved.moved, moved.fresh), (block, 16 * CHUNK));
    heap.finish_relocation(block, moved);
    heap.walk();
}

/// Only one hole is remembered of it, and two could be made at a time.
#[test]
fn a_heap_of_one_reservation_closes_one_range_at_a_time() {
    let os = Fake::in_short(64 * GIB, 1 << 45);
    let heap = PageHeap::new(os);
    heap.start(Setup { growth: Growth::Never, ..setup() });
    let (run, _behind) = (taken(&heap, 256 * MIB), taken(&heap, CHUNK));
    give_parts(&heap, run, &[(0, 64 * MIB), (128 * MIB, 64 * MIB)]);
    heap.purge(usize::MAX, Unit::Pages);
    let mut inner = heap.enter();
    let first =
        inner.claim_closable(&mut (usize::MAX, usize::MAX), Worth::USUAL, &heap.os).expect("there are two");
    assert_eq!(inner.claim_closable(&mut (usize::MAX, usize::MAX), Worth::USUAL, &heap.os), None);
    inner.settle(first, State::Zero);
    inner.closing -= 1;
    assert!(inner.claim_closable(&mut (usize::MAX, usize::MAX), Worth::USUAL, &heap.os).is_some());
}

/// A window begins what it opens inside a page of the kernel where those are long, and what is left closed beside it began there too
/// while what a child had inherited was dropped first.
#[test]
fn a_child_opens_what_is_closed_before_it_drops_what_it_has_inherited() {
    let heap = heap();
    let run = taken(&heap, 16 * MIB);
    give_parts(&heap, run, &[(0, 16 * MIB)]);
    heap.before_fork();
    heap.reset_in_child();
    heap.after_fork_in_child();
    heap.os.reset_calls();
    heap.os.fail(Call::Open, When::From(1), errno::ENOMEM);
    assert!(heap.take_slow(Fit::aligned(40 * MIB, GRANULE), Wish::Any, 40 * MIB).is_none());
    assert!(heap.os.calls(Call::Open) > 0);
    assert_eq!(heap.os.calls(Call::Purge), 0);
}
