//! One line of the audit file. Texts are borrowed where they hold no escape; serde does so only where the
//! type is written as `Cow`, not for another name of it.

use crate::process::DELETED;
use serde::Deserialize;
use std::borrow::Cow;

/// A line. Members that a kind of event lacks are none.
#[derive(Deserialize, Debug)]
pub struct Event<'a> {
    #[serde(borrow)]
    pub schema: Cow<'a, str>,
    #[serde(borrow)]
    pub time: Cow<'a, str>,
    #[serde(borrow)]
    pub event: Cow<'a, str>,
    #[serde(borrow)]
    pub outcome: Cow<'a, str>,
    pub pid: i64,
    pub start_time: Option<u64>,
    pub uid: u32,
    #[serde(borrow)]
    pub exe: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub argv: Vec<Cow<'a, str>>,
    pub result: Option<i32>,
    #[serde(borrow)]
    pub result_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub request: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub effective: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub caller: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub call: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub old: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub new: Option<Cow<'a, str>>,
    pub seconds: Option<f64>,
    pub process_seconds: Option<f64>,
    #[serde(borrow, default)]
    pub stack: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    pub stack_unknown: Option<Cow<'a, str>>,
    pub seal: Option<Seal>,
    #[serde(borrow)]
    pub device: Option<Device<'a>>,
    #[serde(borrow, default)]
    pub devices: Vec<Device<'a>>,
}

/// What became of a seal.
#[derive(Deserialize, Debug, Clone)]
pub struct Seal {
    pub level: String,
    #[serde(default)]
    pub denied: Vec<String>,
    pub reason: Option<String>,
}

/// A device of a line.
#[derive(Deserialize, Debug)]
pub struct Device<'a> {
    pub ordinal: i32,
    #[serde(borrow)]
    pub uuid: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub pci: Option<Cow<'a, str>>,
}

/// Programs that run a script.
const INTERPRETERS: [&str; 7] = ["python", "pypy", "node", "ruby", "perl", "bash", "julia"];

impl<'a> Event<'a> {
    /// Reads a line.
    ///
    /// # Errors
    /// It is not JSON, or not of a schema that is known here.
    pub fn parse(line: &'a str) -> Result<Self, String> {
        let event: Event<'a> = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if event.schema != cuvisor_policy::record::SCHEMA {
            return Err(format!("schema {:?} is not {:?}", event.schema, cuvisor_policy::record::SCHEMA));
        }
        Ok(event)
    }

    /// Where the call came from, innermost first, as a trace tells it; empty where the log does not say.
    pub fn origin(&self) -> String {
        let unknown = self.stack_unknown.iter().map(|reason| format!(" (no Python stack: {reason})"));
        self.stack.iter().rev().map(|frame| format!(" from {frame}")).chain(unknown).collect()
    }

    /// The executable's name, and for an interpreter its script's.
    pub fn program(&self) -> String {
        program(self.exe.as_deref(), &self.argv)
    }
}

/// The executable's name, and for an interpreter its script's, which is what people call the program. Where the executable
/// is not known, as in a chroot without /proc, the name that the program was started by, which need not be true.
pub fn program(exe: Option<&str>, argv: &[Cow<'_, str>]) -> String {
    let Some(exe) = exe.filter(|exe| !exe.is_empty()) else {
        return format!("{} (exe unknown)", file_name(argv.first().map(Cow::as_ref).unwrap_or_default()));
    };
    let name = file_name(exe.strip_suffix(DELETED).unwrap_or(exe));
    if !INTERPRETERS.iter().any(|known| name.starts_with(known)) {
        return name.to_owned();
    }
    let mut rest = argv.iter().skip(1).map(Cow::as_ref);
    let script = rest.by_ref().find(|argument| !argument.starts_with('-') || matches!(*argument, "-m" | "-c"));
    match script {
        Some("-m") => format!("{name} -m {}", rest.next().unwrap_or_default()),
        Some("-c") => format!("{name} -c"),
        Some(script) => format!("{name} {}", file_name(script)),
        None => name.to_owned(),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Device<'_> {
    /// The best name that is known: UUID, else PCI bus id.
    pub fn name(&self) -> Option<&str> {
        self.uuid.as_deref().or(self.pci.as_deref())
    }
}
