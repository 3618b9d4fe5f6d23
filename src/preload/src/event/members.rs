//! The members of each kind of event.

use core::ffi::c_void;
use core::sync::atomic::Ordering;
use cuvisor_policy::buffer::Text;
use cuvisor_policy::device::Selector;
use cuvisor_policy::guard::Seen;
use cuvisor_policy::record::{self, Line};

use super::{Init, Subject, Touch, signed};
use crate::driver::{Code, Slot};
use crate::inventory;
use crate::life::{self, COUNTS};
use crate::loader::Module;
use crate::seal::{Nodes, Sealed};
use crate::state::State;

/// What a `cuInit` found.
pub fn init_members(line: &mut Line, state: &State, init: &Init<'_>) {
    result(line, init.result);
    let (request, effective) = (init.outcome.request, init.outcome.effective);
    line.string_or_null("request", request);
    line.string_or_null("effective", effective);
    line.boolean("changed", request != effective);
    line.boolean("rewritten", init.outcome.written);
    match init.outcome.reason {
        Some(reason) => line.string("reason", reason.text().as_bytes()),
        None => shortfall(line, state, init),
    }
    seal(line, state);
    caller(line, init.caller);
    driver(line, init.slot);
    line.array("devices", |line| {
        if init.result == 0 || init.outside != 0 {
            init.slot.visible().for_each(|seen| line.item(|line| device(line, &seen)));
        }
    });
}

/// Which level of the seal holds, where one was asked for.
fn seal(line: &mut Line, state: &State) {
    let nodes = |line: &mut Line, nodes: &Nodes| {
        line.array("denied", |line| nodes.as_bytes().split(|c| *c == b' ').for_each(|node| line.element(node)));
    };
    match &state.sealed {
        Sealed::Unasked => {}
        sealed => line.object("seal", |line| match sealed {
            Sealed::Held { abi, denied, uncovered } => {
                line.string("level", if *abi >= 5 { b"ioctl" } else { b"open for writing" });
                line.number("abi", i64::from(*abi));
                nodes(line, denied);
                if *uncovered > 0 {
                    line.number("threads_not_covered", i64::try_from(*uncovered).unwrap_or(i64::MAX));
                }
            }
            Sealed::Inherited(denied) => {
                line.string("level", b"inherited");
                nodes(line, denied);
            }
            Sealed::Unasked => {}
            Sealed::Nothing => line.string("level", b"nothing to deny"),
            Sealed::Failed(reason) => {
                line.string("level", b"failed");
                line.string("reason", reason.as_bytes());
            }
        }),
    }
}

/// Says so where the driver shows fewer devices than the list has: an index beyond the machine, or a
/// UUID that it lacks, ends the driver's reading without a word (A06, A12).
fn shortfall(line: &mut Line, state: &State, init: &Init<'_>) {
    let list = init.outcome.effective.unwrap_or_default();
    let named = if list.is_empty() { 0 } else { list.split(|c| *c == b',').count() };
    let shown = if init.result == 0 { init.slot.visible().count() } else { 0 };
    if !state.enforces() || shown >= named || !matches!(init.result, 0 | 100) {
        return;
    }
    let mut text = Text::<80>::new();
    if let Some((index, gpus)) = lacking(state, list) {
        text.push(b"policy index ");
        text.push_number(index);
        text.push(b", the machine offers ");
        text.push_number(gpus);
        text.push(if gpus == 1 { b" GPU" } else { b" GPUs" });
    } else {
        text.push(b"the policy names ");
        text.push_number(u64::try_from(named).unwrap_or_default());
        text.push(if named == 1 { b" device, the driver shows " } else { b" devices, the driver shows " });
        text.push_number(u64::try_from(shown).unwrap_or_default());
    }
    line.string("reason", text.as_bytes());
}

/// The first index of a list that the machine has no GPU for, and how many GPUs it has here: in a container those whose
/// node it has. None where there is no such index, or the machine cannot be asked.
#[cold]
#[inline(never)]
fn lacking(state: &State, list: &[u8]) -> Option<(u64, u64)> {
    // A list has indices alone, or none: then nothing is asked, which takes the kernel's driver about 0.2 ms a GPU.
    let index = |element| if let Ok(Selector::Index(index)) = Selector::parse(element) { Some(u64::from(index)) } else { None };
    let mut indices = list.split(|c| *c == b',').map_while(index).peekable();
    indices.peek()?;
    let gpus = u64::try_from(inventory::read(state)?.len()).ok()?;
    indices.find(|index| *index >= gpus).map(|index| (index, gpus))
}

/// What a call about a device asked for and got; for one that was refused, why.
pub fn touch_members(line: &mut Line, touch: &Touch<'_>, denied: Option<&State>) {
    result(line, touch.result);
    line.string("call", touch.call.name().to_bytes());
    if let Some(state) = denied {
        line.string("reason", b"the driver shows a device outside the policy");
        line.string("allowed", state.rights.devices.text());
    }
    caller(line, touch.caller);
    driver(line, touch.slot);
    match touch.subject {
        Subject::Device(seen) => line.object("device", |line| device(line, &seen)),
        Subject::Ordinal(ordinal) => line.object("device", |line| line.number("ordinal", i64::from(ordinal))),
        Subject::None => line.null("device"),
    }
}

/// How long the process used CUDA, and how much.
pub fn exit_members(line: &mut Line) {
    line.seconds("seconds", life::since_begin());
    line.object("calls", |line| {
        for (name, counter) in
            [("init", &COUNTS.init), ("device", &COUNTS.device), ("context", &COUNTS.context), ("denied", &COUNTS.denied)]
        {
            line.number(name, signed(counter.load(Ordering::Relaxed)));
        }
    });
}

fn result(line: &mut Line, code: Code) {
    line.number("result", i64::from(code));
    line.string_or_null("result_name", record::result_name(code).map(str::as_bytes));
}

/// The library that a return address lies in.
fn caller(line: &mut Line, address: *const c_void) {
    match Module::of(address) {
        Some(module) => line.string("caller", module.file_name()),
        None => line.null("caller"),
    }
}

fn driver(line: &mut Line, slot: &Slot) {
    match slot.module() {
        Some(module) => line.string("driver", module.name.as_bytes()),
        None => line.null("driver"),
    }
}

fn device(line: &mut Line, seen: &Seen) {
    line.number("ordinal", i64::from(seen.ordinal));
    let uuid = seen.uuid.map(|uuid| {
        let mut text = Text::<40>::of(b"GPU-");
        text.push(&uuid.text());
        text
    });
    line.string_or_null("uuid", uuid.as_ref().map(|text| text.as_bytes()));
    let pci = seen.pci.map(|pci| pci.text());
    line.string_or_null("pci", pci.as_ref().map(|text| text.as_bytes()));
}
