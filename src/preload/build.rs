//! Link arguments of libcuvisor.so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=start.ld");
    let folder = env!("CARGO_MANIFEST_DIR");
    let arguments = [
        // The libc crate names -lc itself only while nothing in the workspace switches on its `std` feature.
        "-lc",
        // Our own names mean our own functions here, whoever else exports them. Plain -Bsymbolic would do more: the
        // loader then searches this library first for RTLD_DEFAULT, too.
        "-Wl,-Bsymbolic-functions",
        "-Wl,-z,relro,-z,now",
        "-Wl,-z,noexecstack",
        // The rest is for the start, which is made of page faults: one segment for code and constants (an option of lld,
        // rustc's own linker here since 1.90), the code of the start first, and none of the compiler's start files,
        // whose work is for C++ and for dlclose.
        "-Wl,--no-rosegment",
        &format!("-Wl,-T,{folder}/start.ld"),
        "-nostartfiles",
    ];
    for argument in arguments {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
