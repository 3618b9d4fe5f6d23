//! The last decision that took more than a look at the policy. Where the variables are as it left them, it stands: to make it
//! anew may mean to read the machine's inventory, and programs call `cuInit` again and again.

use core::sync::atomic::{AtomicU64, Ordering};
use cuvisor_policy::decide::Reason;
use cuvisor_policy::{hash, names};

use crate::environ;

/// A hash of the variables, and in the lowest bits the reason's number; 0 before the first decision. It is one word, so
/// that threads need not agree on anything.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The bits of the reason.
const REASON: u64 = 7;

/// The reason of the last decision, where nothing has changed since.
pub fn again() -> Option<Option<Reason>> {
    let last = LAST.load(Ordering::Relaxed);
    (last != 0 && last & !REASON == variables()).then(|| Reason::of_number(last & REASON))
}

/// Notes a decision, once it has been written into the variables.
pub fn note(reason: Option<Reason>) {
    LAST.store(variables() | Reason::number(reason), Ordering::Relaxed);
}

/// A number for the variables as they are, never 0 and without the bits of the reason.
fn variables() -> u64 {
    let add = |sum, name| {
        let value = environ::get(name);
        hash::add(hash::add(sum, &[u8::from(value.is_some())]), value.unwrap_or_default())
    };
    let sum = [names::VISIBLE_DEVICES, names::APPLIED, names::DEVICE_ORDER].into_iter().fold(hash::START, add);
    (sum | (REASON + 1)) & !REASON
}
