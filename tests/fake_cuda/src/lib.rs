//! A driver without GPUs, for tests and demonstrations.
//!
//! It behaves as the real one was measured to (NVIDIA H200, driver 580.159.04), as far as devices are
//! concerned. It is written independently of cuvisor-policy: the two are tested against each other.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `FAKE_CUDA_GPUS` | how many GPUs there are (1) |
//! | `FAKE_CUDA_UUIDS` | their UUIDs, separated by commas |
//! | `FAKE_CUDA_LOG` | a file to which each call is appended as a line |
//! | `FAKE_CUDA_IGNORE_CVD` | 1: every GPU is visible, whatever the variable says |
//! | `FAKE_CUDA_INIT_RESULT` | what cuInit answers |
//! | `FAKE_CUDA_HANG` | set: cuInit never comes back |
//! | `FAKE_CUDA_INIT_IN_CONSTRUCTOR` | 1: the library calls cuInit while it is loaded |
//! | `FAKE_CUDA_FASTEST_LAST` | 1: the order is reversed unless `CUDA_DEVICE_ORDER=PCI_BUS_ID` |
//! | `FAKE_CUDA_SHIM` | another copy, to which cuInit is passed on by dlopen and dlsym |

mod calls;
mod gpus;
mod log;
mod memory;
mod proc_address;
mod reading;

ctor::declarative::ctor! {
    #[ctor(unsafe)]
    fn construct() {
        if log::variable("FAKE_CUDA_INIT_IN_CONSTRUCTOR").as_deref() == Some("1") {
            // As a library of its own would: through the whole program, where a preload may stand first.
            // SAFETY: a pseudo-handle and a C string.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cuInit".as_ptr()) };
            if !found.is_null() {
                // SAFETY: the function's name says its type.
                let init: unsafe extern "C" fn(core::ffi::c_uint) -> i32 = unsafe { std::mem::transmute(found) };
                // SAFETY: cuInit takes any flags.
                unsafe { init(0) };
            }
        }
    }
}
