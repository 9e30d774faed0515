//! The recorder over the fake kernel: what is put in is in the file, in order, and what is not is counted.

use std::alloc::Layout;
use std::collections::BTreeSet;
use std::thread;

use super::ring::PIECE;
use super::*;
use crate::os::fake::{Call, Fake, When, errno};

const NAMED: &str = "ZK_NALLOC_TRACE=/tmp/trace-%p";

fn started() -> (Fake, Trace) {
    let os = Fake::new(64 << 20);
    os.set_environment(&["A=b", NAMED]);
    let trace = Trace::new();
    assert!(trace.start(&os, &os.facts()));
    assert_eq!(os.file().0, "/tmp/trace-4021");
    (os, trace)
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 64).unwrap()
}

fn words(os: &Fake) -> Vec<u64> {
    let (_, bytes) = os.file();
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// The slots of a file, and events given out and lost, as its header has them.
fn slots(os: &Fake) -> (Vec<[u64; 4]>, u64, u64) {
    let words = words(os);
    assert_eq!((words[0], words[1], words[8]), (u64::from_le_bytes(*b"zknalloc"), 1, 1));
    let (slots, rest) = words[HEADER_BYTES / 8..].as_chunks();
    assert!(rest.is_empty());
    (slots.to_vec(), words[9], words[10])
}

#[test]
fn each_event_is_four_words() {
    let (os, trace) = started();
    os.pass(77);
    trace.taken(&os, 0x7f00_0000_1040, layout(65_536), true, 4096);
    trace.resizing(&os, 0x7f00_0000_1040, layout(65_536));
    trace.resized(&os, 0x7f00_0000_2040, layout(70_000), Outcome::Copied);
    let touched = Touched { len: 70_000, resident: 8192, part: 65_536, parts: 0b01 };
    trace.freed(&os, 0x7f00_0000_2040, layout(70_000), Some(touched));
    trace.freed(&os, 64, layout(1), Some(Touched { resident: 70_000, ..touched }));
    trace.freed(&os, 64, layout(1), None);
    trace.refused(&os, layout(1 << 50));
    trace.phase_begins(&os, 77, "commit to the trace");
    trace.phase_ends(&os, 77, "commit");
    trace.finish(&os);
    let (slots, events, lost) = slots(&os);
    assert_eq!((slots.len() as u64, events, lost), (events, 13, 0));
    assert!(slots.iter().all(|slot| slot[0] >> 16 == 77 && slot[0] & 0xffff > 0));
    let text = |at: usize| [slots[at][2].to_le_bytes(), slots[at][3].to_le_bytes()].concat();
    assert_eq!(text(9), b"commit to the tr");
    assert_eq!(text(12), b"commit\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(text(10), b"ace\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let of = |size: u64| size << 8 | 6;
    let expected = [
        [0x7f00_0000_1040 | 1, of(65_536), 4096 << 1 | 1],
        [0x7f00_0000_1040 | 4, of(65_536), 0],
        [0x7f00_0000_2040 | 5, of(70_000), 3],
        [0x7f00_0000_2040 | 3, 1, 65_536],
        [0x7f00_0000_2040 | 2, of(70_000), 8193],
        [64 | 2, of(1), 70_001],
        [64 | 2, of(1), 0],
        [11, of(1 << 50), 0],
        [8, 77, 19],
        [9, slots[9][2], slots[9][3]],
        [64 | 9, slots[10][2], slots[10][3]],
        [10, 77, 6],
        [9, slots[12][2], 0],
    ];
    assert_eq!(slots.iter().map(|slot| slot[1..].try_into().unwrap()).collect::<Vec<[u64; 3]>>(), expected);
}

/// Has four threads record so many events each, and gives how many found no slot.
fn filled_by_threads(each: usize) -> u64 {
    let (os, trace) = started();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (os, trace) = (&os, &trace);
            scope.spawn(move || {
                for n in 0..each {
                    trace.taken(os, (thread * each + n + 1) * 64, layout(1), false, 0);
                }
            });
        }
    });
    trace.finish(&os);
    let (slots, events, lost) = slots(&os);
    assert_eq!((events + lost, slots.len() as u64), (4 * each as u64, events));
    let seen: BTreeSet<u64> = slots.iter().map(|slot| slot[1] >> 6).collect();
    assert!(seen.len() == slots.len() && seen.iter().all(|&n| (1..=4 * each as u64).contains(&n)));
    // Each thread's events stand in its order.
    for thread in 0..4_u64 {
        let mine = slots.iter().map(|slot| slot[1] >> 6).filter(|n| (n - 1) / each as u64 == thread);
        assert!(mine.is_sorted());
    }
    lost
}

#[test]
fn threads_fill_pieces_and_nothing_is_lost_or_twice() {
    const EACH: usize = 16_000;
    const { assert!(4 * EACH <= RING_BYTES / 32) };
    assert_eq!(filled_by_threads(EACH), 0);
}

/// Once the ring is through, a thread that is interrupted while it fills a slot holds up those behind it.
#[test]
fn threads_go_round_and_what_is_not_there_is_counted() {
    assert!(filled_by_threads(40_000) < 4 * 40_000);
}

