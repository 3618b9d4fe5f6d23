//! Reads the machine's GPUs from `/proc/driver/nvidia/gpus`, without a driver call and without the heap.

use core::ffi::CStr;
use cuvisor_policy::buffer::Text;
use cuvisor_policy::inventory::{Gpu, Inventory};

use crate::state::State;
use crate::sys::{self, File};

/// The GPUs whose device node exists; none where the folder cannot be read. In a container the folder
/// shows the host's GPUs, and only the nodes tell which of them are the container's.
pub fn read(state: &State) -> Option<Inventory> {
    let root = state.root.as_bytes();
    let folder = path(&[root, b"/proc/driver/nvidia/gpus"]);
    let folder = File::open_with(c_path(&folder)?, libc::O_RDONLY | libc::O_DIRECTORY, 0).ok()?;
    let mut inventory = Inventory::new();
    let mut buffer = [0u8; 2048];
    loop {
        let filled = folder.entries(&mut buffer)?;
        if filled == 0 {
            return Some(inventory);
        }
        let mut rest = buffer.get(..filled).unwrap_or_default();
        while let Some((name, after)) = entry(rest) {
            rest = after;
            if let Some(gpu) = gpu(root, name) {
                inventory.add(gpu);
            }
        }
    }
}

/// The name of the first entry and what follows it: `struct linux_dirent64` has 19 bytes before the
/// name, of which the 17th and 18th are the entry's length (getdents64(2)).
fn entry(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::from(u16::from_ne_bytes(*entries.get(16..18)?.first_chunk()?));
    let name = entries.get(19..len)?.split(|c| *c == 0).next()?;
    Some((name, entries.get(len..)?))
}

fn gpu(root: &[u8], name: &[u8]) -> Option<Gpu> {
    if name.starts_with(b".") {
        return None;
    }
    let information = path(&[root, b"/proc/driver/nvidia/gpus/", name, b"/information"]);
    let text = sys::read_file::<2048>(c_path(&information)?)?;
    let gpu = Gpu::parse(text.as_bytes())?;
    let mut minor = Text::<10>::new();
    minor.push_number(u64::from(gpu.minor));
    let node = path(&[root, b"/dev/nvidia", minor.as_bytes()]);
    sys::exists(c_path(&node)?).then_some(gpu)
}

fn path(parts: &[&[u8]]) -> Text<512> {
    let mut path = Text::new();
    parts.iter().for_each(|part| path.push_some(part));
    path.push(b"\0");
    path
}

fn c_path(path: &Text<512>) -> Option<&CStr> {
    CStr::from_bytes_with_nul(path.as_bytes()).ok()
}
