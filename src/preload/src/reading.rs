//! The policy file: opened, checked, and read into the state by the parser that the command uses, too.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use cuvisor_policy::buffer::Text;
use cuvisor_policy::file::error::{Error, Fault, Position};
use cuvisor_policy::file::policy::{Audit, Grant, Mode, Part, Rule};
use cuvisor_policy::file::reader::{Progress, Sink};
use cuvisor_policy::file::refusal::{self, Refusal};
use cuvisor_policy::inventory::Inventory;
use cuvisor_policy::rule;

use crate::facts::{Process, Texts};
use crate::hot::{TEXTS, idle};
use crate::state::State;
use crate::sys::{Buffer, File, Memory, Window};
use crate::trace::Trace;

/// The most of a policy that is read at a time, in bytes: with the texts before it two pages.
const WINDOW: usize = 8192 - TEXTS;
/// What of it lies in the page of the texts, which is touched in any case.
const FIRST_PAGE: usize = 4096 - TEXTS;

const UNREADABLE: Refusal = ("the policy cannot be read", "check the disk");
const CHANGED: Refusal = ("the policy became shorter while it was read", "write a new file and rename it to this name");

/// What a decision needs and nobody afterwards. On the stack its pages would be touched one by one by the compiler's
/// probes; here only those that hold something are.
#[repr(C)]
pub struct Scratch {
    text: [MaybeUninit<u8>; WINDOW],
    facts: Texts,
    /// The machine's GPUs, where they are read: empty before.
    inventory: Inventory,
}

impl Scratch {
    /// Nothing in it.
    pub const EMPTY: Self = Self { text: [const { MaybeUninit::uninit() }; WINDOW], facts: Texts::UNKNOWN, inventory: Inventory::new() };

    /// What the seal needs, once the policy has been read: an empty inventory, and room.
    pub fn for_the_seal(&mut self) -> (&mut Inventory, &mut Buffer) {
        (&mut self.inventory, self.text.get_mut(..FIRST_PAGE).unwrap_or_default())
    }
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
                let (message, remedy) = refusal::FORBIDDEN;
                self.refuse(path.to_bytes(), message, remedy);
                return Found::Unreadable;
            }
            Err(_) => return Found::Missing,
        };
        let Some(status) = file.status() else { return Found::Missing };
        let len = usize::try_from(status.len).unwrap_or(usize::MAX);
        if let Some((message, remedy)) = refusal::of(&status, is_system) {
            self.refuse(path.to_bytes(), message, remedy);
            return Found::Unreadable;
        }
        self.state.policy.set(path.to_bytes());
        self.content(&file, len)
    }

    /// Reads the text into the state, if it can be had: piece by piece, so that a large policy needs no more memory
    /// than a small one.
    #[inline(never)]
    fn content(&mut self, file: &File, len: usize) -> Found {
        let Scratch { text, facts, .. } = &mut *self.scratch;
        let process = Process::new(facts);
        let mut finder =
            Finder { state: self.state, process, file, error: &mut self.error, mode: Mode::Enforce, found: None, locked: false };
        let mut window = Window::new(text);
        let mut progress = Progress::default();
        let mut left = len;
        let outcome = loop {
            match window.fill(file, left) {
                None => break Err(UNREADABLE),
                // What is left of a file that is being rewritten must not pass for the whole.
                Some(0) if left > 0 => break Err(CHANGED),
                Some(count) => left = left.saturating_sub(count),
            }
            if left == 0 {
                progress.read(window.text(), &mut finder);
                break Ok(());
            }
            match Progress::whole_tables(window.text()) {
                0 => break rest(file, &window, left, &mut progress, &mut finder),
                whole => {
                    progress.read(window.text().get(..whole).unwrap_or_default(), &mut finder);
                    window.forget(whole);
                }
            }
        };
        let Finder { mode, found, locked, .. } = finder;
        if let Err((message, remedy)) = outcome {
            let path = self.state.policy;
            self.refuse(path.as_bytes(), message, remedy);
            return Found::Unreadable;
        }
        self.state.mode = found.flatten().unwrap_or(mode);
        Found::Read { locked }
    }
}

