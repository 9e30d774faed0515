//! Frees with more to do: misuse is found and nothing else is, and no secret outlives its block.

#![expect(unsafe_code, reason = "writes to blocks as their owners do, and after")]

use std::alloc::Layout;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::draw::drawn;
use super::model::{Live, Model};
use super::ops::{Drive, Op, drive, finish, one};
use super::{fake, times};
use crate::config::Config;
use crate::heap::{Span, Unit};
use crate::os::CHUNK;
use crate::os::fake::errno;
use crate::os::fake::{Access, Call, Fake, PurgeFailure, RemapFailure, When};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

fn pointer(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}

const BOTH: [Config; 3] = [
    Config::new().checked(true),
    Config::new().wipe_on_free(true),
    Config::new().checked(true).wipe_on_free(true).cache_bytes(20 << 20),
];

#[test]
fn whoever_makes_no_mistake_hears_nothing() {
    for config in BOTH {
        for seed in 0..u64::from(times(3)) {
            let model = Model::new(fake(2 << 30), 512 * MIB, config);
            let ops = drawn(seed, 120, 24 * MIB);
            let how = Drive { live_max: 96 * MIB, audit_every: 20, seed };
            finish(&model, drive(&model, &ops, how), true);
            let mut ops = drawn(seed ^ 77, 60, 12 * MIB);
            ops.insert(30, Op::ForkChild);
            finish(&model, drive(&model, &ops, how), true);
        }
    }
}

#[test]
fn memory_faulted_in_ahead_that_the_kernel_did_not_take_back_was_taken_for_misuse() {
    let (os, config) = (fake(2 << 30), Config::new().checked(true));
    let model = Model::new(os.clone(), 512 * MIB, config);
    let block = model.allocate(layout(MIB), false, 1).expect("memory");
    let run = model.cache.take_ahead(64 * MIB).expect("memory");
    os.fail(Call::Purge, When::From(1), errno::EINVAL);
    model.cache.give_ahead(run, false);
    os.fail_no_more();
    let next = model.allocate(layout(48 * MIB), false, 2).expect("memory");
    finish(&model, vec![block, next], true);
}

#[test]
fn refusals_of_the_kernel_are_no_misuse() {
    for config in BOTH {
        for every in [2, 3, 7] {
            for purges in [PurgeFailure::Keeps, PurgeFailure::Halfway] {
                let os = fake(2 << 30);
                let mut model = Model::new(os.clone(), 512 * MIB, config);
                model.may_refuse = true;
                os.fail_purges_by(purges);
                os.fail_remaps_by(RemapFailure::Unmaps);
                os.fail(None, When::Every(every), errno::ENOMEM);
                let how = Drive { live_max: 96 * MIB, audit_every: 30, seed: every as u64 };
                let blocks = drive(&model, &drawn(every as u64, 90, 24 * MIB), how);
                os.fail_no_more();
                finish(&model, blocks, true);
            }
        }
    }
}

/// What the process says as it ends, with a block of `size` bytes in its hands.
fn said(size: usize, misuse: impl FnOnce(&Model<Fake>, usize)) -> String {
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new().checked(true));
    let p = model.cache.allocate(layout(size), &Config::new().checked(true), |_| ());
    // SAFETY: the block is ours and as long.
    unsafe { p.write_bytes(7, size) };
    let deed = AssertUnwindSafe(|| misuse(&model, p.expose_provenance()));
    let ended = catch_unwind(deed).expect_err("it goes unnoticed");
    let line = *ended.downcast::<String>().unwrap();
    let start =
        line.strip_prefix("zk-nalloc: misuse, aborting: ").unwrap_or_else(|| panic!("{line}")).to_owned();
    start.replace(&format!("{:#x}", p.addr()), "P")
}

fn free(model: &Model<Fake>, p: usize, layout: Layout) {
    model.cache.deallocate(pointer(p), layout);
}

