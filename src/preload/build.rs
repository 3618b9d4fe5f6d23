//! Link arguments of libcuvisor.so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The libc crate names -lc itself only while nothing in the workspace switches on its `std` feature.
    for argument in ["-lc", "-Wl,-z,relro,-z,now", "-Wl,-z,noexecstack"] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
