//! What `dlsym` and `cuGetProcAddress` answer for the names in the table.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::Ordering;

use crate::driver::{self, Code, Slot};
use crate::hooks;
use crate::hot::hot;
use crate::loader::{self, Module};
use crate::state;
use crate::sys;
use crate::table::Hook;

/// To the assembly of `dlsym`: leave the look-up to the C library.
const LEAVE: *const c_void = core::ptr::null();
/// To the assembly of `dlsym`: answer NULL, dlerror is set.
const NOT_FOUND: *const c_void = core::ptr::without_provenance(1);

/// Decides on one call of `dlsym` whose name may be in the table. `caller` is the program's return address.
///
/// A hook is given only where the very look-up that was asked for finds the driver's function, so a
/// driver without the name gives NULL as it would without us (C05).
///
/// # Safety
/// As dlsym(3): `name` is a C string, `handle` the loader's or a pseudo-handle.
pub unsafe extern "C" fn choose(handle: *mut c_void, name: *const c_char, caller: *const c_void) -> *const c_void {
    sys::keep_errno(|| chosen(handle, sys::c_text(name), caller))
}

fn chosen(handle: *mut c_void, name: &[u8], caller: *const c_void) -> *const c_void {
    if handle == libc::RTLD_NEXT {
        // Another preload that wraps the name: the next one in its chain is ours or the driver's own, as the loader finds it.
        return LEAVE;
    }
    if name == b"dlsym" {
        // A program that asks libc's handle for dlsym itself would get past the hooks with it.
        let found = loader::lookup(handle, c"dlsym");
        let is_libc = !found.is_null() && found == hot().real_dlsym.load(Ordering::Acquire);
        return if is_libc && state::get().active { hooks::own_dlsym() } else { LEAVE };
    }
    let Some(hook) = Hook::named(name) else { return LEAVE };
    let found = loader::lookup(handle, hook.name());
    if found.is_null() {
        return LEAVE;
    }
    if core::ptr::eq(found, hooks::exported(hook)) {
        return behind_the_export(handle, hook, caller);
    }
    if !state::get().active {
        return LEAVE;
    }
    match driver::slot_of(found) {
        // Found again, so that the last thing the loader did for this thread succeeded: dlerror is clean (B03).
        Some(number) if !loader::lookup(handle, hook.name()).is_null() => hooks::pointer(hook, number),
        _ => LEAVE,
    }
}

/// The whole program was searched, and our own export came first. It is the answer only if something
/// stands behind it.
fn behind_the_export(handle: *mut c_void, hook: Hook, caller: *const c_void) -> *const c_void {
    let next = loader::lookup(libc::RTLD_NEXT, hook.name());
    let found = if next.is_null() && handle == libc::RTLD_DEFAULT {
        // RTLD_DEFAULT goes on to the libraries that the caller was opened with.
        Module::of(caller).and_then(|module| module.open()).map_or(next, |library| library.lookup(hook.name()))
    } else {
        next
    };
    if found.is_null() || core::ptr::eq(found, hooks::exported(hook)) {
        // Failing once more leaves a text for dlerror, as without us.
        loader::lookup(libc::RTLD_NEXT, hook.name());
        return NOT_FOUND;
    }
    if !state::get().active {
        return found;
    }
    if next.is_null() {
        return driver::slot_of(found).map_or(found.cast_const(), |number| hooks::pointer(hook, number));
    }
    hooks::exported(hook)
}

/// Finds the C library's dlsym, for the assembly's first call.
///
/// # Safety
/// None beyond being called as a C function.
pub unsafe extern "C" fn find_dlsym() -> *const c_void {
    sys::keep_errno(loader::real_dlsym).map_or(core::ptr::null(), |dlsym| dlsym as *const c_void)
}

/// Replaces what a successful `cuGetProcAddress` wrote, if that is one of the hooked functions. The
/// pointer decides, not the name: one name has several functions by version (C02, C04).
fn replace(slot: &Slot, out: *mut *mut c_void) {
    if out.is_null() || !state::get().active {
        return;
    }
    // SAFETY: the driver has just written a function pointer here, or NULL, and returned success.
    let found = unsafe { out.read() };
    let own = slot.hook_of(found).and_then(|hook| driver::slots().find(|(_, s)| core::ptr::eq(*s, slot)).map(|(n, _)| (n, hook)));
    let any = || driver::slots().skip(1).find_map(|(number, slot)| slot.hook_of(found).map(|hook| (number, hook)));
    if let Some((number, hook)) = own.or_else(any) {
        // SAFETY: as above; a hook has the type of the function whose place it takes.
        unsafe { out.write(hooks::pointer(hook, number).cast_mut()) };
    }
}

/// The operation of `cuGetProcAddress`, as drivers before CUDA 12 have it.
#[inline(never)]
pub fn get_proc_address(slot: &Slot, name: *const c_char, out: *mut *mut c_void, version: c_int, flags: u64) -> Option<Code> {
    type Real = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> Code;
    let real: Real = driver::typed_real(slot, Hook::GetProcAddress)?;
    // SAFETY: every argument is the program's own; the driver checks them.
    let result = unsafe { real(name, out, version, flags) };
    if result == 0 {
        sys::keep_errno(|| replace(slot, out));
    }
    Some(result)
}

/// The operation of `cuGetProcAddress_v2`; the status is the driver's alone.
#[inline(never)]
pub fn get_proc_address_v2(
    slot: &Slot,
    name: *const c_char,
    out: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_uint,
) -> Option<Code> {
    type Real = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_uint) -> Code;
    let real: Real = driver::typed_real(slot, Hook::GetProcAddressV2)?;
    // SAFETY: every argument is the program's own; the driver checks them.
    let result = unsafe { real(name, out, version, flags, status) };
    if result == 0 {
        sys::keep_errno(|| replace(slot, out));
    }
    Some(result)
}