/// Reads all that is left, where a table is larger than the window: in memory of its own.
#[inline(never)]
fn rest(file: &File, window: &Window<'_>, left: usize, progress: &mut Progress, finder: &mut Finder<'_>) -> Result<(), Refusal> {
    let Some(mut memory) = Memory::map(window.text().len().saturating_add(left)) else {
        return Err(("there is no memory to read the policy", "free some"));
    };
    let mut larger = Window::new(memory.bytes());
    larger.put(window);
    let outcome = match larger.fill(file, left) {
        None => Err(UNREADABLE),
        Some(count) if count < left => Err(CHANGED),
        Some(_) => {
            progress.read(larger.text(), finder);
            Ok(())
        }
    };
    memory.release();
    outcome
}

/// Puts what holds for this process into the state: what stands once, the first rule that matches, the first fault.
struct Finder<'s> {
    state: &'s mut State,
    process: Process<'s>,
    file: &'s File,
    error: &'s mut bool,
    /// The mode of the file.
    mode: Mode,
    /// Whether a rule has matched, and its own mode.
    found: Option<Option<Mode>>,
    locked: bool,
}

impl Finder<'_> {
    fn grant(&mut self, grant: &Grant<'_>) {
        grant.devices.put(&mut self.state.rights.devices);
        (self.state.rights.request, self.state.rights.emit) = (grant.request, grant.emit);
        self.state.seal = grant.seal;
    }

    fn audit(&mut self, audit: &Audit<'_>) {
        let state = &mut *self.state;
        if let Some(file) = audit.file {
            state.audit.set(file);
        }
        state.calls = audit.calls;
        state.journald = audit.journald;
        state.syslog = audit.syslog;
        state.trace = if audit.stack { Trace::Log } else { Trace::Off };
        for option in audit.redact.iter().flat_map(|list| list.elements()) {
            state.redact.push_some(option.text());
            state.redact.push_some(b"\0");
        }
    }

    #[inline(never)]
    fn take(&mut self, rule: &Rule<'_>) {
        self.found = Some(rule.mode);
        self.grant(&rule.grant);
        self.state.rule = Some(Text::of(rule.name.unwrap_or(b"unnamed")));
    }
}

impl<'a> Sink<'a> for Finder<'_> {
    #[inline(never)]
    fn part(&mut self, part: Part<'a>) {
        match part {
            Part::Mode(mode) => self.mode = mode,
            Part::Locked(locked) => self.locked = locked,
            Part::Audit(audit) => self.audit(&audit),
            Part::Default(grant) if self.found.is_none() => self.grant(&grant),
            Part::Default(_) => {}
        }
    }

    fn rule(&mut self, rule: &Rule<'a>) {
        if self.found.is_none() && rule::mismatch(rule, &mut self.process).is_none() {
            self.take(rule);
        }
    }

    #[cold]
    #[inline(never)]
    fn error(&mut self, error: Error<'a>) {
        if core::mem::replace(self.error, true) {
            return;
        }
        let position = position(self.file, error.offset);
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

/// The place of an offset in a file, which is read again up to there: it may lie pieces ago.
#[cold]
fn position(file: &File, offset: usize) -> Position {
    let mut position = Position::START;
    let mut buffer = [0u8; 512];
    let mut at = 0usize;
    while at < offset {
        let most = offset.saturating_sub(at).min(buffer.len());
        let count = buffer.get_mut(..most).and_then(|room| file.read_at(at, room)).unwrap_or_default();
        if count == 0 {
            break;
        }
        position.pass(buffer.get(..count).unwrap_or_default());
        at = at.saturating_add(count);
    }
    position
}
