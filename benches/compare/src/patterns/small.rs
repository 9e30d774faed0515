//! What costs nanoseconds: a warm pair of allocate and free, and small objects.

use std::hint::black_box;

use rayon::current_num_threads;

use super::{Case, Judge, Pattern};
use crate::block::Random;
use crate::scale::{MIB, Scale};

pub(super) fn list() -> Vec<Pattern> {
    vec![
        Pattern::new(
            "pair/1M",
            "allocate 1 MiB and free it, untouched, on one thread; time for a pair",
            pair,
        ),
        Pattern::new("pair-all/1M", "the same on every thread at once", pair_all),
        Pattern::new(
            "small",
            "500 live objects of 16 to 1,024 bytes on each thread, replaced at random",
            small,
        )
        .judged_by(Judge::SmallSide),
    ]
}

fn pairs(count: usize) {
    for _ in 0..count {
        drop(black_box(Vec::<u8>::with_capacity(black_box(MIB))));
    }
}

fn pair(scale: Scale) -> Case {
    let count = scale.count(100_000);
    Case::new(scale.rounds(12), move |watch| {
        watch.timed(|| pairs(count));
        // A block that is never touched takes no memory that could be counted.
        0
    })
    .per(count as u64)
}

fn pair_all(scale: Scale) -> Case {
    let count = scale.count(50_000);
    Case::new(scale.rounds(12), move |watch| {
        watch.timed(|| {
            rayon::broadcast(|_| pairs(count));
        });
        0
    })
    .per(count as u64)
}

#[expect(clippy::cast_possible_truncation, reason = "any byte of the number will do")]
fn small(scale: Scale) -> Case {
    let operations = scale.count(400_000);
    let mut round = 0;
    Case::new(scale.rounds(12), move |watch| {
        round += 1;
        watch.timed(|| {
            rayon::broadcast(|context| {
                let mut random = Random::new(round * 1000 + context.index() as u64);
                let mut objects: Vec<Vec<u8>> = (0..500).map(|_| vec![1; 16]).collect();
                for _ in 0..operations {
                    let word = random.next_word();
                    let (place, bytes) = ((word >> 32) as usize % 500, 16 + (word as usize & 1023) % 1009);
                    let (first, last) = (objects[place][0], objects[place][objects[place].len() - 1]);
                    assert_eq!(first, last, "an object of {} bytes lost its end", objects[place].len());
                    let mut object = Vec::with_capacity(bytes);
                    object.resize(bytes, word as u8);
                    objects[place] = object;
                }
            });
        });
        500 * 1024 * current_num_threads()
    })
    .per(operations as u64)
}
