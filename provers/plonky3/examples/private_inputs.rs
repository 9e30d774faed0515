//! Reads private inputs from a file or standard input straight into protected memory, and proves with them: that one
//! knows states whose Keccak-f permutations are what the trace says. Shows what protection is in force.
//!
//! ```sh
//! head -c 2000 /dev/urandom | cargo run --release -p prove-plonky3 --example private_inputs
//! cargo run --release -p prove-plonky3 --example private_inputs -- witness.bin
//! ```
//!
//! A state is 200 bytes, 25 little-endian words. What this cannot protect: the trace that the prover makes of the inputs
//! is ordinary memory, as long as a proof takes; `Config::wipe_on_free` wipes it when it is freed.

#[expect(dead_code, reason = "the package proves another statement too")]
#[path = "../src/statements.rs"]
mod statements;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::rc::Rc;

use p3_dft::Radix2DitParallel;
use prove_harness::{Error, Prover, Rows, finish};
use zk_nalloc::{Config, NAlloc, Secret, SecretBuf};

#[global_allocator]
static GLOBAL: NAlloc = NAlloc::with_config(Config::new().wipe_on_free(true));

/// Words of a state.
const WORDS: usize = 25;

/// Rows of the trace that a state takes.
const ROUNDS: usize = 24;

/// The most that is read, in bytes.
const AT_MOST: usize = 1 << 24;

fn private_inputs(path: Option<String>) -> io::Result<SecretBuf> {
    let source = match path {
        Some(path) => File::open(path)?,
        // `io::stdin()` itself keeps a buffer; its descriptor does not.
        None => File::from(io::stdin().as_fd().try_clone_to_owned()?),
    };
    SecretBuf::read_to_end(source, AT_MOST)
}

fn run() -> Result<(), Error> {
    let inputs = private_inputs(std::env::args().nth(1))
        .map_err(|cause| Error::doing("reading the private inputs", cause))?;
    println!("{} bytes of private inputs\n\n{}\n", inputs.len(), inputs.status());
    let inputs = Secret::<[u64]>::from_buf(inputs)
        .map_err(|odd| Error::new(format!("{odd:?} is no whole number of words")))?;
    let states = inputs.len() / WORDS;
    if states == 0 {
        return Err(Error::new("a state is 200 bytes, and less was read"));
    }
    let rows: Rows = format!("2^{}", (states * ROUNDS).next_power_of_two().ilog2())
        .parse()
        .map_err(|cause| Error::doing("counting rows", cause))?;
    let inputs = Rc::new(inputs);
    let statement = statements::keccak_of(rows, Radix2DitParallel::default(), move |_| {
        inputs.expose(|words| {
            let state = |chunk: &[u64]| std::array::from_fn(|i| u64::from_le(chunk[i]));
            words.chunks_exact(WORDS).map(state).collect()
        })
    });
    let proof = statement.prove()?;
    statement.verify(&proof)?;
    println!("{states} permutations in {rows} rows: proved and verified");
    Ok(())
}

fn main() -> ExitCode {
    finish(run())
}
