//! How many VMAs mixed operations leave, and what a `fork` costs then.
//!
//! Allocates, resizes and frees blocks of 64 KiB to 64 MiB at random, each touched at its start and its end, with up to
//! so many MiB live; prints the VMAs of the process and the time of a fork now and then, and after a release.
//!
//! `cargo run --release --example vmas -- [operations] [MiB live] [seed]`

#![expect(unsafe_code, reason = "forks, to see how long it takes")]

use std::time::Instant;

use zk_nalloc::NAlloc;

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::new();

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let operations = arguments.next().unwrap_or(100_000);
    let live_max = arguments.next().unwrap_or(1024) << 20;
    let mut random = Random(arguments.next().unwrap_or(1) as u64);
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    let (mut live, mut most) = (0, 0);
    for turn in 0..operations {
        let len = length(&mut random);
        if random.below(8) == 0 && !blocks.is_empty() {
            let at = random.below(blocks.len());
            let block = &mut blocks[at];
            live -= block.capacity();
            // They are long as far as their room goes, so either is a `realloc`.
            if len > block.capacity() {
                block.reserve_exact(len);
            } else {
                block.shrink_to(len);
            }
            live += block.capacity();
        } else {
            blocks.push(touched(len));
            live += len;
        }
        while live > live_max {
            let gone = blocks.swap_remove(random.below(blocks.len()));
            live -= gone.capacity();
        }
        if (turn + 1) % (operations / 50).max(1) == 0 {
            most = most.max(vmas());
        }
        if (turn + 1) % (operations / 10).max(1) == 0 {
            report(&format!("{:>8} operations", turn + 1));
        }
    }
    println!("{most} VMAs at most, with up to {} MiB live", live_max >> 20);
    println!("{}", zk_nalloc::stats());
    drop(blocks);
    report("all freed");
    zk_nalloc::release_cache();
    report("released");
}

/// A block of which the first and the last page are touched, and one in each 2 MiB.
fn touched(len: usize) -> Vec<u8> {
    let mut block = Vec::with_capacity(len);
    for at in (0..len).step_by(2 << 20).chain([len - 1]) {
        block.spare_capacity_mut()[at].write(1);
    }
    block
}

/// A length between 64 KiB and 64 MiB, as many of each power of two.
fn length(random: &mut Random) -> usize {
    let power = 16 + random.below(10);
    (1 << power) + random.below(1 << power)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }
}

fn vmas() -> usize {
    std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count())
}

fn report(when: &str) {
    let forks: Vec<f64> = (0..5).map(|_| fork_ms()).collect();
    let best = forks.iter().copied().fold(f64::MAX, f64::min);
    println!("{when:<22}{:>6} VMAs, a fork takes {best:>7.2} ms", vmas());
}

/// Milliseconds that a `fork` keeps its caller.
fn fork_ms() -> f64 {
    let start = Instant::now();
    // SAFETY: the child leaves at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child without running anything.
        unsafe { libc::_exit(0) };
    }
    let time = start.elapsed().as_secs_f64() * 1e3;
    // SAFETY: waits for a child of ours; a null pointer asks for no status.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    time
}
