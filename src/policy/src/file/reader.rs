//! Reads a file into what it means: every table and key in its place, every value of its type.

use super::error::{Error, Expected, Fault, Place};
use super::policy::{Calls, DeviceSpec, Emit, Grant, Mode, Policy, Request, Rule, Seal, check_audit_file, id};
use super::raw::{Array, Item, Items, Spot, Value, is_name};
use crate::device::check_list;
use crate::element::ElementFault;

/// Takes what a file says as it is read.
pub trait Sink<'a> {
    /// A rule without faults, in the order of the file.
    fn rule(&mut self, rule: &Rule<'a>);
    /// A fault.
    fn error(&mut self, error: Error<'a>);
}

/// Reads a whole file. Where `sink` was given an error, the policy is broken and what is returned
/// holds only what was understood.
pub fn read<'a>(text: &'a [u8], sink: &mut impl Sink<'a>) -> Policy<'a> {
    let mut reader = Reader { sink, policy: Policy::new(), place: Some(Place::Top), seen: 0, tables: 0, rule: Pending::default() };
    if let Some(error) = text_error(text) {
        reader.sink.error(error);
        return reader.policy;
    }
    for item in Items::of(text) {
        match item {
            Ok(Item::Table(name)) => reader.table(name, false),
            Ok(Item::TableArray(name)) => reader.table(name, true),
            Ok(Item::Entry { key, value }) => reader.entry(key, value),
            Err(error) => reader.fault(error),
        }
    }
    reader.end_rule();
    reader.policy
}

fn text_error(text: &[u8]) -> Option<Error<'_>> {
    if let Err(error) = core::str::from_utf8(text) {
        let offset = error.valid_up_to();
        return Some(Error { offset, text: text.get(offset..).and_then(|t| t.get(..1)).unwrap_or_default(), fault: Fault::NotUtf8 });
    }
    // One pass without a branch for each byte; only a file that has something odd is looked at closely.
    let control = |c: u8| (c < b' ' && !matches!(c, b'\t' | b'\n')) || c == 0x7f;
    if !text.iter().fold(false, |odd, c| odd | control(*c)) {
        return None;
    }
    let mut odd = text.iter().enumerate().filter(|(_, c)| control(**c));
    let is_line_end = |at: usize| text.get(at..).is_some_and(|rest| rest.starts_with(b"\r\n"));
    let (offset, _) = odd.find(|(at, _)| !is_line_end(*at))?;
    Some(Error { offset, text: b"", fault: Fault::ControlCharacter })
}

/// A rule, or `[default]`, whose keys are still being read.
#[derive(Default)]
struct Pending<'a> {
    offset: usize,
    head: &'a [u8],
    open: bool,
    faulty: bool,
    name: Option<&'a [u8]>,
    user: Option<Array<'a>>,
    group: Option<Array<'a>>,
    exe: Option<Array<'a>>,
    argv: Option<Array<'a>>,
    env: Option<Array<'a>>,
    cgroup: Option<Array<'a>>,
    devices: Option<Value<'a>>,
    request: Request,
    emit: Emit,
    seal: Seal,
    mode: Option<Mode>,
}

struct Reader<'a, 's, S> {
    sink: &'s mut S,
    policy: Policy<'a>,
    /// The table that the next key belongs to; none after an unknown one.
    place: Option<Place>,
    /// A bit for each key that the table has had.
    seen: u32,
    /// A bit for each table that stands once.
    tables: u32,
    rule: Pending<'a>,
}

/// A bit for each key of a table; none where the table does not have the key.
fn key_bit(place: Place, key: &[u8]) -> Option<u32> {
    let at = match (place, key) {
        (Place::Top, b"mode") | (Place::Audit, b"file") | (Place::Default | Place::Rule, b"devices") => 0,
        (Place::Top, b"locked") | (Place::Audit, b"calls") | (Place::Default | Place::Rule, b"request") => 1,
        (Place::Audit, b"journald") | (Place::Default | Place::Rule, b"emit") => 2,
        (Place::Audit, b"syslog") | (Place::Rule, b"mode") => 3,
        (Place::Audit, b"redact") | (Place::Rule, b"name") => 4,
        (Place::Audit, b"stack") | (Place::Rule, b"user") => 5,
        (Place::Rule, b"group") => 6,
        (Place::Rule, b"exe") => 7,
        (Place::Rule, b"argv") => 8,
        (Place::Rule, b"env") => 9,
        (Place::Rule, b"cgroup") => 10,
        (Place::Default | Place::Rule, b"seal") => 11,
        _ => return None,
    };
    Some(1 << at)
}

impl<'a, S: Sink<'a>> Reader<'a, '_, S> {
    fn fault(&mut self, error: Error<'a>) {
        self.rule.faulty = true;
        self.sink.error(error);
    }

