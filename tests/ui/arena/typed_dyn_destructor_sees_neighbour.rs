use std::cell::RefCell;
use zk_nalloc::TypedArena;

trait Any {}
impl<T> Any for T {}

struct Node<'a> {
    inner: RefCell<Option<Box<dyn Any + 'a>>>,
}

fn main() {
    let arena = TypedArena::new();
    let a: &Node = arena.alloc(Node { inner: RefCell::new(None) });
    *a.inner.borrow_mut() = Some(Box::new(a));
}
