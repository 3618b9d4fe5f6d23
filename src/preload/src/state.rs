//! What holds for this process: read and decided once, by whoever comes first.
//!
//! That is the constructor, or a hook where a constructor of the program's own libraries runs before
//! ours (B26). Nobody waits for anybody: threads that come at once each decide, the first result
//! stays, and a fork in between loses nothing (B19).

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use cuvisor_policy::buffer::Text;
use cuvisor_policy::decide::{Applied, Rights};
use cuvisor_policy::device::Devices;
use cuvisor_policy::file::error::{Error, Fault, Position};
use cuvisor_policy::file::policy::{Calls, Mode, Policy, Rule, Seal, check_audit_file};
use cuvisor_policy::file::reader::{Sink, read};
use cuvisor_policy::{names, rule};
use once_cell::race::{OnceBool, OnceRef};

use crate::environ;
use crate::facts::{self, Process};
use crate::loader::{self, Module};
use crate::seal::{self, Sealed};
use crate::sys::{self, File, Memory};
use crate::trace::Trace;

/// What holds for this process. What most processes touch stands first, and the long texts last with
/// their beginnings close together, so that a decision dirties two pages of the library's data.
#[repr(C, align(4096))]
pub struct State {
    /// Whether there is anything to do at all.
    pub active: bool,
    /// Enforce or audit.
    pub mode: Mode,
    /// Which calls are logged.
    pub calls: Calls,
    /// Whether events go to the journal.
    pub journald: bool,
    /// Whether events go to syslog.
    pub syslog: bool,
    /// Whether the kernel is to hold the process, too.
    pub seal: Seal,
    /// What became of that; none where no seal was asked for.
    pub sealed: Option<Sealed>,
    /// Whether events tell where they came from.
    pub trace: Trace,
    /// The name of the rule that matched.
    pub rule: Option<Text<64>>,
    /// The policy's file, or `environment`.
    pub policy: Text<256>,
    /// The audit file as the policy names it; empty for none.
    pub audit: Text<512>,
    /// Which devices, and how the request counts.
    pub rights: Rights,
    /// Arguments as at exec time, each with its NUL.
    pub argv: Text<4096>,
    /// Why the policy is broken; empty where it is sound.
    pub broken: Text<640>,
    /// Options whose values are not written down, each with its NUL.
    pub redact: Text<1024>,
    /// Variables that were set and do not count, separated by commas.
    pub ignored: Text<128>,
    /// The folder that stands for `/` where GPUs are looked for; empty for `/`.
    pub root: Text<256>,
    /// In a trace: what `CUDA_VISIBLE_DEVICES` asked for when the process started.
    pub variable_at_start: Option<Text<1024>>,
}

impl State {
    const fn idle() -> Self {
        Self {
            active: false,
            mode: Mode::Off,
            rights: Rights { devices: Devices::All, ..Rights::NOTHING },
            broken: Text::new(),
            policy: Text::new(),
            rule: None,
            audit: Text::new(),
            calls: Calls::First,
            journald: false,
            syslog: false,
            seal: Seal::No,
            sealed: None,
            trace: Trace::Off,
            variable_at_start: None,
            redact: Text::new(),
            ignored: Text::new(),
            root: Text::new(),
            argv: Text::new(),
        }
    }

    /// Whether events have somewhere to go.
    pub fn has_sink(&self) -> bool {
        !self.audit.is_empty() || self.journald || self.syslog
    }

    /// Whether the process is held to its devices.
    pub fn enforces(&self) -> bool {
        self.active && self.mode == Mode::Enforce
    }
}

/// The state of a process that has no policy.
static IDLE: State = State::idle();

static STATE: OnceRef<'static, State> = OnceRef::new();

/// Room for one state; a second thread that decides at the same time asks the kernel for its own.
struct Storage(UnsafeCell<State>);

// SAFETY: the cell is used only by the one caller that wins `CLAIMED`.
unsafe impl Sync for Storage {}

static STORAGE: Storage = Storage(UnsafeCell::new(State::idle()));
static CLAIMED: AtomicBool = AtomicBool::new(false);

/// What holds for this process.
#[inline]
pub fn get() -> &'static State {
    STATE.get_or_init(make)
}