    fn table(&mut self, name: Spot<'a>, array: bool) {
        self.end_rule();
        self.seen = 0;
        self.place = match name.text {
            b"audit" => Some(Place::Audit),
            b"default" => Some(Place::Default),
            b"rule" => Some(Place::Rule),
            _ => None,
        };
        let bit = match self.place {
            Some(Place::Audit) => 1,
            Some(Place::Default) => 2,
            _ => 0,
        };
        let fault = match self.place {
            None => Some(Fault::UnknownTable),
            Some(Place::Rule) if !array => Some(Fault::SingleRule),
            Some(Place::Audit | Place::Default) if array => Some(Fault::DoubleTable),
            Some(_) if self.tables & bit != 0 => Some(Fault::TableTwice),
            Some(_) => None,
        };
        self.tables |= bit;
        if matches!(self.place, Some(Place::Rule | Place::Default)) {
            self.rule = Pending { offset: name.offset, head: name.text, open: true, ..Pending::default() };
        }
        if let Some(fault) = fault {
            self.fault(name.error(fault));
        }
    }

    /// Checks and delivers the rule or default whose keys have all been read.
    fn end_rule(&mut self) {
        if !core::mem::take(&mut self.rule.open) {
            return;
        }
        let translated = self.rule.emit != Emit::AsWritten;
        let devices = match self.rule.devices {
            Some(value) => self.devices(value, translated),
            None if self.place == Some(Place::Rule) && self.rule.mode != Some(Mode::Off) && !self.rule.faulty => {
                self.fault(Error { offset: self.rule.offset, text: self.rule.head, fault: Fault::NoDevices });
                None
            }
            None => Some(DeviceSpec::All),
        };
        let Some(devices) = devices else { return };
        let grant = Grant { devices, request: self.rule.request, emit: self.rule.emit, seal: self.rule.seal };
        if self.rule.faulty {
            return;
        }
        if self.place == Some(Place::Default) {
            self.policy.default = grant;
            return;
        }
        let Pending { offset, name, user, group, exe, argv, env, cgroup, mode, .. } = self.rule;
        self.sink.rule(&Rule { name, offset, user, group, exe, argv, env, cgroup, grant, mode });
    }

    fn entry(&mut self, key: Spot<'a>, value: Value<'a>) {
        let Some(place) = self.place else { return };
        let Some(bit) = key_bit(place, key.text) else {
            return self.fault(key.error(Fault::UnknownKey(place)));
        };
        if self.seen & bit != 0 {
            return self.fault(key.error(Fault::KeyTwice));
        }
        self.seen |= bit;
        if let Err(error) = self.set(place, key.text, value) {
            self.fault(error);
        }
    }

