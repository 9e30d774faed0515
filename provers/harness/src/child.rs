//! The child: proves in this very process, verifies, and reports.
//!
//! Why it is here: resident memory and the state of an allocator cannot be wiped, so each pair of statement and
//! allocator gets a process of its own. A child can as well be started by hand, under `perf` or `strace`: with
//! `--allocator` a prover is one.
//!
//! Invariants: only the proof itself lies in the timed stretch (with its trace or witness, which the prover
//! allocates); every proof is verified, and one that does not hold ends the process with an error.

use std::hint::black_box;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use zk_nalloc::phase_named;

use crate::allocator::{Choice, VARIABLE};
use crate::cli::Settings;
use crate::error::Error;
use crate::record::{End, Event, Round};
use crate::usage::{Usage, peak_resident_bytes};

/// A statement that can be proved again and again.
pub trait Prover {
    /// What proves it.
    type Proof;

    /// Makes a proof, trace or witness included. This is what is timed.
    ///
    /// # Errors
    /// When the proof system refuses.
    fn prove(&self) -> Result<Self::Proof, Error>;

    /// Checks a proof.
    ///
    /// # Errors
    /// When the proof does not hold.
    fn verify(&self, proof: &Self::Proof) -> Result<(), Error>;
}

/// Proves what `prepare` makes, `settings.rounds` times in this process under the allocator `choice`, and prints
/// each [`Event`] as a line of JSON on standard output.
///
/// A process whose allocator is another one starts itself anew first, with [`VARIABLE`] set; it keeps its number,
/// so `perf` and `strace` follow it.
///
/// # Errors
/// When a proof fails or does not hold, or standard output is closed.
pub fn serve<P: Prover>(
    choice: Choice,
    settings: &Settings,
    prepare: impl FnOnce() -> P,
) -> Result<(), Error> {
    become_child(choice)?;
    rayon::ThreadPoolBuilder::new()
        .num_threads(settings.threads())
        .build_global()
        .map_err(|cause| Error::doing("starting the worker threads", cause))?;
    let prover = phase_named("prepare", prepare);
    if choice.is_ours() && settings.prefault > 0 {
        let bytes = zk_nalloc::prefault(settings.prefault << 20);
        eprintln!("faulted in before the first proof: {} MiB", bytes >> 20);
    }
    for round in 0..settings.rounds {
        report(&Event::Proof(one_round(&prover, round)?))?;
    }
    let nalloc = choice.is_ours();
    if nalloc && settings.stats {
        eprintln!("{}", zk_nalloc::stats());
    }
    let peak_resident_bytes =
        peak_resident_bytes().ok_or_else(|| Error::new("no VmHWM in /proc/self/status"))?;
    let hit_rate = nalloc.then(|| zk_nalloc::stats().hit_rate());
    report(&Event::End(End { peak_resident_bytes, hit_rate }))
}

/// Makes sure that this process allocates with `choice`, by starting anew where it does not.
fn become_child(choice: Choice) -> Result<(), Error> {
    if Choice::of_this_process() == choice {
        return Ok(());
    }
    // Once started anew with the variable set, the choice must hold: never try twice.
    if std::env::var_os(VARIABLE).is_some_and(|value| value == choice.name()) {
        return Err(Error::new(format!("{VARIABLE}={} had no effect", choice.name())));
    }
    let program = std::env::current_exe().map_err(|cause| Error::doing("finding this program", cause))?;
    let cause = Command::new(program).args(std::env::args_os().skip(1)).env(VARIABLE, choice.name()).exec();
    Err(Error::doing("starting this program anew", cause))
}

fn one_round<P: Prover>(prover: &P, round: u32) -> Result<Round, Error> {
    let before = Usage::now();
    let start = Instant::now();
    let name = if round == 0 { "prove, cold" } else { "prove, warm" };
    let proof = black_box(phase_named(name, || made(prover))?);
    let seconds = start.elapsed().as_secs_f64();
    let spent = Usage::now().since(before);
    let start = Instant::now();
    phase_named("verify", || prover.verify(&proof))?;
    Ok(Round {
        round,
        seconds,
        minor_faults: spent.minor_faults,
        major_faults: spent.major_faults,
        user_seconds: spent.user_seconds,
        kernel_seconds: spent.kernel_seconds,
        verify_seconds: start.elapsed().as_secs_f64(),
    })
}

/// Makes a proof as the allocator of the process wants it.
fn made<P: Prover>(prover: &P) -> Result<P::Proof, Error> {
    #[cfg(feature = "rival")]
    if Choice::of_this_process() == Choice::Rival {
        return crate::rival::around_proof(|| prover.prove());
    }
    prover.prove()
}

fn report(event: &Event) -> Result<(), Error> {
    let mut line = serde_json::to_string(event).map_err(|cause| Error::doing("writing a result", cause))?;
    line.push('\n');
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|cause| Error::doing("writing a result", cause))
}

#[cfg(test)]
mod tests {
    use super::{Error, Prover, one_round};

    /// Proves that it can count, or not.
    struct Counting {
        claim: usize,
    }

    impl Prover for Counting {
        type Proof = Vec<u8>;
        fn prove(&self) -> Result<Vec<u8>, Error> {
            Ok(vec![1; 1 << 20])
        }
        fn verify(&self, proof: &Vec<u8>) -> Result<(), Error> {
            if proof.len() == self.claim { Ok(()) } else { Err(Error::new("miscounted")) }
        }
    }

    #[test]
    fn a_round_is_timed_and_verified() {
        let round = one_round(&Counting { claim: 1 << 20 }, 3).expect("holds");
        assert!(round.round == 3 && round.seconds > 0.0 && round.verify_seconds >= 0.0);
        let error = one_round(&Counting { claim: 1 }, 0).expect_err("must not pass");
        assert_eq!(error.to_string(), "miscounted");
    }
}
