//! The decision: what the driver gets in `CUDA_VISIBLE_DEVICES`.

use crate::buffer::Text;
use crate::device::{Devices, Kind, ListText, Selector, common_prefix};
use crate::file::policy::{Emit, Request};
use crate::inventory::Inventory;
use crate::visible::{self, Reading};

/// What one process is given: a rule's or the default's grant, free of the file's text.
#[derive(Clone, Copy)]
pub struct Rights {
    /// Which devices.
    pub devices: Devices,
    /// What the request counts for.
    pub request: Request,
    /// How the list is written.
    pub emit: Emit,
}

impl Rights {
    /// No GPU: what a process gets under a broken policy.
    pub const NOTHING: Self = Self { devices: Devices::None, request: Request::Fixed, emit: Emit::AsWritten };

    /// The list, where it is the policy's as it stands, whatever the request: no decision is needed then,
    /// and no copy.
    pub fn as_it_stands(&self) -> Option<&[u8]> {
        match &self.devices {
            Devices::None => Some(b""),
            Devices::List(list) if self.request == Request::Fixed && !self.needs_translation() => Some(list.as_bytes()),
            Devices::All | Devices::List(_) => None,
        }
    }

    /// Whether these devices can be written or compared with a request only by means of the
    /// machine's inventory.
    pub fn needs_inventory(&self, request: Option<&[u8]>) -> bool {
        self.needs_translation() || (self.request == Request::Narrow && request.is_some_and(|r| self.is_foreign(r)))
    }

    fn needs_translation(&self) -> bool {
        let plain = |kind| self.devices.is_only(kind);
        let list = matches!(self.devices, Devices::List(_));
        let one_kind = plain(Kind::Index) || plain(Kind::Uuid) || plain(Kind::Mig);
        let as_it_stands = match self.emit {
            Emit::AsWritten => one_kind,
            Emit::Uuid => plain(Kind::Mig),
            Emit::Index => plain(Kind::Index),
        };
        list && !as_it_stands
    }

    /// Whether the request is of a kind that the list has no element of.
    fn is_foreign(&self, request: &[u8]) -> bool {
        let kind = match visible::elements(request).next().map(|e| e.reading) {
            Some(Reading::Index(_)) => Kind::Index,
            Some(Reading::Uuid(prefix)) if !prefix.is_mig() => Kind::Uuid,
            Some(Reading::Uuid(_) | Reading::Mig(_)) => Kind::Mig,
            Some(Reading::End(_)) | None => return false,
        };
        matches!(self.devices, Devices::List(_)) && !self.devices.is_only(kind)
    }
}

/// Why the list is what it is, where that is not plain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The list can be written only with the machine's inventory, and there is none.
    NoInventory,
    /// A device of the policy is not on the machine; the list ends before it.
    DeviceMissing,
    /// The request names a device twice: the driver would fail with error 101.
    RequestRepeats,
    /// The request names devices outside the policy; they were left out.
    RequestOutside,
}

impl Reason {
    const ALL: [Self; 4] = [Self::NoInventory, Self::DeviceMissing, Self::RequestRepeats, Self::RequestOutside];

    /// A number below 8 for a reason or none, to keep it in a word with others.
    pub fn number(reason: Option<Self>) -> u64 {
        reason.and_then(|reason| (1u64..).zip(Self::ALL).find(|(_, one)| *one == reason)).map_or(0, |(number, _)| number)
    }

    /// The reason of a number.
    pub fn of_number(number: u64) -> Option<Self> {
        (1u64..).zip(Self::ALL).find(|(one, _)| *one == number).map(|(_, reason)| reason)
    }

    /// For the log and for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::NoInventory => "the policy needs /proc/driver/nvidia/gpus, which shows no GPU",
            Self::DeviceMissing => "a device of the policy is not on this machine",
            Self::RequestRepeats => "the request names a device twice",
            Self::RequestOutside => "the request names a device outside the policy",
        }
    }
}

/// What the driver gets.
#[derive(Clone, Copy)]
pub struct Decision {
    /// The value of `CUDA_VISIBLE_DEVICES`; none leaves the variable as it is.
    pub list: Option<ListText>,
    /// Why, where that is not plain.
    pub reason: Option<Reason>,
}

impl Decision {
    fn list(list: ListText, reason: Option<Reason>) -> Self {
        Self { list: Some(list), reason }
    }

    fn nothing(reason: Option<Reason>) -> Self {
        Self::list(ListText::new(), reason)
    }
}

