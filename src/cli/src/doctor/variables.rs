//! The variables that say which GPUs a program sees.

use super::{Finding, failure, lossy, ok, warning};
use crate::reading;
use cuvisor_policy::inventory::Inventory;
use cuvisor_policy::names;
use cuvisor_policy::visible::{self, Answer, Reading};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Words that the container toolkit reads in NVIDIA_VISIBLE_DEVICES; the driver takes each for no device (driver-facts.md).
const TOOLKIT_WORDS: [&[u8]; 3] = [b"all", b"none", b"void"];

pub fn check(inventory: &Inventory) -> Vec<Finding> {
    vec![list(inventory), order(), spelling(), renumbering(), switches()]
}

fn value(name: &str) -> Option<Vec<u8>> {
    std::env::var_os(name).map(OsString::into_vec)
}

fn list(inventory: &Inventory) -> Finding {
    const CHECK: &str = names::VISIBLE_DEVICES;
    let Some(value) = value(names::VISIBLE_DEVICES) else { return ok(CHECK, "unset: every GPU is visible") };
    let shown = format!("{:?}", lossy(&value));
    if value.is_empty() {
        return ok(CHECK, "set and empty: no GPU is visible");
    }
    if TOOLKIT_WORDS.contains(&value.as_slice()) {
        let cause = format!("{shown} is a word of NVIDIA_VISIBLE_DEVICES: to the driver it is no device, so no GPU is visible");
        return failure(CHECK, cause, "unset it for all GPUs, or write their indices or UUIDs");
    }
    let details = reading::tokens(&value).into_iter().map(|token| format!("`{}`: {}", token.text, token.reading)).collect();
    let elements: Vec<_> = visible::elements(&value).collect();
    let first = elements.first().map(|element| element.reading);
    let ends = elements.iter().position(|element| matches!(element.reading, Reading::End(_)));
    let is_number = |reading: &Reading<'_>| matches!(reading, Reading::Index(_));
    let is_mixed =
        elements.iter().any(|e| !matches!(e.reading, Reading::End(_)) && Some(is_number(&e.reading)) != first.as_ref().map(is_number));
    let seen = visible::read(Some(&value), inventory);
    let known = !inventory.is_empty();
    let (cause, remedy) = match (ends, seen.answer) {
        (Some(0), _) => (
            format!("{shown}: the first element is no device, so no GPU is visible"),
            "write indices or UUIDs; set it empty if no GPU is meant",
        ),
        (_, Answer::InvalidDevice) if known => (format!("{shown} names a GPU twice: cuInit fails with 101"), "name each GPU once"),
        (_, Answer::NoDevice) if known => {
            (format!("{shown} names no GPU of this machine, so none is visible"), "cuvisor ps and nvidia-smi -L list what is there")
        }
        _ if is_mixed => {
            return warning(
                CHECK,
                format!("{shown} mixes indices and UUIDs: the driver reads only the kind of the first"),
                "write all as UUIDs",
            )
            .with(details);
        }
        (Some(at), _) => {
            return warning(CHECK, format!("{shown}: the driver stops reading at element {}", at + 1), "remove that element").with(details);
        }
        _ if known && seen.indices().len() < elements.len() => {
            let cause = format!("{shown}: the driver shows {} of {} devices", seen.indices().len(), elements.len());
            return warning(CHECK, cause, "the first device that the machine lacks ends the list: remove it").with(details);
        }
        _ if elements.iter().any(|element| !element.ignored.is_empty()) => {
            return warning(CHECK, format!("{shown}: the driver ignores a part of it"), "write plain decimal indices or UUIDs")
                .with(details);
        }
        _ => return ok(CHECK, shown).with(details),
    };
    failure(CHECK, cause, remedy).with(details)
}

fn order() -> Finding {
    const CHECK: &str = names::DEVICE_ORDER;
    let by_index = value(names::VISIBLE_DEVICES).is_some_and(|v| visible::elements(&v).any(|e| matches!(e.reading, Reading::Index(_))));
    match value(names::DEVICE_ORDER) {
        None if by_index => warning(
            CHECK,
            "unset, and CUDA_VISIBLE_DEVICES holds indices: the driver numbers the fastest GPU first, nvidia-smi by PCI bus id",
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPUs by UUID",
        ),
        None => ok(CHECK, "unset: the fastest GPU comes first, which need not be nvidia-smi's order"),
        Some(v) if v == names::PCI_ORDER.as_bytes() => ok(CHECK, "PCI_BUS_ID: nvidia-smi's order"),
        Some(v) if v == names::FASTEST_ORDER.as_bytes() => ok(CHECK, "FASTEST_FIRST: this need not be nvidia-smi's order"),
        Some(v) => {
            failure(CHECK, format!("{:?} is no order: cuInit fails with 101", lossy(&v)), "write PCI_BUS_ID or FASTEST_FIRST, in capitals")
        }
    }
}

