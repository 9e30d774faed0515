fn main() {
    let arena = zk_nalloc::TypedArena::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            arena.alloc(1);
        });
    });
}