#[test]
fn a_double_free_is_named() {
    for size in [64 * KIB, 3 * MIB] {
        let line = said(size, |model, p| {
            free(model, p, layout(size));
            free(model, p, layout(size));
        });
        assert_eq!(line, format!("block P of {size} bytes was freed after it had been freed"));
        // Other blocks have come and gone meanwhile.
        let line = said(size, |model, p| {
            free(model, p, layout(size));
            let others: Vec<Live> =
                (0..5).map(|n| model.allocate(layout(size), n % 2 == 0, n).unwrap()).collect();
            others.into_iter().for_each(|live| model.free(live));
            free(model, p, layout(size));
        });
        assert_eq!(line, format!("block P of {size} bytes was freed after it had been freed"));
    }
}

#[test]
fn another_size_or_alignment_or_place_is_named() {
    let size = MIB;
    for wrong in [Layout::from_size_align(size + 1, 8), Layout::from_size_align(size, 16)] {
        let wrong = wrong.unwrap();
        let was = "block P of 1048576 bytes and alignment 8 was";
        let as_one = format!("as one of {} bytes and alignment {}", wrong.size(), wrong.align());
        assert_eq!(said(size, |model, p| free(model, p, wrong)), format!("{was} freed {as_one}"));
        let resized = said(size, |model, p| {
            model.cache.reallocate(pointer(p), wrong, layout(2 * MIB));
        });
        assert_eq!(resized, format!("{was} resized {as_one}"));
        let small = said(size, |model, p| {
            model.cache.look_at_small(p, Layout::new::<u64>(), crate::misuse::Deed::Freed);
        });
        assert_eq!(small, format!("{was} freed as one of 8 bytes and alignment 8"));
    }
    let inside = said(size, |model, p| free(model, p + 4096, layout(size)));
    assert!(
        inside.ends_with("of 1048576 bytes was freed, and no block was ever handed out there"),
        "{inside}"
    );
    let line = said(size, |model, p| {
        // Something behind it, so that it cannot grow where it is.
        let _pin = model.cache.allocate(layout(size), &Config::new(), |_| ());
        let to = model.cache.reallocate(pointer(p), layout(size), layout(40 * MIB));
        assert_ne!(to.addr(), p);
        free(model, p, layout(size));
    });
    assert_eq!(line, "block P of 1048576 bytes was freed after it had been freed");
}

/// Writes a byte to a block that has been freed.
fn write_after_free(model: &Model<Fake>, p: usize, size: usize, at: usize) {
    free(model, p, layout(size));
    // SAFETY: none; the memory is the heap's, and mapped.
    unsafe { pointer(p + at).write(1) };
}

#[test]
fn a_write_after_a_free_is_named_when_its_memory_is_used_or_given_back() {
    for size in [64 * KIB, 3 * MIB, 24 * MIB] {
        for at in [0, 1, 4095, size / 2 + 3, size - 1] {
            let expected =
                format!("block P of {size} bytes was written to after it had been freed, at byte {at}");
            let reused = said(size, |model, p| {
                write_after_free(model, p, size, at);
                model.cache.allocate(layout(size), &Config::new(), |_| ());
            });
            assert_eq!(reused, expected);
            let released = said(size, |model, p| {
                write_after_free(model, p, size, at);
                model.cache.release();
            });
            assert_eq!(released, expected);
        }
        let grown = said(size, |model, p| {
            let next = model.cache.allocate(layout(size), &Config::new(), |_| ());
            let (low, high) = if next.addr() < p { (next.addr(), p) } else { (p, next.addr()) };
            write_after_free(model, high, size, size / 3);
            model.cache.reallocate(pointer(low), layout(size), layout(2 * size));
        });
        assert!(
            grown.ends_with(&format!("written to after it had been freed, at byte {}", size / 3)),
            "{grown}"
        );
        let zeroed = said(size, |model, p| {
            free(model, p, layout(size));
            assert!(model.cache.heap.purge(usize::MAX, Unit::Pages) >= size);
            // SAFETY: none; as above.
            unsafe { pointer(p + 7).write(1) };
            model.cache.allocate_zeroed(layout(size), &Config::new(), |_| ());
        });
        assert_eq!(
            zeroed,
            format!("block P of {size} bytes was written to after it had been freed, at byte 7")
        );
    }
}

/// What no free memory may hold where blocks are wiped.
const SECRET: u64 = 0xC0FF_EE5E_C2E7_A11D;

