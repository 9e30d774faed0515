//! Every call of the kernel fails once, in every manner: a load is done over and over, and each time the next call
//! fails. Nothing may be lost or handed out twice, contents stay, mappings of others stay untouched, and once the
//! kernel is willing again everything is as good as new.

use std::io::Write;

use super::draw::{MOVES, drawn};
use super::model::Model;
use super::ops::{Drive, Op, drive, finish};
use super::pattern::mix;
use super::{fake, times};
use crate::config::Config;
use crate::os::fake::errno;
use crate::os::fake::{Call, Fake, PurgeFailure, RemapFailure, When};

const MIB: usize = 1 << 20;
const SPACE: usize = 2 << 30;

/// What a sweep does again and again.
struct Load {
    ops: Vec<Op>,
    seed: u64,
    reserve: usize,
    config: Config,
}

impl Load {
    fn new(seed: u64, config: Config) -> Self {
        let reserve = if seed.is_multiple_of(2) { 64 * MIB } else { 256 * MIB };
        Self { ops: drawn(seed, 48, 40 * MIB), seed, reserve, config }
    }

    /// One that moves more: free memory lies in pieces when a long run is wanted, and long blocks grow.
    fn moving(seed: u64, config: Config) -> Self {
        let mut ops = Vec::new();
        let draw = |turn: usize, n: u64| mix(seed ^ (turn as u64) << 8) % n;
        for round in 0..4 {
            for turn in 0..8 {
                let size = MIB * (3 + draw(round * 8 + turn, 5) as usize);
                ops.push(Op::Allocate { size, align: 8, zeroed: turn == 3 });
            }
            ops.push(Op::FreeEvery { nth: 2 });
            // Each time of another length, of which nothing has been learned: how far it will be touched, say.
            ops.push(Op::Allocate { size: (17 + 4 * round) * MIB, align: 64, zeroed: false });
            ops.push(Op::Allocate { size: 5 * MIB, align: 64, zeroed: false });
            for size in [22, 29, 37] {
                // The block before the last, which has a neighbour.
                ops.push(Op::ResizeLast { back: 1, size: size * MIB });
            }
            ops.push(Op::FreeEvery { nth: 2 + draw(round, 2) as usize });
        }
        Self { ops, ..Self::new(seed, config) }
    }

    /// The same where nothing can be reserved.
    fn plain(seed: u64, config: Config) -> Self {
        Self { reserve: 2 * SPACE, ..Self::new(seed, config) }
    }

    /// Does the load over a kernel that `prepare` has told what shall fail.
    fn run(&self, prepare: impl FnOnce(&Fake)) -> Outcome {
        let os = fake(SPACE);
        prepare(&os);
        let mut model = Model::new(os.clone(), self.reserve, self.config);
        model.may_refuse = true;
        let how = Drive { live_max: 96 * MIB, audit_every: 12, seed: self.seed };
        let left = drive(&model, &self.ops, how);
        finish(&model, left, false);
        model.cache.release();
        model.audit(true);
        let outcome = Outcome {
            calls: Call::FAILING.map(|call| os.calls(call)),
            failed: os.calls_failed(),
            refused: model.refused(),
            vmas: os.vma_count(),
        };
        os.fail_no_more();
        os.limit_vmas(usize::MAX);
        os.limit_mapped_bytes(usize::MAX);
        model.may_refuse = false;
        // Willing again: what is asked for now is served, and all of it comes back.
        finish(&model, drive(&model, &self.ops[..8], Drive { seed: !self.seed, ..how }), true);
        outcome
    }

    /// Fails each call of one kind in turn, or of any kind that can fail. Gives how many failed.
    fn sweep(&self, call: Option<Call>, prepare: impl Fn(&Fake)) -> usize {
        let quiet = self.run(&prepare);
        assert_eq!(quiet.refused, 0, "memory is not short");
        let calls = call.map_or(quiet.calls.iter().sum(), |call| quiet.calls(call));
        let (mut failed, mut swept) = (0, 0);
        for n in 1..=calls {
            let Outcome { failed: now, refused, .. } = self.run(|os| {
                prepare(os);
                os.fail(call, When::Nth(n), errno::ENOMEM);
            });
            failed += now - quiet.failed.min(now);
            swept += 1;
            // The shards, without which nothing can be served; whoever asks again is.
            let shards = matches!(call, None | Some(Call::Map)) && n == 1;
            assert!(
                refused <= u64::from(shards),
                "{call:?} failed once, the {n}-th, and {refused} were refused"
            );
        }
        // Past the harness, which would keep it: a record is made of these lines.
        let _ = writeln!(
            std::io::stderr(),
            "counted: {swept} loads in which one {call:?} failed, each n of {calls}"
        );
        failed
    }
}

/// What came of a load.
struct Outcome {
    calls: [usize; Call::FAILING.len()],
    failed: usize,
    refused: u64,
    vmas: usize,
}

