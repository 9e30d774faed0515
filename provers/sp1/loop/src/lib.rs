//! Fibonacci numbers, proved by SP1: a loop of five instructions, run, arithmetized in shards, and proved by sum-checks over
//! columns that are committed to together.
//!
//! Why it is a crate of its own: it takes three minutes to compile, and a comparison of six allocators would compile it six times.

use std::fmt::Display;
use std::sync::Arc;

use slop_basefold::FriConfig;
use sp1_core_executor::{Instruction, Opcode, Program, SP1Context, SP1CoreOpts, add_halt};
use sp1_core_machine::io::SP1Stdin;
use sp1_core_machine::riscv::RiscvAir;
use sp1_core_machine::utils::prove_core;
use sp1_hypercube::prover::{
    CpuShardProver, CpuSimpleProver, PreprocessedData, ProvingKey, SP1InnerPcsProver, simple_prover,
};
use sp1_hypercube::{InnerSC, MachineProof, MachineVerifyingKey, SP1InnerPcs, SP1PcsProof, ShardVerifier};
use sp1_primitives::{SP1Field, SP1GlobalContext};
use tokio::runtime::{Builder, Runtime};

type Machine = CpuSimpleProver<SP1GlobalContext, SP1InnerPcs, SP1InnerPcsProver, RiscvAir<SP1Field>>;
type Shards = CpuShardProver<SP1GlobalContext, SP1InnerPcs, SP1InnerPcsProver, RiscvAir<SP1Field>>;

/// What proves a run: its shards, and how many instructions it took.
pub type Proof = (MachineProof<SP1GlobalContext, SP1PcsProof<SP1GlobalContext>>, u64);

/// Instructions of a turn.
const TURN: usize = 5;
/// Of which there are so many around the loop.
const AROUND: usize = 6;
/// As SP1 commits to core proofs (`CORE_MAX_LOG_ROW_COUNT`, `CORE_LOG_STACKING_HEIGHT` in `sp1-prover`, which is not needed else).
const MAX_LOG_ROWS: usize = 22;
const LOG_STACKING_HEIGHT: u32 = 21;

/// A program with its keys.
pub struct Loop {
    program: Arc<Program>,
    machine: Machine,
    key: PreprocessedData<ProvingKey<SP1GlobalContext, InnerSC<RiscvAir<SP1Field>>, Shards>>,
    verifying: MachineVerifyingKey<SP1GlobalContext>,
    runtime: Runtime,
}

impl Loop {
    /// A run of about so many instructions, on so many threads beside those of rayon.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn new(instructions: usize, threads: usize) -> std::io::Result<Self> {
        let turns = instructions.saturating_sub(AROUND).max(TURN) / TURN;
        let program = Arc::new(fibonacci(turns));
        let runtime = Builder::new_multi_thread().worker_threads(threads).build()?;
        let machine = simple_prover(ShardVerifier::from_basefold_parameters(
            FriConfig::default_fri_config(),
            LOG_STACKING_HEIGHT,
            MAX_LOG_ROWS,
            RiscvAir::machine(),
        ));
        let (key, verifying) = runtime.block_on(machine.setup(Arc::clone(&program)));
        Ok(Self { program, machine, key, verifying, runtime })
    }

    /// Runs the program and proves the run.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn prove(&self) -> Result<Proof, impl Display + use<>> {
        self.runtime.block_on(prove_core(
            &self.machine,
            Arc::clone(&self.key.pk),
            Arc::clone(&self.program),
            SP1Stdin::default(),
            SP1CoreOpts::default(),
            SP1Context::default(),
        ))
    }

    /// Checks a proof.
    ///
    /// # Errors
    /// When it does not hold.
    pub fn verify(&self, (proof, _): &Proof) -> Result<(), impl Display + use<>> {
        self.machine.verify(&self.verifying, proof)
    }
}

/// So many turns of a loop in which two registers become the later one and their sum.
fn fibonacci(turns: usize) -> Program {
    let [older, newer, sum, left] = [29, 30, 31, 28];
    let set = |to, from: u8, plus: i64| {
        Instruction::new(Opcode::ADDI, to, u64::from(from), plus.cast_unsigned(), false, true)
    };
    let back_by_four = (-16i64).cast_unsigned();
    let mut instructions = vec![
        set(older, 0, 0),
        set(newer, 0, 1),
        Instruction::new(Opcode::ADDI, left, 0, turns as u64, false, true),
        Instruction::new(Opcode::ADD, sum, u64::from(older), u64::from(newer), false, false),
        set(older, newer, 0),
        set(newer, sum, 0),
        set(left, left, -1),
        Instruction::new(Opcode::BNE, left, 0, back_by_four, false, true),
    ];
    add_halt(&mut instructions);
    Program::new(instructions, 0x1000, 0x1000)
}

#[cfg(test)]
mod tests {
    use super::Loop;

    #[test]
    fn it_takes_as_many_instructions_as_were_asked_for_and_a_wrong_proof_is_refused() {
        let run = Loop::new(1 << 8, 2).expect("starts");
        let proof = run.prove().unwrap_or_else(|error| panic!("{error}"));
        assert!((250..=256).contains(&proof.1), "{} instructions", proof.1);
        assert!(run.verify(&proof).is_ok());
        let other = Loop::new(1 << 7, 2).expect("starts");
        let shorter = other.prove().unwrap_or_else(|error| panic!("{error}"));
        assert!(other.verify(&shorter).is_ok());
        assert!(run.verify(&shorter).is_err());
    }
}
