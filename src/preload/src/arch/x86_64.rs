//! x86-64, System V calling convention.

use core::ffi::{CStr, c_char, c_void};

/// The symbol version of glibc's oldest dlsym on this processor.
pub const DLSYM_VERSION: &CStr = c"GLIBC_2.2.5";

/// `dlsym`, exported. A name that is not in the table is left to the C library's dlsym by a jump, not
/// a call: RTLD_NEXT, RTLD_DEFAULT and dlerror look at the return address, which must stay the
/// program's (B01, B03). Names are told apart by their first letters here, since all of the table's
/// begin with `cuIn`, `cuDe`, `cuCt`, `cuGe` or `dl` (a test holds the two against each other); the rest is
/// [`crate::lookup::choose`]'s.
///
/// # Safety
/// As dlsym(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "test rsi, rsi",
        "jz 2f",
        "mov al, byte ptr [rsi]",
        "cmp al, 0x63", // c
        "je 3f",
        "cmp al, 0x64", // d
        "je 4f",
        "2:", // leave it to the C library
        "mov rax, qword ptr [rip + {page} + {real}]",
        "test rax, rax",
        "jz 5f",
        "jmp rax",
        "3:",
        "cmp byte ptr [rsi + 1], 0x75", // u
        "jne 2b",
        "mov al, byte ptr [rsi + 2]",
        "mov ah, 0x65", // e, after D and G
        "cmp al, 0x44",
        "je 8f",
        "cmp al, 0x47",
        "je 8f",
        "mov ah, 0x74", // t, after C
        "cmp al, 0x43",
        "je 8f",
        "mov ah, 0x6e", // n, after I
        "cmp al, 0x49",
        "jne 2b",
        "8:",
        "cmp byte ptr [rsi + 3], ah",
        "jne 2b",
        "jmp 6f",
        "4:",
        "cmp byte ptr [rsi + 1], 0x6c", // l
        "jne 2b",
        "6:", // perhaps ours
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, qword ptr [rsp + 24]", // the program's return address
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2b",
        "cmp rax, 1",
        "je 7f",
        "ret",
        "7:", // not found, and dlerror is set
        "xor eax, eax",
        "ret",
        "5:", // the C library's dlsym is not known yet
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 7b",
        "jmp rax",
        page = sym crate::hot::PAGE,
        real = const core::mem::offset_of!(crate::hot::Page, hot.real_dlsym),
        choose = sym crate::lookup::choose,
        find = sym crate::lookup::find_dlsym,
    )
}

/// Defines a function of N arguments that passes its return address to `$to` as a further argument
/// and jumps there. `$register` is the register of that argument.
macro_rules! with_caller {
    ($(#[$attribute:meta])* $name:ident $(<$slot:ident>)?, $register:literal, $to:path) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name$(<const $slot: usize>)?() {
            core::arch::naked_asm!(
                concat!("mov ", $register, ", qword ptr [rsp]"),
                "jmp {to}",
                to = sym $to,
            )
        }
    };
}
pub(crate) use with_caller;
