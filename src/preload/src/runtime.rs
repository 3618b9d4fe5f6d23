//! What a library without std must bring along: allocator, panic handler, unwinder's names.

use core::alloc::{GlobalAlloc, Layout};

/// libc's malloc. Only libloading asks for it, for the text of an error.
struct Malloc;

// SAFETY: malloc and free keep GlobalAlloc's contract for every alignment up to 16, and larger ones are refused.
unsafe impl GlobalAlloc for Malloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > 16 {
            return core::ptr::null_mut();
        }
        // SAFETY: malloc takes any size; 16-byte alignment is the psABI's promise on x86-64.
        unsafe { libc::malloc(layout.size()) }.cast()
    }

    unsafe fn dealloc(&self, ptr: *mut u8, _: Layout) {
        // SAFETY: `ptr` came from `alloc` above, by GlobalAlloc's contract.
        unsafe { libc::free(ptr.cast()) }
    }
}

#[global_allocator]
static ALLOCATOR: Malloc = Malloc;

/// Not reached: clippy's denials keep panics out of this crate and of cuvisor-policy. If a compiler
/// change or a dependency made one reachable all the same, the thread would stop here rather than
/// take the host process down.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        crate::sys::pause();
    }
}

// The prebuilt `alloc` is compiled for unwinding and names these two. Nothing unwinds here
// (panic = "abort"); hidden, so that a program's own unwinder is never replaced by them.
core::arch::global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    "rust_eh_personality:",
    ".hidden _Unwind_Resume",
    ".globl _Unwind_Resume",
    "_Unwind_Resume:",
    "ud2",
);
