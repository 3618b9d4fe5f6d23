//! What each hook does, in safe code.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cuvisor_policy::device::{Devices, Kind as SelectorKind, MAX_GPUS, PciId};
use cuvisor_policy::file::policy::Calls;
use cuvisor_policy::guard::{self, Machine, Seen};
use cuvisor_policy::hash;

use crate::apply::{self, Outcome};
use crate::driver::{Code, Slot, Verdict, code};
use crate::event::{self, Init, Kind, Subject, Touch};
use crate::inventory;
use crate::life::{self, COUNTS};
use crate::nest;
use crate::state::{self, State};
use crate::sys::{self, keep_errno};
use crate::table::Hook;
use crate::trace::{self, Origin, Trace};

/// `cuInit`: puts the policy into the environment, calls the driver, and looks at what it shows.
#[inline(never)]
pub fn init(slot: &Slot, flags: c_uint, caller: *const c_void) -> Code {
    let state = state::get();
    let nest = if state.active { keep_errno(enter) } else { None };
    if nest.is_none() {
        return slot.init(flags).unwrap_or(code::NO_DEVICE);
    }
    let outcome = keep_errno(|| {
        life::begin();
        life::count(&COUNTS.init);
        report_broken(state);
        life::look_for_late_change(state);
        apply::apply(state)
    });
    if !outcome.in_force {
        keep_errno(|| log_init(state, slot, caller, &outcome, code::NO_DEVICE, 0));
        return code::NO_DEVICE;
    }
    let result = slot.init(flags).unwrap_or(code::NO_DEVICE);
    keep_errno(|| after_init(state, slot, caller, &outcome, result))
}

/// Enters an operation; none where this thread is in one already, or this library is a second copy (B21).
fn enter() -> Option<nest::Nest> {
    if state::is_first_copy() { nest::enter() } else { None }
}

fn after_init(state: &State, slot: &Slot, caller: *const c_void, outcome: &Outcome<'_>, result: Code) -> Code {
    let looked = if result == 0 { slot.look() } else { None };
    let outside = match looked {
        // Comparing may mean to read the machine's inventory, which takes the kernel's driver a while (0.2 ms for one
        // H200); programs call cuInit again and again, and the driver has decided at the first.
        Some(is_new) if is_new || slot.verdict() == Verdict::Unseen => outside(state, slot),
        Some(_) => slot.outside.load(Ordering::Acquire),
        None => 0,
    };
    let refused = outside != 0 && state.enforces();
    if result == 0 {
        slot.judge(if refused { Verdict::Refused } else { Verdict::Known }, outside);
        life::driver_has_read(outcome.effective);
    }
    let answer = if refused { code::NO_DEVICE } else { result };
    log_init(state, slot, caller, outcome, answer, outside);
    if outside != 0 {
        let first = slot.visible().find(|seen| is_in(outside, seen.ordinal));
        let touch = Touch { subject: first.map_or(Subject::None, Subject::Device), result: answer, call: Hook::Init, caller, slot };
        deny(state, &touch);
    }
    answer
}

/// A bit for each visible device outside the policy.
fn outside(state: &State, slot: &Slot) -> u64 {
    let devices = &state.rights.devices;
    let by_index = matches!(devices, Devices::List(_)) && devices.selectors().any(|s| s.kind() == SelectorKind::Index);
    if !by_index {
        return guard::outside(slot.visible(), devices, None);
    }
    // Where the driver tells the devices' addresses, those of the machine are enough.
    let mut room = [NOWHERE; MAX_GPUS];
    let have_addresses = slot.visible().all(|device| device.pci.is_some());
    match if have_addresses { inventory::addresses(state, &mut room) } else { None } {
        Some(addresses) => guard::outside(slot.visible(), devices, Some(Machine::Addresses(addresses)).filter(|_| !addresses.is_empty())),
        None => outside_inventory(state, slot),
    }
}

/// What an unused place holds.
const NOWHERE: PciId = PciId { domain: 0, bus: 0, device: 0, function: 0 };

/// The same by all that is known of the machine. It stands apart: an inventory takes pages.
#[cold]
#[inline(never)]
fn outside_inventory(state: &State, slot: &Slot) -> u64 {
    let inventory = inventory::read(state).filter(|inventory| !inventory.is_empty());
    guard::outside(slot.visible(), &state.rights.devices, inventory.as_ref().map(Machine::Inventory))
}

