//! The exported driver functions: what a program that is linked to the driver, or that asks the whole
//! program for a name, reaches first. `dlsym` stands in [`crate::arch`].

use crate::arch::with_caller;
use crate::hooks;

/// Tells a second copy of this library in the same process, under whatever name, that it is the second
/// (B21), and other programs that this library is Cuvisor.
#[unsafe(no_mangle)]
#[used]
pub static cuvisor_marker: u32 = 1;

with_caller!(
    #[doc = "`cuInit`"]
    #[unsafe(no_mangle)]
    cuInit,
    "rsi",
    hooks::behind_us::init
);
with_caller!(
    #[doc = "`cuDeviceGet`"]
    #[unsafe(no_mangle)]
    cuDeviceGet,
    "rdx",
    hooks::behind_us::device_get
);
with_caller!(
    #[doc = "`cuDeviceGetCount`"]
    #[unsafe(no_mangle)]
    cuDeviceGetCount,
    "rsi",
    hooks::behind_us::device_count
);
with_caller!(
    #[doc = "`cuDeviceGetByPCIBusId`"]
    #[unsafe(no_mangle)]
    cuDeviceGetByPCIBusId,
    "rdx",
    hooks::behind_us::device_by_pci
);
with_caller!(
    #[doc = "`cuDevicePrimaryCtxRetain`"]
    #[unsafe(no_mangle)]
    cuDevicePrimaryCtxRetain,
    "rdx",
    hooks::behind_us::primary_ctx_retain
);
with_caller!(
    #[doc = "`cuCtxCreate`"]
    #[unsafe(no_mangle)]
    cuCtxCreate,
    "rcx",
    hooks::behind_us::ctx_create
);
with_caller!(
    #[doc = "`cuCtxCreate_v2`"]
    #[unsafe(no_mangle)]
    cuCtxCreate_v2,
    "rcx",
    hooks::behind_us::ctx_create_v2
);
with_caller!(
    #[doc = "`cuCtxCreate_v3`"]
    #[unsafe(no_mangle)]
    cuCtxCreate_v3,
    "r9",
    hooks::behind_us::ctx_create_v3
);
with_caller!(
    #[doc = "`cuCtxCreate_v4`"]
    #[unsafe(no_mangle)]
    cuCtxCreate_v4,
    "r8",
    hooks::behind_us::ctx_create_v4
);
with_caller!(
    #[doc = "`cuGetProcAddress`"]
    #[unsafe(no_mangle)]
    cuGetProcAddress,
    "r8",
    hooks::behind_us::get_proc_address
);
with_caller!(
    #[doc = "`cuGetProcAddress_v2`"]
    #[unsafe(no_mangle)]
    cuGetProcAddress_v2,
    "r9",
    hooks::behind_us::get_proc_address_v2
);
