//! Gives the library the driver's soname, so that programs linked to libcuda.so.1 find it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Its own table of functions means its own functions, as the driver's does.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1,-Bsymbolic");
}
