//! Link arguments of libcuvisor.so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // -Bsymbolic-functions: our own names mean our own functions here, whoever else exports them. Plain
    // -Bsymbolic would do more: the loader then searches this library first for RTLD_DEFAULT, too.
    // The libc crate names -lc itself only while nothing in the workspace switches on its `std` feature.
    for argument in ["-lc", "-Wl,-Bsymbolic-functions", "-Wl,-z,relro,-z,now", "-Wl,-z,noexecstack"] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
