//! Which of the devices that the driver shows lie outside the policy.

use crate::device::{Devices, PciId, Selector, Uuid};
use crate::inventory::Inventory;

/// A device as the driver shows it to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The driver's ordinal in this process.
    pub ordinal: i32,
    /// The handle that `cuDeviceGet` gives for the ordinal.
    pub handle: i32,
    /// UUID, where the driver tells it.
    pub uuid: Option<Uuid>,
    /// PCI bus id, where the driver tells it.
    pub pci: Option<PciId>,
}

/// The machine's GPUs in PCI order, as far as they are known: what an index means.
#[derive(Clone, Copy)]
pub enum Machine<'a> {
    /// Their addresses alone.
    Addresses(&'a [PciId]),
    /// All that the kernel's driver tells.
    Inventory(&'a Inventory),
}

impl Machine<'_> {
    fn get(&self, index: usize) -> Option<(PciId, Option<Uuid>)> {
        match self {
            Self::Addresses(addresses) => addresses.get(index).map(|pci| (*pci, None)),
            Self::Inventory(inventory) => inventory.get(index).map(|gpu| (gpu.pci, gpu.uuid)),
        }
    }
}

/// A bit for each of `seen` that the policy does not give, in their order.
///
/// Devices are compared by UUID or PCI bus id. An index is compared through the machine's
/// GPUs. Where something cannot be compared, more devices than the list has elements is the
/// mismatch, and then every device is outside: which of them were meant is not known.
pub fn outside(seen: impl Iterator<Item = Seen> + Clone, devices: &Devices, machine: Option<Machine<'_>>) -> u64 {
    let count = seen.clone().count();
    let all = u64::MAX.checked_shr(64u32.saturating_sub(u32::try_from(count).unwrap_or(64))).unwrap_or_default();
    match devices {
        Devices::All => return 0,
        Devices::None => return all,
        Devices::List(_) => {}
    }
    let mut outside = 0u64;
    for (bit, device) in (0u32..64).zip(seen) {
        let mut verdicts = devices.selectors().map(|selector| names(&selector, &device, machine));
        match verdicts.try_fold(false, |found, verdict| verdict.map(|same| found || same)) {
            Some(true) => {}
            Some(false) => outside |= 1u64.checked_shl(bit).unwrap_or_default(),
            None => return if count > devices.selectors().count() { all } else { 0 },
        }
    }
    outside
}

/// Whether the selector names the device; none where that cannot be known.
fn names(selector: &Selector<'_>, device: &Seen, machine: Option<Machine<'_>>) -> Option<bool> {
    match selector {
        Selector::Uuid(prefix) => device.uuid.map(|uuid| uuid.begins_with(prefix)),
        Selector::Pci(pci) => device.pci.map(|seen| seen == *pci),
        Selector::Mig(text) => {
            let own = text.strip_prefix(b"MIG-").and_then(Uuid::parse)?;
            device.uuid.map(|uuid| uuid == own)
        }
        Selector::Index(index) => {
            // An index that the machine does not have names none of its devices.
            let Some((address, uuid)) = machine?.get(usize::try_from(*index).ok()?) else { return Some(false) };
            match (device.pci, device.uuid, uuid) {
                (Some(pci), _, _) => Some(pci == address),
                (None, Some(a), Some(b)) => Some(a == b),
                (None, _, _) => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Gpu;

    fn seen(k: u8) -> Seen {
        let pci = PciId { domain: 0, bus: 0x10 + k, device: 0, function: 0 };
        Seen { ordinal: i32::from(k), handle: i32::from(k), uuid: Some(Uuid([k; 16])), pci: Some(pci) }
    }

    fn devices(text: &str) -> Devices {
        Devices::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn identities_are_compared_and_counts_only_without_them() {
        let both = [seen(0), seen(1)];
        let outside = |seen: &[Seen], devices: &Devices, machine| outside(seen.iter().copied(), devices, machine);
        assert_eq!(outside(&both, &devices("all"), None), 0);
        assert_eq!(outside(&both, &devices("none"), None), 0b11);
        assert_eq!(outside(&both, &devices("GPU-01010101"), None), 0b01);
        assert_eq!(outside(&both, &devices("1"), None), 0b11);
        assert_eq!(outside(&both[1..], &devices("1"), None), 0);
        let mut inventory = Inventory::new();
        for k in 0..2 {
            let Seen { uuid, pci, .. } = seen(k);
            inventory.add(Gpu { uuid, pci: pci.unwrap(), minor: u32::from(k), model: Default::default() });
        }
        let addresses: [PciId; 2] = both.map(|seen| seen.pci.unwrap());
        for machine in [Machine::Inventory(&inventory), Machine::Addresses(&addresses)] {
            assert_eq!(outside(&both, &devices("1"), Some(machine)), 0b01);
            assert_eq!(outside(&both, &devices("7"), Some(machine)), 0b11);
        }
        assert_eq!(outside(&[], &devices("none"), None), 0);
    }
}
