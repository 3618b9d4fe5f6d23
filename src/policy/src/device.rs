//! A GPU's identities, and the selectors by which a policy names it.
//!
//! Reading is strict here: what the driver would merely tolerate in `CUDA_VISIBLE_DEVICES`
//! (`0x1`, `0;1`, a blank before `GPU-`) is a mistake in a policy. The driver's own, lenient
//! reading is [`crate::visible`].

use crate::buffer::{Text, digit};
use crate::element::ElementFault;

/// The most GPUs that Cuvisor tells apart in one process, and the most elements of one list.
pub const MAX_GPUS: usize = 64;

/// A device list in the form that the driver and [`Devices::selectors`] read: elements joined by commas.
pub type ListText = Text<{ MAX_GPUS * 48 }>;

/// Where the dashes stand in the 36 characters of a UUID.
const DASHES: [usize; 4] = [8, 13, 18, 23];
/// Length of a UUID's text after `GPU-`.
pub const UUID_TEXT: usize = 36;

/// A GPU's UUID: the 16 bytes that `cuDeviceGetUuid` gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Reads the 36 characters that follow `GPU-`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != UUID_TEXT || !is_uuid_prefix(text) {
            return None;
        }
        let mut bytes = [0u8; 16];
        let mut digits = text.iter().filter_map(|c| hex(*c));
        for byte in &mut bytes {
            *byte = (digits.next()? << 4) | digits.next()?;
        }
        Some(Self(bytes))
    }

    /// The 36 characters that follow `GPU-`, in lower case.
    pub fn text(&self) -> [u8; UUID_TEXT] {
        let mut out = [b'-'; UUID_TEXT];
        let nibbles = self.0.iter().flat_map(|b| [b >> 4, b & 15]);
        let places = out.iter_mut().enumerate().filter(|(at, _)| !DASHES.contains(at));
        for ((_, place), nibble) in places.zip(nibbles) {
            *place = digit(u64::from(nibble));
        }
        out
    }

    /// Whether `prefix` (the characters after `GPU-`, in either case) begins this UUID's text.
    pub fn begins_with(&self, prefix: &[u8]) -> bool {
        self.text().get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
    }
}

/// A PCI bus id, `dddd:bb:dd.f` in nvidia-smi's and the driver's writing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PciId {
    /// PCI domain.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number.
    pub device: u8,
    /// Function number.
    pub function: u8,
}

impl PciId {
    /// Reads `dddd:bb:dd.f`; the domain may have 4 or 8 digits (NVML writes 8), case is free.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = text.splitn(3, |c| *c == b':');
        let (domain, bus, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let mut parts = rest.splitn(2, |c| *c == b'.');
        let (device, function) = (parts.next()?, parts.next()?);
        let shape = matches!(domain.len(), 4 | 8) && bus.len() == 2 && device.len() == 2 && function.len() == 1;
        if !shape {
            return None;
        }
        Some(Self {
            domain: hex_number(domain)?,
            bus: u8::try_from(hex_number(bus)?).ok()?,
            device: u8::try_from(hex_number(device)?).ok()?,
            function: u8::try_from(hex_number(function)?).ok()?,
        })
    }

    /// `dddd:bb:dd.f` in lower case, the domain in four digits (more where it needs them).
    pub fn text(&self) -> Text<16> {
        let mut text = Text::new();
        let digits = if self.domain > 0xffff { 8 } else { 4 };
        push_hex(&mut text, self.domain, digits);
        text.push(b":");
        push_hex(&mut text, u32::from(self.bus), 2);
        text.push(b":");
        push_hex(&mut text, u32::from(self.device), 2);
        text.push(b".");
        push_hex(&mut text, u32::from(self.function), 1);
        text
    }
}

fn push_hex(text: &mut Text<16>, value: u32, digits: u32) {
    for place in (0..digits).rev() {
        text.push(&[digit(u64::from(value >> (place.min(7) << 2)))]);
    }
}

