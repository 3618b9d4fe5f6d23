//! Reads a file into what it means: every table and key in its place, every value of its type.

use super::cursor::Cursor;
use super::error::{Error, Fault, Place};
use super::keys::Key;
use super::policy::{Audit, Emit, Mode, Part, Rule};
use super::raw::{Mistake, Value, offset_in};
use super::values::{boolean, calls, emit, is_id, is_text, is_variable, request, seal};
use super::{devices, explain, policy, text};

/// Takes what a file says as it is read. What is not in the file is not told.
pub trait Sink<'a> {
    /// A part that stands once.
    fn part(&mut self, part: Part<'a>);
    /// A rule without faults, in the order of the file.
    fn rule(&mut self, rule: &Rule<'a>);
    /// A fault. The policy is broken then, and the rest is only what was understood.
    fn error(&mut self, error: Error<'a>);
}

/// Reads a whole file.
pub fn read<'a>(text: &'a [u8], sink: &mut impl Sink<'a>) {
    Progress::default().read(text, sink);
}

/// How far a file has been read that is read in pieces.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    /// How many bytes have been read.
    offset: usize,
    /// A bit for each table that stands once.
    tables: u32,
}

impl Progress {
    /// How much of the text can be read as a piece: up to the last line that begins a table; 0 where there is none
    /// but the first one.
    pub fn whole_tables(text: &[u8]) -> usize {
        let begins = |pair: &[u8]| pair == b"\n[";
        text.windows(2).rposition(begins).map_or(0, |line_end| line_end.saturating_add(1))
    }

    /// Reads the next piece of a file: from its beginning, or from a line that begins with a bracket. An array that
    /// such a line cuts in two is faulty as a whole, too: arrays in arrays are.
    pub fn read<'a>(&mut self, text: &'a [u8], sink: &mut impl Sink<'a>) {
        let offset = self.offset;
        self.offset = offset.saturating_add(text.len());
        if let Some(error) = text::error(text, offset) {
            return sink.error(error);
        }
        let mut cursor = Cursor::at_start_of(text);
        if offset == 0 && text.starts_with(BYTE_ORDER_MARK) {
            cursor.bump(BYTE_ORDER_MARK.len());
        }
        let place = (offset == 0).then_some(Place::Top);
        let table =
            Table { head: b"", place, is_faulty: false, is_again: false, seen: 0, devices: None, audit: Audit::NONE, rule: Rule::new(0) };
        let mut reader = Reader { text, offset, sink, tables: &mut self.tables, table };
        loop {
            cursor.skip_blank_lines();
            match cursor.peek() {
                None => break,
                Some(b'[') => reader.table(&mut cursor),
                Some(_) => reader.entry(&mut cursor),
            }
        }
        reader.end_table();
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A table whose keys are still being read.
struct Table<'a> {
    /// Its name.
    head: &'a [u8],
    /// Which one it is; none where it is unknown, and in a piece that begins with a table before this one.
    place: Option<Place>,
    is_faulty: bool,
    /// Whether it stands once and has stood before: the first one is what holds.
    is_again: bool,
    /// A bit for each key that it has had.
    seen: u32,
    devices: Option<Value<'a>>,
    audit: Audit<'a>,
    /// A rule, or what `[default]` grants.
    rule: Rule<'a>,
}

struct Reader<'a, 's, S> {
    /// The piece, and where it begins in the file.
    text: &'a [u8],
    offset: usize,
    sink: &'s mut S,
    tables: &'s mut u32,
    table: Table<'a>,
}

impl<'a, S: Sink<'a>> Reader<'a, '_, S> {
    fn offset_of(&self, part: &[u8]) -> usize {
        self.offset.saturating_add(offset_in(self.text, part))
    }

    #[cold]
    #[inline(never)]
    fn fault(&mut self, mistake: Mistake<'a>) {
        self.table.is_faulty = true;
        self.sink.error(Error { offset: self.offset_of(mistake.text), text: mistake.text, fault: mistake.fault });
    }

    #[inline(always)]
    fn table(&mut self, cursor: &mut Cursor<'a>) {
        let start = *cursor;
        match cursor.table() {
            Some((name, is_array)) if cursor.end_of_line() => self.begin(name, is_array),
            _ => {
                self.fault(explain::table(start));
                cursor.skip_line();
            }
        }
    }

    #[inline(never)]
    fn begin(&mut self, name: &'a [u8], is_array: bool) {
        self.end_table();
        let place = match name {
            b"rule" => Some(Place::Rule),
            b"default" => Some(Place::Default),
            b"audit" => Some(Place::Audit),
            _ => None,
        };
        let bit = match place {
            Some(Place::Audit) => 1,
            Some(Place::Default) => 2,
            _ => 0,
        };
        let is_again = *self.tables & bit != 0;
        let fault = match place {
            None => Some(Fault::UnknownTable),
            Some(Place::Rule) if !is_array => Some(Fault::SingleRule),
            Some(Place::Audit | Place::Default) if is_array => Some(Fault::DoubleTable),
            Some(_) if is_again => Some(Fault::TableTwice),
            Some(_) => None,
        };
        *self.tables |= bit;
        let offset = self.offset_of(name);
        let table = &mut self.table;
        (table.head, table.place, table.is_faulty, table.is_again, table.seen, table.devices) = (name, place, false, is_again, 0, None);
        table.rule = Rule::new(offset);
        if let Some(fault) = fault {
            self.fault(Mistake { text: name, fault });
        }
    }

