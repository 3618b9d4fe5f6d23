//! The kernel seal: Landlock takes the device nodes of the GPUs outside the policy from the process and all
//! that it starts, whatever they link, for good (landlock(7)).
//!
//! Landlock forbids what no rule allows. So a rule is made for every entry of `/` and of `/dev` but the
//! nodes that are denied, which leaves everything else as it was. Only one right is handled: to send
//! commands to a device (IOCTL_DEV, from ABI 5), or, on older kernels, to open for writing, which the
//! driver does with its nodes. A node that is made directly in `/dev` later is beneath no rule, and so a
//! GPU that appears later is not opened by accident.

use core::ffi::CStr;
use cuvisor_policy::buffer::Text;
use cuvisor_policy::device::Devices;
use cuvisor_policy::inventory::{Gpu, Inventory};
use cuvisor_policy::names;
use cuvisor_policy::share::{self, Share};

use crate::environ;
use crate::inventory;
use crate::state::State;
use crate::sys::landlock::{self, Ruleset};
use crate::sys::{self, Directory};

/// The paths that are denied, separated by blanks.
pub type Nodes = Text<1024>;

/// What became of the seal.
#[derive(Clone, Copy)]
pub enum Sealed {
    /// No seal was asked for.
    Unasked,
    /// It holds: the kernel's Landlock ABI, and the nodes denied.
    Held(i32, Nodes),
    /// An ancestor's seal of the same nodes holds.
    Inherited(Nodes),
    /// The policy denies no node of this machine.
    Nothing,
    /// It does not hold, and why.
    Failed(&'static str),
}

/// Seals the process off from the GPUs outside its policy: in narrow outside the rule's whole list, so
/// that workers may still choose.
pub fn seal(state: &State) -> Sealed {
    let denied = match denied(state) {
        Ok(denied) => denied,
        Err(reason) => return Sealed::Failed(reason),
    };
    if denied.is_empty() {
        return Sealed::Nothing;
    }
    // A seal cannot be taken off, so who has inherited this variable has inherited the seal; and who has
    // not and sets it could start a program without this library as well.
    if environ::get(names::SEALED) == Some(denied.as_bytes()) {
        return Sealed::Inherited(denied);
    }
    let abi = landlock::abi();
    if abi < 1 {
        return Sealed::Failed("no landlock");
    }
    let Some(mut ruleset) = Ruleset::new(abi) else { return Sealed::Failed("no landlock ruleset") };
    if !allow_all_but(&mut ruleset, c"/", &denied) || !ruleset.restrict() {
        return Sealed::Failed("landlock refused: too many layers, or no_new_privs cannot be set");
    }
    environ::set(names::SEALED, denied.as_bytes());
    Sealed::Held(abi, denied)
}

/// The nodes of the GPUs outside the policy.
fn denied(state: &State) -> Result<Nodes, &'static str> {
    let mut nodes = Nodes::new();
    let mut room = Inventory::new();
    let is_read = inventory::read_into(state, &mut room);
    let inventory = Some(&room).filter(|inventory| is_read && !inventory.is_empty());
    match (&state.rights.devices, inventory) {
        (Devices::All, _) => {}
        (devices, Some(inventory)) => {
            for (index, gpu) in inventory.iter() {
                let capabilities = Capabilities::of(state, gpu);
                match share::of(devices, inventory, index, || capabilities.are_there()) {
                    Share::Whole => {}
                    Share::Instances => {
                        capabilities.deny(&mut nodes, &|instance, compute| share::has_instance(devices, gpu, instance, compute))
                    }
                    Share::Nothing => {
                        let mut minor = Text::<10>::new();
                        minor.push_number(u64::from(gpu.minor));
                        push(&mut nodes, &[b"/dev/nvidia", minor.as_bytes()]);
                        displays(&mut nodes, state, gpu.pci.text().as_bytes());
                        capabilities.deny(&mut nodes, &|_, _| false);
                    }
                }
            }
        }
        (Devices::None, None) => each_gpu_node(&mut nodes),
        (Devices::List(_), None) => return Err("the policy names GPUs, and /proc/driver/nvidia/gpus shows none"),
    }
    if nodes.is_cut() { Err("too many device nodes") } else { Ok(nodes) }
}

fn push(nodes: &mut Nodes, parts: &[&[u8]]) {
    if !nodes.is_empty() {
        nodes.push(b" ");
    }
    for part in parts {
        nodes.push(part);
    }
}

/// Without an inventory, under "none": every `/dev/nvidia<number>`.
fn each_gpu_node(nodes: &mut Nodes) {
    let Some(folder) = Directory::open(c"/dev") else { return };
    folder.each(|name| {
        let number = name.strip_prefix(b"nvidia").unwrap_or_default();
        if !number.is_empty() && number.iter().all(u8::is_ascii_digit) {
            push(nodes, &[b"/dev/", name]);
        }
    });
}

