//! Memory of the library's own that one caller at a time may have.
//!
//! A large value on the stack costs a page fault for each page of its frame, and a mapping costs a system call more. One
//! in the library's data costs the pages that are written, and lies beside what is written with it.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

/// A value, and whether somebody has it. In a child that was forked while another thread had it, nobody gets it any more.
#[repr(C)] // the two side by side, however large the value is
pub struct Lent<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the one caller that has set `taken`.
unsafe impl<T: Send> Sync for Lent<T> {}

impl<T> Lent<T> {
    /// A value that nobody has.
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Gives the value away for good; none where somebody has it.
    #[expect(clippy::mut_from_ref, reason = "only the caller that has set `taken` gets it")]
    pub fn keep(&'static self) -> Option<&'static mut T> {
        // SAFETY: `taken` was false and is true now, so this is the only reference.
        (!self.taken.swap(true, Ordering::Acquire)).then(|| unsafe { &mut *self.value.get() })
    }

    /// Calls `use_it` with the value, which is back when it returns; with none where somebody has it. Nobody waits.
    pub fn lend<R>(&'static self, use_it: impl FnOnce(Option<&mut T>) -> R) -> R {
        let value = self.keep();
        let is_ours = value.is_some();
        let result = use_it(value);
        if is_ours {
            self.taken.store(false, Ordering::Release);
        }
        result
    }
}
