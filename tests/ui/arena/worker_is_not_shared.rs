fn main() {
    let arena = zk_nalloc::Arena::with_capacity(1).unwrap();
    let worker = arena.worker();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            worker.alloc(1);
        });
    });
}
