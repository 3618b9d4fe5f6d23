//! `cuvisor explain`: which rule a program meets, and what it will see.

use crate::args::Explain;
use crate::exit::Exit;
use crate::{machine, source};
use anyhow::{Context, Result, bail};
use cuvisor_policy::decide::{self, Applied, Decision, Rights};
use cuvisor_policy::device::Devices;
use cuvisor_policy::file::policy::{Mode, check_audit_file};
use cuvisor_policy::inventory::Inventory;
use cuvisor_policy::names;
use cuvisor_policy::rule::{self, Condition, Facts};
use cuvisor_policy::visible::{self, End, Reading};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// All that is told, as `--json` gives it.
#[derive(Serialize)]
struct Explanation {
    policy: Option<String>,
    mode: &'static str,
    /// The name of the rule that matches; null for the default.
    rule: Option<String>,
    matched: &'static str,
    rejected: Vec<Rejected>,
    ignored: Vec<String>,
    broken: Option<String>,
    devices: String,
    request: Option<String>,
    tokens: Vec<Token>,
    effective: Option<String>,
    reason: Option<&'static str>,
    result: Option<i32>,
    sees: Option<Vec<Seen>>,
}

#[derive(Serialize)]
struct Rejected {
    rule: String,
    because: &'static str,
}

#[derive(Serialize)]
struct Token {
    text: String,
    reading: String,
}

#[derive(Serialize)]
struct Seen {
    ordinal: usize,
    index: usize,
    uuid: Option<String>,
    pci: String,
    model: Option<String>,
}

/// Explains, and runs nothing.
///
/// # Errors
/// The policy cannot be read, or an option makes no sense.
pub fn run(args: &Explain) -> Result<Exit> {
    let mut subject = Subject::of(args)?;
    let inventory = args.gpus.map_or_else(|| machine::inventory(&subject.root()), machine::imagined);
    let explanation = explain(&mut subject, args.policy.as_deref(), &inventory)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&explanation)?);
    } else {
        print!("{}", text(&explanation, inventory.is_empty()));
    }
    Ok(if explanation.broken.is_some() { Exit::Found } else { Exit::Success })
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What holds before and after a file has been read.
struct Found {
    policy: Option<PathBuf>,
    mode: Mode,
    rights: Rights,
    rule: Option<String>,
    rejected: Vec<Rejected>,
    locked: bool,
    broken: Option<String>,
}