/// Fills a block with the secret.
fn confide(live: &Live) {
    let size = live.layout.size();
    let to = pointer(live.p);
    for at in (live.p.next_multiple_of(8) - live.p..size.saturating_sub(7)).step_by(8) {
        // SAFETY: the block is ours and as long.
        unsafe { to.add(at).cast::<u64>().write(SECRET) };
    }
}

/// Where the secret still is outside of the live blocks.
fn leaks(os: &Fake, blocks: &[Live]) -> Option<usize> {
    let mut live: Vec<Span> = blocks.iter().map(|l| Span::new(l.p, l.layout.size())).collect();
    live.sort_by_key(|s| s.start);
    for vma in os.vmas().into_iter().filter(|vma| vma.attributes.access == Access::Open) {
        for page in vma.range.clone().step_by(64 * KIB).filter(|&p| {
            use crate::os::Os;
            os.resident(p, (64 * KIB).min(vma.range.end - p)) != Some(0)
        }) {
            let words = (64 * KIB).min(vma.range.end - page) / 8;
            // SAFETY: the range is mapped and accessible, and nobody writes to it now.
            let words = unsafe { std::slice::from_raw_parts(pointer(page).cast::<u64>(), words) };
            for (n, _) in words.iter().enumerate().filter(|&(_, &word)| word == SECRET) {
                let at = page + n * 8;
                let after = live.partition_point(|s| s.start <= at);
                if after == 0 || live[after - 1].end() <= at {
                    return Some(at);
                }
            }
        }
    }
    None
}

#[test]
fn what_was_cut_off_in_small_pages_stayed_where_the_kernel_drops_no_pages() {
    let os = fake(2 << 30);
    let model = Model::new(os.clone(), 512 * MIB, Config::new().wipe_on_free(true));
    let apart = Layout::from_size_align(MIB, 4 * MIB).unwrap();
    let mut block = model.allocate(apart, false, 1).expect("memory");
    assert!(model.resize(&mut block, 3 * MIB, 2) && model.cache.is_thin(block.block()));
    let mut block = block.soiled();
    confide(&block);
    // As memory that is locked, before Linux 5.18.
    os.fail(Call::Purge, When::From(1), errno::EINVAL);
    assert!(model.resize(&mut block, 5 * MIB / 2, 3));
    assert_eq!(leaks(&os, std::slice::from_ref(&block)).map(|at| at - block.p), None);
    os.fail_no_more();
    finish(&model, vec![block.soiled()], true);
}

#[test]
fn no_secret_outlives_its_block() {
    for config in [Config::new().wipe_on_free(true), Config::new().wipe_on_free(true).checked(true)] {
        for seed in 0..u64::from(times(3)) {
            let os = fake(2 << 30);
            let mut model = Model::new(os.clone(), 512 * MIB, config);
            model.may_refuse = true;
            if seed % 3 == 2 {
                // Moves that fail halfway are copied home, and the copies must not stay.
                os.fail(Call::Move, When::Every(2), errno::ENOMEM);
                os.fail(Call::Plug, When::Every(2), errno::ENOMEM);
            }
            let mut blocks: Vec<Live> = Vec::new();
            for (turn, op) in drawn(seed ^ 5, 50, 8 * MIB).into_iter().enumerate() {
                one(&model, op, &mut blocks, 24 * MIB, turn as u64);
                blocks = blocks.into_iter().map(Live::soiled).collect();
                blocks.iter().for_each(confide);
                assert_eq!(
                    leaks(&os, &blocks).map(|at| format!("{at:#x}")),
                    None,
                    "after {op:?}, turn {turn}"
                );
            }
            os.fail_no_more();
            finish(&model, blocks, true);
        }
    }
}

#[test]
fn wiping_faults_nothing_in() {
    let os = fake(2 << 30);
    let model = Model::new(os.clone(), 512 * MIB, Config::new().wipe_on_free(true));
    let p = model.cache.allocate(layout(200 * MIB), &Config::new().wipe_on_free(true), |_| ());
    let before = os.resident_bytes();
    os.touch(p.addr() + 100 * MIB, 3);
    model.cache.deallocate(p, layout(200 * MIB));
    assert!(os.resident_bytes() <= before + 2 * CHUNK, "{} KiB", (os.resident_bytes() - before) / KIB);
}