fn hex(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

fn hex_number(text: &[u8]) -> Option<u32> {
    text.iter().try_fold(0u32, |n, c| Some(n.checked_shl(4)? | u32::from(hex(*c)?)))
}

/// Whether `text` could begin a UUID's 36 characters: at least one digit, dashes where they belong.
pub fn is_uuid_prefix(text: &[u8]) -> bool {
    let fits = |(at, c): (usize, &u8)| if DASHES.contains(&at) { *c == b'-' } else { c.is_ascii_hexdigit() };
    !text.is_empty() && text.len() <= UUID_TEXT && text.iter().enumerate().all(fits)
}

/// How a policy names one GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selector<'a> {
    /// nvidia-smi's index: PCI order.
    Index(u32),
    /// The characters after `GPU-`: a whole UUID or the beginning of one.
    Uuid(&'a [u8]),
    /// A MIG instance: the whole text, `MIG-` included.
    Mig(&'a [u8]),
    /// A PCI bus id.
    Pci(PciId),
}

/// The kind of a [`Selector`]; the driver reads only one kind in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Indices.
    Index,
    /// `GPU-` UUIDs.
    Uuid,
    /// `MIG-` UUIDs.
    Mig,
    /// PCI bus ids, which the driver does not read at all.
    Pci,
}

impl<'a> Selector<'a> {
    /// Reads one element of a policy's list.
    ///
    /// # Errors
    /// Says which rule of the strict reading the element breaks.
    pub fn parse(text: &'a [u8]) -> Result<Self, ElementFault> {
        if !text.is_empty() && text.iter().all(u8::is_ascii_digit) {
            return parse_index(text).map(Self::Index);
        }
        if let Some(rest) = text.strip_prefix(b"GPU-") {
            return if is_uuid_prefix(rest) { Ok(Self::Uuid(rest)) } else { Err(ElementFault::NotAUuid) };
        }
        if let Some(rest) = text.strip_prefix(b"MIG-") {
            let plain = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'/');
            return if !rest.is_empty() && text.len() <= 64 && rest.iter().all(plain) {
                Ok(Self::Mig(text))
            } else {
                Err(ElementFault::NotAMigUuid)
            };
        }
        PciId::parse(text).map(Self::Pci).ok_or_else(|| ElementFault::of(text))
    }

    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Index(_) => Kind::Index,
            Self::Uuid(_) => Kind::Uuid,
            Self::Mig(_) => Kind::Mig,
            Self::Pci(_) => Kind::Pci,
        }
    }

    /// Whether both could name the same GPU: equal, or one UUID prefix begins the other.
    pub fn overlaps(&self, other: &Selector<'_>) -> bool {
        match (self, other) {
            (Self::Uuid(a), Selector::Uuid(b)) => common_prefix(a, b),
            (Self::Mig(a), Selector::Mig(b)) => a.eq_ignore_ascii_case(b),
            _ => self == other,
        }
    }
}

/// Whether one text begins with the other, in either case.
pub fn common_prefix(a: &[u8], b: &[u8]) -> bool {
    let n = a.len().min(b.len());
    matches!((a.get(..n), b.get(..n)), (Some(a), Some(b)) if a.eq_ignore_ascii_case(b))
}

fn parse_index(text: &[u8]) -> Result<u32, ElementFault> {
    if text.len() > 1 && text.starts_with(b"0") {
        return Err(ElementFault::LeadingZero);
    }
    let index = text.iter().try_fold(0u32, |n, c| n.checked_mul(10)?.checked_add(u32::from(c.wrapping_sub(b'0'))));
    index.filter(|index| *index < 1 << 16).ok_or(ElementFault::TooLarge)
}

/// Reports every fault of a policy's list, by position from 0.
///
/// `translated` is true where the list is not written to the driver as it stands (`emit`), so that
/// kinds may be mixed and PCI bus ids used.
pub fn check_list<'a, I>(elements: I, translated: bool, mut report: impl FnMut(usize, ElementFault))
where
    I: Iterator<Item = &'a [u8]> + Clone,
{
    let mut kind = None;
    for (at, text) in elements.clone().enumerate() {
        if at >= MAX_GPUS {
            return report(at, ElementFault::TooMany);
        }
        let selector = match Selector::parse(text) {
            Ok(selector) => selector,
            Err(fault) => {
                report(at, fault);
                continue;
            }
        };
        let first = *kind.get_or_insert(selector.kind());
        let twin = |earlier: &'a [u8]| Selector::parse(earlier).is_ok_and(|e| e.overlaps(&selector));
        if at > 0 && elements.clone().take(at).any(twin) {
            report(at, ElementFault::Duplicate);
        } else if selector.kind() == Kind::Pci && !translated {
            report(at, ElementFault::PciAsWritten);
        } else if selector.kind() != first && !translated {
            report(at, ElementFault::SecondKind);
        }
    }
}

/// The devices that a policy gives a process.
#[derive(Clone, Copy)]
#[allow(clippy::large_enum_variant)] // there is no heap to box it on
pub enum Devices {
    /// Whatever the driver shows.
    All,
    /// No GPU.
    None,
    /// These, in this order; every element is a valid [`Selector`].
    List(ListText),
}

impl Devices {
    /// Reads the value of `CUVISOR_DEVICES` or `--devices`: `all`, `none`, or a list with commas.
    /// Blanks around elements do not matter.
    ///
    /// # Errors
    /// Gives the first faulty element's position from 0 and its fault.
    pub fn parse(value: &[u8]) -> Result<Self, (usize, ElementFault)> {
        let mut devices = Self::None;
        devices.read(value).map(|()| devices)
    }

