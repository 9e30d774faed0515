//! The edges of what can be asked for: absurd sizes and alignments, every length near a boundary, many regions.

use std::alloc::Layout;

use super::model::{Live, Model};
use super::ops::{Hooks, finish};
use super::{fake, times};
use crate::config::Config;
use crate::os::fake::Fake;
use crate::os::{CHUNK, GRANULE, Linux};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

fn absurd<O: Hooks>(model: &mut Model<O>) {
    let mut small = model.allocate(layout(3 * MIB, 8), true, 1).unwrap();
    let mut long = model.allocate(layout(24 * MIB, 8), true, 1).unwrap();
    model.may_refuse = true;
    for size in [1 << 46, (1 << 47) - 4096, 1 << 47, 1 << 60, isize::MAX as usize - (1 << 21) + 1] {
        for align in [1, 8, GRANULE, CHUNK] {
            let Ok(layout) = Layout::from_size_align(size, align) else { continue };
            assert!(model.allocate(layout, false, 0).is_none());
            assert!(model.allocate(layout, true, 0).is_none());
        }
        assert!(!model.resize(&mut small, size, 0));
        assert!(!model.resize(&mut long, size, 0));
        model.audit(false);
    }
    for shift in 40..63 {
        let layout = layout(64 * KIB, 1 << shift);
        assert!(model.allocate(layout, false, 0).is_none(), "an address space without such a place");
        model.audit(false);
    }
    model.may_refuse = false;
    finish(model, vec![small, long], true);
}

#[test]
fn absurd_requests_get_null_and_change_nothing() {
    absurd(&mut Model::new(fake(2 << 30), 512 * MIB, Config::new()));
    absurd(&mut Model::new(fake(2 << 30), 8 << 30, Config::new()));
}

#[test]
fn matrices_begin_within_a_line_where_the_first_cache_has_few_ways() {
    for (ways, offset) in [(0, 32), (8, 32), (12, 0)] {
        let os = fake(2 << 30);
        os.set_facts(|facts| facts.l1_ways = ways);
        let model = Model::new(os, 512 * MIB, Config::new());
        // The third is as long as a vector is.
        let sizes = [40 * MIB, 20 * MIB, 64 * MIB, 96 * MIB];
        let blocks: Vec<Live> =
            sizes.iter().map(|&size| model.allocate(layout(size, 8), false, 0).unwrap()).collect();
        assert_eq!(blocks.iter().map(|live| live.p % 64).collect::<Vec<_>>(), [offset, 0, 0, offset]);
        finish(&model, blocks, true);
    }
}

#[test]
fn four_threads_gather_at_once_and_the_fifth_faults() {
    for (others, gathers) in [(0, true), (3, true), (4, false)] {
        let model = Model::new(fake(2 << 30), 512 * MIB, Config::new());
        // Free memory in pieces, none of which is long enough.
        let mut kept: Vec<Live> =
            (0..8).map(|_| model.allocate(layout(9 * MIB, 8), false, 1).unwrap()).collect();
        for nth in [6, 4, 2, 0] {
            model.free(kept.remove(nth));
        }
        model.cache.heap.pretend_movers(others);
        kept.push(model.allocate(layout(24 * MIB, 8), false, 1).unwrap());
        assert_eq!(model.cache.heap.books().moved > 0, gathers, "beside {others} others");
        finish(&model, kept, true);
    }
}

#[test]
fn the_real_kernel_refuses_absurd_sizes_too() {
    let mut model = Model::new(Linux, 1 << 36, Config::new());
    let block = model.allocate(layout(3 * MIB, 8), true, 1).unwrap();
    model.may_refuse = true;
    for size in [1 << 47, 1 << 60, isize::MAX as usize - (1 << 21) + 1] {
        assert!(model.allocate(layout(size, 8), false, 0).is_none());
    }
    model.may_refuse = false;
    finish(&model, vec![block], true);
}

