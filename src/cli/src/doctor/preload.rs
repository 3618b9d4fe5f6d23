//! The library: whether it is whole, whether the loader takes it, and what else is preloaded.

use super::{Finding, failure, ok, warning};
use crate::verdict::Verdict;
use crate::{elf, library, system};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn check(root: &Path, verdict: &Verdict) -> Vec<Finding> {
    let entries = Entries::read(root);
    let mut findings = vec![file()];
    findings.push(loaded(&entries, verdict));
    findings.push(others(&entries));
    findings.push(copies());
    findings
}

/// What the loader is told to preload, in its order: LD_PRELOAD's come first (ld.so(8)).
struct Entries {
    variable: Vec<String>,
    file: Vec<String>,
}

impl Entries {
    fn read(root: &Path) -> Self {
        let split = |text: &str| text.split([' ', '\t', '\n', ':']).filter(|entry| !entry.is_empty()).map(str::to_owned).collect();
        let text = std::fs::read_to_string(root.join("etc/ld.so.preload")).unwrap_or_default();
        let lines: String = text.lines().map(|line| format!("{}\n", line.split('#').next().unwrap_or_default())).collect();
        let variable = std::env::var_os("LD_PRELOAD").unwrap_or_default().to_string_lossy().into_owned();
        Self { variable: split(&variable), file: split(&lines) }
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let variable = self.variable.iter().map(|entry| ("LD_PRELOAD", entry));
        variable.chain(self.file.iter().map(|entry| ("/etc/ld.so.preload", entry)))
    }
}

fn is_ours(entry: &str) -> bool {
    entry.rsplit('/').next() == Some(library::FILE_NAME)
}

fn file() -> Finding {
    const CHECK: &str = "library";
    let path = match library::find() {
        Ok(path) => path,
        Err(error) => return failure(CHECK, format!("{error:#}"), "install it, or set CUVISOR_LIBRARY to its path"),
    };
    let shown = path.display();
    let Ok(bytes) = std::fs::read(&path) else { return failure(CHECK, format!("{shown} cannot be read by this user"), "chmod 0644") };
    if !elf::is_for_this_machine(&bytes) {
        return failure(CHECK, format!("{shown} is no library for 64-bit x86"), "install the one that belongs to this command");
    }
    // B13: what only its owner may read is ignored for everybody else, and nothing enforces the policy.
    if let Some(closed) = path.ancestors().find(|place| !is_open(place)) {
        let mode = if closed == path { "0644" } else { "0755" };
        return failure(
            CHECK,
            format!("{shown} is not in reach of other users: the loader leaves it out for them, and they are not held"),
            format!("chmod {mode} {}", closed.display()),
        );
    }
    let (needed, here) = (elf::glibc(&bytes), system::glibc());
    if let (Some(needed), Some(here)) = (needed, here)
        && needed > here
    {
        return failure(
            CHECK,
            format!("{shown} needs glibc {}.{}, here is {}.{}", needed.0, needed.1, here.0, here.1),
            "use the build for older systems",
        );
    }
    match try_out(&path) {
        Err(said) => failure(
            CHECK,
            format!("the loader does not take {shown}: {said}"),
            "move it to a place from where programs may be run (no noexec), and see ld.so(8)",
        ),
        Ok(()) => {
            let version = |v: Option<(u32, u32)>| v.map_or("none".to_owned(), |(major, minor)| format!("{major}.{minor}"));
            ok(CHECK, format!("{shown}: readable by all, needs glibc {}, here is {}", version(needed), version(here)))
        }
    }
}

/// Whether users other than its owner may read a file, or go through a folder.
fn is_open(place: &Path) -> bool {
    place.metadata().is_ok_and(|metadata| {
        let wanted = if metadata.is_dir() { 0o001 } else { 0o004 };
        metadata.permissions().mode() & wanted == wanted
    })
}

