//! The process's environment as the driver will see it.
//!
//! Values are read from libc's `environ` directly. They are written with libc's own `setenv`, found
//! behind this library: bash exports functions of that name, and a plain call would be lost there (B04).

use core::ffi::{c_char, c_int, c_void};
use cuvisor_policy::buffer::Text;

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// The present value of a variable. It stays until the program changes the variable; copy it if a
/// foreign function is called meanwhile.
pub fn get<'a>(name: &str) -> Option<&'a [u8]> {
    entries().find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

fn entries<'a>() -> impl Iterator<Item = &'a [u8]> {
    let mut next = start();
    core::iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        // SAFETY: `environ` is an array that ends with NULL, and the loop stops there. As with getenv,
        // a program that changes its environment meanwhile in another thread breaks this.
        let entry = unsafe { next.read() };
        if entry.is_null() {
            return None;
        }
        next = next.wrapping_add(1);
        Some(crate::sys::c_text(entry))
    })
}

/// The array of the environment's strings.
pub fn start() -> *const *const c_char {
    // SAFETY: libc has set the variable before the first constructor runs; reading a pointer is one load.
    unsafe { environ }
}

/// Sets a variable unless it has the value already; says whether it has it now. A value that is in
/// place is never written again: other threads may be reading the environment (C22).
pub fn set(name: &str, value: &[u8]) -> bool {
    if get(name) == Some(value) {
        return true;
    }
    let (mut c_name, mut c_value) = (Text::<32>::of(name.as_bytes()), Text::<4100>::of(value));
    if !c_name.push(b"\0") || !c_value.push(b"\0") {
        return false;
    }
    let Some(setenv) = libc_setenv() else { return false };
    // SAFETY: both arguments end with the NUL just pushed, and setenv copies them.
    let result = unsafe { setenv(c_name.as_bytes().as_ptr().cast(), c_value.as_bytes().as_ptr().cast(), 1) };
    result == 0 && get(name) == Some(value)
}

type Setenv = unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> c_int;

fn libc_setenv() -> Option<Setenv> {
    let found = crate::loader::lookup(libc::RTLD_NEXT, c"setenv");
    if found.is_null() {
        return None;
    }
    // SAFETY: the next `setenv` behind this library is libc's, which has this type.
    Some(unsafe { core::mem::transmute::<*mut c_void, Setenv>(found) })
}
