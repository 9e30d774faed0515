use zk_nalloc::TypedArena;

fn shorten<'short>(arena: &'short TypedArena<&'static str>) -> &'short TypedArena<&'short str> {
    arena
}

fn main() {
    let mut arena: TypedArena<&'static str> = TypedArena::new();
    shorten(&arena).alloc(String::from("gone").as_str());
    println!("{}", arena.as_mut_slice()[0]);
}
