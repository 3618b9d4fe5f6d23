//! `cuvisor doctor --pid N`: why a running process has the GPUs that it has.

use crate::args::Doctor;
use crate::audit::event::{Event, Seal as SealLine};
use crate::audit::files;
use crate::commands::ps::USED;
use crate::commands::report::print;
use crate::exit::Exit;
use crate::process::Running;
use crate::subject::Subject;
use crate::verdict::{self, Verdict};
use crate::{elf, machine};
use anyhow::Result;
use cuvisor_policy::file::policy::Seal;
use cuvisor_policy::inventory::Inventory;
use cuvisor_policy::names;
use serde::Serialize;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warning,
    Failure,
}

/// One question about the process, and its answer.
#[derive(Serialize)]
struct Finding {
    check: &'static str,
    level: Level,
    cause: String,
    remedy: Option<&'static str>,
}

fn ok(check: &'static str, cause: impl Into<String>) -> Finding {
    Finding { check, level: Level::Ok, cause: cause.into(), remedy: None }
}

fn bad(check: &'static str, level: Level, cause: impl Into<String>, remedy: &'static str) -> Finding {
    Finding { check, level, cause: cause.into(), remedy: Some(remedy) }
}

/// Asks the questions. Exit code 0: all is well; 1: a warning; 2: a failure, or there is no such process.
///
/// # Errors
/// None but that of writing to stdout.
pub fn run(args: &Doctor) -> Result<Exit> {
    let root = machine::root();
    let findings = match Running::read(&root, args.pid) {
        None => vec![bad(
            "process",
            Level::Failure,
            format!("{} is gone, a zombie, or a kernel thread", args.pid),
            "look with ps which process you mean",
        )],
        Some(running) => examine(&running, &machine::inventory(&root))?,
    };
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&findings)?))?;
    } else {
        print(&findings.iter().map(text).collect::<String>())?;
    }
    Ok(match findings.iter().map(|finding| finding.level).max() {
        Some(Level::Failure) => Exit::CannotRead,
        Some(Level::Warning) => Exit::Found,
        _ => Exit::Success,
    })
}

fn text(finding: &Finding) -> String {
    let level = match finding.level {
        Level::Ok => "ok",
        Level::Warning => "warning",
        Level::Failure => "failure",
    };
    let remedy = finding.remedy.map_or_else(String::new, |remedy| format!("{:>21}{remedy}\n", "-> "));
    format!("{:<9}{:<9}{}\n{remedy}", finding.check, level, finding.cause)
}

fn examine(running: &Running, inventory: &Inventory) -> Result<Vec<Finding>> {
    let verdict = verdict::of(&mut Subject::running(running), None)?;
    let logged = logged(running);
    let mut findings = vec![driver(running), devices(running, inventory, &verdict), variable(running, logged.as_ref())];
    findings.push(library(running, &verdict));
    findings.push(policy(&verdict));
    findings.push(seal(running, &verdict, logged.as_ref()));
    Ok(findings)
}

fn driver(running: &Running) -> Finding {
    match running.drivers.as_deref() {
        None => bad("driver", Level::Warning, "its mappings may not be read", "ask as root, or as the process's user"),
        Some([]) => ok("driver", "libcuda is not loaded: it does not use CUDA, or links it statically"),
        Some([one]) => ok("driver", format!("{one} is loaded")),
        Some(several) => bad(
            "driver",
            Level::Warning,
            format!("{} copies of libcuda are loaded: {}", several.len(), several.join(", ")),
            "remove all but the driver's own: they do not know of each other",
        ),
    }
}

fn devices(running: &Running, inventory: &Inventory, verdict: &Verdict) -> Finding {
    let Some(nodes) = &running.nodes else {
        return bad("GPUs", Level::Warning, "its descriptors may not be read", "ask as root, or as the process's user");
    };
    if nodes.is_empty() {
        return ok("GPUs", "it has no GPU open");
    }
    let index = |minor: u32| inventory.iter().find(|(_, gpu)| gpu.minor == minor).map(|(index, _)| index);
    let name = |minor: u32| index(minor).map_or_else(|| format!("minor {minor}"), |index| format!("GPU {index}"));
    let state = |(minor, count): (&u32, &usize)| {
        format!("{} {}", name(*minor), if *count >= USED { "used: it has a context" } else { "opened, no context" })
    };
    let all = nodes.iter().map(state).collect::<Vec<_>>().join(", ");
    let outside: Vec<_> = nodes.keys().filter(|minor| !verdict.allows(inventory, index(**minor))).map(|minor| name(*minor)).collect();
    if outside.is_empty() {
        return ok("GPUs", all);
    }
    let cause = format!("{all}; the policy does not give it {}", outside.join(", "));
    bad("GPUs", Level::Failure, cause, "end it, and start it under cuvisor run --seal or a policy that is locked and sealed")
}

/// The variable at start beside what the audit says: a change within the process does not show in /proc.
fn variable(running: &Running, logged: Option<&Logged>) -> Finding {
    let at_start = match &running.environment {
        None => "may not be read".to_owned(),
        Some(environment) => {
            environment.get(names::VISIBLE_DEVICES.as_bytes()).map_or("unset".into(), |v| format!("{:?}", String::from_utf8_lossy(v)))
        }
    };
    let show = |value: &Option<String>| value.as_ref().map_or("unset".to_owned(), |v| format!("{v:?}"));
    match logged {
        Some(l) => {
            ok("variable", format!("at start {at_start}; at cuInit it asked for {} and got {}", show(&l.request), show(&l.effective)))
        }
        None => ok("variable", format!("at start {at_start}; what it was at cuInit is not known: no audit line is there")),
    }
}

