//! Which device nodes belong to the GPUs outside the policy. They are read, not guessed.

use core::ffi::CStr;
use cuvisor_policy::device::Devices;
use cuvisor_policy::inventory::{Gpu, Inventory};
use cuvisor_policy::share::{self, Share};

use super::Nodes;
use crate::inventory;
use crate::state::State;
use crate::sys::{self, Buffer, Directory};

/// The nodes of the GPUs outside the policy.
///
/// # Errors
/// They cannot be told.
pub fn denied(state: &State, inventory: &mut Inventory, room: &mut Buffer) -> Result<Nodes, &'static str> {
    let mut nodes = Nodes::new();
    let folders = Folders::open(state);
    match &state.rights.devices {
        Devices::All => {}
        // Whose each node is need not be known; to ask takes the kernel's driver about 0.2 ms a GPU.
        Devices::None => folders.all(state, &mut nodes, room),
        devices @ Devices::List(_) => {
            if !inventory::read_into(state, inventory, room) || inventory.is_empty() {
                return Err("the policy names GPUs, and /proc/driver/nvidia/gpus shows none");
            }
            for (index, gpu) in inventory.iter() {
                folders.outside(devices, inventory, index, gpu, &mut nodes, room);
            }
        }
    }
    if nodes.is_cut() { Err("too many device nodes") } else { Ok(nodes) }
}

/// Where the kernel tells what belongs to a GPU.
struct Folders {
    pci: Option<Directory>,
    capabilities: Option<Directory>,
}

impl Folders {
    fn open(state: &State) -> Self {
        // Without a folder for displays there are no nodes of theirs; one that is made later is beneath no rule.
        let pci = if sys::exists(c"/dev/dri") { inventory::folder(state, b"/sys/bus/pci/devices") } else { None };
        Self { pci, capabilities: inventory::folder(state, b"/proc/driver/nvidia/capabilities") }
    }

    /// All GPUs' nodes.
    fn all(&self, state: &State, nodes: &mut Nodes, room: &mut Buffer) {
        each_gpu_node(nodes, room);
        let (names, inner_room) = room.split_at_mut(room.len() / 3);
        if let Some(gpus) = self.pci.as_ref().and_then(|_| inventory::folder(state, inventory::GPUS)) {
            gpus.each(names, |pci, _| displays(nodes, self.pci.as_ref(), pci.to_bytes(), inner_room));
        }
        if let Some(capabilities) = &self.capabilities {
            numbered(capabilities, b"gpu", names, |minor, _| {
                Capabilities { folder: Some(capabilities), minor }.deny(nodes, inner_room, &|_, _| false);
            });
        }
    }

    /// The nodes of this GPU that are outside the policy.
    fn outside(&self, devices: &Devices, inventory: &Inventory, index: usize, gpu: &Gpu, nodes: &mut Nodes, room: &mut Buffer) {
        let capabilities = Capabilities { folder: self.capabilities.as_ref(), minor: gpu.minor };
        match share::of(devices, inventory, index, || capabilities.are_there(room)) {
            Share::Whole => {}
            Share::Instances => {
                capabilities.deny(nodes, room, &|instance, compute| share::has_instance(devices, gpu, instance, compute));
            }
            Share::Nothing => {
                push(nodes, &[b"/dev/nvidia", inventory::number(gpu.minor).as_bytes()]);
                displays(nodes, self.pci.as_ref(), gpu.pci.text().as_bytes(), room);
                capabilities.deny(nodes, room, &|_, _| false);
            }
        }
    }
}

fn push(nodes: &mut Nodes, parts: &[&[u8]]) {
    if !nodes.is_empty() {
        nodes.push(b" ");
    }
    for part in parts {
        nodes.push(part);
    }
}

