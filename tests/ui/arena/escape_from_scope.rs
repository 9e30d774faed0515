fn main() {
    let mut arena = zk_nalloc::Arena::with_capacity(1).unwrap();
    let mut escaped = None;
    arena.scope(|scope| escaped = Some(scope.alloc(1)));
    drop(escaped);
}
