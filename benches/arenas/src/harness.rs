//! Turns, minima, medians and faults, as a table or as lines for a program.

use std::time::Instant;

/// One way to do a row's work: its name, and a call that does it and says how many seconds count.
pub type Way<'a> = (&'a str, Box<dyn FnMut() -> f64 + 'a>);

/// Times a call.
pub fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// One turn of the least: shows that all is right, not how fast it is.
    pub quick: bool,
    /// Print the turns as lines of JSON, for a program, and not a table.
    pub raw: bool,
}

/// A group of rows that are compared in the same unit with the same reference.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    scale: Scale,
    what: &'a str,
    unit: &'a str,
    reference: &'a str,
}

impl<'a> Table<'a> {
    /// Begins the table: `what` is done, and time is in `unit`.
    pub fn new(scale: Scale, what: &'a str, unit: &'a str, reference: &'a str) -> Self {
        if !scale.raw {
            println!("\n{what} [{unit}; x is the ratio of medians to {reference}]");
            println!("| row | arena | least | median | x | faults |\n|---|---|--:|--:|--:|--:|");
        }
        Self { scale, what, unit, reference }
    }

    /// Runs all ways `turns` times in alternating order, after one turn that does not count, and prints them. Times are
    /// multiplied by `factor`, which makes them what the unit says.
    pub fn row(&self, label: &str, factor: f64, turns: usize, ways: &mut [Way<'_>]) {
        let turns = if self.scale.quick { 1 } else { turns };
        let mut measured = vec![Vec::with_capacity(turns); ways.len()];
        for turn in 0..=turns {
            let forth = turn % 2 == 0;
            for step in 0..ways.len() {
                let i = if forth { step } else { ways.len() - 1 - step };
                let before = faults();
                let time = (ways[i].1)() * factor;
                if turn > 0 {
                    measured[i].push((time, faults() - before));
                }
            }
        }
        if self.scale.raw {
            for (way, measured) in ways.iter().zip(&measured) {
                self.print_raw(label, way.0, measured);
            }
            return;
        }
        for measured in &mut measured {
            measured.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let median = |i: usize| measured[i][turns / 2].0;
        let base = ways.iter().position(|way| way.0 == self.reference).map_or(f64::NAN, median);
        for (i, (name, _)) in ways.iter().enumerate() {
            let faults = measured[i].iter().map(|turn| turn.1).sum::<i64>() / turns as i64;
            let (least, middle) = (measured[i][0].0, median(i));
            println!("| {label} | {name} | {least:.3} | {middle:.3} | {:.2} | {faults} |", middle / base);
        }
    }

    /// A line for each turn. None of the names holds what would have to be escaped.
    fn print_raw(&self, label: &str, arena: &str, measured: &[(f64, i64)]) {
        let Self { what, unit, reference, .. } = self;
        for (turn, (time, faults)) in measured.iter().enumerate() {
            println!(
                r#"{{"table":"{what}","row":"{label}","unit":"{unit}","reference":"{reference}","arena":"{arena}","turn":{turn},"time":{time:.4},"faults":{faults}}}"#
            );
        }
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
