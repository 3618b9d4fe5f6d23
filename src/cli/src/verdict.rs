//! What the policy says of a process, by the library's own order of files and variables.

use crate::machine;
use crate::process::Running;
use crate::source::{self, Source, Unread};
use crate::subject::Subject;
use anyhow::Result;
use cuvisor_policy::decide::Rights;
use cuvisor_policy::device::Devices;
use cuvisor_policy::file::policy::{Mode, Seal, check_audit_file};
use cuvisor_policy::inventory::Inventory;
use cuvisor_policy::names;
use cuvisor_policy::rule::{self, Condition, Facts};
use cuvisor_policy::share::{self, Share};
use serde::Serialize;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl Verdict {
    /// Notes that a file is no policy, and why.
    fn refuse(&mut self, path: PathBuf, reason: String) {
        self.policy = Some(path);
        self.broken = Some(reason);
    }

    /// Whether the policy gives the GPU of this index, or an instance of it; none stands for one that the machine's
    /// inventory lacks. `root` stands for `/`.
    pub fn allows(&self, root: &Path, inventory: &Inventory, index: Option<usize>) -> bool {
        let devices = &self.rights.devices;
        if self.mode != Mode::Enforce || matches!(devices, Devices::All) {
            return true;
        }
        let gpu = index.and_then(|index| Some((index, inventory.get(index)?)));
        gpu.is_some_and(|(index, gpu)| share::of(devices, inventory, index, || machine::instances(root, gpu) > 0) != Share::Nothing)
    }
}

/// A rule that does not match.
#[derive(Serialize)]
pub struct Rejected {
    /// Its name or line.
    pub rule: String,
    /// The condition that failed.
    pub because: &'static str,
}

/// What holds for a process.
pub struct Verdict {
    /// The file; none where there is none.
    pub policy: Option<PathBuf>,
    /// Enforce, audit or off.
    pub mode: Mode,
    /// Which devices, and how the request counts.
    pub rights: Rights,
    /// Whether the kernel holds it, too.
    pub seal: Seal,
    /// The rule that matches; none for the default.
    pub rule: Option<String>,
    /// The rules before it, and which condition failed.
    pub rejected: Vec<Rejected>,
    /// Variables that do not count, the policy being locked.
    pub ignored: Vec<String>,
    /// The audit file, with its placeholders.
    pub audit: Option<String>,
    locked: bool,
    /// Why the policy is broken.
    pub broken: Option<String>,
}

/// What holds for a subject; a file that is given goes before all others.
///
/// # Errors
/// The file that was given cannot be read.
pub fn of(subject: &mut Subject, given: Option<&Path>) -> Result<Verdict> {
    let mut found = find(subject, given)?;
    for name in names::OVERRIDES {
        let Some(value) = subject.variable(name.as_bytes()).map(<[u8]>::to_vec) else { continue };
        if found.locked {
            found.ignored.push(name.to_owned());
            continue;
        }
        let fault = match name {
            names::DEVICES => match Devices::parse(&value) {
                Ok(devices) => {
                    found.rights = Rights { devices, ..Rights::NOTHING };
                    None
                }
                Err((_, fault)) => Some((fault.message(), fault.remedy())),
            },
            names::MODE => match Mode::parse(&value) {
                Some(mode) => {
                    found.mode = mode;
                    None
                }
                None => Some(("unknown mode", "write enforce, audit or off")),
            },
            names::SEAL => match Seal::parse(&value) {
                Some(seal) => {
                    found.seal = seal;
                    None
                }
                None => Some(("unknown kind of seal", "write 0, 1 or require")),
            },
            names::AUDIT => {
                found.audit = Some(String::from_utf8_lossy(&value).into_owned());
                check_audit_file(&value).err().map(|fault| (fault.message(), fault.remedy()))
            }
            names::DISABLE if value == b"1" => {
                found.mode = Mode::Off;
                None
            }
            _ => None,
        };
        if let Some((message, remedy)) = fault {
            found.broken.get_or_insert(format!("{name}: {message}; {remedy}"));
        }
    }
    if found.broken.is_some() {
        found.mode = Mode::Enforce;
        found.rights = Rights::NOTHING;
    }
    Ok(found)
}

/// The file that holds for the subject, by the library's order: the system's if it is locked or broken,
/// else the one that the variable names, else the system's. A file that was given goes before all.
fn find(subject: &mut Subject, given: Option<&Path>) -> Result<Verdict> {
    let mut found = Verdict {
        policy: None,
        mode: Mode::Enforce,
        rights: Rights { devices: Devices::All, ..Rights::NOTHING },
        seal: Seal::No,
        rule: None,
        rejected: Vec::new(),
        ignored: Vec::new(),
        audit: None,
        locked: false,
        broken: None,
    };
    if let Some(path) = given {
        let text = source::load(path)?;
        take(&mut found, subject, path, &text);
        return Ok(found);
    }
    let system = Path::new(names::SYSTEM_POLICY);
    match subject.policy(system, true) {
        Ok(text) => take(&mut found, subject, system, &text),
        Err(Unread::Missing(_)) => {}
        Err(Unread::Refused(reason)) => found.refuse(subject.shown(system), reason),
    }
    found.locked |= found.broken.is_some();
    if found.locked {
        return Ok(found);
    }
    if let Some(named) = subject.variable(names::POLICY.as_bytes()).map(|v| PathBuf::from(OsStr::from_bytes(v))) {
        found.rejected.clear();
        match subject.policy(&named, false) {
            Ok(text) => take(&mut found, subject, &named, &text),
            Err(Unread::Missing(error)) => {
                found.refuse(subject.shown(&named), format!("{}: {error}; name a readable file, or unset the variable", named.display()));
            }
            Err(Unread::Refused(reason)) => found.refuse(subject.shown(&named), reason),
        }
    }
    Ok(found)
}

/// What holds for a process that runs, and the GPUs that an index in the policy numbers: those of its container where the
/// library in it finds a policy there, else those of the machine, whose policy such a process escapes.
///
/// # Errors
/// None that is known: no file is given.
pub fn of_running(running: &Running, machine: &Inventory) -> Result<(Verdict, Inventory)> {
    let own = of(&mut Subject::running(running), None)?;
    if running.inside.is_elsewhere && own.policy.is_none() {
        let of_machine = of(&mut Subject::from_outside(running), None)?;
        if of_machine.policy.is_some() {
            return Ok((of_machine, *machine));
        }
    }
    Ok((own, running.inside.inventory(machine)))
}

fn take(found: &mut Verdict, subject: &mut Subject, path: &Path, text: &[u8]) {
    let shown = subject.shown(path);
    let (parsed, source) = (source::parse(text), Source::new(&shown, text));
    found.policy = Some(shown.clone());
    found.broken = parsed.errors.first().map(|error| source.show(error).trim_end().to_owned());
    found.locked = parsed.policy.locked;
    found.audit = parsed.policy.audit.file.map(|file| String::from_utf8_lossy(file).into_owned());
    let mut matched = None;
    for rule in &parsed.rules {
        match rule::mismatch(rule, subject) {
            None => {
                matched = Some(rule);
                break;
            }
            Some(condition) => found.rejected.push(Rejected { rule: source.rule_name(rule), because: Condition::key(condition) }),
        }
    }
    let grant = matched.map_or(parsed.policy.default, |rule| rule.grant);
    found.rule = matched.map(|rule| source.rule_name(rule));
    found.mode = matched.and_then(|rule| rule.mode).unwrap_or(parsed.policy.mode);
    found.seal = grant.seal;
    found.rights = Rights { devices: grant.devices.devices(), request: grant.request, emit: grant.emit };
}
