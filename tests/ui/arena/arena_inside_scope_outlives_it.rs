use zk_nalloc::Arena;

fn main() {
    let mut arena = Arena::with_capacity(1).unwrap();
    arena.scope(|outer| {
        let arena: &Arena = outer;
        outer.scope(|_| ());
        arena.alloc(1);
    });
}