fn explain(subject: &mut Subject, given: Option<&Path>, inventory: &Inventory) -> Result<Explanation> {
    let mut found = find(subject, given)?;
    let mut ignored = Vec::new();
    for name in [names::DEVICES, names::MODE, names::AUDIT, names::DISABLE, names::PROC_ROOT] {
        let Some(value) = subject.variable(name.as_bytes()).map(<[u8]>::to_vec) else { continue };
        if found.locked {
            ignored.push(name.to_owned());
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
            names::AUDIT => check_audit_file(&value).err().map(|fault| (fault.message(), fault.remedy())),
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
    let present = subject.variable(names::VISIBLE_DEVICES.as_bytes()).map(<[u8]>::to_vec);
    let applied = subject.variable(names::APPLIED.as_bytes()).map(<[u8]>::to_vec);
    let enforced = found.mode == Mode::Enforce;
    let request = if enforced { Applied::request_of(present.as_deref(), applied.as_deref()) } else { present.as_deref() };
    let decision = if enforced { decide::decide(&found.rights, request, Some(inventory)) } else { Decision { list: None, reason: None } };
    let effective = decision.list.map(|list| list.as_bytes().to_vec()).or_else(|| present.clone());
    let seen = visible::read(effective.as_deref(), inventory);
    let known = !inventory.is_empty();
    Ok(Explanation {
        policy: found.policy.map(|path| path.display().to_string()),
        mode: found.mode.word(),
        matched: if found.rule.is_some() { "rule" } else { "default" },
        rule: found.rule,
        rejected: found.rejected,
        ignored,
        broken: found.broken,
        devices: lossy(found.rights.devices.text()),
        request: request.map(lossy),
        tokens: request.map(tokens).unwrap_or_default(),
        effective: effective.as_deref().map(lossy),
        reason: decision.reason.map(decide::Reason::text),
        result: known.then(|| seen.answer.code()),
        sees: known.then(|| seen.indices().iter().enumerate().filter_map(|(ordinal, index)| sight(inventory, ordinal, *index)).collect()),
    })
}

/// The file that holds for the subject, by the library's order: the system's if it is locked or broken,
/// else the one that the variable names, else the system's. A file that was given goes before all.
fn find(subject: &mut Subject, given: Option<&Path>) -> Result<Found> {
    let mut found = Found {
        policy: None,
        mode: Mode::Enforce,
        rights: Rights { devices: Devices::All, ..Rights::NOTHING },
        rule: None,
        rejected: Vec::new(),
        locked: false,
        broken: None,
    };
    if let Some(path) = given {
        let text = source::load(path)?;
        take(&mut found, subject, path, &text);
        return Ok(found);
    }
    let system = Path::new(names::SYSTEM_POLICY);
    if let Ok(text) = std::fs::read(system) {
        take(&mut found, subject, system, &text);
        found.locked |= found.broken.is_some();
        if found.locked {
            return Ok(found);
        }
    }
    if let Some(named) = subject.variable(names::POLICY.as_bytes()).map(|v| PathBuf::from(OsStr::from_bytes(v))) {
        found.rejected.clear();
        match std::fs::read(&named) {
            Ok(text) => take(&mut found, subject, &named, &text),
            Err(error) => {
                found.broken = Some(format!("{}: {error}; name a readable file, or unset the variable", named.display()));
                found.policy = Some(named);
            }
        }
    }
    Ok(found)
}

fn take(found: &mut Found, subject: &mut Subject, path: &Path, text: &[u8]) {
    let parsed = source::parse(text);
    found.policy = Some(path.to_owned());
    found.broken = parsed.errors.first().map(|error| source::show(path, text, error).trim_end().to_owned());
    found.locked = parsed.policy.locked;
    let mut matched = None;
    for rule in &parsed.rules {
        match rule::mismatch(rule, subject) {
            None => {
                matched = Some(rule);
                break;
            }
            Some(condition) => found.rejected.push(Rejected { rule: source::rule_name(text, rule), because: Condition::key(condition) }),
        }
    }
    let grant = matched.map_or(parsed.policy.default, |rule| rule.grant);
    found.rule = matched.map(|rule| source::rule_name(text, rule));
    found.mode = matched.and_then(|rule| rule.mode).unwrap_or(parsed.policy.mode);
    found.rights = Rights { devices: grant.devices.devices(), request: grant.request, emit: grant.emit };
}

fn sight(inventory: &Inventory, ordinal: usize, index: usize) -> Option<Seen> {
    let gpu = inventory.get(index)?;
    Some(Seen {
        ordinal,
        index,
        uuid: gpu.uuid.map(|uuid| format!("GPU-{}", lossy(&uuid.text()))),
        pci: lossy(gpu.pci.text().as_bytes()),
        model: (!gpu.model.is_empty()).then(|| lossy(gpu.model.as_bytes())),
    })
}

/// Each element of the request with the driver's reading of it.
fn tokens(request: &[u8]) -> Vec<Token> {
    let reading = |element: visible::Element<'_>| {
        let ignored = if element.ignored.is_empty() { String::new() } else { format!(" and ignores `{}`", lossy(element.ignored)) };
        match element.reading {
            Reading::Index(index) => format!("the driver reads {index}{ignored}"),
            Reading::Uuid(prefix) if prefix.digits().is_empty() => "the driver reads the beginning of every UUID".to_owned(),
            Reading::Uuid(prefix) if !prefix.is_whole() => format!("the driver reads the beginning {} of a UUID", lossy(prefix.digits())),
            Reading::Uuid(prefix) => format!("the driver reads the UUID {}{ignored}", lossy(prefix.digits())),
            Reading::Mig(_) => "the driver reads a MIG device".to_owned(),
            Reading::End(End::Negative) => "the list ends here: the number is below zero".to_owned(),
            Reading::End(End::NotAUuid) => "the list ends here: this does not begin a UUID".to_owned(),
            Reading::End(End::NotADevice) => "the list ends here: this is no device".to_owned(),
        }
    };
    visible::elements(request).map(|element| Token { text: lossy(element.text), reading: reading(element) }).collect()
}

fn text(e: &Explanation, unknown_machine: bool) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name:<11}{value}"));
    let or = |value: &Option<String>, none: &str| match value.as_deref() {
        None => none.to_owned(),
        Some("") => "\"\"".to_owned(),
        Some(text) => text.to_owned(),
    };
    line("policy", or(&e.policy, "none"));
    if let Some(broken) = &e.broken {
        line("broken", broken.replace('\n', "\n           "));
    }
    line("mode", e.mode.to_owned());
    for rejected in &e.rejected {
        line("not", format!("rule {}: its {} does not match", rejected.rule, rejected.because));
    }
    line("matched", e.rule.as_ref().map_or_else(|| "[default]".to_owned(), |name| format!("rule {name}")));
    line("devices", e.devices.clone());
    if !e.ignored.is_empty() {
        line("ignored", format!("{} (the policy is locked)", e.ignored.join(", ")));
    }
    line("request", or(&e.request, "unset"));
    for token in &e.tokens {
        line("", format!("`{}`: {}", token.text, token.reading));
    }
    line("effective", or(&e.effective, "unset: every GPU"));
    if let Some(reason) = e.reason {
        line("because", reason.to_owned());
    }
    match (&e.sees, e.result) {
        (Some(sees), _) if !sees.is_empty() => {
            for s in sees {
                let what = [s.uuid.clone(), Some(s.pci.clone()), Some(format!("nvidia-smi index {}", s.index)), s.model.clone()];
                line(&format!("cuda:{}", s.ordinal), what.into_iter().flatten().collect::<Vec<_>>().join("  "));
            }
        }
        (_, Some(code)) => line("sees", format!("no GPU (cuInit answers {code})")),
        _ => {}
    }
    if unknown_machine {
        line("sees", "not known: this machine shows no GPU in /proc/driver/nvidia/gpus; try --gpus N".to_owned());
    }
    lines.join("\n") + "\n"
}

