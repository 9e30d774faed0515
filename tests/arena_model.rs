//! An arena against a naive model: any sequence of operations leaves all live blocks disjoint, aligned, unharmed and
//! inside the capacity, zeros are zero, and the figures add up.

#![expect(unsafe_code, reason = "looks at raw blocks")]

use std::alloc::Layout;
use std::mem::MaybeUninit;

use proptest::prelude::*;
use zk_nalloc::Arena;
use zk_nalloc::arena::Scope;

const CAPACITY: usize = 256 << 10;

#[derive(Clone, Debug)]
enum Op {
    Block { size: usize, align: usize },
    Zeroed { len: usize },
    Copy { len: usize },
    Fill { len: usize },
    Worker { sizes: Vec<usize>, chunk: usize },
    Scope(Vec<Op>),
    Unwind(Vec<Op>),
}

#[derive(Clone, Debug)]
enum Round {
    Reset,
    Release,
    Wipe,
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![4 => 0..200_usize, 1 => 0..20_000_usize, 1 => Just(CAPACITY), 1 => Just(isize::MAX as usize / 2)];
    let leaf = prop_oneof![
        4 => (size, 0..14_u32).prop_map(|(size, shift)| Op::Block { size, align: 1 << shift }),
        2 => (0..3000_usize).prop_map(|len| Op::Zeroed { len }),
        1 => (0..300_usize).prop_map(|len| Op::Copy { len }),
        1 => (0..300_usize).prop_map(|len| Op::Fill { len }),
        1 => (prop::collection::vec(0..5000_usize, 0..8), 0..9000_usize)
            .prop_map(|(sizes, chunk)| Op::Worker { sizes, chunk }),
    ];
    leaf.prop_recursive(3, 24, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Op::Scope),
            prop::collection::vec(inner, 0..8).prop_map(Op::Unwind),
        ]
    })
}

/// A live block and the byte it is filled with.
struct Block<'s> {
    bytes: &'s mut [MaybeUninit<u8>],
    fill: u8,
}

impl<'s> Block<'s> {
    fn new(bytes: &'s mut [MaybeUninit<u8>], fill: u8) -> Self {
        bytes.fill(MaybeUninit::new(fill));
        Self { bytes, fill }
    }

    fn check(&self) {
        for byte in &*self.bytes {
            // SAFETY: the constructor has written all bytes.
            assert_eq!(unsafe { byte.assume_init() }, self.fill, "a block was harmed");
        }
    }
}

fn raw<'s>(at: *mut u8, len: usize) -> &'s mut [MaybeUninit<u8>] {
    // SAFETY: the callers pass a block that lives for the scope that they name.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), len) }
}

fn disjoint(blocks: &[Block<'_>]) {
    let mut ranges: Vec<_> =
        blocks.iter().map(|b| b.bytes.as_ptr_range()).filter(|range| !range.is_empty()).collect();
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "two blocks overlap");
}

/// Runs `ops` in a scope; blocks of the outer scopes are checked by them.
fn run<'s>(scope: &mut Scope<'s, '_>, ops: &[Op], fill: &mut u8) {
    let mut blocks: Vec<Block<'s>> = Vec::new();
    for op in ops {
        *fill = fill.wrapping_add(1).max(1);
        let used = scope.used();
        match op {
            Op::Block { size, align } => {
                let layout = Layout::from_size_align(*size, *align).unwrap();
                match scope.try_alloc_layout(layout) {
                    Ok(block) => {
                        assert!(block.addr().get().is_multiple_of(*align));
                        blocks.push(Block::new(raw(block.as_ptr(), *size), *fill));
                    }
                    Err(error) => {
                        assert_eq!((error.requested(), error.align()), (*size, *align));
                        assert!(error.remaining() < size + align, "refused what was there");
                        assert_eq!(scope.used(), used, "a refusal takes nothing");
                    }
                }
            }
            Op::Zeroed { len } => {
                if let Ok(zeros) = scope.try_alloc_zeroed::<u32>(*len) {
                    assert!(zeros.iter().all(|&zero| zero == 0), "stale bytes");
                    blocks.push(Block::new(raw(zeros.as_mut_ptr().cast(), len * 4), *fill));
                }
            }
            Op::Copy { len } => {
                if let Ok(copy) = scope.try_alloc_slice_copy(&vec![7_u16; *len]) {
                    assert_eq!(copy, vec![7; *len]);
                    blocks.push(Block::new(raw(copy.as_mut_ptr().cast(), len * 2), *fill));
                }
            }
            Op::Fill { len } => {
                if let Ok(filled) = scope.try_alloc_slice_fill_with(*len, |i| i as u64) {
                    assert!(filled.iter().enumerate().all(|(i, &x)| x == i as u64));
                    blocks.push(Block::new(raw(filled.as_mut_ptr().cast(), len * 8), *fill));
                }
            }
            Op::Worker { sizes, chunk } => {
                let worker = scope.worker_with_chunk(*chunk);
                for size in sizes {
                    if let Ok(bytes) = worker.try_alloc_array::<u8>(*size) {
                        // The worker's blocks live as long as its borrow of the scope; checked here and now.
                        let block = Block::new(bytes, *fill);
                        disjoint(&blocks);
                        block.check();
                    }
                }
            }
            Op::Scope(inner) => {
                scope.scope(|scope| run(scope, inner, fill));
                assert_eq!(scope.used(), used, "a scope gives back what it took");
            }
            Op::Unwind(inner) => {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    scope.scope(|scope| {
                        run(scope, inner, fill);
                        std::panic::resume_unwind(Box::new("on purpose"));
                    })
                }));
                assert_eq!(result.unwrap_err().downcast_ref(), Some(&"on purpose"), "another panic");
                assert_eq!(scope.used(), used, "a scope gives back what it took");
            }
        }
        assert!(scope.used() <= scope.capacity());
        assert_eq!(scope.used() + scope.remaining(), scope.capacity());
        assert!(scope.high_water() >= scope.used());
        disjoint(&blocks);
        blocks.iter().for_each(Block::check);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_keeps_blocks_apart_and_zeros_zero(
        rounds in prop::collection::vec(
            (prop::collection::vec(op(), 0..24), prop_oneof![2 => Just(Round::Reset), 1 => Just(Round::Release), 1 => Just(Round::Wipe)]),
            1..4,
        ),
        reserved in any::<bool>(),
    ) {
        let mut arena = if reserved { Arena::reserve(CAPACITY) } else { Arena::with_capacity(CAPACITY) }.unwrap();
        prop_assert_eq!(arena.capacity(), CAPACITY);
        let mut fill = 0;
        for (ops, end) in rounds {
            arena.scope(|scope| run(scope, &ops, &mut fill));
            prop_assert_eq!(arena.used(), 0);
            match end {
                Round::Reset => arena.reset(),
                Round::Release => drop(arena.reset_and_release()),
                Round::Wipe => arena.wipe(),
            }
            if !matches!(end, Round::Reset) {
                let all = arena.alloc_zeroed::<u8>(CAPACITY);
                prop_assert!(all.iter().all(|&byte| byte == 0));
                arena.reset();
            }
        }
    }
}
