//! The kernel seal: Landlock takes the device nodes of the GPUs outside the policy from the process and all
//! that it starts, whatever they link, for good (landlock(7)).
//!
//! Landlock forbids what no rule allows. So a rule is made for every entry of `/` and of `/dev` but the
//! nodes that are denied, which leaves everything else as it was. The right that is taken is to send
//! commands to a device (IOCTL_DEV, from ABI 5), or, on older kernels, to open for writing, which the
//! driver does with its nodes. What every ruleset takes besides, to rename and link into another folder,
//! the same rules give back; to mount, and to trace a process outside the seal, they cannot.
//!
//! A node that is made directly in `/dev` later is beneath no rule, and so a GPU that appears later is
//! not opened by accident.

mod nodes;

use core::ffi::CStr;
use cuvisor_policy::buffer::Text;
use cuvisor_policy::{names, sealed};

use crate::environ;
use crate::inventory;
use crate::reading::Scratch;
use crate::state::State;
use crate::sys::landlock::{self, Ruleset};
use crate::sys::{self, Buffer, Directory, File};

/// The paths that are denied, separated by blanks.
pub type Nodes = Text<NODES>;
const NODES: usize = 1024;

/// What became of the seal.
#[derive(Clone, Copy)]
pub enum Sealed {
    /// No seal was asked for.
    Unasked,
    /// It holds.
    Held {
        /// The kernel's Landlock ABI.
        abi: i32,
        /// The nodes denied.
        denied: Nodes,
        /// How many threads ran before and are not covered.
        uncovered: u64,
    },
    /// An ancestor's seal for the same devices holds.
    Inherited(Nodes),
    /// The policy denies no node of this machine.
    Nothing,
    /// It does not hold, and why.
    Failed(&'static str),
}

/// Seals the process off from the GPUs outside its policy: in narrow outside the rule's whole list, so
/// that workers may still choose.
pub fn seal(state: &State, scratch: &mut Scratch) -> Sealed {
    let (mark, abi) = (sealed::mark(&state.rights.devices), landlock::abi());
    if let Some((nodes, of)) = environ::get(names::SEALED).and_then(sealed::split)
        && of == mark
        && holds(abi, nodes)
    {
        return Sealed::Inherited(Text::of(nodes));
    }
    let (inventory, room) = scratch.for_the_seal();
    let denied = match nodes::denied(state, inventory, room) {
        Ok(denied) => denied,
        Err(reason) => return Sealed::Failed(reason),
    };
    if denied.is_empty() {
        return Sealed::Nothing;
    }
    if abi < 1 {
        return Sealed::Failed("no landlock");
    }
    let Some(mut ruleset) = Ruleset::new(abi) else { return Sealed::Failed("no landlock ruleset") };
    if !allow_all_but(&mut ruleset, &denied, room) {
        return Sealed::Failed("a folder of device nodes cannot be read");
    }
    let Some(uncovered) = ruleset.restrict() else {
        return Sealed::Failed("landlock refused: too many layers, or no_new_privs cannot be set");
    };
    environ::set_parts(names::SEALED, &[denied.as_bytes(), b" ", &mark]);
    Sealed::Held { abi, denied, uncovered }
}

/// A device that is there everywhere and that nobody sends commands to: a seal denies it these, so that a child can see
/// the seal.
const WITNESS: &CStr = c"/dev/full";

/// Whether the variable's seal holds here. A seal cannot be taken off, but the variable travels farther than the seal: with
/// the environment that a batch system, a terminal multiplexer or a service manager takes along to where it starts a job.
/// Where it cannot be seen, the variable is believed, but not by a process with more rights than who set it (B15).
fn holds(abi: i32, nodes: &[u8]) -> bool {
    if sys::is_privileged() {
        return false;
    }
    if landlock::denies_commands(abi) {
        return File::open(WITNESS).ok().and_then(|file| file.takes_commands()).is_none_or(|takes_them| !takes_them);
    }
    // Opening a denied node for writing fails before the driver hears of it. No other device is opened: for some that
    // alone has consequences.
    let first = nodes.split(|c| *c == b' ').next().unwrap_or_default();
    let is_a_gpu_s = first.strip_prefix(b"/dev/nvidia").is_some_and(|minor| minor.iter().all(u8::is_ascii_digit));
    let opens = |node| File::open_with(node, libc::O_WRONLY | libc::O_NONBLOCK, 0).is_ok();
    !(is_a_gpu_s && inventory::c_path(&inventory::path(&[first])).is_some_and(opens))
}

/// The most denied nodes: as many as a text of them holds.
const MOST_NODES: usize = NODES / "/dev/nvidia0 ".len() + 1;

/// Makes a rule for each entry of the folders that hold denied nodes, but for these nodes and folders themselves. False
/// where a folder cannot be read.
fn allow_all_but(ruleset: &mut Ruleset, denied: &Nodes, room: &mut Buffer) -> bool {
    let nodes = || denied.as_bytes().split(|c| *c == b' ');
    let mut sound = true;
    for (at, node) in nodes().enumerate() {
        for (end, _) in node.iter().enumerate().filter(|(_, c)| **c == b'/') {
            let folder = node.get(..=end).unwrap_or_default();
            // A folder of several nodes is read for the first of them.
            if !nodes().take(at).any(|earlier| earlier.starts_with(folder)) {
                sound &= allow_entries(ruleset, folder, denied, room);
            }
        }
    }
    sound
}

/// Makes the rules for one folder, whose name ends with a slash.
#[inline(never)]
fn allow_entries(ruleset: &mut Ruleset, folder: &[u8], denied: &Nodes, room: &mut Buffer) -> bool {
    let path = inventory::path(&[folder]);
    let Some(path) = inventory::c_path(&path) else { return false };
    // Where there is no such folder, its nodes are not there either.
    let Some(entries) = Directory::open(path) else { return !sys::exists(path) };
    let mut names = [&b""[..]; MOST_NODES];
    let beneath = denied.as_bytes().split(|c| *c == b' ').filter_map(|node| node.strip_prefix(folder)?.split(|c| *c == b'/').next());
    let count = names.iter_mut().zip(beneath).map(|(place, name)| *place = name).count();
    let beneath = names.get(..count).unwrap_or_default();
    let witness = WITNESS.to_bytes().strip_prefix(folder).filter(|_| ruleset.denies_commands());
    entries.each(room, |name, kind| {
        if ruleset.concerns(kind) && !beneath.contains(&name.to_bytes()) && witness != Some(name.to_bytes()) {
            ruleset.allow(&entries, name, kind);
        }
    });
    // Before the next folder is opened: its descriptor is not to lie in the middle of a run.
    ruleset.settle();
    true
}
