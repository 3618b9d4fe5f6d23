//! This process's life with CUDA: when it began, what was counted, its forks and its end.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::event::{self, Kind};
use crate::sys;
use crate::{driver, nest, state};

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
        sys::at_fork(forked);
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
extern "C" fn end() {
    if OWNER.load(Ordering::Relaxed) == sys::process() {
        sys::keep_errno(|| event::write(state::get(), Kind::Exit));
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