/// The display nodes of the same PCI device: `/dev/dri/card*` and `renderD*`.
fn displays(nodes: &mut Nodes, state: &State, pci: &[u8]) {
    let folder = inventory::path(&[state.root.as_bytes(), b"/sys/bus/pci/devices/", pci, b"/drm"]);
    let Some(folder) = inventory::c_path(&folder).and_then(Directory::open) else { return };
    folder.each(|name| {
        if name.starts_with(b"card") || name.starts_with(b"renderD") {
            push(nodes, &[b"/dev/dri/", name]);
        }
    });
}

/// The capability nodes of a GPU's MIG instances: `/dev/nvidia-caps/nvidia-cap<minor>`, whose minors the
/// driver tells in `capabilities/gpu<minor>/mig/gi*/access` and below it in `ci*/access`.
struct Capabilities {
    folder: Text<512>,
}

impl Capabilities {
    fn of(state: &State, gpu: &Gpu) -> Self {
        let mut minor = Text::<10>::new();
        minor.push_number(u64::from(gpu.minor));
        let parts = [state.root.as_bytes(), b"/proc/driver/nvidia/capabilities/gpu", minor.as_bytes(), b"/mig"];
        Self { folder: inventory::path(&parts) }
    }

    /// Whether the GPU is split.
    fn are_there(&self) -> bool {
        let mut found = false;
        numbered(&self.folder, b"gi", &mut |_, _| found = true);
        found
    }

    /// Adds the nodes of the instances, and of the compute instances in them, that are not to be kept.
    fn deny(&self, nodes: &mut Nodes, keeps: &dyn Fn(u32, Option<u32>) -> bool) {
        numbered(&self.folder, b"gi", &mut |instance, folder| {
            if !keeps(instance, None) {
                capability(nodes, folder);
            }
            numbered(folder, b"ci", &mut |compute, folder| {
                if !keeps(instance, Some(compute)) {
                    capability(nodes, folder);
                }
            });
        });
    }
}

/// Calls `look` with each folder whose name is these letters and a number.
fn numbered(folder: &Text<512>, letters: &[u8], look: &mut dyn FnMut(u32, &Text<512>)) {
    let Some(path) = inventory::c_path(folder) else { return };
    let Some(entries) = Directory::open(path) else { return };
    entries.each(|name| {
        let number = name.strip_prefix(letters).and_then(|digits| core::str::from_utf8(digits).ok()?.parse().ok());
        if let Some(number) = number {
            look(number, &inventory::path(&[path.to_bytes(), b"/", name]));
        }
    });
}

fn capability(nodes: &mut Nodes, folder: &Text<512>) {
    let folder = folder.as_bytes().strip_suffix(b"\0").unwrap_or_default();
    let file = inventory::path(&[folder, b"/access"]);
    let Some(text) = inventory::c_path(&file).and_then(sys::read_file::<256>) else { return };
    let line = text.as_bytes().split(|c| *c == b'\n').find_map(|line| line.strip_prefix(b"DeviceFileMinor:"));
    if let Some(minor) = line {
        push(nodes, &[b"/dev/nvidia-caps/nvidia-cap", minor.trim_ascii()]);
    }
}

/// The most denied nodes beneath one folder: as many as a text of them holds.
const MOST_NODES: usize = 128;

/// Makes a rule for each entry of a folder. One that holds a denied node is gone into instead, and the
/// denied node itself gets none. False where a rule was needed and refused.
fn allow_all_but(ruleset: &mut Ruleset, folder: &CStr, denied: &Nodes) -> bool {
    ruleset.settle();
    let Some(entries) = Directory::open(folder) else { return false };
    let prefix = folder.to_bytes().strip_suffix(b"/").unwrap_or(folder.to_bytes());
    let mut room = [&b""[..]; MOST_NODES];
    let beneath = denied.as_bytes().split(|c| *c == b' ').filter_map(|node| node.strip_prefix(prefix)?.strip_prefix(b"/"));
    let count = room.iter_mut().zip(beneath).map(|(place, rest)| *place = rest).count();
    let beneath = room.get(..count).unwrap_or_default();
    let mut sound = true;
    entries.each_kind(|name, kind| {
        if !ruleset.concerns(kind) {
            return;
        }
        let own = name.to_bytes();
        let mut concerned = beneath.iter().filter_map(|rest| rest.strip_prefix(own)).filter(|rest| matches!(rest, [] | [b'/', ..]));
        match concerned.next() {
            None => ruleset.allow(&entries, name),
            Some([]) => {}
            Some(_) => {
                let path = inventory::path(&[prefix, b"/", own]);
                sound &= inventory::c_path(&path).is_some_and(|path| allow_all_but(ruleset, path, denied));
            }
        }
    });
    sound
}