impl Outcome {
    /// How often a call was made.
    fn calls(&self, call: Call) -> usize {
        Call::FAILING.iter().zip(self.calls).find(|&(&c, _)| c == call).map_or(0, |(_, calls)| calls)
    }
}

fn loads(from: u64) -> impl Iterator<Item = Load> {
    let new = [Load::new, Load::moving];
    (from..from + u64::from(times(2))).map(move |seed| new[seed as usize % 2](seed, Config::new()))
}

fn moving_loads() -> impl Iterator<Item = Load> {
    (1..=u64::from(times(2))).map(|seed| Load::moving(seed, Config::new()))
}

#[test]
fn the_loads_of_the_sweeps_make_every_call() {
    let plans = [Load::new(1, Config::new()), Load::moving(2, Config::new()), Load::plain(1, Config::new())];
    let kernels: Vec<Outcome> = plans.iter().map(|load| load.run(|_| ())).collect();
    for call in Call::FAILING.into_iter().filter(|&call| call != Call::Plug) {
        assert!(kernels.iter().any(|os| os.calls(call) > 0), "{call:?} is never made");
    }
}

#[test]
fn every_mapping_fails_once() {
    for load in loads(1) {
        for call in [Call::Reserve, Call::Map, Call::Open, Call::Advise, Call::Resident, Call::Soften] {
            load.sweep(Some(call), |_| ());
        }
    }
    let plain = Load::plain(1, Config::new());
    for call in [Call::Reserve, Call::Map, Call::Unmap] {
        assert!(plain.sweep(Some(call), |_| ()) > 0, "{call:?}");
    }
}

#[test]
fn every_purge_fails_once() {
    for load in loads(1) {
        for failure in [PurgeFailure::Keeps, PurgeFailure::Halfway] {
            assert!(load.sweep(Some(Call::Purge), |os| os.fail_purges_by(failure)) > 0);
        }
    }
}

#[test]
fn every_remapping_fails_once() {
    for load in loads(1) {
        for failure in [RemapFailure::Clean, RemapFailure::Unmaps] {
            for call in [Call::Heal, Call::Close] {
                load.sweep(Some(call), |os| os.fail_remaps_by(failure));
            }
        }
    }
}

#[test]
fn every_move_fails_once() {
    for load in moving_loads() {
        for failure in MOVES {
            assert!(load.sweep(Some(Call::Move), |os| os.fail_moves_by(failure)) > 0);
        }
    }
}

#[test]
fn every_plug_fails_once_after_moves_and_remappings_that_fail() {
    for load in moving_loads() {
        let failed = load.sweep(Some(Call::Plug), |os| {
            os.fail(Call::Move, When::Every(2), errno::ENOMEM);
            os.fail(Call::Heal, When::Every(2), errno::ENOMEM);
            os.fail(Call::Close, When::Every(2), errno::ENOMEM);
            os.fail_remaps_by(RemapFailure::Unmaps);
        });
        assert!(failed > 0);
    }
}

#[test]
fn all_calls_of_a_kind_fail_from_some_point_on() {
    for load in loads(1) {
        for call in Call::FAILING {
            let calls = load.run(|_| ()).calls(call);
            for n in (1..=calls).step_by((calls / 6).max(1)) {
                load.run(|os| os.fail(call, When::From(n), errno::ENOMEM));
            }
        }
    }
}

#[test]
fn calls_fail_every_so_often_in_every_manner() {
    for load in loads(2) {
        for (turn, failure) in MOVES.into_iter().enumerate() {
            for every in [2, 3, 5, 11] {
                load.run(|os| {
                    os.fail_moves_by(failure);
                    os.fail_remaps_by([RemapFailure::Clean, RemapFailure::Unmaps][turn % 2]);
                    os.fail_purges_by([PurgeFailure::Keeps, PurgeFailure::Halfway][turn / 2]);
                    os.refuse_moves_of_several_vmas(turn % 2 == 1);
                    os.fail(None, When::Every(every), errno::ENOMEM);
                });
            }
        }
    }
}

#[test]
fn an_old_kernel_refuses_to_move_several_vmas_at_once() {
    for load in moving_loads() {
        let quiet = load.run(|os| os.refuse_moves_of_several_vmas(true));
        assert_eq!(quiet.refused, 0);
        assert!(quiet.calls(Call::Move) > 0);
        load.sweep(Some(Call::Advise), |os| os.refuse_moves_of_several_vmas(true));
    }
}

#[test]
fn vmas_run_out() {
    for load in loads(1) {
        for max in 1..load.run(|_| ()).vmas + 24 {
            load.run(|os| os.limit_vmas(max));
        }
    }
}

#[test]
fn address_space_runs_out() {
    for load in [Load::new(1, Config::new()), Load::moving(2, Config::new()), Load::plain(1, Config::new())] {
        for max in (0..400).step_by(16) {
            let Outcome { refused, .. } = load.run(|os| os.limit_mapped_bytes(max * MIB));
            assert!(refused == 0 || max < 360, "{max} MiB do, and {refused} were refused");
        }
    }
}
