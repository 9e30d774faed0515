//! Reads private inputs straight into protected memory, and hands them to a prover as a slice.
//!
//! ```sh
//! cargo run --example private_inputs -- witness.bin      # from a file
//! head -c 800 /dev/urandom | cargo run --example private_inputs
//! STRICT=1 cargo run --example private_inputs -- witness.bin   # a refused protection is an error, of a pipe too
//! ```
//!
//! The inputs are little-endian words. What stands for a prover here commits to them by a polynomial over
//! the Goldilocks field, evaluated at a public point; only the commitment is printed.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::ExitCode;

use zk_nalloc::secret::{Policy, Protection};
use zk_nalloc::{Secret, SecretBuf};

/// The most that is read where the length is not known, in bytes.
const AT_MOST: usize = 1 << 30;

/// Reads everything into protected memory. No buffered reader: it would keep a copy on the heap.
pub(crate) fn read_private_inputs(path: Option<&str>, protection: Protection) -> io::Result<SecretBuf> {
    let mut file = match path {
        Some(path) => File::open(path)?,
        // `io::stdin()` itself buffers; its descriptor does not.
        None => File::from(io::stdin().as_fd().try_clone_to_owned()?),
    };
    let about = file.metadata()?;
    if path.is_some() && about.is_file() {
        // The length is known, so the file goes to its place in one step.
        let len = usize::try_from(about.len()).map_err(io::Error::other)?;
        let mut inputs = SecretBuf::with_protection(len, protection)?;
        inputs.expose_mut(|bytes| file.read_exact(bytes))?;
        let mut more = SecretBuf::with_protection(1, protection)?;
        if more.expose_mut(|byte| file.read(byte))? != 0 {
            return Err(io::Error::other(format!("there is more in it than the {len} bytes that it had")));
        }
        Ok(inputs)
    } else {
        // The length of a pipe or a device is told as 0.
        SecretBuf::read_to_end_with_protection(file, AT_MOST, protection)
    }
}

/// A prover takes the private inputs here, as a slice. With a real one: the example of this name in `provers/plonky3`.
fn prove(private: &[u64]) -> u64 {
    const GOLDILOCKS: u128 = 0xffff_ffff_0000_0001;
    const POINT: u128 = 7;
    let horner = |sum: u128, &word: &u64| (sum * POINT + u128::from(u64::from_le(word))) % GOLDILOCKS;
    private.iter().fold(0, horner) as u64
}

fn run() -> io::Result<()> {
    let path = std::env::args().nth(1);
    let policy = if std::env::var_os("STRICT").is_some() { Policy::Strict } else { Policy::BestEffort };
    let inputs = read_private_inputs(path.as_deref(), Protection::standard().with_policy(policy))?;
    println!("{} bytes of private inputs\n\n{}\n", inputs.len(), inputs.status());

    // The same bytes seen as words: aligned for them, and not copied.
    let inputs = Secret::<[u64]>::from_buf(inputs)
        .map_err(|odd| io::Error::other(format!("{odd:?} is no whole number of words")))?;
    println!("commitment: {:016x}", inputs.expose(prove));
    Ok(())
    // Dropped here: checked, wiped, unlocked and unmapped.
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("private_inputs: {error}");
            ExitCode::FAILURE
        }
    }
}
