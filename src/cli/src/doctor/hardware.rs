//! The machine: its driver, its GPUs, and whether this user may open their nodes.

use super::{Finding, failure, lossy, ok, warning};
use crate::machine;
use cuvisor_policy::inventory::{Gpu, Inventory};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;

pub fn check(root: &Path, inventory: &Inventory) -> Vec<Finding> {
    vec![kernel_driver(root), gpus(root, inventory), nodes(root, inventory), mig(root, inventory)]
}

/// The version of the kernel's part of the driver: the word after "Kernel Module" that begins with a digit.
pub fn kernel_version(root: &Path) -> Option<String> {
    let text = std::fs::read_to_string(root.join("proc/driver/nvidia/version")).ok()?;
    let rest = text.lines().next()?.split_once("Kernel Module")?.1;
    rest.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
}

fn kernel_driver(root: &Path) -> Finding {
    const CHECK: &str = "kernel driver";
    match kernel_version(root) {
        Some(version) => ok(CHECK, format!("NVIDIA {version}")),
        None if root.join("proc/driver/nvidia").exists() => ok(CHECK, "loaded; its version is not told"),
        None => warning(
            CHECK,
            "not loaded: /proc/driver/nvidia is not there",
            "on a machine with NVIDIA GPUs: modprobe nvidia; in a container: start it with the GPUs (docker run --gpus all)",
        ),
    }
}

/// What is known of a GPU, in one line.
pub fn describe(index: usize, gpu: &Gpu) -> String {
    let uuid = gpu.uuid.map(|uuid| format!("  GPU-{}", lossy(&uuid.text()))).unwrap_or_default();
    format!("{index}{uuid}  {}  /dev/nvidia{}  {}", lossy(gpu.pci.text().as_bytes()), gpu.minor, lossy(gpu.model.as_bytes()))
}

fn gpus(root: &Path, inventory: &Inventory) -> Finding {
    let listed = std::fs::read_dir(root.join("proc/driver/nvidia/gpus")).into_iter().flatten().count();
    let lines = inventory.iter().map(|(index, gpu)| describe(index, gpu)).collect();
    match (inventory.iter().count(), listed) {
        (0, 0) => warning(
            "GPUs",
            "none: /proc/driver/nvidia/gpus lists no GPU",
            "programs will run without one; nvidia-smi -L and lspci tell more",
        ),
        (0, listed) => failure(
            "GPUs",
            format!("the driver knows {listed}, and none has its node in /dev"),
            "nvidia-modprobe -c 0 makes the nodes; in a container: pass the GPUs to it",
        ),
        (here, listed) if here < listed => {
            ok("GPUs", format!("{here} of the machine's {listed} have their node here: this is a container with its own indices"))
                .with(lines)
        }
        (here, _) => ok("GPUs", format!("{here}, as nvidia-smi numbers them")).with(lines),
    }
}

/// Opens each node as the driver does. A GPU that sleeps wakes up.
fn nodes(root: &Path, inventory: &Inventory) -> Finding {
    const CHECK: &str = "nodes";
    if inventory.is_empty() {
        return ok(CHECK, "there is no GPU to open");
    }
    let control = ["nvidiactl", "nvidia-uvm"].map(str::to_owned);
    let all = control.into_iter().chain(inventory.iter().map(|(_, gpu)| format!("nvidia{}", gpu.minor)));
    let mut failed = Vec::new();
    for name in all {
        let error = OpenOptions::new().read(true).write(true).open(root.join("dev").join(&name)).err();
        if let Some(error) = error {
            failed.push((format!("/dev/{name}: {error}"), error.kind()));
        }
    }
    let details = failed.iter().map(|(text, _)| text.clone()).collect();
    match failed.first() {
        None => ok(CHECK, "this user can open all of them"),
        Some((_, ErrorKind::PermissionDenied)) => failure(
            CHECK,
            "this user may not open them all",
            "join the group that owns them (ls -l /dev/nvidia*), or look at the container's or job's device rules",
        )
        .with(details),
        Some((_, ErrorKind::NotFound)) => {
            failure(CHECK, "one that the driver needs is not there", "nvidia-modprobe -u -c 0 makes them; in a container: pass them to it")
                .with(details)
        }
        Some(_) => failure(CHECK, "they cannot all be opened", "the kernel's log tells more: dmesg | grep NVRM").with(details),
    }
}

fn mig(root: &Path, inventory: &Inventory) -> Finding {
    let split: Vec<_> =
        inventory.iter().map(|(index, gpu)| (index, machine::instances(root, gpu))).filter(|(_, count)| *count > 0).collect();
    if split.is_empty() {
        return ok("MIG", "no GPU is split into instances");
    }
    let lines = split.iter().map(|(index, count)| format!("GPU {index}: {count} GPU instances")).collect();
    ok("MIG", "a program sees one instance of a split GPU; name it by its MIG- UUID (nvidia-smi -L)").with(lines)
}
