use std::cell::Cell;

fn share<T: Sync>(_: &T) {}

fn main() {
    let arena = zk_nalloc::Arena::with_capacity(1).unwrap();
    share(arena.alloc(Cell::new(1)));
}
