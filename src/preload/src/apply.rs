//! Puts the decision into the environment: what the driver will read there.

use cuvisor_policy::buffer::Text;
use cuvisor_policy::decide::{self, Applied, Decision, Reason};
use cuvisor_policy::file::policy::Mode;
use cuvisor_policy::names;

use crate::environ;
use crate::inventory;
use crate::state::State;

/// A value of `CUDA_VISIBLE_DEVICES`; what is longer than the longest list that matters is cut.
pub type Value = Text<4096>;

/// What was asked for, and what the driver will read.
pub struct Outcome {
    /// The program's own value; none where the variable is unset.
    pub request: Option<Value>,
    /// The value in force; none where the variable is unset.
    pub effective: Option<Value>,
    /// Whether the variable had to be written now.
    pub written: bool,
    /// Whether the environment now says what the policy says.
    pub in_force: bool,
    /// Why the list is what it is, where that is not plain.
    pub reason: Option<Reason>,
}

/// Decides for the present request, and in enforce mode writes the variables that are not as they must be.
pub fn apply(state: &State) -> Outcome {
    let present = environ::get(names::VISIBLE_DEVICES).map(Value::of);
    let present_bytes = present.as_ref().map(Value::as_bytes);
    if state.mode != Mode::Enforce {
        return Outcome { request: present, effective: present, written: false, in_force: true, reason: None };
    }
    let applied = environ::get(names::APPLIED).map(Value::of);
    let request = Applied::request_of(present_bytes, applied.as_ref().map(Value::as_bytes)).map(Value::of);
    let request_bytes = request.as_ref().map(Value::as_bytes);
    let decision = decision(state, request_bytes);
    let Some(list) = decision.list else {
        return Outcome { request, effective: present, written: false, in_force: true, reason: None };
    };
    let list = list.as_bytes();
    let mut in_force = environ::set(names::VISIBLE_DEVICES, list);
    if decision.has_indices() {
        in_force &= environ::set(names::DEVICE_ORDER, names::PCI_ORDER.as_bytes());
    }
    if request_bytes != Some(list) {
        let mut text = Value::new();
        // A request too long to be kept is one that no child need be asked about again.
        if (Applied { list, request: request_bytes }).write(&mut text) {
            environ::set(names::APPLIED, text.as_bytes());
        }
    }
    let written = present_bytes != Some(list);
    Outcome { request, effective: Some(Value::of(list)), written, in_force, reason: decision.reason }
}

fn decision(state: &State, request: Option<&[u8]>) -> Decision {
    if state.rights.needs_inventory(request) {
        return decide::decide(&state.rights, request, inventory::read(state).as_ref());
    }
    decide::decide(&state.rights, request, None)
}
