//! The stop-watch of a round: what a pattern puts between its hands is what is compared.
//!
//! Why it is here: a pattern also has to prepare and to check, and that must not count. Time and what the kernel
//! charged meanwhile are kept together, so no figure covers another stretch than the time does.

use std::time::Instant;

use prove_harness::usage::Usage;

/// Adds up the timed stretches of one round.
#[derive(Debug)]
pub struct Watch {
    /// Wall time, in seconds.
    pub seconds: f64,
    /// What the kernel charged, all threads together.
    pub usage: Usage,
}

impl Default for Watch {
    fn default() -> Self {
        let usage = Usage { minor_faults: 0, major_faults: 0, user_seconds: 0.0, kernel_seconds: 0.0 };
        Self { seconds: 0.0, usage }
    }
}

impl Watch {
    /// Runs `stretch` and counts it.
    pub fn timed<R>(&mut self, stretch: impl FnOnce() -> R) -> R {
        let before = Usage::now();
        let start = Instant::now();
        let result = stretch();
        self.seconds += start.elapsed().as_secs_f64();
        self.charge(Usage::now().since(before));
        result
    }

    /// Counts what another watch counted.
    pub fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.charge(other.usage);
    }

    fn charge(&mut self, spent: Usage) {
        self.usage.minor_faults += spent.minor_faults;
        self.usage.major_faults += spent.major_faults;
        self.usage.user_seconds += spent.user_seconds;
        self.usage.kernel_seconds += spent.kernel_seconds;
    }
}