/// Whether a list that was decided on holds indices, which mean nvidia-smi's numbers only with
/// `CUDA_DEVICE_ORDER=PCI_BUS_ID` (A13).
pub fn has_indices(list: &[u8]) -> bool {
    list.first().is_some_and(u8::is_ascii_digit)
}

/// Decides. `request` is the program's own value, none where it has none; `inventory` must be given
/// where [`Rights::needs_inventory`] says so and the machine has one.
pub fn decide(rights: &Rights, request: Option<&[u8]>, inventory: Option<&Inventory>) -> Decision {
    match rights.devices {
        Devices::All => return Decision { list: None, reason: None },
        Devices::None => return Decision::nothing(None),
        Devices::List(_) => {}
    }
    // Where it is not needed it must not matter either: whether the caller had one at hand is chance.
    let inventory = inventory.filter(|_| rights.needs_inventory(request));
    if rights.needs_inventory(request) && inventory.is_none_or(Inventory::is_empty) {
        return Decision::nothing(Some(Reason::NoInventory));
    }
    match request.filter(|_| rights.request == Request::Narrow) {
        Some(request) => narrow(rights, request, inventory),
        None => fixed(rights, inventory),
    }
}

fn fixed(rights: &Rights, inventory: Option<&Inventory>) -> Decision {
    let mut list = ListText::new();
    for selector in rights.devices.selectors() {
        let Some(element) = written(&selector, rights.emit, inventory) else {
            return Decision::list(list, Some(Reason::DeviceMissing));
        };
        append(&mut list, element.as_bytes());
    }
    Decision::list(list, None)
}

fn narrow(rights: &Rights, request: &[u8], inventory: Option<&Inventory>) -> Decision {
    let mut list = ListText::new();
    let mut reason = None;
    // A bit for each of the policy's selectors that the request has named.
    let mut taken = 0u64;
    let mut first = None;
    for element in visible::elements(request) {
        let kind = core::mem::discriminant(&element.reading);
        let Some(wanted) = selector_of(&element.reading) else { break };
        if *first.get_or_insert(kind) != kind {
            break;
        }
        let mut named = (0u32..).zip(rights.devices.selectors()).filter(|(_, own)| same(own, &wanted, inventory));
        let Some((at, own)) = named.next() else {
            reason = Some(Reason::RequestOutside);
            continue;
        };
        if named.next().is_some() {
            // The beginning of more than one UUID: ambiguous to the driver, too, which ends the list there.
            break;
        }
        let bit = 1u64.checked_shl(at).unwrap_or_default();
        if taken & bit != 0 {
            return Decision::nothing(Some(Reason::RequestRepeats));
        }
        taken |= bit;
        let Some(text) = written(&narrower(own, wanted), rights.emit, inventory) else {
            return Decision::list(list, Some(Reason::DeviceMissing));
        };
        append(&mut list, text.as_bytes());
    }
    Decision::list(list, reason)
}

fn selector_of<'a>(reading: &'a Reading<'a>) -> Option<Selector<'a>> {
    match reading {
        Reading::Index(index) => Some(Selector::Index(*index)),
        Reading::Uuid(prefix) if prefix.is_mig() => Some(Selector::Mig(prefix.text())),
        Reading::Uuid(prefix) => Some(Selector::Uuid(prefix.digits())),
        Reading::Mig(text) => Some(Selector::Mig(text)),
        Reading::End(_) => None,
    }
}

/// Whether the policy's selector and the request's name one device. A request's `MIG-` word may name a
/// whole GPU by its UUID, as the driver has it.
fn same(own: &Selector<'_>, wanted: &Selector<'_>, inventory: Option<&Inventory>) -> bool {
    match (own, wanted, inventory) {
        (Selector::Mig(a), Selector::Mig(b), _) | (Selector::Uuid(a), Selector::Uuid(b), None) => common_prefix(a, b),
        (Selector::Mig(_), _, _) => false,
        (_, _, None) => own.overlaps(wanted),
        (_, _, Some(inventory)) => {
            let wanted = match wanted {
                Selector::Mig(text) => Selector::Uuid(text.get(4..).unwrap_or_default()),
                other => *other,
            };
            let found = inventory.find(own);
            found.is_some() && found == inventory.find(&wanted)
        }
    }
}

