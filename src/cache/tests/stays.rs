//! Blocks that grow and are touched hardly further than before.

use std::alloc::Layout;

use super::fake;
use super::model::Model;
use super::ops::finish;
use crate::config::Config;
use crate::os::fake::Fake;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

fn model() -> Model<Fake> {
    Model::new(fake(4 << 30), 2 << 30, Config::new())
}

/// Polynomials of `bytes` that double for what is written behind them, `more` of each, and some that stay as they are.
/// Gives what is resident then.
fn round(model: &Model<Fake>, bytes: usize, more: &[usize]) -> usize {
    let config = Config::new();
    let take = || {
        let p = model.cache.allocate(layout(bytes), &config, |_| ());
        model.os().touch(p.addr(), bytes);
        p
    };
    let polynomials: Vec<_> = more.iter().map(|_| take()).collect();
    let grown: Vec<_> = polynomials
        .into_iter()
        .zip(more)
        .map(|(p, &more)| {
            let p = model.cache.reallocate(p, layout(bytes), layout(2 * bytes));
            model.os().touch(p.addr(), bytes + more);
            p
        })
        .collect();
    let others: Vec<_> = more.iter().step_by(4).map(|_| take()).collect();
    let resident = model.os().resident_bytes();
    grown.into_iter().for_each(|p| model.cache.deallocate(p, layout(2 * bytes)));
    others.into_iter().for_each(|p| model.cache.deallocate(p, layout(bytes)));
    resident
}

/// Half of each lay on resident memory, which the others had to have faulted in: 388 and 1,169 MiB.
#[test]
fn vectors_that_get_one_element_more_leave_the_rest_of_their_room_to_others() {
    for (bytes, count, most) in [(8 * MIB, 24, 345), (64 * MIB, 8, 1000)] {
        let model = model();
        let rounds: Vec<_> = (0..8).map(|_| round(&model, bytes, &vec![64; count]) / MIB).collect();
        assert!(rounds.iter().all(|&resident| resident <= most), "{bytes}: {rounds:?}");
        finish(&model, Vec::new(), true);
    }
}

/// They would be faulted in, in each round.
#[test]
fn what_some_of_them_fill_is_expected_of_all() {
    let model = model();
    let bytes = 8 * MIB;
    let long = layout(2 * bytes);
    let reach = || model.cache.zeroing.reach_grown(bytes, long.size() + 4 * KIB);
    for _ in 0..8 {
        round(&model, bytes, &[64; 12]);
        assert!(reach() < 11 * MIB, "{}", reach() / KIB);
    }
    round(&model, bytes, &[64, 6 * MIB, 64, 6 * MIB, 64, 6 * MIB, 64, 6 * MIB]);
    assert!(reach() > 2 * bytes, "{}", reach() / KIB);
    for _ in 0..8 {
        round(&model, bytes, &[64, 64, 64, 4 * MIB]);
        assert!(reach() > 2 * bytes, "{}", reach() / KIB);
    }
    finish(&model, Vec::new(), true);
    // What was gathered for some of them beyond what they had tells nothing; what lies behind that does.
    let model = self::model();
    let bytes = 64 * MIB;
    let reach = || model.cache.zeroing.reach_grown(bytes, 2 * bytes + 4 * KIB);
    (0..6).for_each(|_| _ = round(&model, bytes, &[64; 8]));
    assert!(reach() < 81 * MIB, "{}", reach() / KIB);
    round(&model, bytes, &[40 * MIB; 8]);
    assert!(reach() > 2 * bytes, "{}", reach() / KIB);
    finish(&model, Vec::new(), true);
}
