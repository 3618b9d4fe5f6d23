//! The policy file: opened, checked, and read into the state by the parser that the command uses, too.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use cuvisor_policy::buffer::Text;
use cuvisor_policy::file::error::{Error, Fault, Position};
use cuvisor_policy::file::policy::{Mode, Policy, Rule};
use cuvisor_policy::file::reader::{Sink, read};
use cuvisor_policy::{names, rule};

use crate::facts::Process;
use crate::hot::idle;
use crate::state::State;
use crate::sys::{File, Memory};
use crate::trace::Trace;

/// What a decision needs and nobody afterwards. On the stack its pages would be touched one by one by the compiler's
/// probes; here only those that hold something are.
#[repr(C)]
pub struct Scratch {
    text: [MaybeUninit<u8>; 8192],
    process: Process,
}

impl Scratch {
    /// Nothing in it.
    pub const EMPTY: Self = Self { text: [const { MaybeUninit::uninit() }; 8192], process: Process::UNKNOWN };
}

/// What became of a policy file.
pub enum Found {
    /// There is none.
    Missing,
    /// It is there and says nothing that may count.
    Unreadable,
    /// It was read; whether it is locked.
    Read {
        /// `locked = true`.
        locked: bool,
    },
}

/// The reading of a policy file into a state.
pub struct Reading<'s> {
    /// What is read into.
    pub state: &'s mut State,
    /// Where it is read.
    pub scratch: &'s mut Scratch,
    /// Whether a file had a fault.
    pub error: bool,
}

impl Reading<'_> {
    /// Forgets a file that was read before.
    #[cold]
    #[inline(never)]
    pub fn reset(&mut self) {
        let argv = self.state.argv;
        *self.state = *idle();
        (self.state.mode, self.state.argv) = (Mode::Enforce, argv);
        self.error = false;
    }

    /// Reads the file that the variable names.
    pub fn named(&mut self, path: &CStr) -> Found {
        let found = if path.is_empty() { Found::Missing } else { self.file(path, File::open(path), false) };
        if matches!(found, Found::Missing) {
            self.refuse(
                path.to_bytes(),
                "the file that CUVISOR_POLICY names cannot be read",
                "name a readable file, or unset the variable",
            );
        }
        found
    }

    #[cold]
    #[inline(never)]
    fn refuse(&mut self, path: &[u8], message: &str, remedy: &str) {
        self.state.policy.set(path);
        let place = Text::<256>::of(path);
        complain(&mut self.state.broken, place.as_str(), b"", message, remedy);
    }

    /// Reads a file that was opened, or could not be.
    pub fn file(&mut self, path: &CStr, opened: Result<File, i32>, is_system: bool) -> Found {
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
        self.state.policy.set(path.to_bytes());
        if len > self.scratch.text.len() {
            return self.large(&file, len);
        }
        let Scratch { process, text } = &mut *self.scratch;
        let text = file.read_into(text, len);
        content(self.state, process, &mut self.error, text)
    }

    /// A file that needs memory of its own.
    #[inline(never)]
    fn large(&mut self, file: &File, len: usize) -> Found {
        let Some(mut memory) = Memory::map(len) else {
            let path = self.state.policy;
            self.refuse(path.as_bytes(), "there is no memory to read the policy", "free some");
            return Found::Unreadable;
        };
        let text = file.read_into(memory.bytes(), len);
        let found = content(self.state, &mut self.scratch.process, &mut self.error, text);
        memory.release();
        found
    }
}

/// Reads the text of a policy file, if it could be had, into the state.
#[inline(never)]
fn content(state: &mut State, process: &mut Process, error: &mut bool, text: Option<&[u8]>) -> Found {
    let Some(text) = text else {
        let path = state.policy;
        complain(&mut state.broken, path.as_str(), b"", "the policy cannot be read", "check the disk");
        return Found::Unreadable;
    };
    let mut finder = Finder { state, process, error, text, found: None };
    let policy = read(text, &mut finder);
    let found = finder.found;
    take(state, &policy, found.as_ref());
    Found::Read { locked: policy.locked }
}

#[inline(never)]
fn take(state: &mut State, policy: &Policy<'_>, found: Option<&Rule<'_>>) {
    let grant = found.map_or(&policy.default, |rule| &rule.grant);
    state.mode = found.and_then(|rule| rule.mode).unwrap_or(policy.mode);
    grant.devices.put(&mut state.rights.devices);
    (state.rights.request, state.rights.emit) = (grant.request, grant.emit);
    state.rule = found.map(|rule| Text::of(rule.name.unwrap_or(b"unnamed")));
    state.seal = grant.seal;
    state.audit.set(policy.audit.file.unwrap_or_default());
    state.calls = policy.audit.calls;
    state.journald = policy.audit.journald;
    state.syslog = policy.audit.syslog;
    state.trace = if policy.audit.stack { Trace::Log } else { Trace::Off };
    for option in policy.audit.redact.iter().flat_map(|list| list.elements()) {
        state.redact.push_some(option.spot().text);
        state.redact.push_some(b"\0");
    }
}

/// Keeps the first rule that matches this process, and the first fault.
struct Finder<'s, 'a> {
    state: &'s mut State,
    process: &'s mut Process,
    error: &'s mut bool,
    text: &'a [u8],
    found: Option<Rule<'a>>,
}

impl<'a> Sink<'a> for Finder<'_, 'a> {
    fn rule(&mut self, rule: &Rule<'a>) {
        if self.found.is_none() && rule::mismatch(rule, self.process).is_none() {
            self.found = Some(*rule);
        }
    }

    #[cold]
    #[inline(never)]
    fn error(&mut self, error: Error<'a>) {
        if core::mem::replace(self.error, true) {
            return;
        }
        let position = Position::of(self.text, error.offset);
        let mut place = Text::<320>::of(self.state.policy.as_bytes());
        for number in [position.line, position.column] {
            place.push(b":");
            place.push_number(u64::try_from(number).unwrap_or_default());
        }
        let text = if matches!(error.fault, Fault::NotUtf8) { b"" } else { error.text };
        complain(&mut self.state.broken, place.as_str(), text, error.fault.message(), error.fault.remedy());
    }
}

/// Notes why the policy is broken, the first reason only.
#[cold]
#[inline(never)]
pub fn complain(broken: &mut Text<640>, place: &str, text: &[u8], message: &str, remedy: &str) {
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
