//! The mistakes that people make in a policy's device list, each with what to write instead.

use crate::device::is_uuid_prefix;

/// What is wrong with one element of a policy's device list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementFault {
    /// Nothing between two commas.
    Empty,
    /// A quotation mark that is part of the value.
    Quotes,
    /// `[`, `]`, `(` or `)` that is part of the value.
    Brackets,
    /// `0-2`, `0:2` or `0..2`.
    Range,
    /// `-1` and other numbers below zero.
    Negative,
    /// `+0`.
    PlusSign,
    /// `00`.
    LeadingZero,
    /// `0x1`.
    Hexadecimal,
    /// `0gpu`, `0;1`, `0.5`.
    LettersAfterNumber,
    /// An index beyond 65535.
    TooLarge,
    /// `all` inside a list.
    AllInList,
    /// `none`, `void`, `NoDevFiles` inside a list.
    NoneInList,
    /// `GPU-` and something that does not begin a UUID.
    NotAUuid,
    /// `MIG-` and something that is no MIG UUID.
    NotAMigUuid,
    /// `gpu-` or `mig-`.
    LowerCasePrefix,
    /// A UUID without its `GPU-`.
    MissingPrefix,
    /// A blank inside the element.
    Blank,
    /// Anything else.
    Unknown,
    /// It names the same GPU as an earlier element.
    Duplicate,
    /// It is of another kind than the first element.
    SecondKind,
    /// A PCI bus id in a list that is to be written as it stands.
    PciAsWritten,
    /// More elements than [`crate::device::MAX_GPUS`].
    TooMany,
}

impl ElementFault {
    /// Finds the likeliest mistake in a text that is no selector.
    pub(crate) fn of(text: &[u8]) -> Self {
        let digits = text.iter().take_while(|c| c.is_ascii_digit()).count();
        let rest = text.get(digits..).unwrap_or_default();
        let has = |set: &[u8]| text.iter().any(|c| set.contains(c));
        let word = |w: &str| text.eq_ignore_ascii_case(w.as_bytes());
        if text.is_empty() {
            Self::Empty
        } else if has(b"\"'") {
            Self::Quotes
        } else if has(b"[](){}") {
            Self::Brackets
        } else if word("all") {
            Self::AllInList
        } else if word("none") || word("void") || word("nodevfiles") {
            Self::NoneInList
        } else if text.len() >= 4 && text.get(..4).is_some_and(|h| h.eq_ignore_ascii_case(b"gpu-") || h.eq_ignore_ascii_case(b"mig-")) {
            Self::LowerCasePrefix
        } else if text.len() >= 9 && is_uuid_prefix(text) {
            Self::MissingPrefix
        } else if has(b" \t\r\n") {
            Self::Blank
        } else if text.starts_with(b"-") {
            Self::Negative
        } else if text.starts_with(b"+") {
            Self::PlusSign
        } else if text.starts_with(b"0x") || text.starts_with(b"0X") {
            Self::Hexadecimal
        } else if digits > 0 && is_range(rest) {
            Self::Range
        } else if digits > 0 {
            Self::LettersAfterNumber
        } else {
            Self::Unknown
        }
    }

    /// What is wrong, for a message.
    pub fn message(self) -> &'static str {
        match self {
            Self::Empty => "an element is empty",
            Self::Quotes => "quotation marks inside a device name",
            Self::Brackets => "brackets inside a device name",
            Self::Range => "a range of devices",
            Self::Negative => "a negative index",
            Self::PlusSign => "a sign before an index",
            Self::LeadingZero => "an index with a leading zero",
            Self::Hexadecimal => "an index in hexadecimal (the driver would read 0)",
            Self::LettersAfterNumber => "something after the number (the driver would ignore it)",
            Self::TooLarge => "no machine has a device of this index",
            Self::AllInList => "\"all\" inside a list",
            Self::NoneInList => "a word for no device inside a list",
            Self::NotAUuid => "this does not begin a GPU's UUID",
            Self::NotAMigUuid => "this is no MIG device's UUID",
            Self::LowerCasePrefix => "the driver reads only the capital prefixes GPU- and MIG-",
            Self::MissingPrefix => "a UUID without its prefix",
            Self::Blank => "a blank inside a device name",
            Self::Unknown => "no index, UUID or PCI bus id",
            Self::Duplicate => "names the same device as an earlier element (the driver would fail with error 101)",
            Self::SecondKind => "a second kind of name in one list (the driver reads only the first kind)",
            Self::PciAsWritten => "the driver does not read PCI bus ids",
            Self::TooMany => "more than 64 devices in one list",
        }
    }

    /// What to write instead.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Empty => "remove the extra comma",
            Self::Quotes | Self::Brackets => "write only the index or UUID",
            Self::Range => "write each index: 0, 1, 2",
            Self::Negative => "write devices = \"none\" for no device",
            Self::PlusSign | Self::LeadingZero => "write the plain number",
            Self::Hexadecimal => "write the index in decimal",
            Self::LettersAfterNumber => "write the number alone, and a comma between two devices",
            Self::TooLarge => "write an index that nvidia-smi -L shows",
            Self::AllInList => "write devices = \"all\" alone, or leave it out",
            Self::NoneInList => "write devices = \"none\" alone, or leave it out",
            Self::NotAUuid => "write GPU- and the first digits that nvidia-smi -L shows, dashes included",
            Self::NotAMigUuid => "write MIG- and the UUID that nvidia-smi -L shows",
            Self::LowerCasePrefix => "write GPU- or MIG- in capitals",
            Self::MissingPrefix => "write GPU- before it",
            Self::Blank => "write one device for each element, without blanks",
            Self::Unknown => "write an index, GPU-..., MIG-... or a PCI bus id such as 0000:3b:00.0",
            Self::Duplicate => "remove one of the two",
            Self::SecondKind => "write all devices in one way, or let Cuvisor translate with emit = \"uuid\"",
            Self::PciAsWritten => "let Cuvisor translate with emit = \"uuid\" or emit = \"index\"",
            Self::TooMany => "write devices = \"all\", or fewer devices",
        }
    }
}

fn is_range(rest: &[u8]) -> bool {
    let tail = [&b"-"[..], b":", b".."].iter().find_map(|mark| rest.strip_prefix(*mark));
    tail.is_some_and(|end| !end.is_empty() && end.iter().all(u8::is_ascii_digit))
}
