use std::cell::Cell;

fn main() {
    let arena = zk_nalloc::Arena::with_capacity(1).unwrap();
    let cell: &Cell<i32> = arena.alloc(Cell::new(1));
    std::thread::scope(|scope| {
        scope.spawn(|| cell.set(2));
    });
}
