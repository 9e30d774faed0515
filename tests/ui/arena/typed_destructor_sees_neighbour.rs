use std::cell::Cell;
use zk_nalloc::TypedArena;

struct Node<'a> {
    name: String,
    neighbour: Cell<Option<&'a Node<'a>>>,
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        println!("{}", self.neighbour.get().unwrap().name);
    }
}

fn main() {
    let arena = TypedArena::new();
    let a = arena.alloc(Node { name: String::new(), neighbour: Cell::new(None) });
    a.neighbour.set(Some(a));
}