fn library(running: &Running, verdict: &Verdict) -> Finding {
    let why = match running.has_library {
        Some(true) => return ok("library", "libcuvisor.so is in it"),
        None => return bad("library", Level::Warning, "its mappings may not be read", "ask as root, or as the process's user"),
        Some(false) => absence(running),
    };
    if verdict.policy.is_none() && verdict.rule.is_none() {
        return ok("library", format!("libcuvisor.so is not in it, and no policy asks for it ({why})"));
    }
    bad(
        "library",
        Level::Failure,
        format!("libcuvisor.so is not in it: {why}"),
        "for such programs use /etc/ld.so.preload, or a seal on what starts them",
    )
}

/// Why the library is not in a process.
fn absence(running: &Running) -> String {
    let exe = Path::new(std::ffi::OsStr::new("/proc")).join(running.pid.to_string()).join("exe");
    let root = machine::root();
    let exe = if root == Path::new("/") { exe } else { root.join("proc").join(running.pid.to_string()).join("exe") };
    if let Some(obstacle) = std::fs::read(&exe).ok().and_then(|bytes| elf::obstacle(&bytes)) {
        return obstacle.text().to_owned();
    }
    if exe.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o6000 != 0) {
        return "it is a set-user-ID program: LD_PRELOAD does not count for it".to_owned();
    }
    let listed = std::fs::read_to_string(root.join("etc/ld.so.preload")).is_ok_and(|text| text.contains("libcuvisor.so"));
    let variable =
        running.environment.as_ref().map(|e| e.get(&b"LD_PRELOAD"[..]).is_some_and(|v| v.windows(13).any(|w| w == b"libcuvisor.so")));
    match (listed, variable) {
        (true, _) => "/etc/ld.so.preload names it now, so the process was started before that".to_owned(),
        (false, Some(true)) => "LD_PRELOAD names it, and the loader could not load it: look at its path and permissions".to_owned(),
        (false, Some(false)) => {
            "neither LD_PRELOAD nor /etc/ld.so.preload names it: somebody cleaned the environment, or it was never there".to_owned()
        }
        (false, None) => "/etc/ld.so.preload does not name it, and its environment may not be read".to_owned(),
    }
}

fn policy(verdict: &Verdict) -> Finding {
    if let Some(broken) = &verdict.broken {
        return bad(
            "policy",
            Level::Failure,
            format!("it is broken, and so gives no GPU: {}", broken.lines().next().unwrap_or_default()),
            "cuvisor check tells all that is wrong with it",
        );
    }
    let file = verdict.policy.as_ref().map_or("no file".to_owned(), |path| path.display().to_string());
    let rule = verdict.rule.as_ref().map_or("[default]".to_owned(), |rule| format!("rule {rule}"));
    ok("policy", format!("{file}, {rule}: {} {}", verdict.mode.word(), String::from_utf8_lossy(verdict.rights.devices.text())))
}

/// The kernel does not tell who is sealed: the audit line does, else an inherited variable; the promise not
/// to gain rights (NoNewPrivs) is a sign and no proof.
fn seal(running: &Running, verdict: &Verdict, logged: Option<&Logged>) -> Finding {
    let promise = if running.no_new_privs { "NoNewPrivs is set" } else { "NoNewPrivs is not set" };
    if let Some(seal) = logged.and_then(|l| l.seal.as_ref()) {
        return match &seal.reason {
            Some(reason) => bad(
                "seal",
                Level::Failure,
                format!("it failed: {reason}"),
                "see \"The kernel seal\" in the README; seal = \"require\" gives no GPU then",
            ),
            None => ok(
                "seal",
                format!(
                    "{}: {} ({promise})",
                    seal.level,
                    if seal.denied.is_empty() { "no node is denied".to_owned() } else { format!("denied are {}", seal.denied.join(" ")) }
                ),
            ),
        };
    }
    let inherited = running.environment.as_ref().and_then(|e| e.get(names::SEALED.as_bytes()));
    match (inherited, verdict.seal) {
        (Some(nodes), _) => ok("seal", format!("inherited: denied are {} ({promise})", String::from_utf8_lossy(nodes))),
        (None, Seal::No) => ok("seal", format!("none that can be seen from outside; {promise}")),
        (None, _) => bad(
            "seal",
            Level::Warning,
            format!("the policy asks for one; whether it holds is not known: no audit line is there; {promise}"),
            "give the policy an audit file: its init event says which seal holds",
        ),
    }
}

/// What the audit file says of a process.
struct Logged {
    request: Option<String>,
    effective: Option<String>,
    seal: Option<SealLine>,
}

/// The last `init` of the process in the audit files that can be read.
fn logged(running: &Running) -> Option<Logged> {
    let own = running
        .environment
        .as_ref()
        .and_then(|e| e.get(names::AUDIT.as_bytes()))
        .map(|path| String::from_utf8_lossy(path).into_owned().into());
    let paths = match own {
        Some(path) => vec![path],
        None => files::choose(&[]).ok()?,
    };
    let mut last = None;
    for path in paths {
        let Ok(file) = files::open(&path) else { continue };
        for line in BufReader::new(file).lines().map_while(Result::ok).filter(|line| line.contains("\"init\"")) {
            let Ok(event) = Event::parse(&line) else { continue };
            if event.event == "init" && event.pid == i64::from(running.pid) && event.start_time == running.start_time {
                let own = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().map(str::to_owned);
                last = Some(Logged { request: own(&event.request), effective: own(&event.effective), seal: event.seal.clone() });
            }
        }
    }
    last
}
