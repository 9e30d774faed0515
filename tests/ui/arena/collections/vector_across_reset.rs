use allocator_api2::vec::Vec;

fn main() {
    let mut arena = zk_nalloc::Arena::with_capacity(1).unwrap();
    let mut vector = Vec::new_in(&arena);
    vector.push(1);
    arena.reset();
    vector.push(2);
}