#[cold]
fn make() -> &'static State {
    let system = File::open(SYSTEM_POLICY);
    let asked = [names::POLICY, names::DEVICES, names::MODE, names::AUDIT, names::TRACE].iter().any(|name| environ::get(name).is_some());
    // Nearly every process without a policy ends here, after one system call.
    if matches!(system, Err(libc::ENOENT)) && !asked {
        return settle(&IDLE);
    }
    let Some(state) = storage() else {
        return settle(&IDLE);
    };
    decide(state, system);
    settle(state)
}

/// Where there is nothing to do, `cuDeviceGet` need not think about it.
fn settle(state: &'static State) -> &'static State {
    if !state.active {
        crate::driver::settle_all();
    }
    state
}

const SYSTEM_POLICY: &core::ffi::CStr = c"/etc/cuvisor/policy.toml";

/// An idle state of one's own. That in the library's data is there without being copied: only the pages that
/// a decision changes are ever touched.
fn storage() -> Option<&'static mut State> {
    if !CLAIMED.swap(true, Ordering::AcqRel) {
        // SAFETY: `CLAIMED` was false, so this is the only reference that is ever made to the cell.
        return Some(unsafe { &mut *STORAGE.0.get() });
    }
    let memory = Memory::map(size_of::<State>())?;
    // SAFETY: the mapping is at least as large as a state, page-aligned, and never given back.
    let place = unsafe { &mut *memory.start().cast::<MaybeUninit<State>>() };
    Some(place.write(State::idle()))
}

fn decide(state: &mut State, system: Result<File, i32>) {
    let trusted = !sys::is_privileged();
    let mut process = Process::new();
    facts::copy_arguments(&mut state.argv);
    state.mode = Mode::Enforce;
    let mut locked = !trusted;
    let mut reading = Reading { state, process: &mut process, error: false };
    let on_machine = reading.file(SYSTEM_POLICY, system, true);
    match on_machine {
        // A machine's broken file counts as locked: what it meant to forbid is not known.
        Found::Read { locked: says } => locked |= says || reading.error,
        Found::Unreadable => locked = true,
        Found::Missing => {}
    }
    if !locked && let Some(path) = environ::get(names::POLICY) {
        // A machine without a policy of its own has left the state as it was.
        if !matches!(on_machine, Found::Missing) {
            reading.reset();
        }
        match reading.named(path) {
            Found::Read { locked: says } => locked = says,
            Found::Missing | Found::Unreadable => {}
        }
    }
    if locked {
        // The file that POLICY names was used, if it is that file which is locked.
        let unused = environ::get(names::POLICY).is_some_and(|path| path != state.policy.as_bytes());
        let set = names::OVERRIDES.into_iter().filter(|name| environ::get(name).is_some());
        unused.then_some(names::POLICY).into_iter().chain(set).for_each(|name| push_name(&mut state.ignored, name));
    } else {
        if environ::get(names::DISABLE) == Some(b"1") {
            return;
        }
        variables(state);
    }
    if !state.broken.is_empty() {
        state.mode = Mode::Enforce;
        state.rights = Rights::NOTHING;
    }
    trace(state, trusted);
    let something = state.trace == Trace::Stderr || state.has_sink() || !matches!(state.rights.devices, Devices::All);
    state.active = state.mode != Mode::Off && something;
    if state.enforces() && state.seal != Seal::No {
        state.sealed = Some(seal::seal(state));
        let failed = matches!(state.sealed, Some(Sealed::Failed(_)));
        if failed && state.seal == Seal::Require {
            state.rights = Rights::NOTHING;
        }
    }
}

/// A trace changes nothing of what holds, so it is listened to under a locked policy, too. Where the policy is
/// off the process is watched, and nothing is logged.
fn trace(state: &mut State, trusted: bool) {
    let asked = environ::get(names::TRACE).filter(|_| trusted).map_or(Trace::Off, Trace::parse);
    if asked == Trace::Off {
        return;
    }
    state.trace = asked;
    state.variable_at_start = Applied::request_of(environ::get(names::VISIBLE_DEVICES), environ::get(names::APPLIED)).map(Text::of);
    if state.mode == Mode::Off {
        state.mode = Mode::Audit;
        state.rights = Rights { devices: Devices::All, ..Rights::NOTHING };
        state.audit = Text::new();
        (state.journald, state.syslog, state.seal) = (false, false, Seal::No);
    }
}

