//! The C library's functions that may not be there, as weak references to their oldest versions.
//!
//! The loader's functions moved from libdl to libc with glibc 2.34, under a new version of their names. A plain
//! reference is bound to that one by a linker of today, and the library then loads nowhere else. Needing libdl
//! instead would cost every start one more library to open. So the old version is asked for, which glibc of every
//! age has, in the one place or the other; and weakly, since an old program without libdl has it in neither, and
//! musl has some of the names not at all. Such a program never comes to a driver, and nothing here is called then.

use core::ffi::{c_int, c_void};

core::arch::global_asm!(
    ".weak dladdr",
    ".symver dladdr, dladdr@GLIBC_2.2.5",
    ".weak dlclose",
    ".symver dlclose, dlclose@GLIBC_2.2.5",
    ".weak dlerror",
    ".symver dlerror, dlerror@GLIBC_2.2.5",
    ".weak dlopen",
    ".symver dlopen, dlopen@GLIBC_2.2.5",
    ".weak dlvsym",
    ".symver dlvsym, dlvsym@GLIBC_2.2.5",
    ".weak __register_atfork",
    ".section .data.rel.ro.cuvisor_weak, \"aw\"",
    ".balign 8",
    ".hidden cuvisor_weak_dlvsym",
    ".globl cuvisor_weak_dlvsym",
    "cuvisor_weak_dlvsym:",
    ".quad dlvsym",
    ".hidden cuvisor_weak_atfork",
    ".globl cuvisor_weak_atfork",
    "cuvisor_weak_atfork:",
    ".quad __register_atfork",
    // The compiler's start files bring this along, and much that a library which is never unloaded does not need.
    ".hidden __dso_handle",
    ".globl __dso_handle",
    "__dso_handle:",
    ".quad 0",
    ".text",
);

type AtFork = unsafe extern "C" fn(*const c_void, *const c_void, Option<unsafe extern "C" fn()>, *const c_void) -> c_int;

unsafe extern "C" {
    static cuvisor_weak_dlvsym: *const c_void;
    static cuvisor_weak_atfork: Option<AtFork>;
    static __dso_handle: *const c_void;
}

/// Whether the loader's functions are there: dladdr, dlclose, dlerror, dlopen and dlvsym come and go together, but
/// for musl, which lacks only the last.
pub fn has_loader() -> bool {
    // SAFETY: the assembly above defines the word, which the loader fills before any code of the library runs.
    !unsafe { cuvisor_weak_dlvsym }.is_null()
}

/// Has `function` called in the child after each fork, where the C library can (glibc's part of pthread_atfork(3)).
pub fn at_fork(function: unsafe extern "C" fn()) {
    // SAFETY: the assembly above defines the word, which the loader fills before any code of the library runs.
    let Some(register) = (unsafe { cuvisor_weak_atfork }) else { return };
    // SAFETY: the word is this library's own, defined above.
    let library = unsafe { __dso_handle };
    // SAFETY: the function is code of this library, and touches atomics only, as a child of a threaded process must.
    unsafe { register(core::ptr::null(), core::ptr::null(), Some(function), library) };
}