/// Every `/dev/nvidia<number>`.
fn each_gpu_node(nodes: &mut Nodes, room: &mut Buffer) {
    let Some(folder) = Directory::open(c"/dev") else { return };
    folder.each(room, |name, _| {
        let name = name.to_bytes();
        let number = name.strip_prefix(b"nvidia").unwrap_or_default();
        if !number.is_empty() && number.iter().all(u8::is_ascii_digit) {
            push(nodes, &[b"/dev/", name]);
        }
    });
}

/// A folder in a folder, by a name in parts.
fn inner(folder: &Directory, name: &[&[u8]]) -> Option<Directory> {
    let name = inventory::path(name);
    folder.open_in(inventory::c_path(&name)?)
}

/// The display nodes of the same PCI device: `/dev/dri/card*` and `renderD*`.
fn displays(nodes: &mut Nodes, folder: Option<&Directory>, pci: &[u8], room: &mut Buffer) {
    let Some(folder) = folder.and_then(|folder| inner(folder, &[pci, b"/drm"])) else { return };
    folder.each(room, |name, _| {
        let name = name.to_bytes();
        if name.starts_with(b"card") || name.starts_with(b"renderD") {
            push(nodes, &[b"/dev/dri/", name]);
        }
    });
}

/// The capability nodes of a GPU's MIG instances: `/dev/nvidia-caps/nvidia-cap<minor>`, whose minors the
/// driver tells in `capabilities/gpu<minor>/mig/gi*/access` and below it in `ci*/access`.
struct Capabilities<'a> {
    folder: Option<&'a Directory>,
    /// The GPU's minor.
    minor: u32,
}

impl Capabilities<'_> {
    /// The folder of the GPU's instances.
    fn instances(&self) -> Option<Directory> {
        inner(self.folder?, &[b"gpu", inventory::number(self.minor).as_bytes(), b"/mig"])
    }

    /// Whether the GPU is split.
    fn are_there(&self, room: &mut Buffer) -> bool {
        let mut found = false;
        if let Some(instances) = self.instances() {
            numbered(&instances, b"gi", room, |_, _| found = true);
        }
        found
    }

    /// Adds the nodes of the instances, and of the compute instances in them, that are not to be kept.
    fn deny(&self, nodes: &mut Nodes, room: &mut Buffer, keeps: &dyn Fn(u32, Option<u32>) -> bool) {
        let Some(instances) = self.instances() else { return };
        let (names, room) = room.split_at_mut(room.len() / 3);
        let (inner_names, text) = room.split_at_mut(room.len() / 2);
        numbered(&instances, b"gi", names, |instance, name| {
            let Some(folder) = instances.open_in(name) else { return };
            if !keeps(instance, None) {
                capability(nodes, &folder, b"", text);
            }
            numbered(&folder, b"ci", inner_names, |compute, name| {
                if !keeps(instance, Some(compute)) {
                    capability(nodes, &folder, name.to_bytes(), text);
                }
            });
        });
    }
}

/// Calls `look` with each entry whose name is these letters and a number.
fn numbered(folder: &Directory, letters: &[u8], room: &mut Buffer, mut look: impl FnMut(u32, &CStr)) {
    folder.each(room, |name, _| {
        let number = name.to_bytes().strip_prefix(letters).and_then(|digits| core::str::from_utf8(digits).ok()?.parse().ok());
        if let Some(number) = number {
            look(number, name);
        }
    });
}

/// Adds the node that the `access` file of a folder in this one tells, or of this one itself.
fn capability(nodes: &mut Nodes, folder: &Directory, name: &[u8], room: &mut Buffer) {
    let separator: &[u8] = if name.is_empty() { b"" } else { b"/" };
    let file = inventory::path(&[name, separator, b"access"]);
    let Some(text) = inventory::c_path(&file).and_then(|file| folder.read(file, room)) else { return };
    let line = text.split(|c| *c == b'\n').find_map(|line| line.strip_prefix(b"DeviceFileMinor:"));
    if let Some(minor) = line {
        push(nodes, &[b"/dev/nvidia-caps/nvidia-cap", minor.trim_ascii()]);
    }
}
