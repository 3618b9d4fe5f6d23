//! The driver's own reading of `CUDA_VISIBLE_DEVICES`, as measured on the real one (driver-facts.md, and
//! `scripts/gpu-check.sh` with driver 580.159.04).
//!
//! The reading is lenient where ours of a policy is strict, and it is silent: a bad element ends
//! the list, and what stands after a number is ignored. Numbers are read as by C's `strtoul` and cut
//! to 32 bits. After `GPU-` or `MIG-` only hexadecimal digits count, up to 32: dashes may stand
//! anywhere or nowhere, and both prefixes find a GPU by its UUID.

use crate::buffer::Text;
use crate::device::{MAX_GPUS, Uuid};
use crate::inventory::Inventory;

/// How the driver reads one element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading<'a> {
    /// A number, not negative.
    Index(u32),
    /// A UUID or the beginning of one.
    Uuid(Prefix),
    /// A MIG instance in the form of the first drivers that had them: the whole text.
    Mig(&'a [u8]),
    /// Something that ends the list.
    End(End),
}

/// A UUID, or the beginning of one, in the usual writing whatever was typed.
#[derive(Clone, Copy)]
pub struct Prefix(Text<40>);

impl Prefix {
    /// With `GPU-` or `MIG-`, as typed.
    pub fn text(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// What follows `GPU-` or `MIG-`.
    pub fn digits(&self) -> &[u8] {
        self.text().get(4..).unwrap_or_default()
    }

    /// Whether `MIG-` was typed.
    pub fn is_mig(&self) -> bool {
        self.text().starts_with(b"MIG-")
    }

    /// Whether all of the UUID is there.
    pub fn is_whole(&self) -> bool {
        Uuid::parse(self.digits()).is_some()
    }

    /// Reads what follows the prefix: the digits in the usual writing, and what the driver does not
    /// look at. None where something else than digits and dashes comes before the 32nd digit.
    fn read<'a>(kind: &[u8], rest: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut text = Text::of(kind);
        let mut digits = 0u8;
        for (at, c) in rest.iter().enumerate() {
            if digits == 32 {
                return Some((Self(text), rest.get(at..).unwrap_or_default()));
            }
            match c {
                b'-' => continue,
                c if c.is_ascii_hexdigit() => {}
                _ => return None,
            }
            if matches!(digits, 8 | 12 | 16 | 20) {
                text.push(b"-");
            }
            text.push(&[*c]);
            digits = digits.saturating_add(1);
        }
        (!rest.is_empty()).then_some((Self(text), b""))
    }
}

impl PartialEq for Prefix {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Prefix {}

impl core::fmt::Debug for Prefix {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// Why an element ends the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// No digit and no known prefix; the empty element too.
    NotADevice,
    /// A number below zero, also one that is so only after it was cut to 32 bits.
    Negative,
    /// `GPU-` and no beginning of a UUID.
    NotAUuid,
}

/// One element of the variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element<'a> {
    /// As typed, between its commas.
    pub text: &'a [u8],
    /// What the driver makes of it.
    pub reading: Reading<'a>,
    /// The end of the text that the driver does not look at.
    pub ignored: &'a [u8],
}

/// The elements of a value of the variable, each with the driver's reading of it alone.
pub fn elements(value: &[u8]) -> impl Iterator<Item = Element<'_>> + Clone {
    value.split(|c| *c == b',').map(element)
}

fn element(text: &[u8]) -> Element<'_> {
    for kind in [&b"GPU-"[..], b"MIG-"] {
        let Some(rest) = text.strip_prefix(kind) else { continue };
        return match Prefix::read(kind, rest) {
            Some((prefix, ignored)) => Element { text, reading: Reading::Uuid(prefix), ignored },
            None if rest.starts_with(b"GPU-") && kind == b"MIG-" => Element { text, reading: Reading::Mig(text), ignored: b"" },
            None => Element { text, reading: Reading::End(End::NotAUuid), ignored: b"" },
        };
    }
    let (number, ignored) = strtoul(text);
    let reading = match number.map(u32::try_from) {
        None => Reading::End(End::NotADevice),
        Some(Err(_)) => Reading::End(End::Negative),
        Some(Ok(index)) => Reading::Index(index),
    };
    Element { text, reading, ignored }
}