/// A17: a variable that nobody reads because of a letter.
fn spelling() -> Finding {
    const KNOWN: [&str; 3] = [names::VISIBLE_DEVICES, names::DEVICE_ORDER, "NVIDIA_VISIBLE_DEVICES"];
    let near = |name: &str| {
        let upper = name.to_uppercase();
        KNOWN.into_iter().find(|known| *known != name && strsim::damerau_levenshtein(&upper, known) <= 2)
    };
    let own = |name: &str| {
        let all = names::VARIABLES.iter().map(|(known, _)| *known).chain([crate::library::VARIABLE]);
        let upper = name.to_uppercase();
        name.starts_with("CUVISOR_").then(|| all.clone().find(|known| strsim::damerau_levenshtein(&upper, known) <= 2 && *known != name))?
    };
    let mut found: Vec<_> = std::env::vars_os()
        .filter_map(|(name, _)| {
            let name = lossy(name.as_bytes());
            let is_known = KNOWN.contains(&name.as_str())
                || names::VARIABLES.iter().any(|(known, _)| *known == name)
                || name == crate::library::VARIABLE;
            let meant = if is_known { None } else { near(&name).or_else(|| own(&name)) };
            meant.map(|meant| (name, meant))
        })
        .collect();
    found.sort();
    let Some((name, meant)) = found.first() else { return ok("spelling", "no variable is nearly one that counts") };
    let others: Vec<_> = found[1..].iter().map(|(name, meant)| format!("{name} (meant is {meant}?)")).collect();
    warning("spelling", format!("{name} is set, and nobody reads it"), format!("write {meant}")).with(others)
}

/// Who has numbered the GPUs anew.
fn renumbering() -> Finding {
    let mut facts = Vec::new();
    if let Some(value) = value("NVIDIA_VISIBLE_DEVICES") {
        let value = lossy(&value);
        facts.push(format!(
            "NVIDIA_VISIBLE_DEVICES={value}: read when a container is made, never by the driver; inside, indices begin at 0"
        ));
    }
    for name in ["SLURM_JOB_GPUS", "SLURM_STEP_GPUS"] {
        if let Some(value) = value(name) {
            let value = lossy(&value);
            facts.push(format!("{name}={value}: these are the node's indices; under ConstrainDevices the job's own begin at 0"));
        }
    }
    if value("KUBERNETES_SERVICE_HOST").is_some() {
        facts.push("this is a Kubernetes pod: indices begin at 0 in each container".to_owned());
    }
    if let Some(folder) = value("CUDA_MPS_PIPE_DIRECTORY") {
        let cause =
            format!("CUDA_MPS_PIPE_DIRECTORY={}: the MPS daemon's own list comes first, and indices count within it", lossy(&folder));
        return warning("renumbering", cause, "name GPUs by UUID, or stop the daemon: echo quit | nvidia-cuda-mps-control").with(facts);
    }
    match facts.len() {
        0 => ok("renumbering", "no container runtime, Slurm, Kubernetes or MPS shows in the variables"),
        _ => ok("renumbering", "something numbers the GPUs anew: name them by UUID").with(facts),
    }
}

/// Cuvisor's own variables.
fn switches() -> Finding {
    if value(names::DISABLE).is_some_and(|v| v == b"1") {
        return warning("switches", "CUVISOR_DISABLE=1: the library does nothing unless the policy is locked", "unset CUVISOR_DISABLE");
    }
    let set = names::VARIABLES.iter().filter(|(name, _)| ![names::APPLIED, names::SEALED].contains(name));
    let set: Vec<_> = set.filter_map(|(name, _)| value(name).map(|value| format!("{name}={}", lossy(&value)))).collect();
    if set.is_empty() { ok("switches", "no variable of Cuvisor's is set") } else { ok("switches", set.join(" ")) }
}
