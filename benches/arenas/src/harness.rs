//! Turns, minima, medians and faults.

use std::time::Instant;

/// One way to do a row's work: its name, and a call that does it and says how many seconds count.
pub type Way<'a> = (&'a str, Box<dyn FnMut() -> f64 + 'a>);

/// Times a call.
pub fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Prints the head of a group: `what` is done, and time is in `unit`.
pub fn head(what: &str, unit: &str, reference: &str) {
    println!("\n{what} [{unit}; x is the ratio of medians to {reference}]");
    println!("| row | arena | least | median | x | faults |\n|---|---|--:|--:|--:|--:|");
}

/// Runs all ways `turns` times in alternating order, after one turn that does not count, and prints a line each.
/// Times are multiplied by `scale`; faults are those of one turn on average.
pub fn row(label: &str, scale: f64, turns: usize, reference: &str, ways: &mut [Way<'_>]) {
    let mut times = vec![Vec::with_capacity(turns); ways.len()];
    let mut faulted = vec![0; ways.len()];
    for turn in 0..=turns {
        let forth = turn % 2 == 0;
        for step in 0..ways.len() {
            let i = if forth { step } else { ways.len() - 1 - step };
            let before = faults();
            let time = (ways[i].1)() * scale;
            if turn > 0 {
                times[i].push(time);
                faulted[i] += faults() - before;
            }
        }
    }
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    let median = |i: usize| times[i][turns / 2];
    let base = ways.iter().position(|way| way.0 == reference).map_or(f64::NAN, median);
    for (i, (name, _)) in ways.iter().enumerate() {
        let (least, middle) = (times[i][0], median(i));
        let (ratio, faults) = (middle / base, faulted[i] / turns as i64);
        println!("| {label} | {name} | {least:.3} | {middle:.3} | {ratio:.2} | {faults} |");
    }
}

/// Page faults of this process so far.
pub fn faults() -> i64 {
    // SAFETY: zeros are a value of `rusage`, and it is valid to write to.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_minflt + usage.ru_majflt
    }
}

/// A small seeded generator (splitmix64), so that every peer does the same work.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}