    fn set(&mut self, place: Place, key: &[u8], value: Value<'a>) -> Result<(), Error<'a>> {
        let rule = &mut self.rule;
        match (place, key) {
            (Place::Top, b"mode") => self.policy.mode = word(value, Expected::Mode, Mode::parse)?,
            (Place::Top, _) => self.policy.locked = boolean(value)?,
            (Place::Audit, b"file") => self.policy.audit.file = Some(audit_file(value)?),
            (Place::Audit, b"calls") => self.policy.audit.calls = word(value, Expected::Calls, calls)?,
            (Place::Audit, b"journald") => self.policy.audit.journald = boolean(value)?,
            (Place::Audit, b"syslog") => self.policy.audit.syslog = boolean(value)?,
            (Place::Audit, b"stack") => self.policy.audit.stack = boolean(value)?,
            (Place::Audit, _) => self.policy.audit.redact = Some(strings(value)?),
            (_, b"devices") => rule.devices = Some(value),
            (_, b"request") => rule.request = word(value, Expected::Request, request)?,
            (_, b"emit") => rule.emit = word(value, Expected::Emit, emit)?,
            (_, b"seal") => rule.seal = seal(value)?,
            (_, b"mode") => rule.mode = Some(word(value, Expected::Mode, Mode::parse)?),
            (_, b"name") => rule.name = Some(string(value)?.text),
            (_, b"user") => rule.user = Some(ids(value)?),
            (_, b"group") => rule.group = Some(ids(value)?),
            (_, b"exe") => rule.exe = Some(strings(value)?),
            (_, b"argv") => rule.argv = Some(strings(value)?),
            (_, b"env") => rule.env = Some(variables(value)?),
            (_, _) => rule.cgroup = Some(strings(value)?),
        }
        Ok(())
    }

    fn device_array(&mut self, array: Array<'a>, translated: bool) -> Option<DeviceSpec<'a>> {
        let mut sound = true;
        let mut bare_word = None;
        let mut empty = true;
        let texts = array.elements().map(|element| element.spot().text);
        check_list(texts, translated, |at, fault| {
            sound = false;
            if let Some(element) = array.elements().nth(at) {
                self.fault(element.spot().error(Fault::Element(fault)));
            }
        });
        for element in array.elements() {
            empty = false;
            // TOML wants quotes around everything but a number.
            if let Value::Bare(spot) = element
                && !spot.text.iter().all(u8::is_ascii_digit)
            {
                bare_word.get_or_insert(spot);
            }
        }
        let fault = match bare_word {
            Some(word) if sound => Some(word.error(Fault::BareWord)),
            _ if empty => Some(Value::Array(array).spot().error(Fault::EmptyList)),
            _ => None,
        };
        if let Some(fault) = fault {
            self.fault(fault);
            return None;
        }
        sound.then_some(DeviceSpec::List(array))
    }

    fn devices(&mut self, value: Value<'a>, translated: bool) -> Option<DeviceSpec<'a>> {
        let spot = value.spot();
        match value {
            Value::Quoted(Spot { text: b"all", .. }) => Some(DeviceSpec::All),
            Value::Quoted(Spot { text: b"none", .. }) => Some(DeviceSpec::None),
            Value::Array(array) => self.device_array(array, translated),
            Value::Quoted(Spot { text, .. }) if text.contains(&b',') || crate::device::Selector::parse(text).is_ok() => {
                self.fault(spot.error(Fault::ListInString));
                None
            }
            Value::Bare(Spot { text, .. }) if text.iter().all(u8::is_ascii_digit) => {
                self.fault(spot.error(Fault::ListInString));
                None
            }
            Value::Quoted(Spot { text, .. }) if !text.is_empty() => {
                let fault = crate::device::Selector::parse(text).err().unwrap_or(ElementFault::Unknown);
                let fault = if fault == ElementFault::Unknown { Fault::Expected(Expected::Devices) } else { Fault::Element(fault) };
                self.fault(spot.error(fault));
                None
            }
            Value::Quoted(_) | Value::Bare(_) => {
                self.fault(spot.error(Fault::Expected(Expected::Devices)));
                None
            }
        }
    }
}

fn word<'a, T>(value: Value<'a>, expected: Expected, read: impl Fn(&[u8]) -> Option<T>) -> Result<T, Error<'a>> {
    match value {
        Value::Quoted(spot) => read(spot.text).ok_or_else(|| spot.error(Fault::Expected(expected))),
        other => Err(other.spot().error(Fault::Expected(expected))),
    }
}

fn calls(word: &[u8]) -> Option<Calls> {
    match word {
        b"first" => Some(Calls::First),
        b"all" => Some(Calls::All),
        _ => None,
    }
}

fn request(word: &[u8]) -> Option<Request> {
    match word {
        b"fixed" => Some(Request::Fixed),
        b"narrow" => Some(Request::Narrow),
        _ => None,
    }
}

fn emit(word: &[u8]) -> Option<Emit> {
    match word {
        b"as-written" => Some(Emit::AsWritten),
        b"uuid" => Some(Emit::Uuid),
        b"index" => Some(Emit::Index),
        _ => None,
    }
}

fn seal(value: Value<'_>) -> Result<Seal, Error<'_>> {
    match value {
        Value::Bare(Spot { text: b"true", .. }) => Ok(Seal::Yes),
        Value::Bare(Spot { text: b"false", .. }) => Ok(Seal::No),
        Value::Quoted(Spot { text: b"require", .. }) => Ok(Seal::Require),
        other => Err(other.spot().error(Fault::Expected(Expected::Seal))),
    }
}

fn boolean(value: Value<'_>) -> Result<bool, Error<'_>> {
    match value {
        Value::Bare(Spot { text: b"true", .. }) => Ok(true),
        Value::Bare(Spot { text: b"false", .. }) => Ok(false),
        other => Err(other.spot().error(Fault::Expected(Expected::Boolean))),
    }
}

fn string(value: Value<'_>) -> Result<Spot<'_>, Error<'_>> {
    match value {
        Value::Quoted(spot) if !spot.text.is_empty() => Ok(spot),
        other => Err(other.spot().error(Fault::Expected(Expected::Text))),
    }
}

fn strings(value: Value<'_>) -> Result<Array<'_>, Error<'_>> {
    list(value, Expected::Texts, |element| string(element).is_ok())
}

fn ids(value: Value<'_>) -> Result<Array<'_>, Error<'_>> {
    list(value, Expected::Ids, |element| string(element).is_ok() || id(&element).is_some())
}

fn variables(value: Value<'_>) -> Result<Array<'_>, Error<'_>> {
    let sound = |element: Value<'_>| {
        let text = element.spot().text;
        let name = text.iter().take_while(|c| is_name(**c)).count();
        matches!(element, Value::Quoted(_)) && name > 0 && matches!(text.get(name), None | Some(b'='))
    };
    list(value, Expected::Variable, sound)
}

fn list<'a>(value: Value<'a>, expected: Expected, sound: impl Fn(Value<'a>) -> bool) -> Result<Array<'a>, Error<'a>> {
    let Value::Array(array) = value else {
        return Err(value.spot().error(Fault::Expected(expected)));
    };
    let mut empty = true;
    for element in array.elements() {
        empty = false;
        if !sound(element) {
            return Err(element.spot().error(Fault::Expected(expected)));
        }
    }
    if empty { Err(value.spot().error(Fault::Expected(expected))) } else { Ok(array) }
}

fn audit_file(value: Value<'_>) -> Result<&[u8], Error<'_>> {
    let spot = string(value)?;
    check_audit_file(spot.text).map_err(|fault| spot.error(fault))?;
    Ok(spot.text)
}
