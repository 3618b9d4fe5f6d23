//! Which part of each GPU of a machine a policy gives: what the kernel seal and `cuvisor ps` go by.

use crate::device::{Devices, Selector};
use crate::inventory::{Gpu, Inventory};

/// What a policy gives of one GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// Nothing.
    Nothing,
    /// All of it, as far as can be told.
    Whole,
    /// Some of its MIG instances, each named by GPU and number.
    Instances,
}

/// What the devices give of the GPU of this index. `is_split` says whether it has MIG instances, and is asked only
/// where that matters: the UUID of an instance does not tell its GPU, so one in the list leaves every GPU that is
/// split open.
pub fn of(devices: &Devices, inventory: &Inventory, index: usize, mut is_split: impl FnMut() -> bool) -> Share {
    if matches!(devices, Devices::All) {
        return Share::Whole;
    }
    let Some(gpu) = inventory.get(index) else { return Share::Nothing };
    let mut share = Share::Nothing;
    for selector in devices.selectors() {
        match selector {
            Selector::Mig(text) => match Instance::parse(text) {
                Some(instance) if instance.is_of(gpu) => share = Share::Instances,
                Some(_) => {}
                None if is_own_uuid(gpu, text) || is_split() => return Share::Whole,
                None => {}
            },
            other if inventory.find(&other) == Some(index) => return Share::Whole,
            _ => {}
        }
    }
    share
}

/// Whether the devices name a GPU instance of a GPU, or one compute instance in it.
pub fn has_instance(devices: &Devices, gpu: &Gpu, instance: u32, compute: Option<u32>) -> bool {
    let named = devices.selectors().filter_map(|selector| match selector {
        Selector::Mig(text) => Instance::parse(text),
        _ => None,
    });
    let mut named = named.filter(|named| named.is_of(gpu) && named.instance == instance);
    named.any(|named| compute.is_none_or(|compute| named.compute == compute))
}

/// `MIG-` and the UUID of the GPU itself, which the driver reads as the GPU (driver 580, tests/gpu/table.md).
fn is_own_uuid(gpu: &Gpu, text: &[u8]) -> bool {
    text.strip_prefix(b"MIG-").is_some_and(|rest| gpu.uuid.is_some_and(|uuid| uuid.begins_with(rest)))
}

/// A MIG instance by its older name, `MIG-GPU-<UUID>/<GPU instance>/<compute instance>`.
struct Instance<'a> {
    gpu: &'a [u8],
    instance: u32,
    compute: u32,
}

impl<'a> Instance<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        let mut parts = text.strip_prefix(b"MIG-GPU-")?.split(|c| *c == b'/');
        let gpu = parts.next()?;
        let mut number = || core::str::from_utf8(parts.next()?).ok()?.parse().ok();
        let instance = Self { gpu, instance: number()?, compute: number()? };
        parts.next().is_none().then_some(instance)
    }

    fn is_of(&self, gpu: &Gpu) -> bool {
        gpu.uuid.is_some_and(|uuid| uuid.begins_with(self.gpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Inventory {
        let mut inventory = Inventory::new();
        for k in 0..3 {
            let text = std::format!(
                "GPU UUID: GPU-{k}{k}{k}{k}{k}{k}{k}{k}-0000-4000-8000-000000000000\nBus Location: 0000:1{k}:00.0\nDevice Minor: {k}\n"
            );
            inventory.add(Gpu::parse(text.as_bytes()).unwrap());
        }
        inventory
    }

    #[test]
    fn a_gpu_is_given_whole_in_part_or_not() {
        let inventory = machine();
        let share = |list: &[u8], split| [0, 1, 2].map(|index| of(&Devices::parse(list).unwrap(), &inventory, index, || split));
        use Share::{Instances, Nothing, Whole};
        assert_eq!(share(b"all", false), [Whole; 3]);
        assert_eq!(share(b"none", true), [Nothing; 3]);
        assert_eq!(share(b"1,2", true), [Nothing, Whole, Whole]);
        assert_eq!(share(b"MIG-GPU-11111111/3/0", true), [Nothing, Instances, Nothing]);
        assert_eq!(share(b"MIG-5c2f0eb7-0000-4000-8000-000000000000", true), [Whole; 3]);
        assert_eq!(share(b"MIG-5c2f0eb7-0000-4000-8000-000000000000", false), [Nothing; 3]);
        assert_eq!(share(b"MIG-11111111", false), [Nothing, Whole, Nothing]);
        assert_eq!(of(&Devices::parse(b"0").unwrap(), &inventory, 9, || true), Nothing);
    }

    #[test]
    fn an_instance_is_known_by_its_numbers() {
        let (devices, inventory) = (Devices::parse(b"MIG-GPU-11111111/3/0,MIG-GPU-11111111/5/1").unwrap(), machine());
        let gpu = inventory.get(1).unwrap();
        assert!(has_instance(&devices, gpu, 3, None) && has_instance(&devices, gpu, 3, Some(0)) && has_instance(&devices, gpu, 5, Some(1)));
        assert!(!has_instance(&devices, gpu, 3, Some(1)) && !has_instance(&devices, gpu, 4, None));
        assert!(!has_instance(&devices, inventory.get(0).unwrap(), 3, None));
    }
}
