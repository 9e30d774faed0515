fn main() {
    let mut arena = zk_nalloc::Arena::with_capacity(1).unwrap();
    let x = arena.alloc(1);
    arena.reset();
    *x += 1;
}
