//! The part of a line that a report needs, read without a copy: reports go through gigabytes.

use super::event::program;
use rustc_hash::FxBuildHasher;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

/// A line, as far as a report needs it.
pub struct Fact {
    /// Microseconds since 1970.
    pub micros: i64,
    /// Pid, start time and pid namespace: what tells one process from every other.
    pub process: ProcessKey,
    /// Real user id.
    pub uid: u32,
    /// The kind of event.
    pub kind: Kind,
    /// Whether the call succeeded.
    pub succeeded: bool,
    /// Events that could not be written before this one.
    pub dropped: u64,
    /// The program's name.
    pub program: Name,
    /// Container.
    pub container: Option<Name>,
    /// The device that the event is about: UUID, else PCI bus id.
    pub gpu: Option<Name>,
}

/// What tells one process from every other: its pid, when it started, and its pid namespace.
pub type ProcessKey = (i64, Option<u64>, Option<u64>);

/// The kinds of event that a report tells apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `context`
    Context,
    /// `device`
    Device,
    /// `denied`
    Denied,
    /// `late_change`
    LateChange,
    /// `exit`
    Exit,
    /// Any other.
    Other,
}

/// A name that stays until the command ends.
pub type Name = &'static str;

/// Names that occur again and again. Each is kept once and never given back: there are as many as the
/// report has groups, and a thread can hand one to another without counting who holds it.
#[derive(Default)]
pub struct Words {
    names: HashSet<Name, FxBuildHasher>,
    /// The process of the line before and its program: most lines about a process follow each other.
    last: Option<(ProcessKey, Name)>,
}

impl Words {
    fn get(&mut self, name: &str) -> Name {
        match self.names.get(name) {
            Some(known) => known,
            None => {
                let new: Name = Box::leak(name.into());
                self.names.insert(new);
                new
            }
        }
    }

    fn program(&mut self, process: ProcessKey, exe: Option<&str>, argv: &[Cow<'_, str>]) -> Name {
        if let Some((known, name)) = self.last
            && known == process
        {
            return name;
        }
        let name = self.get(&program(exe, argv));
        self.last = Some((process, name));
        name
    }
}

/// A line as it is read.
#[derive(Deserialize)]
struct Brief<'a> {
    #[serde(borrow)]
    schema: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow)]
    event: Cow<'a, str>,
    pid: i64,
    start_time: Option<u64>,
    pid_namespace: Option<u64>,
    uid: u32,
    #[serde(borrow)]
    exe: Option<Word<'a>>,
    #[serde(borrow, default)]
    argv: First<'a>,
    #[serde(borrow)]
    container: Option<Word<'a>>,
    result: Option<i32>,
    dropped: Option<u64>,
    #[serde(borrow)]
    device: Option<Device<'a>>,
}

impl Fact {
    /// Reads a line.
    ///
    /// # Errors
    /// It is not JSON, or not of a schema that is known here.
    pub fn parse(line: &[u8], words: &mut Words) -> Result<Self, String> {
        let brief: Brief<'_> = sonic_rs::from_slice(line).map_err(|error| reason(&error.to_string()))?;
        if brief.schema != cuvisor_policy::record::SCHEMA {
            return Err(format!("schema {:?} is not {:?}", brief.schema, cuvisor_policy::record::SCHEMA));
        }
        let time = brief.time.parse::<jiff::Timestamp>().map_err(|error| error.to_string())?;
        let process = (brief.pid, brief.start_time, brief.pid_namespace);
        Ok(Self {
            micros: time.as_microsecond(),
            process,
            uid: brief.uid,
            kind: match &*brief.event {
                "context" => Kind::Context,
                "device" => Kind::Device,
                "denied" => Kind::Denied,
                "late_change" => Kind::LateChange,
                "exit" => Kind::Exit,
                _ => Kind::Other,
            },
            succeeded: brief.result == Some(0),
            dropped: brief.dropped.unwrap_or_default(),
            program: words.program(process, brief.exe.as_ref().map(|exe| &*exe.0), brief.argv.words()),
            container: brief.container.map(|id| words.get(&id.0)),
            gpu: brief.device.and_then(|device| device.uuid.or(device.pci)).map(|name| words.get(&name.0)),
        })
    }
}

/// A device, as far as a report needs it.
#[derive(Deserialize)]
struct Device<'a> {
    #[serde(borrow)]
    uuid: Option<Word<'a>>,
    #[serde(borrow)]
    pci: Option<Word<'a>>,
}

/// The parser's message without the picture of the place that it draws below.
fn reason(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}

/// The first strings of an array; the rest is skipped.
#[derive(Default)]
struct First<'a> {
    words: [Cow<'a, str>; 6],
    len: usize,
}

impl<'a> First<'a> {
    /// The strings.
    fn words(&self) -> &[Cow<'a, str>] {
        &self.words[..self.len]
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for First<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FirstVisitor(std::marker::PhantomData))
    }
}

struct FirstVisitor<'a>(std::marker::PhantomData<&'a ()>);

/// A string that is borrowed where it can be; serde borrows the `Cow` in an `Option` or array only so.
#[derive(Deserialize)]
#[serde(transparent)]
struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Visitor<'de> for FirstVisitor<'a> {
    type Value = First<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<First<'a>, A::Error> {
        let mut first = First::default();
        while first.len < first.words.len() {
            let Some(Word(word)) = seq.next_element()? else { return Ok(first) };
            first.words[first.len] = word;
            first.len += 1;
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }
}