/// As C's `strtoul` in base 10 and a cast to `int`: leading blanks, one sign, digits; the rest. A number
/// that is too large becomes the largest, whatever its sign; a negative one is taken from 2^64.
fn strtoul(text: &[u8]) -> (Option<i32>, &[u8]) {
    let blank = |c: &u8| matches!(c, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r');
    let skipped = text.iter().take_while(|c| blank(c)).count();
    let unsigned = text.get(skipped..).unwrap_or_default();
    let (negative, digits) = match unsigned {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let count = digits.iter().take_while(|c| c.is_ascii_digit()).count();
    if count == 0 {
        return (None, text);
    }
    let (digits, rest) = digits.split_at(count);
    let add = |n: u64, c: &u8| n.checked_mul(10)?.checked_add(u64::from(c.wrapping_sub(b'0')));
    let wide = match digits.iter().try_fold(0u64, add) {
        None => u64::MAX,
        Some(wide) if negative => wide.wrapping_neg(),
        Some(wide) => wide,
    };
    // The cast keeps the low 32 bits, as the driver does: 4294967296 is 0.
    #[allow(clippy::cast_possible_truncation)]
    (Some(wide as i32), rest)
}

/// What `cuInit` answers to a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// 0: at least one device is visible.
    Success,
    /// 100: no device is visible.
    NoDevice,
    /// 101: a device stands twice in the list.
    InvalidDevice,
}

impl Answer {
    /// The driver's result code.
    pub fn code(self) -> i32 {
        match self {
            Self::Success => 0,
            Self::NoDevice => 100,
            Self::InvalidDevice => 101,
        }
    }
}

/// The devices that a value makes visible on a machine, by index, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visible {
    indices: [usize; MAX_GPUS],
    len: usize,
    /// What `cuInit` answers.
    pub answer: Answer,
}

impl Visible {
    /// The indices; empty unless the answer is success.
    pub fn indices(&self) -> &[usize] {
        match self.answer {
            Answer::Success => self.indices.get(..self.len).unwrap_or_default(),
            Answer::NoDevice | Answer::InvalidDevice => &[],
        }
    }
}

/// Reads a value as the driver does on a machine with these GPUs, in the order of `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
/// `None` is the unset variable.
pub fn read(value: Option<&[u8]>, gpus: &Inventory) -> Visible {
    let mut visible = Visible { indices: [0; MAX_GPUS], len: 0, answer: Answer::NoDevice };
    let mut twice = false;
    match value {
        None => (0..gpus.len()).for_each(|index| add(&mut visible, index, &mut twice)),
        Some(value) => {
            let mut first = None;
            for element in elements(value) {
                let kind = core::mem::discriminant(&element.reading);
                let index = find(&element.reading, gpus);
                match index {
                    Some(index) if *first.get_or_insert(kind) == kind => add(&mut visible, index, &mut twice),
                    _ => break,
                }
            }
        }
    }
    visible.answer = match (twice, visible.len) {
        (true, _) => Answer::InvalidDevice,
        (false, 0) => Answer::NoDevice,
        (false, _) => Answer::Success,
    };
    visible
}

fn find(reading: &Reading<'_>, gpus: &Inventory) -> Option<usize> {
    match reading {
        Reading::Index(index) => usize::try_from(*index).ok().filter(|index| *index < gpus.len()),
        Reading::Uuid(prefix) => gpus.find(&crate::device::Selector::Uuid(prefix.digits())),
        Reading::Mig(_) | Reading::End(_) => None,
    }
}

