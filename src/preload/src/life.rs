//! This process's life with CUDA: when it began, what was counted, its forks and its end.

use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use cuvisor_policy::{hash, names};

use crate::event::{self, Kind, LateChange};
use crate::state::State;
use crate::sys;
use crate::{driver, environ, nest, state, weak};

/// Ticks of the first `cuInit`, and the process that made it.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static OWNER: AtomicI32 = AtomicI32::new(0);
static FORKED: AtomicBool = AtomicBool::new(false);
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Calls that were counted.
pub struct Counts {
    /// `cuInit`
    pub init: AtomicU64,
    /// `cuDeviceGet` and `cuDeviceGetByPCIBusId`, as far as they were not settled already.
    pub device: AtomicU64,
    /// Contexts made.
    pub context: AtomicU64,
    /// Calls refused.
    pub denied: AtomicU64,
}

/// The counts of this process.
pub static COUNTS: Counts =
    Counts { init: AtomicU64::new(0), device: AtomicU64::new(0), context: AtomicU64::new(0), denied: AtomicU64::new(0) };

/// Adds one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Notes that the process uses CUDA.
pub fn begin() {
    let process = sys::process();
    if OWNER.swap(process, Ordering::Relaxed) != process {
        BEGUN.store(sys::ticks(), Ordering::Relaxed);
    }
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        sys::at_exit(end);
        weak::at_fork(forked);
    }
}

/// The value of `CUDA_VISIBLE_DEVICES` that the driver read, as a C string behind one character more: `=` before a value,
/// and nothing else where the variable was unset. NULL before the first `cuInit`.
static READ: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// Notes the value that the driver has just read with success; the first one counts.
pub fn driver_has_read(value: Option<&[u8]>) {
    if !READ.load(Ordering::Relaxed).is_null() {
        return;
    }
    let mark: &[u8] = if value.is_some() { b"=" } else { b"" };
    let value = value.unwrap_or_default();
    let Some(room) = environ::room(value.len().saturating_add(mark.len()).saturating_add(1)) else { return };
    for (place, byte) in room.iter_mut().zip(mark.iter().chain(value).chain(b"\0")) {
        place.write(*byte);
    }
    // Another thread may have been first; then this memory is lost, once.
    let _ = READ.compare_exchange(ptr::null_mut(), room.as_mut_ptr().cast(), Ordering::Release, Ordering::Relaxed);
}

/// The value that the driver read; the outer none before it has read any.
fn what_the_driver_read() -> Option<Option<&'static [u8]>> {
    let text = READ.load(Ordering::Acquire);
    // SAFETY: the text was written whole, with its NUL, before its address was; it is never changed or given back.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text.cast()) }.to_bytes().strip_prefix(b"="))
}

/// Whether the driver has read this value, or none yet.
pub fn is_what_the_driver_read(value: Option<&[u8]>) -> bool {
    what_the_driver_read().is_none_or(|read| read == value)
}

/// Compares the variable with what the driver read, and logs a change, each new value once. This is the
/// trap that Cuvisor exists for, caught in the act.
pub fn look_for_late_change(state: &State) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let Some(old) = what_the_driver_read() else { return };
    let new = environ::get(names::VISIBLE_DEVICES);
    // The unset variable has a number that no value has.
    let fingerprint = new.map_or(1, |bytes| hash::add(hash::START, bytes) | 2);
    if old != new && LAST.swap(fingerprint, Ordering::Relaxed) != fingerprint {
        event::write(state, Kind::LateChange(&LateChange { old, new }));
    }
}

/// Microseconds since this process's first `cuInit`.
pub fn since_begin() -> u64 {
    sys::ticks().saturating_sub(BEGUN.load(Ordering::Relaxed))
}

/// Whether this process was forked from one that had called `cuInit`: the driver then answers 3 (C13).
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// At exit: the one event that tells how long and how much. A forked child that did not use CUDA itself
/// leaves none.
extern "C" fn end(_: *mut c_void) {
    if OWNER.load(Ordering::Relaxed) == sys::process() {
        sys::keep_errno(|| {
            look_for_late_change(state::get());
            event::write(state::get(), Kind::Exit);
        });
    }
}

/// In the child after a fork: its touches and counts are its own.
unsafe extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
    nest::forget();
    driver::slots().for_each(|(_, slot)| slot.forget_touches());
    for counter in [&COUNTS.init, &COUNTS.device, &COUNTS.context, &COUNTS.denied] {
        counter.store(0, Ordering::Relaxed);
    }
}
