//! The file as meant: what holds for the machine, and the rules in their order.

use super::error::Fault;
use super::raw::{Array, Value};
use crate::device::Devices;

/// What Cuvisor does with a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Hold the process to its devices, and log.
    #[default]
    Enforce,
    /// Log only; nothing of the process is changed.
    Audit,
    /// Nothing.
    Off,
}

impl Mode {
    /// Reads the word of a file or variable.
    pub fn parse(word: &[u8]) -> Option<Self> {
        match word {
            b"enforce" => Some(Self::Enforce),
            b"audit" => Some(Self::Audit),
            b"off" => Some(Self::Off),
            _ => None,
        }
    }

    /// The word of a file or variable.
    pub fn word(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Audit => "audit",
            Self::Off => "off",
        }
    }
}

/// Which cuInit and cuDeviceGet calls are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Calls {
    /// The first of each kind, and a later cuInit that differs.
    #[default]
    First,
    /// Every one.
    All,
}

/// What the program's own `CUDA_VISIBLE_DEVICES` counts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Request {
    /// Nothing: the policy's list is what the driver gets.
    #[default]
    Fixed,
    /// It chooses among the policy's devices.
    Narrow,
}

/// How the list is written into `CUDA_VISIBLE_DEVICES`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Emit {
    /// As the policy or the request has it.
    #[default]
    AsWritten,
    /// As whole UUIDs.
    Uuid,
    /// As indices in PCI order.
    Index,
}

/// Whether the kernel holds the process to its devices, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Seal {
    /// No.
    #[default]
    No,
    /// Where it can; else the process goes on and the log says so.
    Yes,
    /// Where it cannot, the process gets no GPU.
    Require,
}

impl Seal {
    /// Reads the value of `CUVISOR_SEAL`.
    pub fn parse(word: &[u8]) -> Option<Self> {
        match word {
            b"0" => Some(Self::No),
            b"1" => Some(Self::Yes),
            b"require" => Some(Self::Require),
            _ => None,
        }
    }

    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Yes => "where the kernel can",
            Self::Require => "required",
        }
    }
}

/// `[audit]`.
#[derive(Clone, Copy, Default, Debug)]
pub struct Audit<'a> {
    /// The file that events are appended to; `{uid}` and `{pid}` are replaced.
    pub file: Option<&'a [u8]>,
    /// Which calls are logged.
    pub calls: Calls,
    /// Whether events go to the journal.
    pub journald: bool,
    /// Whether events go to syslog.
    pub syslog: bool,
    /// Whether events tell the Python stack and the seconds since the process started.
    pub stack: bool,
    /// Options of the command line whose values are not written down.
    pub redact: Option<Array<'a>>,
}

impl Audit<'_> {
    /// What holds without the table.
    pub const NONE: Self = Self { file: None, calls: Calls::First, journald: false, syslog: false, stack: false, redact: None };
}

/// The devices of a rule or of `[default]`, as the file has them.
#[derive(Clone, Copy, Debug)]
pub enum DeviceSpec<'a> {
    /// `"all"`.
    All,
    /// `"none"`.
    None,
    /// An array without faults.
    List(Array<'a>),
}

impl DeviceSpec<'_> {
    /// The devices themselves.
    pub fn devices(&self) -> Devices {
        let mut devices = Devices::None;
        self.put(&mut devices);
        devices
    }

    /// The same into a place that is there already.
    pub fn put(&self, devices: &mut Devices) {
        match self {
            Self::All => *devices = Devices::All,
            Self::None => *devices = Devices::None,
            Self::List(array) => devices.put(array.elements().map(|v| v.text())),
        }
    }
}

/// What a rule gives to the processes that it matches.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// Which devices.
    pub devices: DeviceSpec<'a>,
    /// What the request counts for.
    pub request: Request,
    /// How the list is written.
    pub emit: Emit,
    /// Whether the kernel holds it, too.
    pub seal: Seal,
}

impl Grant<'_> {
    /// What holds without `[default]`.
    pub const EVERYTHING: Self = Self { devices: DeviceSpec::All, request: Request::Fixed, emit: Emit::AsWritten, seal: Seal::No };
}

/// A `[[rule]]`. All conditions that are there must hold, and of each any element.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    /// `name`, else none.
    pub name: Option<&'a [u8]>,
    /// Where the rule begins in the file.
    pub offset: usize,
    /// Login names and uids.
    pub user: Option<Array<'a>>,
    /// Group names and gids.
    pub group: Option<Array<'a>>,
    /// Globs on the executable's path.
    pub exe: Option<Array<'a>>,
    /// Globs on the command line.
    pub argv: Option<Array<'a>>,
    /// `NAME` or `NAME=glob`.
    pub env: Option<Array<'a>>,
    /// Globs on the cgroup's path.
    pub cgroup: Option<Array<'a>>,
    /// What it gives.
    pub grant: Grant<'a>,
    /// Its own mode, before the file's.
    pub mode: Option<Mode>,
}

impl Rule<'_> {
    /// A rule that begins here and says nothing yet.
    pub const fn new(offset: usize) -> Self {
        let (name, user, group, exe, argv, env, cgroup, mode) = (None, None, None, None, None, None, None, None);
        Self { name, offset, user, group, exe, argv, env, cgroup, grant: Grant::EVERYTHING, mode }
    }
}

/// The parts of a policy that stand once.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// The mode of the file.
    pub mode: Mode,
    /// Whether variables count for nothing.
    pub locked: bool,
    /// `[audit]`.
    pub audit: Audit<'a>,
    /// `[default]`: what a process gets that no rule matches.
    pub default: Grant<'a>,
}

impl Policy<'_> {
    /// What an empty file says.
    pub const EMPTY: Self = Self { mode: Mode::Enforce, locked: false, audit: Audit::NONE, default: Grant::EVERYTHING };
}

/// One of the parts that stand once.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// `mode`, before the first table.
    Mode(Mode),
    /// `locked`.
    Locked(bool),
    /// The first `[audit]`, as far as it has no fault.
    Audit(Audit<'a>),
    /// `[default]` without faults.
    Default(Grant<'a>),
}

impl<'a> Policy<'a> {
    /// Takes a part as the file has it.
    pub fn take(&mut self, part: Part<'a>) {
        match part {
            Part::Mode(mode) => self.mode = mode,
            Part::Locked(locked) => self.locked = locked,
            Part::Audit(audit) => self.audit = audit,
            Part::Default(grant) => self.default = grant,
        }
    }
}

/// The number of a uid or gid in a list: bare digits.
pub fn id(value: &Value<'_>) -> Option<u32> {
    let Value::Bare(digits) = value else { return None };
    let plain = digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || !digits.starts_with(b"0"));
    core::str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()
}

/// Whether a text can be an audit file's name.
///
/// # Errors
/// [`Fault::RelativePath`] or [`Fault::Placeholder`].
pub fn check_audit_file(path: &[u8]) -> Result<(), Fault> {
    if !path.starts_with(b"/") {
        return Err(Fault::RelativePath);
    }
    let mut openings = path.split(|c| *c == b'{').skip(1);
    let known = |rest: &[u8]| rest.starts_with(b"uid}") || rest.starts_with(b"pid}");
    if openings.all(known) { Ok(()) } else { Err(Fault::Placeholder) }
}
