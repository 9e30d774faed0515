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
const AUDIT_EVERY: usize = 256;
const DEEP_EVERY: usize = 16;

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

/// Does what letters spell, and checks all of it. Panics where the engine and the model differ.
fn spelled(mut letters: impl Letters, seed: u64) -> Done {
    let mut done = Done::default();
    let Some(world) = World::read(&mut letters) else { return done };
    let os = fake_in_short(SPACE);
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
    while let Some(op) = world.op(&mut letters) {
        if blocks.len() == BLOCKS_MAX {
            one(&model, Op::FreeEvery { nth: 2 }, &mut blocks, 0, 0);
        }
        one(&model, op, &mut blocks, LIVE_MAX, mix(seed ^ done.operations));
        done.operations += 1;
        if done.operations.is_multiple_of(AUDIT_EVERY as u64) {
            done.audits += 1;
            model.audit(done.audits.is_multiple_of(DEEP_EVERY as u64));
        }
    }
    done.failures = os.calls_failed() as u64;
    one(&model, Op::Relent, &mut blocks, 0, 0);
    done.refused = model.refused();
    finish(&model, blocks, true);
    done.audits += 3;
    done
}

/// Does what bytes spell: the driver of the fuzzer.
pub fn from_bytes(bytes: &[u8]) -> Done {
    spelled(bytes, 0)
}

/// Does a sequence of about `operations` that is the same for the same seed.
pub fn from_seed(seed: u64, operations: usize) -> Done {
    // An operation is three letters and a half long.
    spelled(Drawn::new(seed, operations as u64 * 7 / 2), seed)
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
