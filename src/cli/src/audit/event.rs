//! One line of the audit file.

use serde::Deserialize;
use std::borrow::Cow;

/// A text of a line, borrowed where it holds no escape.
pub type Str<'a> = Cow<'a, str>;

/// A line. Members that a kind of event lacks are none.
#[derive(Deserialize, Debug)]
pub struct Event<'a> {
    #[serde(borrow)]
    pub schema: Str<'a>,
    #[serde(borrow)]
    pub time: Str<'a>,
    #[serde(borrow)]
    pub event: Str<'a>,
    #[serde(borrow)]
    pub outcome: Str<'a>,
    pub pid: i64,
    pub start_time: Option<u64>,
    pub pid_namespace: Option<u64>,
    pub uid: u32,
    #[serde(borrow)]
    pub exe: Str<'a>,
    #[serde(borrow, default)]
    pub argv: Vec<Str<'a>>,
    #[serde(borrow)]
    pub container: Option<Str<'a>>,
    pub result: Option<i32>,
    #[serde(borrow)]
    pub result_name: Option<Str<'a>>,
    #[serde(borrow)]
    pub request: Option<Str<'a>>,
    #[serde(borrow)]
    pub effective: Option<Str<'a>>,
    #[serde(borrow)]
    pub reason: Option<Str<'a>>,
    #[serde(borrow)]
    pub caller: Option<Str<'a>>,
    #[serde(borrow)]
    pub call: Option<Str<'a>>,
    #[serde(borrow)]
    pub old: Option<Str<'a>>,
    #[serde(borrow)]
    pub new: Option<Str<'a>>,
    pub seconds: Option<f64>,
    pub dropped: Option<u64>,
    #[serde(borrow)]
    pub device: Option<Device<'a>>,
    #[serde(borrow, default)]
    pub devices: Vec<Device<'a>>,
}

/// A device of a line.
#[derive(Deserialize, Debug)]
pub struct Device<'a> {
    pub ordinal: i32,
    #[serde(borrow)]
    pub uuid: Option<Str<'a>>,
    #[serde(borrow)]
    pub pci: Option<Str<'a>>,
}

/// Programs that run a script: the script is what people call the program.
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

    /// Microseconds since 1970; none where the time cannot be read.
    pub fn micros(&self) -> Option<i64> {
        self.time.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond)
    }

    /// The executable's name, and for an interpreter its script's.
    pub fn program(&self) -> String {
        let name = file_name(&self.exe);
        if !INTERPRETERS.iter().any(|known| name.starts_with(known)) {
            return name.to_owned();
        }
        let mut rest = self.argv.iter().skip(1).map(Cow::as_ref);
        let script = rest.by_ref().find(|argument| !argument.starts_with('-') || matches!(*argument, "-m" | "-c"));
        match script {
            Some("-m") => format!("{name} -m {}", rest.next().unwrap_or_default()),
            Some("-c") => format!("{name} -c"),
            Some(script) => format!("{name} {}", file_name(script)),
            None => name.to_owned(),
        }
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