/// The one event and the one line on stderr of a process that calls `cuInit` under a broken policy.
fn report_broken(state: &State) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if state.broken.is_empty() || REPORTED.swap(true, Ordering::Relaxed) {
        return;
    }
    event::write(state, Kind::PolicyError);
    let mut line = cuvisor_policy::buffer::Text::<768>::of(b"cuvisor: no GPU for this process: ");
    line.push_some(state.broken.as_bytes());
    line.push_some(b"\n");
    sys::complain(line.as_bytes());
}

/// Logs a `cuInit` if it is the first, or differs from the one before in result, request or list.
fn log_init(state: &State, slot: &Slot, caller: *const c_void, outcome: &Outcome<'_>, result: Code, outside: u64) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let fingerprint = fingerprint(slot, outcome, result);
    let is_new = LAST.swap(fingerprint, Ordering::Relaxed) != fingerprint;
    let kind = Kind::Init(&Init { slot, caller, outcome, result, outside });
    if is_new || state.calls == Calls::All {
        event::write(state, kind);
    } else if state.trace == Trace::Stderr {
        trace::show(state, &kind, &Origin::read());
    }
}

/// A number that differs, in all likelihood, where anything that is logged does.
fn fingerprint(slot: &Slot, outcome: &Outcome<'_>, result: Code) -> u64 {
    let mut sum = hash::START;
    let mut add = |bytes: &[u8]| sum = hash::add(hash::add(sum, bytes), &[0]);
    add(&result.to_ne_bytes());
    add(&sys::process().to_ne_bytes());
    add(&core::ptr::from_ref(slot).addr().to_ne_bytes());
    for value in [outcome.request, outcome.effective] {
        add(&[u8::from(value.is_some())]);
        add(value.unwrap_or_default());
    }
    sum | 1
}

/// `cuDeviceGet`. Once an ordinal is settled nothing but the driver's own work is done.
#[inline]
pub fn device_get(slot: &Slot, out: *mut c_int, ordinal: c_int, caller: *const c_void) -> Code {
    if is_in(slot.settled().load(Ordering::Relaxed), ordinal) {
        return slot.device_get(out, ordinal).unwrap_or(code::NOT_INITIALIZED);
    }
    device(slot, Hook::DeviceGet, out, Subject::Ordinal(ordinal), caller, &|out| slot.device_get(out, ordinal))
}

/// `cuDeviceGetByPCIBusId`.
#[inline(never)]
pub fn device_by_pci(slot: &Slot, out: *mut c_int, id: *const c_char, caller: *const c_void) -> Code {
    device(slot, Hook::DeviceGetByPciBusId, out, Subject::None, caller, &|out| slot.device_by_pci(out, id))
}

/// Either of the calls that give a device: asks the driver, and hands its answer on if the policy has it.
#[cold]
fn device(
    slot: &Slot,
    call: Hook,
    out: *mut c_int,
    asked: Subject,
    caller: *const c_void,
    real: &dyn Fn(*mut c_int) -> Option<Code>,
) -> Code {
    let state = state::get();
    let nest = if state.active { keep_errno(enter) } else { None };
    if nest.is_none() || out.is_null() {
        return real(out).unwrap_or(code::NOT_INITIALIZED);
    }
    keep_errno(|| {
        life::count(&COUNTS.device);
        life::look_for_late_change(state);
    });
    if slot.verdict() == Verdict::Refused {
        return keep_errno(|| refuse(state, &Touch { subject: asked, result: code::NOT_INITIALIZED, call, caller, slot }));
    }
    let mut handle: c_int = 0;
    let result = real(&raw mut handle).unwrap_or(code::NOT_INITIALIZED);
    if result != 0 {
        keep_errno(|| failed(state, &Touch { subject: asked, result, call, caller, slot }));
        return result;
    }
    let answer = keep_errno(|| {
        examine(state, slot);
        let seen = slot.device_of(handle);
        let subject = seen.map_or(asked, Subject::Device);
        if is_outside(slot, seen.as_ref()) {
            let answer = refuse(state, &Touch { subject, result: code::INVALID_DEVICE, call, caller, slot });
            if state.enforces() {
                return answer;
            }
        } else {
            touched(state, &slot.got, &Touch { subject, result, call, caller, slot }, Kind::Device);
        }
        if let (Some(seen), Calls::First) = (seen, state.calls) {
            set(slot.settled(), seen.ordinal);
        }
        result
    });
    if answer == 0 {
        // SAFETY: the driver accepted a pointer of this type in this place, and would have written here itself.
        unsafe { out.write(handle) };
    }
    answer
}

