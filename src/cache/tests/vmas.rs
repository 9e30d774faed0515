//! However long a process runs, its address space stays in few VMAs, and a purge makes them fewer.
//!
//! The fake kernel counts VMAs as Linux would merge them. `ZK_NALLOC_TEST_OPERATIONS=1000000` is the long form.

use std::alloc::Layout;

use super::fake;
use super::pattern::mix;
use crate::cache::Cache;
use crate::config::Config;
use crate::os::fake::{Call, Fake};

const MIB: usize = 1 << 20;

/// What a process may have: a fork takes 4 ms with 257 VMAs and 20 with 3,700 (measured).
const VMAS_MAX: usize = 2_000;

fn operations() -> usize {
    std::env::var("ZK_NALLOC_TEST_OPERATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000)
}

/// A length between 64 KiB and 16 MiB, as many of each power of two.
fn length(random: u64) -> usize {
    let power = 16 + random % 8;
    (1 << power) + (random >> 8) as usize % (1 << power)
}

/// Does mixed operations, each of which `seen` is shown the number of.
fn churn(cache: &Cache<Fake>, seed: u64, live_max: usize, mut seen: impl FnMut(usize)) {
    let config = Config::new();
    let mut blocks: Vec<(*mut u8, Layout)> = Vec::new();
    let mut live = 0;
    for turn in 0..operations() {
        let random = mix(seed ^ turn as u64);
        let size = length(random);
        let layout = Layout::from_size_align(size, 8).unwrap();
        if random >> 40 & 7 == 0 && !blocks.is_empty() {
            let at = (random >> 44) as usize % blocks.len();
            let (p, old) = blocks[at];
            let p = cache.reallocate(p, old, layout);
            assert!(!p.is_null());
            live = live + size - old.size();
            blocks[at] = (p, layout);
        } else {
            let zeroed = random >> 43 & 7 == 0;
            let p = if zeroed {
                cache.allocate_zeroed(layout, &config, |_| ())
            } else {
                cache.allocate(layout, &config, |_| ())
            };
            assert!(!p.is_null());
            blocks.push((p, layout));
            live += size;
        }
        while live > live_max {
            let (p, old) = blocks.swap_remove(mix(random) as usize % blocks.len());
            cache.deallocate(p, old);
            live -= old.size();
        }
        if random >> 50 & 0x3ff == 0 {
            cache.release();
        }
        seen(turn);
    }
    blocks.into_iter().for_each(|(p, layout)| cache.deallocate(p, layout));
}

#[test]
fn mixed_operations_keep_few_vmas_and_a_release_heals_what_they_left() {
    let os = fake(8 << 30);
    // Nothing is touched here, and all of it shall count as resident, so that pages are moved.
    os.set_facts(|facts| facts.residency = false);
    let cache = Box::new(Cache::with_reserve(os.clone(), os.clone(), 4 << 30, None));
    let mut most = 0;
    churn(&cache, 1, 256 * MIB, |turn| {
        if turn % 97 == 0 {
            most = most.max(os.vma_count());
        }
    });
    assert!(most < VMAS_MAX, "{most} VMAs");
    assert!(os.calls(Call::Move) > 100, "{} moves are no test", os.calls(Call::Move));
    cache.release();
    let healed = os.vma_count();
    eprintln!("{most} VMAs at most, {healed} after a release, {} moves", os.calls(Call::Move));
    // Two reservations, open at their start; the shards; the books' own memory.
    assert!(healed <= 16, "{healed} VMAs");
}
