//! What the kernel has counted for the whole process, or for one of its threads: time, page faults, and the most memory it ever had.
//!
//! Why one call: `getrusage` answers all of it in half a microsecond, and in as much again for every fifty threads,
//! whose counters it adds up.

#![expect(unsafe_code, reason = "system calls")]

use core::ops::ControlFlow;

use super::sys::KeepErrno;
use super::text::named;
use super::{Linux, files, host};
use crate::os::{CHUNK, GRANULE, Huge, Os};
use crate::sync::process::{AtomicU64, Ordering};

/// The highest `ru_maxrss` that was another program's, in bytes: 0 where ours has been higher, [`UNKNOWN`] before anybody has asked.
static INHERITED: AtomicU64 = AtomicU64::new(UNKNOWN);

const UNKNOWN: u64 = u64::MAX;

/// What the process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Nanoseconds in user mode and in the kernel, of all threads. The sum is exact; how it is divided between the two
    /// goes, on most kernels, by what they were found doing at ticks of one to four milliseconds.
    pub(crate) user: u64,
    pub(crate) kernel: u64,
    /// Page faults served from memory, and those that waited for a device.
    pub(crate) minor: u64,
    pub(crate) major: u64,
    /// The most that was ever in memory, in bytes.
    pub(crate) resident_max: u64,
}

impl Usage {
    /// Of this process, up to now; all zero where the kernel refuses.
    pub(crate) fn now() -> Self {
        let told = Self::but_for_resident_max();
        Self { resident_max: own_max(told.resident_max), ..told }
    }

    /// The same, quicker; `resident_max` may be what another program had.
    pub(crate) fn but_for_resident_max() -> Self {
        Self::of(libc::RUSAGE_SELF)
    }

    /// Of the calling thread alone, but for `resident_max`.
    pub(crate) fn of_this_thread() -> Self {
        Self::of(libc::RUSAGE_THREAD)
    }

    fn of(who: libc::c_int) -> Self {
        const MICRO: u64 = 1_000;
        let _keep = KeepErrno::new();
        let time = |t: libc::timeval| (t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64) * MICRO;
        // SAFETY: all-zero is a valid `rusage`, and the kernel writes one there at most (O5).
        let usage = unsafe {
            let mut usage: libc::rusage = core::mem::zeroed();
            if libc::getrusage(who, &raw mut usage) != 0 {
                return Self::default();
            }
            usage
        };
        Self {
            user: time(usage.ru_utime),
            kernel: time(usage.ru_stime),
            minor: usage.ru_minflt as u64,
            major: usage.ru_majflt as u64,
            // In KiB.
            resident_max: (usage.ru_maxrss as u64) << 10,
        }
    }
}

/// Seconds since the host was started, sleep included: the clock by which the kernel tells when a process was started. `/proc/uptime`
/// may be that of the container (lxcfs).
pub(crate) fn since_boot() -> Option<f64> {
    let _keep = KeepErrno::new();
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec to write to.
    let told = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut t) } == 0;
    told.then_some(t.tv_sec as f64 + t.tv_nsec as f64 / 1e9)
}

/// The most that this program had in memory, where `getrusage` says `told`: that goes on from the program that was there before
/// `exec` (`exec_mmap`, fs/exec.c), which after `vfork` is all of its parent. As long as it is no more than that was, ours is asked
/// elsewhere, which takes some ten microseconds.
fn own_max(told: u64) -> u64 {
    // Relaxed, both: what another thread found a moment earlier or later holds as well.
    let mut inherited = INHERITED.load(Ordering::Relaxed);
    if inherited == UNKNOWN {
        inherited = if high_water().is_some_and(|own| own < told) { told } else { 0 };
        INHERITED.store(inherited, Ordering::Relaxed);
    }
    if told == inherited { high_water().unwrap_or(told) } else { told }
}

