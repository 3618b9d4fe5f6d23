//! Which copy of the driver a function belongs to.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{Slot, slot, slots};
use crate::loader::{Module, Opened};
use crate::table::Hook;

/// The slot for callers of our exported names: the copy that stands directly behind us, else slot 0.
pub fn behind_us() -> &'static Slot {
    static CACHE: AtomicUsize = AtomicUsize::new(0);
    let cached = CACHE.load(Ordering::Acquire);
    if cached != 0 {
        return slot(cached.wrapping_sub(1));
    }
    let found = crate::sys::keep_errno(|| {
        let next = crate::loader::lookup(libc::RTLD_NEXT, Hook::Init.name());
        // What stands behind us stays there: another preload, for which slot 0 is, too. Only where nothing
        // stands there yet is it asked again.
        if next.is_null() { loaded_copy() } else { Some(slot_of(next).unwrap_or_default()) }
    });
    if let Some(number) = found {
        CACHE.store(number.wrapping_add(1), Ordering::Release);
    }
    slot(found.unwrap_or_default())
}

/// A copy that is loaded but not in the scope behind us: a library that was opened with RTLD_LOCAL and
/// is linked to the driver calls our exported names all the same. With no copy loaded, none is: the
/// caller then gets error 100.
fn loaded_copy() -> Option<usize> {
    slot_of(Opened::loaded("libcuda.so.1\0")?.lookup(c"cuDriverGetVersion"))
}

/// The number of the slot for the driver copy that a function lies in, taken if it is new; none where
/// the function lies in something else (another preload), or all slots are taken.
pub fn slot_of(function: *const c_void) -> Option<usize> {
    let module = Module::of(function)?;
    let library = module.open()?;
    // A driver has this function itself; a library that only wraps some of the driver's has not.
    let version = library.lookup(c"cuDriverGetVersion");
    if Module::of(version)?.base != module.base {
        return None;
    }
    let (number, slot) = slots().skip(1).find(|(_, slot)| {
        let taken = slot.base.compare_exchange(0, module.base, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok() || taken == Err(module.base)
    })?;
    slot.learn(&module, &library);
    Some(number)
}
