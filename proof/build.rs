//! Lets the drivers of the engine into the library.

fn main() {
    println!("cargo::rustc-cfg=proof");
    println!("cargo::rerun-if-changed=build.rs");
}