fn push_name(list: &mut Text<128>, name: &str) {
    if !list.is_empty() {
        list.push(b",");
    }
    list.push(name.as_bytes());
}

/// What the variables say, before the file.
fn variables(state: &mut State) {
    let mut any = false;
    if let Some(value) = environ::get(names::MODE) {
        any = true;
        match Mode::parse(value) {
            Some(mode) => state.mode = mode,
            None => complain(&mut state.broken, names::MODE, value, "unknown mode", "write enforce, audit or off"),
        }
    }
    if let Some(value) = environ::get(names::DEVICES) {
        any = true;
        match Devices::parse(value) {
            Ok(devices) => state.rights = Rights { devices, ..Rights::NOTHING },
            Err((at, fault)) => {
                let element = value.split(|c| *c == b',').nth(at).unwrap_or_default();
                complain(&mut state.broken, names::DEVICES, element, fault.message(), fault.remedy());
            }
        }
    }
    if let Some(value) = environ::get(names::SEAL) {
        match Seal::parse(value) {
            Some(seal) => state.seal = seal,
            None => complain(&mut state.broken, names::SEAL, value, "unknown kind of seal", "write 0, 1 or require"),
        }
    }
    if let Some(value) = environ::get(names::AUDIT) {
        any = true;
        match check_audit_file(value) {
            Ok(()) => state.audit = Text::of(value),
            Err(fault) => complain(&mut state.broken, names::AUDIT, value, fault.message(), fault.remedy()),
        }
    }
    if let Some(value) = environ::get(names::PROC_ROOT) {
        state.root = Text::of(value);
    }
    if any && state.policy.is_empty() {
        state.policy = Text::of(b"environment");
    }
}

fn complain(broken: &mut Text<640>, place: &str, text: &[u8], message: &str, remedy: &str) {
    if !broken.is_empty() {
        return;
    }
    for part in [place.as_bytes(), b": ", message.as_bytes()] {
        broken.push_some(part);
    }
    if !text.is_empty() {
        broken.push_some(b": `");
        broken.push_some(text.get(..text.len().min(120)).unwrap_or_default());
        broken.push_some(b"`");
    }
    broken.push_some(b"; ");
    broken.push_some(remedy.as_bytes());
}

/// Whether this library is the first of its kind that the process has (B21): a second copy passes every
/// call on. It is asked when CUDA is used, and not at every start; the environment that both copies
/// would write is the same.
pub fn is_first_copy() -> bool {
    static KNOWN: OnceBool = OnceBool::new();
    KNOWN.get_or_init(|| {
        let first = Module::of(loader::lookup(libc::RTLD_DEFAULT, c"cuvisor_marker"));
        let own = Module::of(is_first_copy as *const core::ffi::c_void);
        first.map(|module| module.base) == own.map(|module| module.base)
    })
}

/// What became of a policy file.
enum Found {
    Missing,
    Unreadable,
    Read { locked: bool },
}

/// The reading of a policy file into a state.
struct Reading<'s> {
    state: &'s mut State,
    process: &'s mut Process,
    error: bool,
}

