//! Device memory is host memory here: enough for a client that copies something to and fro.
#![allow(non_snake_case, clippy::missing_safety_doc)]

use core::ffi::{c_int, c_void};

/// Memory of so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(out: *mut u64, len: usize) -> c_int {
    // SAFETY: malloc takes any size.
    let memory = unsafe { libc::malloc(len.max(1)) };
    if memory.is_null() {
        return 2;
    }
    // SAFETY: by the driver's contract `out` is a place for a device pointer.
    unsafe { out.write(memory as u64) };
    0
}

/// Gives memory back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(memory: u64) -> c_int {
    // SAFETY: by the driver's contract the memory came from cuMemAlloc.
    unsafe { libc::free(memory as *mut c_void) };
    0
}

/// Copies to the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, len: usize) -> c_int {
    // SAFETY: by the driver's contract both have `len` bytes and do not overlap.
    unsafe { (to as *mut u8).copy_from_nonoverlapping(from.cast(), len) };
    0
}

/// Copies from the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, len: usize) -> c_int {
    // SAFETY: as for the other direction.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(from as *const u8, len) };
    0
}
