fn main() {
    let mut arena = zk_nalloc::Arena::with_capacity(1).unwrap();
    let worker = arena.worker();
    arena.reset();
    worker.alloc(1);
}
