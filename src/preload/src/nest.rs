//! Which threads are inside one of our operations.
//!
//! A driver library may itself call another copy of the driver through the names that we hook (WSL's
//! shim does). The inner call then belongs to the outer one: it is passed on, neither judged nor
//! logged again. Thread-locals would be the natural place, but they would pull in the loader's
//! support for them; a short table of thread ids serves, since it is used on slow paths only.

use core::sync::atomic::{AtomicI32, Ordering};

static INSIDE: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];

/// A thread's stay inside an operation.
pub struct Nest(Option<&'static AtomicI32>);

/// Enters; none where this thread is inside already.
pub fn enter() -> Option<Nest> {
    let thread = crate::sys::thread();
    if INSIDE.iter().any(|place| place.load(Ordering::Relaxed) == thread) {
        return None;
    }
    let free = |place: &&AtomicI32| place.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    // With more than 64 threads inside at once, the rest are not noted: a nested call of theirs is then logged twice.
    Some(Nest(INSIDE.iter().find(free)))
}

/// Forgets all threads: after a fork only one is left, and it is in none of our operations.
pub fn forget() {
    INSIDE.iter().for_each(|place| place.store(0, Ordering::Relaxed));
}

impl Drop for Nest {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::Relaxed);
        }
    }
}
