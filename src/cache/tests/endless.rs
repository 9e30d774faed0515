//! Spelled sequences over the fake kernel in its short form: some hundred thousand operations a second.

use super::fake_in_short;
use super::model::Model;
use super::ops::{Op, finish, one};
use super::pattern::mix;
use super::spell::{Drawn, Letters, World};

const MIB: usize = 1 << 20;

/// Address space of a world, and what of it may be live.
const SPACE: usize = 2 << 30;
const LIVE_MAX: usize = 200 * MIB;
const BLOCKS_MAX: usize = 96;

/// Operations between two audits of the books, and between two that compare free memory and every chunk too.
const AUDIT_EVERY: u64 = 256;
const DEEP_EVERY: u64 = 16;

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Operations, each checked against the model.
    pub operations: u64,
    /// Calls that the fake kernel made fail.
    pub failures: u64,
    /// Requests that were refused for it.
    pub refused: u64,
    /// Walks over the whole heap.
    pub audits: u64,
}

impl Done {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            failures: self.failures + other.failures,
            refused: self.refused + other.refused,
            audits: self.audits + other.audits,
        }
    }
}

/// Does what is spelled, and checks all of it. Panics where the engine and the model differ.
fn run(world: &World, ops: impl Iterator<Item = Op>, seed: u64, audit_every: u64) -> Done {
    let mut done = Done::default();
    let os = fake_in_short(SPACE, seed);
    os.set_facts(|facts| {
        facts.page = world.page;
        facts.cpus = world.cpus;
        facts.moves = world.moves;
        facts.residency = world.residency;
        facts.soften = world.soften;
    });
    // More than there is: the reservation is refused, and memory is mapped outright.
    let reserve = if world.plain { 2 * SPACE } else { 512 * MIB };
    let mut model = Model::new(os.clone(), reserve, world.config);
    model.may_refuse = world.fails;
    let mut blocks = Vec::new();
    one(&model, Op::As { shard: 0 }, &mut blocks, 0, 0);
    for op in ops {
        if blocks.len() == BLOCKS_MAX {
            one(&model, Op::FreeEvery { nth: 2 }, &mut blocks, 0, 0);
        }
        one(&model, op, &mut blocks, LIVE_MAX, mix(seed ^ done.operations));
        done.operations += 1;
        if done.operations.is_multiple_of(audit_every) {
            done.audits += 1;
            model.audit(done.audits.is_multiple_of(DEEP_EVERY));
        }
    }
    done.failures = os.calls_failed() as u64;
    one(&model, Op::Relent, &mut blocks, 0, 0);
    done.refused = model.refused();
    finish(&model, blocks, true);
    done.audits += 3;
    done
}

fn spelled(mut letters: impl Letters, seed: u64) -> Done {
    let Some(world) = World::read(&mut letters) else { return Done::default() };
    run(&world, std::iter::from_fn(|| world.op(&mut letters)), seed, AUDIT_EVERY)
}

/// Does what bytes spell: the driver of the fuzzer.
pub fn from_bytes(bytes: &[u8]) -> Done {
    spelled(bytes, 0)
}

/// Does a sequence of about `operations` that is the same for the same seed.
pub fn from_seed(seed: u64, operations: usize) -> Done {
    spelled(letters(seed, operations), seed)
}

/// An operation is three letters and a half long.
fn letters(seed: u64, operations: usize) -> Drawn {
    Drawn::new(seed, operations as u64 * 7 / 2)
}

/// As few operations as will do of a sequence that fails, a line each, for a story.
pub fn shortest_from_seed(seed: u64, operations: usize) -> String {
    shortest(letters(seed, operations), seed)
}

/// The same of one that is spelled by bytes.
pub fn shortest_from_bytes(bytes: &[u8]) -> String {
    shortest(bytes, 0)
}

fn shortest(mut letters: impl Letters, seed: u64) -> String {
    let Some(world) = World::read(&mut letters) else { return String::new() };
    let mut ops: Vec<Op> = std::iter::from_fn(|| world.op(&mut letters)).collect();
    let fails = |ops: &[Op]| {
        let ops = ops.iter().copied();
        std::panic::catch_unwind(|| run(&world, ops, seed, AUDIT_EVERY)).is_err()
    };
    std::panic::set_hook(Box::new(|_| ()));
    // Each run ends with an audit, so what comes behind the fault is found to be superfluous first.
    let (mut sound, mut failing) = (0, ops.len());
    while failing - sound > 1 {
        let middle = sound.midpoint(failing);
        *if fails(&ops[..middle]) { &mut failing } else { &mut sound } = middle;
    }
    ops.truncate(failing);
    eprintln!("{world:?}, {failing} operations, the last of them {:?}", ops.last());
    let mut step = ops.len() / 2;
    while step > 0 {
        let mut at = 0;
        while at < ops.len() {
            let mut less = ops.clone();
            less.drain(at..(at + step).min(ops.len()));
            if fails(&less) {
                ops = less;
            } else {
                at += step;
            }
        }
        step /= 2;
    }
    drop(std::panic::take_hook());
    let lines: String = ops.iter().map(|op| format!("\n    {op:?},")).collect();
    format!("{world:?}{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::times;

    #[test]
    fn spelled_sequences_match_the_model() {
        let done =
            (0..u64::from(times(64))).map(|seed| from_seed(seed, 2_000)).fold(Done::default(), Done::plus);
        eprintln!("{done:?}");
        assert!(done.operations > 100_000 && done.failures > 200);
    }
}