impl Reading<'_> {
    fn reset(&mut self) {
        let argv = self.state.argv;
        *self.state = State { mode: Mode::Enforce, argv, ..State::idle() };
        self.error = false;
    }

    fn named(&mut self, path: &[u8]) -> Found {
        let mut name = Text::<4096>::of(path);
        name.push(b"\0");
        let missing = "the file that CUVISOR_POLICY names cannot be read";
        let remedy = "name a readable file, or unset the variable";
        match core::ffi::CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(c_path) if !path.is_empty() => match self.file(c_path, File::open(c_path), false) {
                Found::Missing => {
                    self.refuse(path, missing, remedy);
                    Found::Missing
                }
                found => found,
            },
            _ => {
                self.refuse(path, missing, remedy);
                Found::Missing
            }
        }
    }

    fn refuse(&mut self, path: &[u8], message: &str, remedy: &str) {
        self.state.policy = Text::of(path);
        let place = Text::<256>::of(path);
        complain(&mut self.state.broken, place.as_str(), b"", message, remedy);
    }

    fn file(&mut self, path: &core::ffi::CStr, opened: Result<File, i32>, is_system: bool) -> Found {
        let file = match opened {
            Ok(file) => file,
            Err(errno) if is_system && errno != libc::ENOENT => {
                self.refuse(path.to_bytes(), "the policy cannot be read by this user", "make it readable by everybody: chmod 0644");
                return Found::Unreadable;
            }
            Err(_) => return Found::Missing,
        };
        let Some(status) = file.status() else { return Found::Missing };
        let len = usize::try_from(status.len).unwrap_or(usize::MAX);
        let fault = if !status.is_regular {
            Some(("the policy is no regular file", "name a file"))
        } else if len > names::POLICY_LIMIT {
            Some(("the policy is larger than 4 MiB", "join rules that give the same devices"))
        } else if is_system && (status.uid != 0 || status.mode & 0o022 != 0) {
            Some(("the policy can be changed by others than root", "chown root:root and chmod 0644"))
        } else {
            None
        };
        if let Some((message, remedy)) = fault {
            self.refuse(path.to_bytes(), message, remedy);
            return Found::Unreadable;
        }
        self.state.policy = Text::of(path.to_bytes());
        let mut small = [const { MaybeUninit::uninit() }; 8192];
        if len <= small.len() {
            return self.content(&file, &mut small, len);
        }
        let Some(mut memory) = Memory::map(len) else {
            self.refuse(path.to_bytes(), "there is no memory to read the policy", "free some");
            return Found::Unreadable;
        };
        let found = self.content(&file, memory.bytes(), len);
        memory.release();
        found
    }

    fn content(&mut self, file: &File, room: &mut [MaybeUninit<u8>], len: usize) -> Found {
        let Some(text) = file.read_into(room, len) else {
            let path = self.state.policy;
            self.refuse(path.as_bytes(), "the policy cannot be read", "check the disk");
            return Found::Unreadable;
        };
        let mut finder = Finder { reading: self, text, found: None };
        let policy = read(text, &mut finder);
        let found = finder.found;
        self.take(&policy, found.as_ref());
        Found::Read { locked: policy.locked }
    }

    fn take(&mut self, policy: &Policy<'_>, found: Option<&Rule<'_>>) {
        let grant = found.map_or(policy.default, |rule| rule.grant);
        self.state.mode = found.and_then(|rule| rule.mode).unwrap_or(policy.mode);
        self.state.rights = Rights { devices: grant.devices.devices(), request: grant.request, emit: grant.emit };
        self.state.rule = found.map(|rule| Text::of(rule.name.unwrap_or(b"unnamed")));
        self.state.seal = grant.seal;
        self.state.audit = Text::of(policy.audit.file.unwrap_or_default());
        self.state.calls = policy.audit.calls;
        self.state.journald = policy.audit.journald;
        self.state.syslog = policy.audit.syslog;
        self.state.trace = if policy.audit.stack { Trace::Log } else { Trace::Off };
        for option in policy.audit.redact.iter().flat_map(|list| list.elements()) {
            self.state.redact.push_some(option.spot().text);
            self.state.redact.push_some(b"\0");
        }
    }
}

/// Keeps the first rule that matches this process, and the first fault.
struct Finder<'r, 's, 'a> {
    reading: &'r mut Reading<'s>,
    text: &'a [u8],
    found: Option<Rule<'a>>,
}

impl<'a> Sink<'a> for Finder<'_, '_, 'a> {
    fn rule(&mut self, rule: &Rule<'a>) {
        if self.found.is_none() && rule::mismatch(rule, self.reading.process).is_none() {
            self.found = Some(*rule);
        }
    }

    fn error(&mut self, error: Error<'a>) {
        if self.reading.error {
            return;
        }
        self.reading.error = true;
        let position = Position::of(self.text, error.offset);
        let mut place = Text::<320>::of(self.reading.state.policy.as_bytes());
        for number in [position.line, position.column] {
            place.push(b":");
            place.push_number(u64::try_from(number).unwrap_or_default());
        }
        let text = if matches!(error.fault, Fault::NotUtf8) { b"" } else { error.text };
        complain(&mut self.reading.state.broken, place.as_str(), text, error.fault.message(), error.fault.remedy());
    }
}
