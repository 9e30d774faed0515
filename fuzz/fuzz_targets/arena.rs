//! Any sequence of operations on an arena, its scopes and collections: blocks stay apart and unharmed, zeros are zero.
//! `cargo +nightly fuzz run arena`

#![no_main]

use allocator_api2::vec::Vec as ArenaVec;
use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use zk_nalloc::Arena;
use zk_nalloc::arena::Scope;

#[derive(Arbitrary, Debug)]
enum Op {
    Bytes { len: u16, fill: u8 },
    Aligned { len: u16, shift: u8 },
    Zeroed(u16),
    Worker { chunk: u16, sizes: Vec<u16> },
    Vectors(Vec<(bool, u16)>),
    Scope(Vec<Op>),
}

fn run<'s>(scope: &mut Scope<'s, '_>, ops: &[Op], depth: u32) {
    let mut live: Vec<(&'s mut [u8], u8)> = Vec::new();
    for op in ops {
        match op {
            Op::Bytes { len, fill } => {
                if let Ok(bytes) = scope.try_alloc_slice_fill_with((*len).into(), |_| *fill) {
                    live.push((bytes, *fill));
                }
            }
            Op::Aligned { len, shift } => {
                let layout = std::alloc::Layout::from_size_align((*len).into(), 1 << (shift % 22));
                let Ok(layout) = layout else { continue };
                if let Ok(block) = scope.try_alloc_layout(layout) {
                    assert_eq!(block.addr().get() % layout.align(), 0);
                    // SAFETY: the block was just handed out, of that size.
                    unsafe { block.write_bytes(0xEE, layout.size()) };
                }
            }
            Op::Zeroed(len) => {
                if let Ok(zeros) = scope.try_alloc_zeroed::<u8>((*len).into()) {
                    assert!(zeros.iter().all(|&zero| zero == 0));
                    zeros.fill(0xFF);
                    live.push((zeros, 0xFF));
                }
            }
            Op::Worker { chunk, sizes } => {
                let worker = scope.worker_with_chunk((*chunk).into());
                for size in sizes {
                    let _ = worker.try_alloc_slice_fill_with((*size).into(), |_| 0xDD_u8);
                }
            }
            Op::Vectors(pushes) => {
                let scope = &*scope;
                let (mut a, mut b) = (ArenaVec::new_in(scope), ArenaVec::new_in(scope));
                for (first, n) in pushes {
                    let vector = if *first { &mut a } else { &mut b };
                    if vector.try_reserve((*n).into()).is_ok() {
                        vector.extend(std::iter::repeat_n(*first, (*n).into()));
                    }
                    if n % 3 == 0 {
                        vector.truncate((n / 2).into());
                        vector.shrink_to_fit();
                    }
                }
                assert!(a.iter().all(|&x| x) && b.iter().all(|&x| !x));
            }
            Op::Scope(inner) if depth < 8 => {
                let used = scope.used();
                scope.scope(|scope| run(scope, inner, depth + 1));
                assert_eq!(scope.used(), used);
            }
            Op::Scope(_) => {}
        }
        assert!(live.iter().all(|(bytes, fill)| bytes.iter().all(|byte| byte == fill)));
    }
}

fuzz_target!(|rounds: Vec<(Vec<Op>, u8)>| {
    let mut arena = Arena::with_capacity(1 << 19).unwrap();
    for (ops, end) in rounds {
        arena.scope(|scope| run(scope, &ops, 0));
        match end % 3 {
            0 => arena.reset(),
            1 => arena.wipe(),
            _ => drop(arena.reset_and_release()),
        }
    }
});
