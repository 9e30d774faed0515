fn main() {
    let mut arena = zk_nalloc::TypedArena::new();
    let x = arena.alloc(1);
    arena.reset();
    *x += 1;
}
