//! Puts the decision into the environment: what the driver will read there.

use cuvisor_policy::decide::{self, Applied, Decision, Reason};
use cuvisor_policy::file::policy::Mode;
use cuvisor_policy::names;

use crate::decided;
use crate::environ;
use crate::inventory;
use crate::state::State;

/// The longest list and request, together, that children are told of.
const VALUE_LIMIT: usize = 4096;

/// What was asked for, and what the driver will read. The texts are the environment's own: glibc never
/// gives back the memory of a variable's former value.
pub struct Outcome<'a> {
    /// The program's own value; none where the variable is unset.
    pub request: Option<&'a [u8]>,
    /// The value in force; none where the variable is unset.
    pub effective: Option<&'a [u8]>,
    /// Whether the variable had to be written now.
    pub written: bool,
    /// Whether the environment now says what the policy says.
    pub in_force: bool,
    /// Why the list is what it is, where that is not plain.
    pub reason: Option<Reason>,
}

/// Decides for the present request, and in enforce mode writes the variables that are not as they must be.
pub fn apply(state: &State) -> Outcome<'_> {
    let present = environ::get(names::VISIBLE_DEVICES);
    if state.mode != Mode::Enforce {
        return Outcome { request: present, effective: present, written: false, in_force: true, reason: None };
    }
    let request = Applied::request_of(present, environ::get(names::APPLIED));
    if let Some(list) = state.rights.as_it_stands() {
        let in_force = write(list, request);
        return Outcome { request, effective: Some(list), written: present != Some(list), in_force, reason: None };
    }
    if let Some(reason) = decided::again() {
        return Outcome { request, effective: present, written: false, in_force: true, reason };
    }
    let (in_force, reason) = decide_anew(state, request);
    let effective = environ::get(names::VISIBLE_DEVICES);
    Outcome { request, effective, written: effective != present, in_force, reason }
}

/// The same in the constructor, which wants no outcome.
pub fn at_start(state: &State) {
    match state.rights.as_it_stands() {
        Some(list) => {
            let request = Applied::request_of(environ::get(names::VISIBLE_DEVICES), environ::get(names::APPLIED));
            write(list, request);
        }
        None => _ = apply(state),
    }
}

/// Writes the variables that are not as they must be; whether all are now.
fn write(list: &[u8], request: Option<&[u8]>) -> bool {
    let mut in_force = environ::set(names::VISIBLE_DEVICES, list);
    if decide::has_indices(list) {
        in_force &= environ::set(names::DEVICE_ORDER, names::PCI_ORDER.as_bytes());
    }
    if request != Some(list) {
        remember(list, request);
    }
    in_force
}

/// Tells children what was asked for. A request too long to be kept is one that no child need be asked about again.
fn remember(list: &[u8], request: Option<&[u8]>) {
    let applied = Applied { list, request };
    if list.len().saturating_add(request.unwrap_or_default().len()) < VALUE_LIMIT {
        environ::set_parts(names::APPLIED, &applied.parts());
    }
}

/// Decides where the list is not the policy's as it stands, and writes what comes of it: whether it is in force, and why it
/// is what it is. It stands apart: its copies of lists take whole pages.
#[inline(never)]
fn decide_anew(state: &State, request: Option<&[u8]>) -> (bool, Option<Reason>) {
    let inventory = if state.rights.needs_inventory(request) { inventory::read(state) } else { None };
    let Decision { list, reason } = decide::decide(&state.rights, request, inventory.as_ref());
    let Some(list) = list else { return (true, None) };
    let in_force = write(list.as_bytes(), request);
    if in_force {
        decided::note(reason);
    }
    (in_force, reason)
}
