fn main() {
    let mut arena = zk_nalloc::Arena::with_capacity(1).unwrap();
    arena.scope(|outer| {
        let inner = outer.scope(|inner| inner.alloc(1));
        *inner += 1;
    });
}
