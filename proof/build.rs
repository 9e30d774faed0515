//! Lets the drivers of the engine into the library.

fn main() {
    println!("cargo::rustc-cfg=zk_nalloc_proof");
    println!("cargo::rerun-if-changed=build.rs");
}