#[test]
fn what_finds_no_slot_is_counted() {
    let ring = Ring::new();
    let memory = vec![0_u64; RING_BYTES / 8];
    // SAFETY: zeroed memory of that length, which outlives the ring.
    unsafe { ring.begin(memory.as_ptr().expose_provenance()) };
    let all = (RING_BYTES / 32) as u64;
    let full: Vec<u64> = (0..all).filter_map(|n| ring.put([n + 1; 4])).collect();
    assert_eq!(full, (0..all / PIECE).collect::<Vec<_>>());
    assert!(ring.put([1; 4]).is_none() && ring.put([1; 4]).is_none());
    assert_eq!((ring.claimed(), ring.lost()), (all, 2));
    // The first piece is written: its slots are free, the next are not.
    ring.written(0);
    assert_eq!((0..PIECE).filter_map(|_| ring.put([1; 4])).collect::<Vec<_>>(), [all / PIECE]);
    assert!(ring.put([1; 4]).is_none());
    assert_eq!((ring.claimed(), ring.lost(), ring.close()), (all + PIECE, 3, all + PIECE));
    assert!(ring.put([1; 4]).is_none());
    assert_eq!(ring.lost(), 3, "what comes after the end is no part of it");
    assert_eq!(memory[0], 1);
}

/// A thread whose write took longer than the end of the process waits zeroed the slots while the end wrote them.
#[test]
fn what_the_end_writes_itself_is_not_zeroed_under_it() {
    let ring = Ring::new();
    let memory = vec![0_u64; RING_BYTES / 8];
    // SAFETY: zeroed memory of that length, which outlives the ring.
    unsafe { ring.begin(memory.as_ptr().expose_provenance()) };
    let full = (0..PIECE).find_map(|n| ring.put([n + 1; 4]));
    assert_eq!((full, ring.close()), (Some(0), PIECE));
    ring.written(0);
    assert!(ring.is_written(0) && memory[..4 * PIECE as usize].iter().all(|&word| word != 0));
}

#[test]
fn a_trace_that_cannot_begin_says_so_once_and_records_nothing() {
    for (call, what) in
        [(Call::Create, "cannot be opened"), (Call::Map, "no memory"), (Call::Write, "written")]
    {
        let os = Fake::new(64 << 20);
        os.set_environment(&[NAMED]);
        os.fail(call, When::Nth(1), errno::EACCES);
        let trace = Trace::new();
        assert!(!trace.start(&os, &os.facts()) && !os.file_is_open());
        let said = os.said();
        assert!(said[0].contains(what) && said[0].contains("/tmp/trace-%p"), "{said:?}");
        assert!(said[0].starts_with("zk-nalloc: ZK_NALLOC_TRACE: "), "{said:?}");
        trace.taken(&os, 64, layout(1), false, 0);
        trace.finish(&os);
        assert_eq!(trace.ring.claimed(), 0);
        assert!(os.said().is_empty());
    }
    let os = Fake::new(64 << 20);
    os.fail(Call::Create, When::Nth(1), os::BUSY.0);
    os.set_environment(&[NAMED]);
    assert!(!Trace::new().start(&os, &os.facts()));
    assert!(os.said()[0].contains("by another process"));
    os.fail(Call::Create, When::Nth(1), errno::ENOSPC);
    assert!(!Trace::new().start(&os, &os.facts()));
    assert!(os.said()[0].contains("no space left"));
    os.set_environment(&[]);
    assert!(!Trace::new().start(&os, &os.facts()) && os.said().is_empty());
}

#[test]
fn a_file_that_fails_later_ends_the_trace_with_one_line() {
    let (os, trace) = started();
    os.fail(Call::Write, When::From(1), errno::ENOSPC);
    for n in 1..10_000 {
        trace.taken(&os, n * 64, layout(1), false, 0);
    }
    assert!(!trace.is_on());
    trace.finish(&os);
    assert_eq!(os.said().len(), 1);
}

#[test]
fn a_file_that_fails_at_the_end_is_one_line_too() {
    for failing in 1..3 {
        let (os, trace) = started();
        trace.taken(&os, 64, layout(1), false, 0);
        os.fail(Call::Write, When::From(failing), errno::ENOSPC);
        trace.finish(&os);
        assert_eq!(os.said().len(), 1, "{failing}");
    }
}

#[test]
fn a_forked_child_writes_nothing() {
    let (os, trace) = started();
    trace.taken(&os, 64, layout(1), false, 0);
    let before = os.file();
    trace.after_fork_in_child(&os);
    assert!(!os.file_is_open(), "it would be taken for being written");
    for n in 1..10_000 {
        trace.taken(&os, n * 64, layout(1), false, 0);
    }
    trace.phase_begins(&os, 1, "in vain");
    trace.finish(&os);
    assert_eq!(os.file(), before);
}

#[test]
fn samples_come_by_the_clock_and_seldom_in_the_end() {
    let (os, trace) = started();
    let mut taken = 0_u32;
    for _ in 0..60_000 {
        os.pass(SAMPLE_EVERY / 2);
        if trace.wants_sample(&os) {
            trace.sample(&os, Sample { cached: 1, resident: 2 });
            taken += 1;
        }
        assert!(!trace.wants_sample(&os));
    }
    // 4096 every second time, 4096 every fourth, and 35,424 / 8 and more as they grow rarer.
    assert!((2 * SAMPLES..4 * SAMPLES).contains(&taken), "{taken}");
}