    /// Checks and delivers the table whose keys have all been read.
    fn end_table(&mut self) {
        match self.table.place {
            Some(Place::Rule) => {
                if self.end_grant() {
                    self.sink.rule(&self.table.rule);
                }
            }
            Some(Place::Default) => {
                if self.end_grant() {
                    self.sink.part(Part::Default(self.table.rule.grant));
                }
            }
            Some(Place::Audit) if !self.table.is_again => self.sink.part(Part::Audit(self.table.audit)),
            Some(Place::Top | Place::Audit) | None => {}
        }
    }

    /// Checks what a table grants; whether the table has no fault.
    fn end_grant(&mut self) -> bool {
        let rule = &self.table.rule;
        let needs_devices = self.table.place == Some(Place::Rule) && rule.mode != Some(Mode::Off);
        let translated = rule.grant.emit != Emit::AsWritten;
        match self.table.devices {
            Some(value) => {
                if let Some(devices) = devices::spec(&value, translated, &mut |mistake| self.fault(mistake)) {
                    self.table.rule.grant.devices = devices;
                }
            }
            None if needs_devices && !self.table.is_faulty => {
                self.fault(Mistake { text: self.table.head, fault: Fault::NoDevices });
            }
            None => {}
        }
        !self.table.is_faulty
    }

    #[inline(always)]
    fn entry(&mut self, cursor: &mut Cursor<'a>) {
        let start = *cursor;
        let place = self.table.place;
        let known = cursor.key().and_then(|name| Some((place?, Key::of(place?, name)?)));
        let known = known.filter(|(_, key)| self.table.seen & key.bit() == 0);
        if let Some((place, key)) = known {
            self.table.seen |= key.bit();
            if self.set(place, key, cursor).is_some() && cursor.end_of_line() {
                return;
            }
        }
        *cursor = self.odd_entry(start, known.map(|(_, key)| key));
    }

    /// An entry that could not be taken: says why, and where the next line begins. A key that is given is one that the
    /// table has, for the first time.
    #[cold]
    #[inline(never)]
    fn odd_entry(&mut self, start: Cursor<'a>, key: Option<Key>) -> Cursor<'a> {
        let mut cursor = start;
        let value = match explain::writing(&mut cursor) {
            Ok(value) => value,
            Err(mistake) => {
                if let Some(key) = key {
                    // As if the line were not there: one complaint about it is enough.
                    self.table.seen &= !key.bit();
                    self.table.devices = self.table.devices.filter(|_| key != Key::Devices);
                }
                self.fault(mistake);
                cursor.skip_line();
                return cursor;
            }
        };
        let Some(place) = self.table.place else { return cursor };
        let name = { start }.key().unwrap_or_default();
        let mistake = match key {
            Some(key) => explain::value(key, value),
            None if Key::of(place, name).is_some() => Mistake { text: name, fault: Fault::KeyTwice },
            None => Mistake { text: name, fault: Fault::UnknownKey(place) },
        };
        self.fault(mistake);
        cursor
    }

    /// Takes a value; none where it is not what the key wants.
    #[inline(always)]
    fn set(&mut self, place: Place, key: Key, cursor: &mut Cursor<'a>) -> Option<()> {
        let Table { rule, audit, devices, .. } = &mut self.table;
        match key {
            Key::Name => rule.name = Some(cursor.string().filter(|name| !name.is_empty())?),
            Key::Devices => *devices = Some(cursor.value()?),
            Key::Env => rule.env = Some(cursor.list(1, is_variable)?),
            Key::User | Key::Group => {
                let list = Some(cursor.list(1, is_id)?);
                if key == Key::User { rule.user = list } else { rule.group = list }
            }
            Key::Exe | Key::Argv | Key::Cgroup | Key::Redact => {
                let list = Some(cursor.list(1, is_text)?);
                match key {
                    Key::Exe => rule.exe = list,
                    Key::Argv => rule.argv = list,
                    Key::Cgroup => rule.cgroup = list,
                    _ => audit.redact = list,
                }
            }
            _ => {
                let value = cursor.scalar()?;
                self.set_word(place, key, value)?;
            }
        }
        Some(())
    }

    /// The same for what is one word.
    #[inline(never)]
    fn set_word(&mut self, place: Place, key: Key, value: Value<'a>) -> Option<()> {
        let Table { rule, audit, .. } = &mut self.table;
        match (key, value) {
            (Key::Mode, Value::Quoted(word)) => {
                let mode = Mode::parse(word)?;
                if place == Place::Rule { rule.mode = Some(mode) } else { self.sink.part(Part::Mode(mode)) }
            }
            (Key::File, Value::Quoted(path)) => {
                policy::check_audit_file(path).ok()?;
                audit.file = Some(path);
            }
            (Key::Calls, Value::Quoted(word)) => audit.calls = calls(word)?,
            (Key::Request, Value::Quoted(word)) => rule.grant.request = request(word)?,
            (Key::Emit, Value::Quoted(word)) => rule.grant.emit = emit(word)?,
            (Key::Seal, _) => rule.grant.seal = seal(value)?,
            (Key::Locked, Value::Bare(word)) => self.sink.part(Part::Locked(boolean(word)?)),
            (Key::Journald, Value::Bare(word)) => audit.journald = boolean(word)?,
            (Key::Syslog, Value::Bare(word)) => audit.syslog = boolean(word)?,
            (Key::Stack, Value::Bare(word)) => audit.stack = boolean(word)?,
            _ => return None,
        }
        Some(())
    }
}
