//! `cuvisor ps`: which processes have a GPU open now, whoever started them.

use crate::args::Ps;
use crate::exit::Exit;
use crate::machine;
use crate::output::terminal::print;
use crate::output::{Users, table};
use crate::process::{self, Running};
use crate::verdict;
use anyhow::Result;
use cuvisor_policy::container;
use cuvisor_policy::file::policy::{Mode, Seal};
use cuvisor_policy::inventory::Inventory;
use cuvisor_policy::names;
use nvml_wrapper::Nvml;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

/// From so many descriptors of one node on a process has a context: NVML alone opens 3, cuInit 4, a
/// context 20 to 23 (driver-facts.md, driver 580).
pub const USED: usize = 16;

#[derive(Serialize)]
struct Shown {
    pid: u32,
    user: String,
    container: Option<String>,
    command: String,
    gpus: Vec<Gpu>,
    cuda_visible_devices: Option<String>,
    /// Null: may not be read.
    environment_known: bool,
    library: Option<bool>,
    rule: Option<String>,
    /// `inherited`, `by policy`, or null: none that can be seen from outside.
    seal: Option<&'static str>,
    no_new_privs: bool,
    /// Why the process is marked; empty where it is not.
    marks: Vec<&'static str>,
}

#[derive(Serialize)]
struct Gpu {
    minor: u32,
    index: Option<usize>,
    uuid: Option<String>,
    used: bool,
    allowed: bool,
}

/// Lists them. Exit code 1 tells that one is marked.
///
/// # Errors
/// None but that of writing to stdout.
pub fn run(args: &Ps) -> Result<Exit> {
    let root = machine::root();
    let inventory = machine::inventory(&root);
    let compute = if root == Path::new("/") { compute_processes() } else { BTreeSet::new() };
    let users = Users::load();
    let mut hidden = 0u64;
    let mut shown = Vec::new();
    for pid in process::ids(&root) {
        let Some(running) = Running::read(&root, pid) else { continue };
        match &running.nodes {
            None => hidden += 1,
            Some(nodes) if nodes.is_empty() => {}
            Some(_) => shown.push(look(&running, &inventory, &compute, &users)?),
        }
    }
    let marked = shown.iter().any(|one| !one.marks.is_empty());
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&shown)?))?;
    } else {
        print(&text(&shown, hidden))?;
    }
    Ok(if marked { Exit::Found } else { Exit::Success })
}

/// The processes that NVML says have a context; none where it cannot be asked.
fn compute_processes() -> BTreeSet<u32> {
    let Ok(nvml) = Nvml::init() else { return BTreeSet::new() };
    let devices = (0..nvml.device_count().unwrap_or_default()).filter_map(|index| nvml.device_by_index(index).ok());
    devices.filter_map(|device| device.running_compute_processes().ok()).flatten().map(|process| process.pid).collect()
}

fn look(running: &Running, inventory: &Inventory, compute: &BTreeSet<u32>, users: &Users) -> Result<Shown> {
    let (verdict, counted) = verdict::of_running(running, inventory)?;
    let allowed = |minor| verdict.allows(&machine::root(), &counted, counted.index_of_minor(minor));
    let gpus: Vec<Gpu> =
        running.nodes.iter().flatten().map(|(minor, count)| gpu(*minor, *count, running, inventory, compute, allowed(*minor))).collect();
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let holds = verdict.policy.is_some() && verdict.mode != Mode::Off;
    let mut marks = Vec::new();
    if gpus.iter().any(|gpu| !gpu.allowed) {
        marks.push("has a GPU open that the policy does not give it");
    }
    if holds && running.has_library == Some(false) {
        marks.push("the library is not in it");
    }
    // The kernel does not tell who is sealed. A process that inherited its seal shows it in its environment;
    // one that the library sealed at its start does not, but then the policy says so.
    let inherited = running.environment.as_ref().is_some_and(|e| e.contains_key(names::SEALED.as_bytes()));
    let by_policy = verdict.mode == Mode::Enforce && verdict.seal != Seal::No && running.has_library == Some(true);
    let seal = if inherited { Some("inherited") } else { by_policy.then_some("by policy") };
    let variable = running.environment.as_ref().and_then(|e| e.get(names::VISIBLE_DEVICES.as_bytes()));
    Ok(Shown {
        pid: running.pid,
        user: users.name(running.uid),
        container: container::from_cgroup(&running.cgroup).map(lossy),
        command: lossy(&running.command),
        gpus,
        cuda_visible_devices: variable.map(|v| lossy(v)),
        environment_known: running.environment.is_some(),
        library: running.has_library,
        rule: verdict.rule,
        seal,
        no_new_privs: running.no_new_privs,
        marks,
    })
}

fn gpu(minor: u32, count: usize, running: &Running, inventory: &Inventory, compute: &BTreeSet<u32>, allowed: bool) -> Gpu {
    let index = inventory.index_of_minor(minor);
    Gpu {
        minor,
        index,
        uuid: index.and_then(|index| inventory.get(index)?.uuid).map(|uuid| format!("GPU-{}", String::from_utf8_lossy(&uuid.text()))),
        used: count >= USED || compute.contains(&running.pid),
        allowed,
    }
}

fn text(shown: &[Shown], hidden: u64) -> String {
    let name = |gpu: &Gpu| {
        let name = gpu.index.map_or_else(|| format!("minor {}", gpu.minor), |index| index.to_string());
        format!("{name} {}{}", if gpu.used { "used" } else { "opened" }, if gpu.allowed { "" } else { " (not allowed)" })
    };
    let row = |one: &Shown| {
        let variable = match (&one.cuda_visible_devices, one.environment_known) {
            (_, false) => "?".to_owned(),
            (None, _) => "unset".to_owned(),
            (Some(value), _) if value.is_empty() => "\"\"".to_owned(),
            (Some(value), _) => value.clone(),
        };
        vec![
            one.pid.to_string(),
            one.user.clone(),
            one.container.as_deref().map_or("-".into(), |id| id.chars().take(12).collect()),
            one.gpus.iter().map(name).collect::<Vec<_>>().join(", "),
            variable,
            match one.library {
                None => "?".to_owned(),
                Some(true) => "yes".to_owned(),
                Some(false) => "no".to_owned(),
            },
            one.seal.unwrap_or("-").to_owned(),
            one.rule.clone().unwrap_or_else(|| "-".into()),
            one.marks.join("; "),
            one.command.chars().take(80).collect(),
        ]
    };
    let mut text = if shown.is_empty() {
        "no process has a GPU open\n".to_owned()
    } else {
        table::plain(
            &["pid", "user", "container", "GPUs", "variable at start", "library", "seal", "rule", "mark", "command"],
            &[0],
            shown.iter().map(row).collect(),
        )
    };
    if hidden > 0 {
        text.push_str(&format!("{hidden} processes of other users could not be looked into; root can\n"));
    }
    text
}
