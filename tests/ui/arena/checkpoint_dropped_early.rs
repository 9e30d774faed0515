fn main() {
    let mut arena = zk_nalloc::Arena::with_capacity(1).unwrap();
    let mut checkpoint = arena.checkpoint();
    let x = checkpoint.scope().alloc(1);
    drop(checkpoint);
    *x += 1;
}
