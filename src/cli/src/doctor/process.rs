//! `cuvisor doctor --pid N`: why a running process has the GPUs that it has.

use super::audit_line::{self, Log, Logged};
use super::{Finding, Level, bad, ok, policy};
use crate::commands::ps::USED;
use crate::guarded::{self, PROGRAM_LIMIT};
use crate::process::{DELETED, Running};
use crate::verdict::{self, Verdict};
use crate::{elf, machine};
use anyhow::Result;
use cuvisor_policy::file::policy::Seal;
use cuvisor_policy::inventory::Inventory;
use cuvisor_policy::{names, sealed};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub fn examine(running: &Running, inventory: &Inventory) -> Result<Vec<Finding>> {
    let (verdict, counted) = verdict::of_running(running, inventory)?;
    let log = audit_line::find(running, &verdict);
    let logged = log.init();
    let mut findings = vec![driver(running), devices(running, inventory, &counted, &verdict), variable(running, logged)];
    findings.push(library(running, &verdict));
    findings.push(route(running, &log));
    findings.push(policy::rule(&verdict));
    findings.push(seal(running, &verdict, logged));
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

/// `counted` are the GPUs that an index in the policy numbers.
fn devices(running: &Running, inventory: &Inventory, counted: &Inventory, verdict: &Verdict) -> Finding {
    let Some(nodes) = &running.nodes else {
        return bad("GPUs", Level::Warning, "its descriptors may not be read", "ask as root, or as the process's user");
    };
    if nodes.is_empty() {
        return ok("GPUs", "it has no GPU open");
    }
    let name = |minor: u32| inventory.index_of_minor(minor).map_or_else(|| format!("minor {minor}"), |index| format!("GPU {index}"));
    let state = |(minor, count): (&u32, &usize)| {
        format!("{} {}", name(*minor), if *count >= USED { "used: it has a context" } else { "opened, no context" })
    };
    let all = nodes.iter().map(state).collect::<Vec<_>>().join(", ");
    let allowed = |minor: u32| verdict.allows(&machine::root(), counted, counted.index_of_minor(minor));
    let outside: Vec<_> = nodes.keys().filter(|minor| !allowed(**minor)).map(|minor| name(*minor)).collect();
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
    let read = |file: File| guarded::whole(&file, PROGRAM_LIMIT).ok();
    if let Some(obstacle) = File::open(&exe).ok().and_then(read).and_then(|bytes| elf::obstacle(&bytes)) {
        return obstacle.text().to_owned();
    }
    if exe.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o6000 != 0) {
        return "it is a set-user-ID program: LD_PRELOAD does not count for it".to_owned();
    }
    let preloads = if running.inside.is_elsewhere { &running.inside.root } else { &root };
    let preloads = guarded::read(preloads, Path::new("/etc/ld.so.preload"), PROGRAM_LIMIT).unwrap_or_default();
    let listed = names_the_library(&preloads);
    let variable = running.environment.as_ref().map(|e| e.get(&b"LD_PRELOAD"[..]).is_some_and(|list| names_the_library(list)));
    match (listed, variable) {
        (true, _) => "/etc/ld.so.preload names it now, so the process was started before that".to_owned(),
        (false, Some(true)) => "LD_PRELOAD names it, and the loader could not load it: look at its path and permissions".to_owned(),
        (false, Some(false)) => {
            "neither LD_PRELOAD nor /etc/ld.so.preload names it: somebody cleaned the environment, or it was never there".to_owned()
        }
        (false, None) => "/etc/ld.so.preload does not name it, and its environment may not be read".to_owned(),
    }
}

fn names_the_library(list: &[u8]) -> bool {
    memchr::memmem::find(list, b"libcuvisor.so").is_some()
}

/// From so many descriptors of one node on the driver is initialised: NVML alone opens 3 (driver-facts.md).
const INITIALISED: usize = 4;

/// Whether the process came to the driver past the hooks (B18).
fn route(running: &Running, log: &Log) -> Finding {
    const CHECK: &str = "route";
    let initialised = running.nodes.as_ref().is_some_and(|nodes| nodes.values().any(|count| *count >= INITIALISED));
    match log {
        Log::Init(logged) => ok(CHECK, format!("its cuInit came through the library{}", logged.origin)),
        _ if running.has_library != Some(true) => ok(CHECK, "the library is not in it, so nothing is logged"),
        _ if !initialised => ok(CHECK, "it has not initialised CUDA"),
        Log::Unread => ok(CHECK, "whether its cuInit came through the library is not known: no audit file can be read"),
        Log::Silent => {
            let linked: Vec<_> = running.files.iter().flatten().filter(|file| links_the_driver(running, file)).cloned().collect();
            let cause = "it has initialised CUDA, and no cuInit came through the library: it was opened with RTLD_DEEPBIND, or found by dlvsym or by reading the symbol table";
            bad(CHECK, Level::Warning, cause, "CUDA_VISIBLE_DEVICES still holds there; use the kernel seal to be sure")
                .with(linked.into_iter().map(|file| format!("linked to libcuda: {file}")).collect())
        }
    }
}

/// Whether a mapped file is linked to the driver. It is read as the process itself sees it.
fn links_the_driver(running: &Running, file: &str) -> bool {
    let path = Path::new(file.strip_suffix(DELETED).unwrap_or(file));
    let bytes = || guarded::read(&running.inside.root, path, PROGRAM_LIMIT);
    file.contains(".so") && bytes().is_ok_and(|bytes| elf::needs(&bytes, "libcuda.so.1"))
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
    let inherited = running.environment.as_ref().and_then(|e| sealed::split(e.get(names::SEALED.as_bytes())?));
    match (inherited, verdict.seal) {
        (Some((nodes, _)), _) => {
            ok("seal", format!("inherited, as its environment says: denied are {} ({promise})", String::from_utf8_lossy(nodes)))
        }
        (None, Seal::No) => ok("seal", format!("none that can be seen from outside; {promise}")),
        (None, _) => bad(
            "seal",
            Level::Warning,
            format!("the policy asks for one; whether it holds is not known: no audit line is there; {promise}"),
            "give the policy an audit file: its init event says which seal holds",
        ),
    }
}