fn add(visible: &mut Visible, index: usize, twice: &mut bool) {
    *twice |= visible.indices.get(..visible.len).unwrap_or_default().contains(&index);
    if let Some(place) = visible.indices.get_mut(visible.len) {
        *place = index;
        visible.len = visible.len.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{PciId, Uuid};
    use crate::inventory::Gpu;
    use std::string::String;
    use std::vec::Vec;

    fn machine(uuids: &[&str]) -> Inventory {
        let mut inventory = Inventory::new();
        for (k, uuid) in (0u8..).zip(uuids) {
            let pci = PciId { domain: 0, bus: 0x10 + k, device: 0, function: 0 };
            let uuid = Uuid::parse(uuid.as_bytes());
            inventory.add(Gpu { uuid, pci, minor: u32::from(k), model: Default::default() });
        }
        inventory
    }

    fn one() -> Inventory {
        machine(&["7fa69335-0000-4000-8000-0123456789ab"])
    }

    fn answer(value: &str) -> (i32, Vec<usize>) {
        let visible = read(Some(value.as_bytes()), &one());
        (visible.answer.code(), visible.indices().to_vec())
    }

    #[test]
    fn the_measured_table_of_driver_facts_holds() {
        let u = "GPU-7fa69335-0000-4000-8000-0123456789ab";
        let visible = [
            "0",
            "00",
            "+0",
            "-0",
            " 0",
            "0 ",
            "\t0",
            "0\n",
            "0x0",
            "0x1",
            "0gpu",
            "0.5",
            "0;",
            "0;1",
            "0-1",
            "0,",
            "0,,",
            "0,one",
            "0,-1",
            "0,1",
            "4294967296",
            "GPU-7",
            "GPU-7fa69335",
        ];
        let built = [
            String::from(u),
            u.to_uppercase(),
            std::format!("{u} "),
            std::format!("{u}0"),
            std::format!("{u},0"),
            std::format!("0,{u}"),
            std::format!("{u},GPU-ffffffff"),
        ];
        for value in visible.into_iter().chain(built.iter().map(String::as_str)) {
            assert_eq!(answer(value), (0, [0].into()), "{value:?}");
        }
        let hidden = [
            "",
            "-1",
            "NoDevFiles",
            "all",
            "none",
            "void",
            ",0",
            ",",
            "1,0",
            "-1,0",
            "one,0",
            "\"0\"",
            "'0'",
            "[0]",
            "18446744073709551616",
            "GPU-",
            "7fa69335",
            "2147483648",
            "MIG-ffffffff",
        ];
        let built = [u.replace("GPU", "gpu"), std::format!(" {u}"), std::format!("GPU-ffffffff,{u}")];
        for value in hidden.into_iter().chain(built.iter().map(String::as_str)) {
            assert_eq!(answer(value), (100, Vec::new()), "{value:?}");
        }
        // Measured by gpu-check: dashes do not count, both prefixes do, numbers are read by strtoul.
        let digits = u[4..].replace('-', "");
        let visible = ["GPU--", "GPU---", "MIG--", "GPU-7-f-a", "-4294967296", "9223372036854775808", "12884901888"];
        let built = [
            std::format!("GPU-{digits}"),
            std::format!("GPU-{digits}x"),
            std::format!("MIG-{}", &u[4..]),
            std::format!("MIG-{},0", &u[4..]),
            std::format!("GPU-{}7fa6", "-".repeat(40)),
            std::format!("{u}-"),
            std::format!("{}-", &u[..39]),
            std::format!("MIG-{}x", &u[4..]),
        ];
        for value in visible.into_iter().chain(built.iter().map(String::as_str)) {
            assert_eq!(answer(value), (0, [0].into()), "{value:?}");
        }
        let built =
            [std::format!("MIG-{u}"), std::format!("MIG-{u}/0/0"), std::format!("GPU-MIG-{}", &u[4..]), std::format!("mig-{}", &u[4..])];
        let hidden = ["MIG-", "-9223372036854775809", "-18446744073709551615", "-18446744073709551616", "GPU-7fa6x", "GPU-7fa6 "];
        for value in hidden.into_iter().chain(built.iter().map(String::as_str)) {
            assert_eq!(answer(value), (100, Vec::new()), "{value:?}");
        }
        for value in ["0,0", &std::format!("{u},{u}"), &std::format!("GPU-7fa6,{u}"), &std::format!("{u},MIG-{}", &u[4..])] {
            assert_eq!(answer(value), (101, Vec::new()), "{value:?}");
        }
        assert_eq!(read(None, &one()).indices(), [0]);
        assert_eq!(read(None, &Inventory::new()).answer, Answer::NoDevice);
    }

    #[test]
    fn a06_an_invalid_element_cuts_the_list() {
        let two = machine(&["11111111-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002"]);
        let three = machine(&["1", "2", "3"]);
        assert_eq!(read(Some(b"1,5,0"), &two).indices(), [1]);
        assert_eq!(read(Some(b"0,2,-1,1"), &three).indices(), [0, 2]);
        assert_eq!(read(Some(b"-1,0"), &two).indices(), [0usize; 0]);
        assert_eq!(read(Some(b"0,one,1"), &two).indices(), [0]);
    }

    #[test]
    fn a07_what_stands_after_a_number_is_ignored() {
        let six = machine(&["1", "2", "3", "4", "5", "6"]);
        assert_eq!(read(Some(b"1gpu2,2ampere"), &six).indices(), [1, 2]);
        assert_eq!(read(Some(b"2, +3, -0, 5"), &six).indices(), [2, 3, 0, 5]);
        assert_eq!(read(Some(b"4,3,two,one"), &six).indices(), [4, 3]);
        assert_eq!(read(Some(b"0-2"), &six).indices(), [0]);
        let element = elements(b"0x1").next().unwrap();
        assert_eq!((element.reading, element.ignored), (Reading::Index(0), &b"x1"[..]));
    }

    #[test]
    fn a09_an_ambiguous_prefix_ends_the_list() {
        let two = machine(&["7fa61111-0000-4000-8000-000000000001", "7fa62222-0000-4000-8000-000000000002"]);
        assert_eq!(read(Some(b"GPU-7fa6"), &two).answer, Answer::NoDevice);
        assert_eq!(read(Some(b"GPU-7fa62,GPU-7fa6"), &two).indices(), [1]);
        assert_eq!(read(Some(b"GPU-7fa61111,1"), &two).indices(), [0]);
    }
}
