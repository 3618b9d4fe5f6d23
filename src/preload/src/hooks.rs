//! The C functions that stand in the driver's place: each passes its arguments to an operation in
//! [`crate::ops`] or [`crate::lookup`], with the slot whose copy was asked and its caller's address.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::arch::with_caller;
use crate::driver::{self, Code, code};
use crate::exports;
use crate::lookup;
use crate::ops;
use crate::table::Hook;

macro_rules! hooks {
    ($($hook:ident $export:ident $name:ident($($arg:ident: $type:ty),*) in $register:literal => $operation:expr;)*) => {
        /// The bodies for a slot each. The caller's address is the argument after the driver's own.
        mod body {
            use super::*;
            $(
                pub unsafe extern "C" fn $name<const SLOT: usize>($($arg: $type,)* caller: *const c_void) -> Code {
                    $operation(driver::slot(SLOT), $($arg,)* caller)
                }
            )*
        }

        /// What a program gets from a look-up: notes the caller and goes to the body.
        mod entry {
            use super::*;
            $(with_caller!($name<SLOT>, $register, body::$name::<SLOT>);)*
        }

        /// The bodies behind the exported names: the slot is found when they are called.
        pub mod behind_us {
            use super::*;
            $(
                /// Behind the exported function of this name.
                pub unsafe extern "C" fn $name($($arg: $type,)* caller: *const c_void) -> Code {
                    $operation(driver::behind_us(), $($arg,)* caller)
                }
            )*
        }

        /// The address of a hook for a slot.
        pub fn pointer(hook: Hook, slot: usize) -> *const c_void {
            match hook {
                $(Hook::$hook => match slot {
                    0 => entry::$name::<0> as *const c_void,
                    1 => entry::$name::<1> as *const c_void,
                    2 => entry::$name::<2> as *const c_void,
                    3 => entry::$name::<3> as *const c_void,
                    4 => entry::$name::<4> as *const c_void,
                    5 => entry::$name::<5> as *const c_void,
                    6 => entry::$name::<6> as *const c_void,
                    _ => entry::$name::<7> as *const c_void,
                },)*
            }
        }

        /// The address of the exported function of a hook.
        pub fn exported(hook: Hook) -> *const c_void {
            match hook {
                $(Hook::$hook => exports::$export as *const c_void,)*
            }
        }
    };
}

const _: () = assert!(driver::SLOTS == 8, "`pointer` lists the slots by hand");

hooks! {
    Init cuInit init(flags: c_uint) in "rsi" => ops::init;
    DeviceGet cuDeviceGet device_get(out: *mut c_int, ordinal: c_int) in "rdx" => ops::device_get;
    DeviceGetCount cuDeviceGetCount device_count(out: *mut c_int) in "rsi" => ops::device_count;
    DeviceGetByPciBusId cuDeviceGetByPCIBusId device_by_pci(out: *mut c_int, id: *const c_char) in "rdx" => ops::device_by_pci;
    PrimaryCtxRetain cuDevicePrimaryCtxRetain primary_ctx_retain(context: *mut *mut c_void, device: c_int) in "rdx" => |slot, context, device, caller| {
        type Real = unsafe extern "C" fn(*mut *mut c_void, c_int) -> Code;
        // SAFETY: the arguments are the program's own, in the driver's order.
        ops::context(slot, Hook::PrimaryCtxRetain, device, caller, &|real| Some(unsafe { driver::typed::<Real>(real)?(context, device) }))
    };
    CtxCreate cuCtxCreate ctx_create(context: *mut *mut c_void, flags: c_uint, device: c_int) in "rcx" => |slot, context, flags, device, caller| {
        type Real = unsafe extern "C" fn(*mut *mut c_void, c_uint, c_int) -> Code;
        // SAFETY: the arguments are the program's own, in the driver's order.
        ops::context(slot, Hook::CtxCreate, device, caller, &|real| Some(unsafe { driver::typed::<Real>(real)?(context, flags, device) }))
    };
    CtxCreateV2 cuCtxCreate_v2 ctx_create_v2(context: *mut *mut c_void, flags: c_uint, device: c_int) in "rcx" => |slot, context, flags, device, caller| {
        type Real = unsafe extern "C" fn(*mut *mut c_void, c_uint, c_int) -> Code;
        // SAFETY: the arguments are the program's own, in the driver's order.
        ops::context(slot, Hook::CtxCreateV2, device, caller, &|real| Some(unsafe { driver::typed::<Real>(real)?(context, flags, device) }))
    };
    CtxCreateV3 cuCtxCreate_v3 ctx_create_v3(context: *mut *mut c_void, affinity: *mut c_void, count: c_int, flags: c_uint, device: c_int) in "r9" => |slot, context, affinity, count, flags, device, caller| {
        type Real = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, c_int, c_uint, c_int) -> Code;
        // SAFETY: the arguments are the program's own, in the driver's order.
        ops::context(slot, Hook::CtxCreateV3, device, caller, &|real| Some(unsafe { driver::typed::<Real>(real)?(context, affinity, count, flags, device) }))
    };
    CtxCreateV4 cuCtxCreate_v4 ctx_create_v4(context: *mut *mut c_void, params: *mut c_void, flags: c_uint, device: c_int) in "r8" => |slot, context, params, flags, device, caller| {
        type Real = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, c_uint, c_int) -> Code;
        // SAFETY: the arguments are the program's own, in the driver's order.
        ops::context(slot, Hook::CtxCreateV4, device, caller, &|real| Some(unsafe { driver::typed::<Real>(real)?(context, params, flags, device) }))
    };
    GetProcAddress cuGetProcAddress get_proc_address(name: *const c_char, out: *mut *mut c_void, version: c_int, flags: u64) in "r8" => |slot, name, out, version, flags, _| {
        lookup::get_proc_address(slot, name, out, version, flags).unwrap_or(code::NOT_INITIALIZED)
    };
    GetProcAddressV2 cuGetProcAddress_v2 get_proc_address_v2(name: *const c_char, out: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_uint) in "r9" => |slot, name, out, version, flags, status, _| {
        lookup::get_proc_address_v2(slot, name, out, version, flags, status).unwrap_or(code::NOT_INITIALIZED)
    };
}

/// The address of our `dlsym`.
pub fn own_dlsym() -> *const c_void {
    crate::arch::dlsym as *const c_void
}
