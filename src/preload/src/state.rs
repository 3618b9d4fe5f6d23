//! What holds for this process: read and decided once, by whoever comes first.
//!
//! That is the constructor, or a hook where a constructor of the program's own libraries runs before
//! ours (B26). Nobody waits for anybody: threads that come at once each decide, the first result
//! stays, and a fork in between loses nothing (B19).

use core::sync::atomic::Ordering;
use cuvisor_policy::buffer::Text;
use cuvisor_policy::decide::{Applied, Rights};
use cuvisor_policy::device::Devices;
use cuvisor_policy::file::policy::{Calls, Mode, Seal, check_audit_file};
use cuvisor_policy::names;
use once_cell::race::OnceBool;

use crate::environ;
use crate::facts::Arguments;
use crate::hot::{self, hot, idle};
use crate::loader::{self, Module};
use crate::reading::{Found, Reading, Scratch, complain};
use crate::seal::{self, Sealed};
use crate::sys::{self, File};
use crate::trace::Trace;

/// What holds for this process. What a decision writes stands first and begins, behind [`hot::Hot`], in one page: the
/// devices lie in it whole, the two texts after them as far as they are short. The rest is written where something is wrong.
#[derive(Clone, Copy)]
#[repr(C)]
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
    /// Whether events tell where they came from.
    pub trace: Trace,
    /// The name of the rule that matched.
    pub rule: Option<Text<64>>,
    /// Arguments as at exec time, each with its NUL.
    pub argv: Arguments,
    /// Which devices, and how the request counts.
    pub rights: Rights,
    /// The policy's file, or `environment`.
    pub policy: Text<256>,
    /// The audit file as the policy names it; empty for none.
    pub audit: Text<512>,
    /// What became of the seal; in one page, the next.
    pub sealed: Sealed,
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
    /// The state of a process that has no policy: nothing but zeros, so that it takes no room in the library's file.
    pub const fn idle() -> Self {
        Self {
            active: false,
            mode: Mode::Enforce,
            rights: Rights { devices: Devices::All, ..Rights::NOTHING },
            broken: Text::new(),
            policy: Text::new(),
            rule: None,
            audit: Text::new(),
            calls: Calls::First,
            journald: false,
            syslog: false,
            seal: Seal::No,
            sealed: Sealed::Unasked,
            trace: Trace::Off,
            variable_at_start: None,
            redact: Text::new(),
            ignored: Text::new(),
            root: Text::new(),
            argv: Arguments::NONE,
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

/// What holds for this process.
#[inline]
pub fn get() -> &'static State {
    hot().chosen.get_or_init(make)
}

#[cold]
fn make() -> &'static State {
    let system = File::open(SYSTEM_POLICY);
    let asked = [names::POLICY, names::DEVICES, names::MODE, names::AUDIT, names::TRACE].iter().any(|name| environ::get(name).is_some());
    // Nearly every process without a policy ends here, after one system call.
    if matches!(system, Err(libc::ENOENT)) && !asked {
        return settle(if claim() { as_it_is() } else { idle() });
    }
    made(system)
}

/// It stands apart from `make`, whose frame would otherwise have this one's size in every process.
#[inline(never)]
fn made(system: Result<File, i32>) -> &'static State {
    let Some((state, scratch)) = storage() else {
        return settle(idle());
    };
    decide(state, scratch, system);
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

/// An idle state of one's own, and a scratch. Those in the library's data are there without being copied: only the
/// pages that a decision changes are ever touched.
fn storage() -> Option<(&'static mut State, &'static mut Scratch)> {
    if claim() {
        // SAFETY: the claim was won, so this is the only reference that is ever made to the cell.
        let state = unsafe { &mut *hot::room().place() };
        // SAFETY: as above.
        return Some((state, unsafe { &mut *hot::scratch() }));
    }
    own_storage()
}

/// The same for a thread that decides while another one does.
#[cold]
#[inline(never)]
fn own_storage() -> Option<(&'static mut State, &'static mut Scratch)> {
    Some((sys::mapped(*idle())?, sys::mapped(Scratch::EMPTY)?))
}

/// Claims the library's own room for a state; true for the first caller alone.
fn claim() -> bool {
    !hot().claimed.swap(true, Ordering::AcqRel)
}

/// The library's own state, claimed and left as it is.
fn as_it_is() -> &'static State {
    // SAFETY: the claim was won, and nobody changes the state any more.
    unsafe { &*hot::room().place() }
}

#[inline(never)]
fn decide(state: &mut State, scratch: &mut Scratch, system: Result<File, i32>) {
    let trusted = !sys::is_privileged();
    state.argv = Arguments::copy();
    state.mode = Mode::Enforce;
    let mut locked = !trusted;
    let mut reading = Reading { state, scratch, error: false };
    let on_machine = reading.file(SYSTEM_POLICY, system, true);
    match on_machine {
        // A machine's broken file counts as locked: what it meant to forbid is not known.
        Found::Read { locked: says } => locked |= says || reading.error,
        Found::Unreadable => locked = true,
        Found::Missing => {}
    }
    if !locked && let Some(path) = environ::get_c(names::POLICY) {
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
        if names::OVERRIDES.iter().any(|name| environ::get(name).is_some()) {
            variables(state);
        }
    }
    if !state.broken.is_empty() {
        state.mode = Mode::Enforce;
        state.rights = Rights::NOTHING;
    }
    if trusted && environ::get(names::TRACE).is_some() {
        trace(state);
    }
    let something = state.trace == Trace::Stderr || state.has_sink() || !matches!(state.rights.devices, Devices::All);
    state.active = state.mode != Mode::Off && something;
    if state.enforces() && state.seal != Seal::No {
        seal(state, scratch);
    }
}

#[inline(never)]
fn seal(state: &mut State, scratch: &mut Scratch) {
    state.sealed = seal::seal(state, scratch);
    let failed = matches!(state.sealed, Sealed::Failed(_));
    if failed && state.seal == Seal::Require {
        state.rights = Rights::NOTHING;
    }
}

/// A trace changes nothing of what holds, so it is listened to under a locked policy, too. Where the policy is
/// off the process is watched, and nothing is logged.
#[inline(never)]
fn trace(state: &mut State) {
    let asked = environ::get(names::TRACE).map_or(Trace::Off, Trace::parse);
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
#[inline(never)]
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
        match state.rights.devices.read(value) {
            Ok(()) => (state.rights.request, state.rights.emit) = (Rights::NOTHING.request, Rights::NOTHING.emit),
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
            Ok(()) => state.audit.set(value),
            Err(fault) => complain(&mut state.broken, names::AUDIT, value, fault.message(), fault.remedy()),
        }
    }
    if let Some(value) = environ::get(names::PROC_ROOT) {
        state.root.set(value);
    }
    if any && state.policy.is_empty() {
        state.policy.set(b"environment");
    }
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