/// Starts a program under the library; what the loader says on stderr is its complaint.
fn try_out(path: &Path) -> Result<(), String> {
    let out = Command::new("/bin/true").env("LD_PRELOAD", path).stdin(Stdio::null()).output();
    let out = out.map_err(|error| format!("/bin/true: {error}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    match (out.status.success(), said.trim()) {
        (true, "") => Ok(()),
        (true, said) => Err(said.lines().next().unwrap_or_default().to_owned()),
        (false, _) => Err(format!("/bin/true ends with {}", out.status)),
    }
}

fn loaded(entries: &Entries, verdict: &Verdict) -> Finding {
    const CHECK: &str = "loaded";
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).find(|path| is_ours(path));
    let named = entries.all().find(|(_, entry)| is_ours(entry));
    match (mapped, named) {
        (Some(path), Some((source, _))) => {
            let gap = if source == "LD_PRELOAD" { "; env -i, sudo and cron drop it" } else { "" };
            ok(CHECK, format!("{path} is in this process, by {source}{gap}"))
        }
        (Some(path), None) => ok(CHECK, format!("{path} is in this process")),
        (None, Some((source, entry))) => failure(
            CHECK,
            format!("{source} names {entry}, and it is not in this process: the policy is not enforced"),
            "see library, and preloads below",
        ),
        (None, None) if verdict.policy.is_some() => warning(
            CHECK,
            "there is a policy, and nothing puts the library into this shell's programs",
            "cuvisor install --system holds all programs of the machine; cuvisor run holds one",
        ),
        (None, None) => ok(CHECK, "nothing puts the library into this shell's programs; cuvisor run does for one"),
    }
}

/// Names that others export and that a hook of CUDA depends on.
const SHARED_NAMES: [&str; 4] = ["cuInit", "cuGetProcAddress", "cuGetProcAddress_v2", "dlsym"];

fn others(entries: &Entries) -> Finding {
    const CHECK: &str = "preloads";
    let all: Vec<_> = entries.all().collect();
    let own = all.iter().position(|(_, entry)| is_ours(entry));
    let mut lines = Vec::new();
    for (at, (source, entry)) in all.iter().enumerate() {
        let Some(path) = resolve(entry) else {
            if entry.contains('/') {
                return failure(
                    CHECK,
                    format!("{source} names {entry}, which is not there: every command says so on stderr"),
                    format!("remove it from {source}"),
                );
            }
            continue;
        };
        if !is_open(&path) {
            return failure(
                CHECK,
                format!("{source} names {entry}, which other users cannot read: the loader leaves it out for them"),
                format!("chmod 0644 {entry}"),
            );
        }
        let names = std::fs::read(&path).map(|bytes| elf::defined(&bytes, &SHARED_NAMES)).unwrap_or_default();
        if !is_ours(entry) && !names.is_empty() {
            let place = if own.is_some_and(|own| own < at) { "after" } else { "before" };
            lines.push(format!("{entry} also defines {}; it stands {place} libcuvisor.so", names.join(", ")));
        }
    }
    if lines.is_empty() {
        return ok(CHECK, format!("{} in all; no other hooks CUDA", all.len()));
    }
    warning(CHECK, "another preloaded library hooks CUDA, too", "put libcuvisor.so first if a call is missing in the audit").with(lines)
}

/// An entry's file. `$LIB` is what this machine's loader makes of it (ld.so(8)).
fn resolve(entry: &str) -> Option<PathBuf> {
    let folders = ["lib/x86_64-linux-gnu", "lib64", "lib"];
    let choices = folders.map(|folder| PathBuf::from(entry.replace("${LIB}", folder).replace("$LIB", folder)));
    choices.into_iter().find(|path| entry.contains('/') && path.is_file())
}

/// Several copies that differ: a wheel's in a virtual environment beside the system's.
fn copies() -> Finding {
    let found = library::all();
    let contents: Vec<_> = found.iter().map(std::fs::read).collect();
    let differ = contents.windows(2).any(|pair| !matches!(pair, [Ok(a), Ok(b)] if a == b));
    let lines: Vec<_> = found.iter().map(|path| path.display().to_string()).collect();
    if found.len() > 1 && differ {
        return warning("versions", "there are copies of libcuvisor.so that differ", "pip install --upgrade cuvisor, or remove one")
            .with(lines);
    }
    ok(
        "versions",
        format!(
            "{} of libcuvisor.so in the known places, all alike",
            if found.len() == 1 { "one copy".to_owned() } else { format!("{} copies", found.len()) }
        ),
    )
}