#[test]
fn every_alignment_up_to_a_gib_is_served() {
    for reserve in [1 << 30, 1 << 40] {
        let model = Model::new(fake(6 << 30), reserve, Config::new());
        for round in 0..2 {
            for shift in 0..=30 {
                for size in [64 * KIB, 64 * KIB + 1, 2 * MIB, 3 * MIB + 5] {
                    let live = model.allocate(layout(size, 1 << shift), shift % 2 == round, 5).unwrap();
                    model.free(live);
                }
            }
            model.audit(true);
        }
        finish(&model, Vec::new(), true);
    }
}

#[test]
fn lengths_around_every_boundary_grow_and_shrink_into_each_other() {
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new());
    let around = |at: usize| [at - GRANULE - 1, at - GRANULE, at - 1, at, at + 1, at + GRANULE + 1];
    let sizes: Vec<usize> = [128 * KIB, MIB, 2 * MIB, 4 * MIB, 16 * MIB, 18 * MIB]
        .into_iter()
        .flat_map(around)
        .flat_map(|size| [size, size.saturating_sub(4032)])
        .filter(|&size| size >= 64 * KIB)
        .collect();
    let mut pinned: Vec<Live> = Vec::new();
    let mut block = model.allocate(layout(64 * KIB, 8), false, 1).unwrap();
    for (turn, &from) in sizes.iter().enumerate() {
        for &to in sizes.iter().skip(turn % 3).step_by(3) {
            for size in [from, to] {
                assert!(model.resize(&mut block, size, 3));
            }
        }
        // Something behind it, so that it cannot always grow in place.
        pinned.push(model.allocate(layout(64 * KIB, 8), true, turn as u64).unwrap());
        if pinned.len() > 6 {
            model.free(pinned.remove(0));
        }
        model.audit(false);
    }
    pinned.push(block);
    finish(&model, pinned, true);
}

/// Fills the address space with blocks of one length, and frees them in three orders.
fn fill(model: &mut Model<Fake>, size: usize, align: usize) -> usize {
    let mut most = 0;
    for order in 0..3 {
        model.may_refuse = true;
        let mut blocks: Vec<Live> =
            std::iter::from_fn(|| model.allocate(layout(size, align), order == 1, 2)).collect();
        model.may_refuse = false;
        most = most.max(blocks.len());
        model.audit(false);
        match order {
            0 => {}
            1 => blocks.reverse(),
            _ => {
                let (odd, even): (Vec<_>, Vec<_>) =
                    blocks.into_iter().enumerate().partition(|(at, _)| at % 2 == 1);
                blocks = odd.into_iter().chain(even).map(|(_, live)| live).collect();
            }
        }
        blocks.into_iter().for_each(|live| model.free(live));
        model.audit(false);
        model.cache.release();
    }
    most
}

#[test]
fn address_space_is_filled_to_its_end_over_several_regions() {
    let space = 3 << 29;
    for (reserve, size, align) in [
        (64 * MIB, 40 * MIB, 8),
        (64 * MIB, 3 * MIB, CHUNK),
        (8 << 30, 24 * MIB, 8),
        (8 << 30, 90 * MIB, 4096),
    ] {
        let mut model = Model::new(fake(space), reserve, Config::new());
        let most = fill(&mut model, size, align);
        // Alignments cost some of it, and reservations are twice what was asked for.
        assert!(most * size >= space / 4, "{most} blocks of {} KiB", size / KIB);
        model.audit_empty(true);
    }
}

#[test]
fn blocks_of_the_shortest_lengths_use_nodes_by_the_thousand() {
    let model = Model::new(fake(2 << 30), 512 * MIB, Config::new());
    let mut blocks: Vec<Live> = (0..times(4_000) as usize)
        .map(|turn| model.allocate(layout(64 * KIB + turn % 3 * 9_000, 8), false, turn as u64 * 8).unwrap())
        .collect();
    model.audit(false);
    for nth in [2, 3, 5] {
        let mut at = 0;
        for live in blocks.extract_if(.., |_| {
            at += 1;
            at % nth == 0
        }) {
            model.free(live);
        }
        model.cache.drain();
        model.audit(false);
    }
    finish(&model, blocks, true);
}
