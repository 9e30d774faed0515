//! What the kernel charged this process: faults, processor time, peak resident memory.
//!
//! Why it is here: wall time is noisy, so every proof also reports what it made the kernel do. Read outside the
//! timed stretch; the difference of two readings is what lay between them.

#![expect(unsafe_code, reason = "getrusage")]

use std::mem::MaybeUninit;

/// Running totals of this process, all its threads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Page faults served without reading from a disk.
    pub minor_faults: u64,
    /// Page faults that had to read from a disk: not 0 means that the machine was short of memory.
    pub major_faults: u64,
    /// Processor time spent in user mode, in seconds.
    pub user_seconds: f64,
    /// Processor time spent in the kernel, in seconds.
    pub kernel_seconds: f64,
}

impl Usage {
    /// Reads the totals up to now.
    #[must_use]
    pub fn now() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` is writable and of the size that the call fills. With RUSAGE_SELF and a valid pointer it
        // cannot fail, and if it did, all-zero bytes are a valid `rusage` of integers.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        Self {
            minor_faults: usage.ru_minflt.cast_unsigned(),
            major_faults: usage.ru_majflt.cast_unsigned(),
            user_seconds: seconds(usage.ru_utime),
            kernel_seconds: seconds(usage.ru_stime),
        }
    }

    /// Returns what was spent since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            user_seconds: (self.user_seconds - earlier.user_seconds).max(0.0),
            kernel_seconds: (self.kernel_seconds - earlier.kernel_seconds).max(0.0),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "processor times are far below 2^52 seconds")]
fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

/// Reads the highest resident size that this process ever had (`VmHWM`), in bytes.
#[must_use]
pub fn peak_resident_bytes() -> Option<u64> {
    peak_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{Usage, peak_in, peak_resident_bytes};

    #[test]
    fn touching_memory_shows_as_faults_and_as_peak() {
        let before = Usage::now();
        let block = std::hint::black_box(vec![1_u8; 32 << 20]);
        let spent = Usage::now().since(before);
        assert!(spent.minor_faults > 0, "{spent:?}");
        assert!(peak_resident_bytes().is_some_and(|peak| peak > 32 << 20));
        drop(block);
    }

    #[test]
    fn the_peak_is_read_from_its_line_and_no_other() {
        assert_eq!(peak_in("Name:\tx\nVmPeak:\t  99 kB\nVmHWM:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(peak_in("Name:\tx\n"), None);
        assert_eq!(peak_in("VmHWM:\tmany kB\n"), None);
    }
}