/// The process that is asked about.
struct Subject {
    uid: u32,
    user: String,
    gids: Vec<u32>,
    exe: Vec<u8>,
    command_line: Vec<u8>,
    environment: BTreeMap<Vec<u8>, Vec<u8>>,
    cgroup: Vec<u8>,
}

impl Subject {
    fn of(args: &Explain) -> Result<Self> {
        let Some(program) = args.command.first() else { bail!("no command was given") };
        let mut environment: BTreeMap<_, _> = std::env::vars_os().map(|(k, v)| (k.into_vec(), v.into_vec())).collect();
        for pair in &args.env {
            let Some((name, value)) = pair.split_once('=') else { bail!("--env {pair}: write NAME=VALUE") };
            environment.insert(name.into(), value.into());
        }
        for name in &args.unset {
            environment.remove(name.as_bytes());
        }
        let users = machine::users();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let numbers = |key: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().split_whitespace().filter_map(|n| n.parse().ok()).collect()
        };
        let (uid, gids) = match &args.user {
            None => (numbers("Uid:").first().copied().unwrap_or_default(), [numbers("Gid:"), numbers("Groups:")].concat()),
            Some(name) => {
                let user = users.iter().find(|u| u.name == *name || u.uid.to_string() == *name);
                let user = user.with_context(|| format!("--as {name}: no such user in /etc/passwd"))?;
                let groups = machine::groups().into_iter().filter(|g| g.members.contains(&user.name)).map(|g| g.gid);
                (user.uid, std::iter::once(user.gid).chain(groups).collect())
            }
        };
        let user = users.into_iter().find(|u| u.uid == uid).map(|u| u.name).unwrap_or_default();
        let exe = resolve(program);
        let command_line = args.command.iter().map(|a| a.as_bytes()).collect::<Vec<_>>().join(&b' ');
        let cgroup = std::fs::read("/proc/self/cgroup").unwrap_or_default();
        Ok(Self { uid, user, gids, exe, command_line, environment, cgroup })
    }

    fn root(&mut self) -> PathBuf {
        self.variable(names::PROC_ROOT.as_bytes()).map_or_else(|| PathBuf::from("/"), |root| PathBuf::from(OsStr::from_bytes(root)))
    }
}

/// The executable as /proc/self/exe will show it: found on the PATH, links resolved, a script's interpreter instead of the script.
fn resolve(program: &OsStr) -> Vec<u8> {
    let path = if program.as_bytes().contains(&b'/') {
        Some(PathBuf::from(program))
    } else {
        let places = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&places).map(|place| place.join(program)).find(|path| path.is_file())
    };
    let Some(path) = path.and_then(|path| path.canonicalize().ok()) else { return program.as_bytes().to_vec() };
    let beginning = std::fs::read(&path).unwrap_or_default();
    let interpreter = beginning.strip_prefix(b"#!").and_then(|rest| rest.split(|c| *c == b'\n').next()).map(<[u8]>::trim_ascii);
    let words = |line: &[u8]| line.split(|c| *c == b' ').map(<[u8]>::to_vec).filter(|w| !w.is_empty()).collect::<Vec<_>>();
    match interpreter.map(words).as_deref() {
        Some([env, name, ..]) if env.ends_with(b"/env") => resolve(OsStr::from_bytes(name)),
        Some([name, ..]) => resolve(OsStr::from_bytes(name)),
        _ => path.into_os_string().into_vec(),
    }
}

impl Facts for Subject {
    fn uid(&mut self) -> u32 {
        self.uid
    }

    fn is_user(&mut self, name: &[u8]) -> bool {
        self.user.as_bytes() == name
    }

    fn in_group(&mut self, gid: u32) -> bool {
        self.gids.contains(&gid)
    }

    fn in_group_named(&mut self, name: &[u8]) -> bool {
        machine::groups().iter().any(|g| g.name.as_bytes() == name && self.gids.contains(&g.gid))
    }

    fn exe(&mut self) -> &[u8] {
        &self.exe
    }

    fn command_line(&mut self) -> &[u8] {
        &self.command_line
    }

    fn variable(&mut self, name: &[u8]) -> Option<&[u8]> {
        self.environment.get(name).map(Vec::as_slice)
    }

    fn cgroup(&mut self) -> &[u8] {
        &self.cgroup
    }
}
