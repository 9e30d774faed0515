use std::cell::Cell;
use zk_nalloc::TypedArena;

struct Loud<'a>(Cell<Option<&'a Node<'a>>>);

impl Drop for Loud<'_> {
    fn drop(&mut self) {}
}

struct Node<'a> {
    inner: Box<Vec<Loud<'a>>>,
}

fn main() {
    let arena = TypedArena::new();
    let a = arena.alloc(Node { inner: Box::new(vec![Loud(Cell::new(None))]) });
    a.inner[0].0.set(Some(a));
}
