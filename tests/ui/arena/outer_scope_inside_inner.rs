fn main() {
    let mut arena = zk_nalloc::Arena::with_capacity(1).unwrap();
    arena.scope(|outer| {
        outer.scope(|_| {
            outer.alloc(1);
        });
    });
}
