//! Reads the machine's GPUs from `/proc/driver/nvidia/gpus`, without a driver call and without the heap.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use cuvisor_policy::buffer::Text;
use cuvisor_policy::device::PciId;
use cuvisor_policy::inventory::{Gpu, Inventory, sink_last};

use crate::state::State;
use crate::sys::{self, Buffer, Directory};

/// Where the kernel's driver lists its GPUs.
pub const GPUS: &[u8] = b"/proc/driver/nvidia/gpus";
/// Room for what is read: a folder's entries, and a file.
const ROOM: usize = 2048;

/// The GPUs whose device node exists; none where the folder cannot be read. In a container the folder
/// shows the host's GPUs, and only the nodes tell which of them are the container's.
pub fn read(state: &State) -> Option<Inventory> {
    let mut inventory = Inventory::new();
    read_into(state, &mut inventory, &mut [MaybeUninit::uninit(); ROOM]).then_some(inventory)
}

/// The same into an inventory and with room that are there already: both are large. False where the folder
/// cannot be read.
#[inline(never)]
pub fn read_into(state: &State, inventory: &mut Inventory, room: &mut Buffer) -> bool {
    let Some(folder) = folder(state, GPUS) else { return false };
    // Written before it is read: the page is not touched for its zeros first.
    inventory.clear();
    let (names, text) = room.split_at_mut(room.len() / 2);
    folder.each(names, |name, _| {
        if let Some(gpu) = gpu(state, &folder, name.to_bytes(), text) {
            inventory.add(gpu);
        }
    });
    true
}

/// Only the addresses of the GPUs, in order, which the names in the folder tell: to read what is in it takes the kernel's
/// driver about 0.2 ms a GPU. None where it is not plain that each of them has a node: then [`read`] finds out.
pub fn addresses<'r>(state: &State, room: &'r mut [PciId]) -> Option<&'r [PciId]> {
    let folder = folder(state, GPUS)?;
    let (mut count, mut are_addresses) = (0usize, true);
    folder.each(&mut [MaybeUninit::uninit(); ROOM / 2], |name, _| match (PciId::parse(name.to_bytes()), room.get_mut(count)) {
        (Some(pci), Some(place)) => {
            (*place, count) = (pci, count.saturating_add(1));
            sink_last(room.get_mut(..count).unwrap_or_default(), |pci| *pci);
        }
        // One more than there is room for is left out, as an inventory does.
        (Some(_), None) => {}
        (None, _) => are_addresses = false,
    });
    let addresses = room.get(..count)?;
    let mut numbers = 0..u32::try_from(count).unwrap_or_default();
    (are_addresses && numbers.all(|minor| has_node(state, minor))).then_some(addresses)
}

fn has_node(state: &State, minor: u32) -> bool {
    c_path(&path(&[state.root.as_bytes(), b"/dev/nvidia", number(minor).as_bytes()])).is_some_and(sys::exists)
}

/// A number in decimal digits, for a path.
pub fn number(number: u32) -> Text<10> {
    let mut text = Text::new();
    text.push_number(u64::from(number));
    text
}

/// A folder of the machine, if it is there.
pub fn folder(state: &State, name: &[u8]) -> Option<Directory> {
    let path = path(&[state.root.as_bytes(), name]);
    c_path(&path).and_then(Directory::open)
}

fn gpu(state: &State, folder: &Directory, name: &[u8], room: &mut Buffer) -> Option<Gpu> {
    let information = path(&[name, b"/information"]);
    let gpu = Gpu::parse(folder.read(c_path(&information)?, room)?)?;
    has_node(state, gpu.minor).then_some(gpu)
}

/// Joins parts to a path with its NUL.
pub fn path(parts: &[&[u8]]) -> Text<512> {
    let mut path = Text::new();
    parts.iter().for_each(|part| path.push_some(part));
    path.push(b"\0");
    path
}

/// The path as a C string; none where it did not fit.
pub fn c_path(path: &Text<512>) -> Option<&CStr> {
    CStr::from_bytes_with_nul(path.as_bytes()).ok()
}