    /// The same into a place that is there already: the list is large, and each copy of it dirties memory.
    ///
    /// # Errors
    /// As [`Devices::parse`]; then the place is as it was.
    pub fn read(&mut self, value: &[u8]) -> Result<(), (usize, ElementFault)> {
        let value = value.trim_ascii();
        match value {
            b"all" => {
                *self = Self::All;
                return Ok(());
            }
            b"none" => {
                *self = Self::None;
                return Ok(());
            }
            _ => {}
        }
        let elements = value.split(|c| *c == b',').map(<[u8]>::trim_ascii);
        let mut first = None;
        check_list(elements.clone(), false, |at, fault| {
            first.get_or_insert((at, fault));
        });
        match first {
            Some(fault) => Err(fault),
            None => {
                self.put(elements);
                Ok(())
            }
        }
    }

    /// Joins elements that [`check_list`] found no fault in.
    pub fn put<'a>(&mut self, elements: impl Iterator<Item = &'a [u8]>) {
        *self = Self::List(ListText::new());
        let Self::List(list) = self else { return };
        for element in elements {
            if !list.is_empty() {
                list.push(b",");
            }
            list.push(element);
        }
        if list.is_empty() {
            *self = Self::None;
        }
    }

    /// The selectors; none for `all` and `none`.
    pub fn selectors(&self) -> impl Iterator<Item = Selector<'_>> + Clone {
        let text = match self {
            Self::List(list) => list.as_bytes(),
            Self::All | Self::None => b"",
        };
        text.split(|c| *c == b',').filter_map(|element| Selector::parse(element).ok())
    }

    /// As a person would write it.
    pub fn text(&self) -> &[u8] {
        match self {
            Self::All => b"all",
            Self::None => b"none",
            Self::List(list) => list.as_bytes(),
        }
    }

    /// Whether every selector is of one kind, and that kind is `kind`.
    pub fn is_only(&self, kind: Kind) -> bool {
        matches!(self, Self::List(_)) && self.selectors().all(|s| s.kind() == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> ElementFault {
        Selector::parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn selectors_of_each_kind_are_read() {
        let pci = PciId { domain: 0, bus: 0x3b, device: 0, function: 0 };
        assert_eq!(Selector::parse(b"3"), Ok(Selector::Index(3)));
        assert_eq!(Selector::parse(b"GPU-7fa69335"), Ok(Selector::Uuid(b"7fa69335")));
        assert_eq!(Selector::parse(b"MIG-GPU-11/0/0"), Ok(Selector::Mig(b"MIG-GPU-11/0/0")));
        assert_eq!(Selector::parse(b"00000000:3B:00.0"), Ok(Selector::Pci(pci)));
        assert_eq!(pci.text().as_bytes(), b"0000:3b:00.0");
    }

    #[test]
    fn each_mistake_has_its_own_name() {
        use ElementFault as F;
        let cases = [
            ("", F::Empty),
            ("\"0\"", F::Quotes),
            ("[0]", F::Brackets),
            ("0-2", F::Range),
            ("0:2", F::Range),
            ("0..2", F::Range),
            ("-1", F::Negative),
            ("+0", F::PlusSign),
            ("00", F::LeadingZero),
            ("0x1", F::Hexadecimal),
            ("0gpu", F::LettersAfterNumber),
            ("0;1", F::LettersAfterNumber),
            ("0.5", F::LettersAfterNumber),
            ("99999999999", F::TooLarge),
            ("all", F::AllInList),
            ("NoDevFiles", F::NoneInList),
            ("GPU-", F::NotAUuid),
            ("GPU-xyz", F::NotAUuid),
            ("MIG-", F::NotAMigUuid),
            ("gpu-11", F::LowerCasePrefix),
            ("11111111-0000-4000", F::MissingPrefix),
            ("1 2", F::Blank),
            ("one", F::Unknown),
        ];
        for (text, expected) in cases {
            assert_eq!(fault(text), expected, "{text}");
        }
    }

    #[test]
    fn a_list_is_refused_for_duplicates_and_a_second_kind() {
        let first = |value: &str| Devices::parse(value.as_bytes()).err();
        assert_eq!(first("0,1,0"), Some((2, ElementFault::Duplicate)));
        assert_eq!(first("GPU-11,GPU-1"), Some((1, ElementFault::Duplicate)));
        assert_eq!(first("0,GPU-11"), Some((1, ElementFault::SecondKind)));
        assert_eq!(first("0,all"), Some((1, ElementFault::AllInList)));
        assert_eq!(first("0000:3b:00.0"), Some((0, ElementFault::PciAsWritten)));
        assert_eq!(first(""), Some((0, ElementFault::Empty)));
        assert_eq!(Devices::parse(b" 1 , 3\n").unwrap().text(), b"1,3");
    }

    #[test]
    fn a_uuid_is_written_as_it_was_read() {
        let text = b"7fa69335-0000-4000-8000-0123456789ab";
        let uuid = Uuid::parse(text).unwrap();
        assert_eq!(&uuid.text(), text);
        assert!(uuid.begins_with(b"7FA6"));
        assert!(!uuid.begins_with(b"7fb"));
    }
}