/// Of two selectors that name one device, the one to write: the request's, but the longer UUID.
fn narrower<'a>(own: Selector<'a>, wanted: Selector<'a>) -> Selector<'a> {
    match (own, wanted) {
        (Selector::Uuid(a), Selector::Uuid(b)) | (Selector::Mig(a), Selector::Mig(b)) if a.len() >= b.len() => own,
        // It was compared through the inventory: the GPU's own name is the safer word.
        (Selector::Uuid(_) | Selector::Index(_) | Selector::Pci(_), Selector::Mig(_)) => own,
        _ => wanted,
    }
}

/// The selector in the form that the list is written in; none where the machine lacks the device.
fn written(selector: &Selector<'_>, emit: Emit, inventory: Option<&Inventory>) -> Option<Text<72>> {
    let mut text = Text::new();
    match (emit, selector) {
        (_, Selector::Mig(mig)) => text.push(mig),
        (Emit::AsWritten | Emit::Index, Selector::Index(index)) => text.push_number(u64::from(*index)),
        (Emit::AsWritten, Selector::Uuid(prefix)) => text.push(b"GPU-") && text.push(prefix),
        (Emit::AsWritten, Selector::Pci(pci)) => text.push(pci.text().as_bytes()),
        (Emit::Index, _) => text.push_number(u64::try_from(inventory?.find(selector)?).ok()?),
        (Emit::Uuid, _) => {
            let inventory = inventory?;
            let uuid = inventory.get(inventory.find(selector)?)?.uuid?;
            text.push(b"GPU-") && text.push(&uuid.text())
        }
    }
    .then_some(text)
}

fn append(list: &mut ListText, element: &[u8]) {
    if !list.is_empty() {
        list.push(b",");
    }
    list.push(element);
}

/// What the library wrote into a process's environment and the request that led to it, in
/// `CUVISOR_APPLIED`, as `list` (the variable was unset) or `list;request`.
///
/// A child inherits both variables. If `CUDA_VISIBLE_DEVICES` still equals the list, the child has
/// asked for nothing itself: its request is the one that its ancestor had, to be decided anew under
/// the policy of today. If it differs, somebody has set it since, and that is the child's request.
/// So a child is never taken to ask for what a former policy gave its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Applied<'a> {
    /// The list that was written.
    pub list: &'a [u8],
    /// The request at that time; none for the unset variable.
    pub request: Option<&'a [u8]>,
}

impl<'a> Applied<'a> {
    /// Reads the variable's value. A list never holds a semicolon, so the first one ends it.
    pub fn parse(value: &'a [u8]) -> Self {
        let mut parts = value.splitn(2, |c| *c == b';');
        Self { list: parts.next().unwrap_or_default(), request: parts.next() }
    }

    /// The variable's value, in parts.
    pub fn parts(&self) -> [&'a [u8]; 3] {
        [self.list, if self.request.is_some() { b";" } else { b"" }, self.request.unwrap_or_default()]
    }

