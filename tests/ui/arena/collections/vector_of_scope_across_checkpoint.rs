use allocator_api2::vec::Vec;

fn main() {
    let mut arena = zk_nalloc::Arena::with_capacity(1).unwrap();
    arena.scope(|scope| {
        let mut vector = Vec::new_in(&*scope);
        vector.push(1);
        let inner = scope.checkpoint();
        vector.push(2);
        drop(inner);
    });
}
