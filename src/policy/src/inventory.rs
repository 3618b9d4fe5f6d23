//! The machine's GPUs as `/proc/driver/nvidia/gpus/*/information` tells them, without a driver call.

use crate::buffer::Text;
use crate::device::{MAX_GPUS, PciId, Selector, Uuid};

/// One GPU of the machine.
#[derive(Clone, Copy)]
pub struct Gpu {
    /// `GPU UUID`; none where the driver cannot tell it yet (it prints question marks).
    pub uuid: Option<Uuid>,
    /// `Bus Location`.
    pub pci: PciId,
    /// `Device Minor`: the node is `/dev/nvidia<minor>`.
    pub minor: u32,
    /// `Model`.
    pub model: Text<48>,
}

impl Gpu {
    /// Reads the text of one `information` file; none where the bus location or minor is missing.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let value = |name: &[u8]| {
            text.split(|c| *c == b'\n').find_map(|line| {
                let rest = line.strip_prefix(name)?.trim_ascii_start();
                Some(rest.strip_prefix(b":")?.trim_ascii())
            })
        };
        let minor = core::str::from_utf8(value(b"Device Minor")?).ok()?;
        Some(Self {
            uuid: value(b"GPU UUID").and_then(|v| Uuid::parse(v.strip_prefix(b"GPU-")?)),
            pci: PciId::parse(value(b"Bus Location")?)?,
            minor: minor.parse().ok()?,
            model: Text::of(value(b"Model").unwrap_or_default()),
        })
    }
}

/// The GPUs of the machine in PCI order: their position is nvidia-smi's index.
#[derive(Clone, Copy)]
#[repr(C)] // the number beside the first GPUs: a few GPUs touch one page
pub struct Inventory {
    len: usize,
    /// The first `len` of them; the others are nothing but zeros, and so is an empty inventory: in a library's data it
    /// costs no room in the file, and only the places that are used are ever touched.
    gpus: [Gpu; MAX_GPUS],
}

/// What stands in an unused place.
const NO_GPU: Gpu = Gpu { uuid: None, pci: PciId { domain: 0, bus: 0, device: 0, function: 0 }, minor: 0, model: Text::new() };

impl Inventory {
    /// No GPU.
    pub const fn new() -> Self {
        Self { len: 0, gpus: [NO_GPU; MAX_GPUS] }
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a GPU at its place in PCI order; one more than [`MAX_GPUS`] is left out.
    pub fn add(&mut self, gpu: Gpu) {
        let Some(last) = self.gpus.get_mut(self.len) else { return };
        *last = gpu;
        self.len = self.len.saturating_add(1);
        if let Some(known) = self.gpus.get_mut(..self.len) {
            sink_last(known, |gpu| gpu.pci);
        }
    }

    /// The GPUs with their indices, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Gpu)> + Clone {
        self.gpus.iter().take(self.len).enumerate()
    }

    /// The index of the GPU with this minor.
    pub fn index_of_minor(&self, minor: u32) -> Option<usize> {
        self.iter().find(|(_, gpu)| gpu.minor == minor).map(|(index, _)| index)
    }

    /// How many GPUs there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no GPU.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The GPU of this index.
    pub fn get(&self, index: usize) -> Option<&Gpu> {
        self.gpus.get(..self.len)?.get(index)
    }

    /// The index of the one GPU that `selector` names; none where it names no GPU or several.
    pub fn find(&self, selector: &Selector<'_>) -> Option<usize> {
        let named = |(index, gpu): &(usize, &Gpu)| match selector {
            Selector::Index(wanted) => usize::try_from(*wanted) == Ok(*index),
            Selector::Uuid(prefix) => gpu.uuid.is_some_and(|uuid| uuid.begins_with(prefix)),
            Selector::Pci(pci) => gpu.pci == *pci,
            Selector::Mig(_) => false,
        };
        let mut matching = self.iter().filter(named);
        let (index, _) = matching.next()?;
        matching.next().is_none().then_some(index)
    }
}

/// Moves the last of `places`, of which the others are in order, to its place among them. The standard library's sort
/// does more, and is as large as half of a policy's reader.
pub fn sink_last<T, K: Ord>(mut places: &mut [T], key: impl Fn(&T) -> K) {
    while let Some((last, rest)) = places.split_last_mut() {
        match rest.last_mut() {
            Some(before) if key(before) > key(last) => core::mem::swap(before, last),
            _ => return,
        }
        places = rest;
    }
}

impl Default for Inventory {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"Model: \t\t NVIDIA H200\nIRQ:   \t\t 47\nGPU UUID: \t GPU-7fa69335-0000-4000-8000-0123456789ab\n\
        Video BIOS: \t 96.00\nBus Type: \t PCIe\nBus Location: \t 0000:3b:00.0\nDevice Minor: \t 2\nGPU Firmware: \t 580\n";

    #[test]
    fn the_information_file_is_read() {
        let gpu = Gpu::parse(TEXT).unwrap();
        assert_eq!(gpu.model.as_bytes(), b"NVIDIA H200");
        assert_eq!(gpu.minor, 2);
        assert!(gpu.uuid.unwrap().begins_with(b"7fa69335"));
        assert!(Gpu::parse(b"Model: x\n").is_none());
    }

    #[test]
    fn indices_follow_the_pci_order_and_an_ambiguous_prefix_finds_nothing() {
        let mut inventory = Inventory::new();
        let mut gpu = Gpu::parse(TEXT).unwrap();
        inventory.add(gpu);
        gpu.pci.bus = 0x11;
        gpu.uuid = Uuid::parse(b"7fa60000-0000-4000-8000-0123456789ab");
        inventory.add(gpu);
        assert_eq!(inventory.get(0).unwrap().pci.bus, 0x11);
        assert_eq!(inventory.find(&Selector::Uuid(b"7fa69")), Some(1));
        assert_eq!(inventory.find(&Selector::Uuid(b"7fa6")), None);
        assert_eq!(inventory.find(&Selector::Index(2)), None);
    }
}