/// The most that this program had in memory, as `/proc` has it.
fn high_water() -> Option<u64> {
    let mut found = None;
    files::lines(c"/proc/self/status", &mut |line| match named(line, b"VmHWM:") {
        Some(kib) => {
            found = kib.checked_mul(1 << 10);
            ControlFlow::Break(())
        }
        None => ControlFlow::Continue(()),
    })?;
    found
}

/// What a page fault costs on this host now, in nanoseconds, without others: in a small page, and in a huge one, which is
/// the same where none are given. Faults in a few megabytes of its own: two milliseconds.
pub(crate) fn fault_costs() -> [u64; 2] {
    /// Faults of one try in small pages: enough that the clock's own cost does not show.
    const SMALL: usize = 128;
    [(Huge::Forbid, host::page(), SMALL), (Huge::Advise, CHUNK, 1)]
        .map(|(huge, step, faults)| fault_cost(&Linux, huge, step, faults))
}

/// The least of several tries, in the same memory each: whatever else the host does only ever adds to it. In memory that
/// is new each time a virtual machine may have to ask for it, which takes many times as long (five milliseconds for a huge
/// page were seen, a tenth of one where it was at hand), and whoever faults in every round is not asked for new memory.
fn fault_cost(os: &impl Os, huge: Huge, step: usize, faults: usize) -> u64 {
    const TRIES: usize = 8;
    let len = step * faults;
    let Ok(start) = os.map(len, CHUNK) else { return 0 };
    let _ = os.advise(start, len, huge);
    let mut least = u64::MAX;
    for _ in 0..TRIES {
        let before = os.now();
        (start..start + len).step_by(step).for_each(|at| super::touch(at, GRANULE));
        least = least.min(os.now().saturating_sub(before) / faults as u64);
        // Where memory is locked it stays, and would be touched without a fault.
        if os.purge(start, len).is_err() {
            break;
        }
    }
    let _ = os.unmap(start, len);
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::fake::{Call, Fake, When};

    #[test]
    fn faults_cost_something() {
        assert!(fault_costs().iter().all(|&cost| cost > 0 && cost < 1_000_000_000));
    }

    #[test]
    fn a_fault_is_tried_again_in_the_same_memory() {
        let os = Fake::new(CHUNK);
        let calls = || (os.calls(Call::Map), os.calls(Call::Purge), os.mapped_bytes());
        fault_cost(&os, Huge::Advise, CHUNK, 1);
        assert_eq!(calls(), (1, 8, 0));
        os.fail(Call::Purge, When::From(1), libc::EINVAL);
        fault_cost(&os, Huge::Advise, CHUNK, 1);
        assert_eq!(calls(), (2, 9, 0), "what is locked faults once");
    }

    /// Faults two thousand small pages in that nobody had before, as somebody may have had what a C library hands out.
    fn fault() {
        let (len, os) = (8 << 20, Linux);
        let start = os.map(len, CHUNK).unwrap();
        os.advise(start, len, Huge::Forbid).unwrap();
        crate::os::linux::touch(start, len);
        os.unmap(start, len).unwrap();
    }

    #[test]
    fn it_only_grows() {
        let before = Usage::now();
        fault();
        let after = Usage::now();
        assert!(before.resident_max > 1 << 20);
        assert!(after.minor > before.minor && after.resident_max >= before.resident_max);
        assert!(after.user + after.kernel >= before.user + before.kernel && after.major >= before.major);
    }

    #[test]
    fn the_most_is_what_this_program_had() {
        let told = Usage::now().resident_max;
        let own = high_water().expect("this kernel tells");
        // Counted for each processor by itself; and it may have grown since.
        assert!(told < own + (64 << 20), "{told} {own}");
    }

    #[test]
    fn a_thread_has_its_own_faults() {
        let faulted = || {
            let before = Usage::of_this_thread().minor;
            fault();
            Usage::of_this_thread().minor - before
        };
        let (here, before) = (faulted(), Usage::of_this_thread().minor);
        let there = std::thread::spawn(faulted).join().unwrap();
        let since = Usage::of_this_thread().minor - before;
        assert!(here > 0 && there > 0 && since < there, "{here}, {there}; meanwhile {since}");
    }
}