/// `cuDeviceGetCount`: never another number than the driver's, which the CUDA runtime would notice.
#[inline(never)]
pub fn device_count(slot: &Slot, out: *mut c_int, _: *const c_void) -> Code {
    if slot.verdict() == Verdict::Refused && state::get().enforces() {
        return code::NOT_INITIALIZED;
    }
    slot.device_count(out).unwrap_or(code::NOT_INITIALIZED)
}

/// The calls that make a context: refused for a device outside the policy.
///
/// `invoke` calls the real function, given as an untyped pointer, with the program's arguments. It is a
/// trait object so that this code exists once and not for each hook and slot.
pub fn context(slot: &Slot, call: Hook, device: c_int, caller: *const c_void, invoke: &dyn Fn(*mut c_void) -> Option<Code>) -> Code {
    let real = || invoke(slot.real(call)).unwrap_or(code::NOT_INITIALIZED);
    let state = state::get();
    let nest = if state.active { keep_errno(enter) } else { None };
    if nest.is_none() {
        return real();
    }
    let denied = keep_errno(|| {
        life::look_for_late_change(state);
        examine(state, slot);
        let seen = slot.device_of(device);
        let touch = |result| Touch { subject: seen.map_or(Subject::Ordinal(device), Subject::Device), result, call, caller, slot };
        if slot.verdict() == Verdict::Refused {
            return Some(refuse(state, &touch(code::NOT_INITIALIZED)));
        }
        is_outside(slot, seen.as_ref()).then(|| refuse(state, &touch(code::DEVICE_UNAVAILABLE)))
    });
    if let Some(answer) = denied.filter(|_| state.enforces()) {
        return answer;
    }
    let result = real();
    keep_errno(|| {
        let seen = slot.device_of(device);
        let touch = Touch { subject: seen.map_or(Subject::Ordinal(device), Subject::Device), result, call, caller, slot };
        match (result, denied) {
            (0, None) => {
                life::count(&COUNTS.context);
                touched(state, &slot.used, &touch, Kind::Context);
            }
            (0, Some(_)) => {}
            _ => failed(state, &touch),
        }
    });
    result
}

/// Looks at the devices of a copy that nobody initialised through us.
fn examine(state: &State, slot: &Slot) {
    if slot.verdict() == Verdict::Unseen && slot.look().is_some() {
        life::begin();
        slot.judge(Verdict::Known, outside(state, slot));
    }
}

fn is_outside(slot: &Slot, seen: Option<&Seen>) -> bool {
    let outside = slot.outside.load(Ordering::Acquire);
    seen.map_or(outside != 0, |seen| is_in(outside, seen.ordinal))
}

/// Logs a refused call, the first for each device and kind of answer, and gives its code.
fn refuse(state: &State, touch: &Touch<'_>) -> Code {
    life::count(&COUNTS.denied);
    if set(&touch.slot.failed, touch.subject.ordinal()) || state.calls == Calls::All {
        event::write(state, Kind::Denied(touch));
    }
    touch.result
}

/// Logs that `cuInit` found devices outside the policy.
fn deny(state: &State, touch: &Touch<'_>) {
    life::count(&COUNTS.denied);
    event::write(state, Kind::Denied(touch));
}

/// Logs a call that the driver itself refused, the first for each ordinal.
fn failed(state: &State, touch: &Touch<'_>) {
    if set(&touch.slot.failed, touch.subject.ordinal()) || state.calls == Calls::All {
        let kind = if matches!(touch.call, Hook::DeviceGet | Hook::DeviceGetByPciBusId) { Kind::Device } else { Kind::Context };
        event::write(state, kind(touch));
    }
}

/// Logs the first touch of its grade.
fn touched<'a>(state: &State, grade: &AtomicU64, touch: &'a Touch<'a>, kind: fn(&'a Touch<'a>) -> Kind<'a>) {
    if set(grade, touch.subject.ordinal()) || (state.calls == Calls::All && matches!(touch.call, Hook::DeviceGet)) {
        event::write(state, kind(touch));
    }
}

/// Whether a set has the bit of an ordinal.
#[inline]
fn is_in(bits: u64, ordinal: c_int) -> bool {
    u32::try_from(ordinal).ok().and_then(|shift| bits.checked_shr(shift)).is_some_and(|rest| rest & 1 != 0)
}

/// Sets the bit of an ordinal; whether it was not set before. Ordinals that no device has share the last bit.
fn set(bits: &AtomicU64, ordinal: c_int) -> bool {
    let bit = u32::try_from(ordinal).ok().and_then(|shift| 1u64.checked_shl(shift)).unwrap_or(1 << 63);
    bits.fetch_or(bit, Ordering::Relaxed) & bit == 0
}