    /// The request of a process that has this `CUDA_VISIBLE_DEVICES` and this `CUVISOR_APPLIED`.
    pub fn request_of(present: Option<&'a [u8]>, applied: Option<&'a [u8]>) -> Option<&'a [u8]> {
        match (present, applied.map(Applied::parse)) {
            (Some(present), Some(applied)) if applied.list == present => applied.request,
            _ => present,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{PciId, Uuid};
    use crate::inventory::Gpu;
    use std::string::{String, ToString};

    fn machine() -> Inventory {
        let mut inventory = Inventory::new();
        for k in 0u8..4 {
            let pci = PciId { domain: 0, bus: 0x10 + k, device: 0, function: 0 };
            let uuid = Some(Uuid([k * 0x11; 16]));
            inventory.add(Gpu { uuid, pci, minor: u32::from(k), model: Default::default() });
        }
        inventory
    }

    fn rights(list: &str, request: Request, emit: Emit) -> Rights {
        let devices = match list {
            "all" => Devices::All,
            "none" => Devices::None,
            list => {
                let mut devices = Devices::None;
                devices.put(list.split(',').map(str::as_bytes));
                devices
            }
        };
        Rights { devices, request, emit }
    }

    fn outcome(rights: &Rights, request: Option<&str>, inventory: Option<&Inventory>) -> (Option<String>, Option<Reason>) {
        let decision = decide(rights, request.map(str::as_bytes), inventory);
        (decision.list.map(|l| l.as_str().to_string()), decision.reason)
    }

    fn narrowed(list: &str, request: &str) -> (String, Option<Reason>) {
        let (list, reason) = outcome(&rights(list, Request::Narrow, Emit::AsWritten), Some(request), Some(&machine()));
        (list.unwrap(), reason)
    }

    #[test]
    fn fixed_writes_the_policy_and_all_leaves_the_variable() {
        let plain = |list| outcome(&rights(list, Request::Fixed, Emit::AsWritten), Some("7"), None).0;
        assert_eq!(plain("1,3"), Some("1,3".into()));
        assert_eq!(plain("GPU-11"), Some("GPU-11".into()));
        assert_eq!(plain("none"), Some("".into()));
        assert_eq!(plain("all"), None);
    }

    #[test]
    fn a15_narrow_chooses_among_the_policy_and_never_more() {
        assert_eq!(narrowed("0,1,2,3", "2"), ("2".into(), None));
        assert_eq!(narrowed("0,1,2,3", "3,0"), ("3,0".into(), None));
        assert_eq!(narrowed("0,1,2,3", "6"), ("".into(), Some(Reason::RequestOutside)));
        assert_eq!(narrowed("0,1,2,3", "2,6"), ("2".into(), Some(Reason::RequestOutside)));
        assert_eq!(narrowed("0,1", "-1"), ("".into(), None));
        assert_eq!(narrowed("0,1", ""), ("".into(), None));
        assert_eq!(narrowed("0,1", "1,1"), ("".into(), Some(Reason::RequestRepeats)));
        assert_eq!(narrowed("GPU-11,GPU-22", "2"), ("2".into(), None));
        assert_eq!(narrowed("1,2", "GPU-2222"), ("GPU-2222".into(), None));
        assert_eq!(narrowed("1", "0x1"), ("".into(), Some(Reason::RequestOutside)));
        // The driver's odd readings of a UUID choose no other device than the one that they name.
        assert_eq!(narrowed("GPU-11,GPU-22", "GPU-2-2-2"), ("GPU-222".into(), None));
        assert_eq!(narrowed("GPU-11,GPU-22", "GPU--"), ("".into(), None));
        assert_eq!(narrowed("GPU-11,GPU-22", "MIG-2222"), ("GPU-22".into(), None));
        assert_eq!(narrowed("MIG-22,MIG-33", "MIG-3-3"), ("MIG-33".into(), None));
        let many = std::format!("GPU-{}22", "-".repeat(300));
        assert_eq!(narrowed("GPU-11,GPU-22", &many), ("GPU-22".into(), None));
    }

    #[test]
    fn what_needs_the_inventory_is_denied_without_one() {
        let by_uuid = rights("GPU-11", Request::Narrow, Emit::AsWritten);
        assert_eq!(outcome(&by_uuid, Some("1"), None), (Some("".into()), Some(Reason::NoInventory)));
        assert_eq!(outcome(&by_uuid, Some("GPU-1111"), None), (Some("GPU-1111".into()), None));
        let translated = rights("0000:12:00.0,3", Request::Fixed, Emit::Uuid);
        assert!(translated.needs_inventory(None));
        assert_eq!(outcome(&translated, None, None).1, Some(Reason::NoInventory));
        let expected = "GPU-22222222-2222-2222-2222-222222222222,GPU-33333333-3333-3333-3333-333333333333";
        assert_eq!(outcome(&translated, None, Some(&machine())).0, Some(expected.into()));
        let missing = rights("GPU-22,GPU-99,GPU-33", Request::Fixed, Emit::Index);
        assert_eq!(outcome(&missing, None, Some(&machine())), (Some("2".into()), Some(Reason::DeviceMissing)));
    }

    #[test]
    fn a_reason_is_kept_as_a_number_below_8() {
        assert_eq!(Reason::number(None), 0);
        for reason in Reason::ALL.map(Some).into_iter().chain([None]) {
            assert!(Reason::number(reason) < 8);
            assert_eq!(Reason::of_number(Reason::number(reason)), reason);
        }
    }

    #[test]
    fn an_inherited_list_is_not_a_request() {
        let request =
            |present: &'static str, applied: &'static str| Applied::request_of(Some(present.as_bytes()), Some(applied.as_bytes()));
        assert_eq!(request("0,1", "0,1"), None);
        assert_eq!(request("1", "1;1,7"), Some(&b"1,7"[..]));
        assert_eq!(request("", ";"), Some(&b""[..]));
        assert_eq!(request("2", "0,1"), Some(&b"2"[..]));
        for request in [Some(&b"1;7"[..]), Some(b""), None] {
            let applied = Applied { list: b"1", request };
            assert_eq!(Applied::parse(&applied.parts().concat()), applied);
        }
    }
}
