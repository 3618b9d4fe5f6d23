//! What is wrong with a policy file, where, and what to write instead.

use crate::element::ElementFault;

/// One fault of a policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error<'a> {
    /// Byte offset of the text in the file.
    pub offset: usize,
    /// The text that is wrong.
    pub text: &'a [u8],
    /// What is wrong with it.
    pub fault: Fault,
}

/// A place in a file, both counted from 1; columns are counted in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Character in the line.
    pub column: usize,
}

impl Position {
    /// The beginning of a file.
    pub const START: Self = Self { line: 1, column: 1 };

    /// The place of a byte offset in a text.
    pub fn of(text: &[u8], offset: usize) -> Self {
        let mut position = Self::START;
        position.pass(text.get(..offset.min(text.len())).unwrap_or_default());
        position
    }

    /// Goes on over the next bytes of the text.
    pub fn pass(&mut self, text: &[u8]) {
        for c in text {
            if *c == b'\n' {
                *self = Self { line: self.line.saturating_add(1), column: 1 };
            } else if *c & 0xc0 != 0x80 {
                self.column = self.column.saturating_add(1);
            }
        }
    }
}

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The file is not UTF-8.
    NotUtf8,
    /// A control character.
    ControlCharacter,
    /// A line that is neither a table nor `key = value`.
    NotAnEntry,
    /// A key in quotes or with dots.
    FancyKey,
    /// Nothing after `=`.
    NoValue,
    /// Something after the end of a value or table.
    TrailingText,
    /// A text without quotes.
    BareWord,
    /// A string without its end.
    OpenString,
    /// A backslash in a string.
    Escape,
    /// A string over several lines.
    LongString,
    /// An inline table.
    InlineTable,
    /// An array without its end.
    OpenArray,
    /// Array in an array.
    NestedArray,
    /// Elements without a comma between them, or with two.
    Comma,
    /// A table that a policy does not have.
    UnknownTable,
    /// `[rule]` for `[[rule]]`.
    SingleRule,
    /// `[[audit]]` for `[audit]`.
    DoubleTable,
    /// A table that stands twice.
    TableTwice,
    /// A key that this table does not have.
    UnknownKey(Place),
    /// A key that stands twice in its table.
    KeyTwice,
    /// A value of the wrong type or an unknown word.
    Expected(Expected),
    /// A rule that says nothing about devices.
    NoDevices,
    /// A fault in a device list.
    Element(ElementFault),
    /// Strings that stand for a list: `devices = "0,1"`.
    ListInString,
    /// `devices = []`.
    EmptyList,
    /// An audit file that is not an absolute path.
    RelativePath,
    /// A placeholder in the audit file's name that does not exist.
    Placeholder,
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before any table.
    Top,
    /// `[audit]`.
    Audit,
    /// `[default]`.
    Default,
    /// `[[rule]]`.
    Rule,
}

/// What a key's value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// `mode`.
    Mode,
    /// `calls`.
    Calls,
    /// `request`.
    Request,
    /// `emit`.
    Emit,
    /// `devices`.
    Devices,
    /// `seal`.
    Seal,
    /// `true` or `false`.
    Boolean,
    /// A string that is not empty.
    Text,
    /// An array of strings that are not empty.
    Texts,
    /// An array of names and numbers.
    Ids,
    /// `NAME` or `NAME=pattern`.
    Variable,
}

impl Fault {
    /// What is wrong.
    pub fn message(self) -> &'static str {
        match self {
            Self::NotUtf8 => "the file is not UTF-8 text",
            Self::ControlCharacter => "a control character",
            Self::NotAnEntry => "this is neither [table] nor key = value",
            Self::FancyKey => "a key with quotes or dots",
            Self::NoValue => "a key without a value",
            Self::TrailingText => "unexpected text at the end of the line",
            Self::BareWord => "a word without quotes",
            Self::OpenString => "a string without its closing quote",
            Self::Escape => "a backslash in a string with double quotes",
            Self::LongString => "a string over several lines",
            Self::InlineTable => "a table in braces",
            Self::OpenArray => "a list without its closing bracket",
            Self::NestedArray => "a list inside a list",
            Self::Comma => "elements must be separated by one comma",
            Self::UnknownTable => "unknown table",
            Self::SingleRule => "a rule is one of many",
            Self::DoubleTable => "this table stands only once in a policy",
            Self::TableTwice => "this table stands twice",
            Self::UnknownKey(_) => "unknown key",
            Self::KeyTwice => "this key stands twice in its table",
            Self::Expected(expected) => expected.message(),
            Self::NoDevices => "this rule does not say which devices",
            Self::Element(fault) => fault.message(),
            Self::ListInString => "a device list in one string",
            Self::EmptyList => "an empty device list",
            Self::RelativePath => "the audit file must be an absolute path",
            Self::Placeholder => "unknown placeholder in a file name",
        }
    }

    /// What to write instead.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NotUtf8 => "save the file as UTF-8",
            Self::ControlCharacter => "remove it",
            Self::NotAnEntry => "write key = value, or begin the line with # for a comment",
            Self::FancyKey => "write the plain key below its table: [audit], then file = \"...\"",
            Self::NoValue => "write a value after the = sign",
            Self::TrailingText => "put it on a line of its own, or # before a comment",
            Self::BareWord => "write it in quotes",
            Self::OpenString => "close it on the same line",
            Self::Escape => "use single quotes: they take a backslash as it is",
            Self::LongString => "write it on one line",
            Self::InlineTable => "write the table's name in brackets on a line of its own, and its keys below",
            Self::OpenArray => "write ] after the last element",
            Self::NestedArray => "write the elements in one list",
            Self::Comma => "write [a, b]",
            Self::UnknownTable => "a policy has the tables [audit], [default] and [[rule]]",
            Self::SingleRule => "write [[rule]]",
            Self::DoubleTable => "write it in single brackets",
            Self::TableTwice => "join the two",
            Self::UnknownKey(place) => place.keys(),
            Self::KeyTwice => "remove one of the two",
            Self::Expected(expected) => expected.remedy(),
            Self::NoDevices => "add devices = [...], \"all\" or \"none\"",
            Self::Element(fault) => fault.remedy(),
            Self::ListInString => "write an array: devices = [0, 1]",
            Self::EmptyList => "write devices = \"none\" for no device",
            Self::RelativePath => "begin it with /",
            Self::Placeholder => "only {uid} and {pid} are replaced",
        }
    }
}

impl Place {
    fn keys(self) -> &'static str {
        match self {
            Self::Top => "before the first table a policy has the keys mode and locked",
            Self::Audit => "[audit] has the keys file, calls, journald, syslog, stack and redact",
            Self::Default => "[default] has the keys devices, request, emit and seal",
            Self::Rule => "a rule has the keys name, user, group, exe, argv, env, cgroup, devices, request, emit, seal and mode",
        }
    }
}

impl Expected {
    fn message(self) -> &'static str {
        match self {
            Self::Mode => "unknown mode",
            Self::Calls => "unknown choice of calls",
            Self::Request => "unknown treatment of the request",
            Self::Emit => "unknown form of the list",
            Self::Devices => "this is no device list",
            Self::Seal => "unknown kind of seal",
            Self::Boolean => "this must be true or false",
            Self::Text => "this must be a string that is not empty",
            Self::Texts => "this must be a list of strings that are not empty",
            Self::Ids => "this must be a list of names and numbers",
            Self::Variable => "this does not name an environment variable",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Mode => "write \"enforce\", \"audit\" or \"off\"",
            Self::Calls => "write \"first\" or \"all\"",
            Self::Request => "write \"fixed\" or \"narrow\"",
            Self::Emit => "write \"as-written\", \"uuid\" or \"index\"",
            Self::Devices => "write [0, 1], [\"GPU-...\"], \"all\" or \"none\"",
            Self::Seal => "write true, false or \"require\"",
            Self::Boolean => "write true or false without quotes",
            Self::Text => "write \"...\"",
            Self::Texts => "write [\"...\"]",
            Self::Ids => "write [\"name\", 1000]",
            Self::Variable => "write [\"NAME\"] or [\"NAME=pattern\"]",
        }
    }
}
