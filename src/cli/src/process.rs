//! Running processes, as /proc shows them to this user.

use crate::inside::Inside;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the kernel writes behind a path whose file was removed or replaced since, as by an upgrade (proc_pid_exe(5)).
pub const DELETED: &str = " (deleted)";

/// A path without that mark: the name under which the file was opened.
fn opened_as(path: &[u8]) -> &[u8] {
    path.strip_suffix(DELETED.as_bytes()).unwrap_or(path)
}

/// A process that runs.
pub struct Running {
    /// Process id.
    pub pid: u32,
    /// Real user id.
    pub uid: u32,
    /// Its groups.
    pub gids: Vec<u32>,
    /// What of this is otherwise for the process itself.
    pub inside: Inside,
    /// Executable, links resolved; empty where it may not be read.
    pub exe: Vec<u8>,
    /// Arguments joined by one blank.
    pub command: Vec<u8>,
    /// Its environment at start; none where it may not be read.
    pub environment: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// The text of its cgroup file.
    pub cgroup: Vec<u8>,
    /// Whether the library is mapped in it; none where that may not be read.
    pub has_library: Option<bool>,
    /// How many descriptors of each `/dev/nvidia<minor>` it has open; none where that may not be read.
    pub nodes: Option<BTreeMap<u32, usize>>,
    /// The files that are mapped in it; none where that may not be read.
    pub files: Option<Vec<String>>,
    /// The driver's libraries that are mapped in it, by path; none where that may not be read.
    pub drivers: Option<Vec<String>>,
    /// When it started, in clock ticks since the machine did.
    pub start_time: Option<u64>,
    /// Whether it can gain no rights any more (`NoNewPrivs`), as a sealed process without CAP_SYS_ADMIN cannot.
    pub no_new_privs: bool,
}

impl Running {
    /// Reads a process; none where there is none (any more), or it is a kernel thread or a zombie.
    pub fn read(root: &Path, pid: u32) -> Option<Self> {
        let folder = root.join("proc").join(pid.to_string());
        let status = std::fs::read(folder.join("status")).ok()?;
        let status = String::from_utf8_lossy(&status).into_owned();
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim).unwrap_or_default().to_owned();
        let numbers = |key: &str| field(key).split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<u32>>();
        let command = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        if command.is_empty() && (field("State:").starts_with('Z') || field("Kthread:") == "1") {
            return None;
        }
        let maps = std::fs::read(folder.join("maps")).ok();
        let files = maps.map(|text| mapped(&text));
        let stat = std::fs::read(folder.join("stat")).unwrap_or_default();
        let (uid, gids) = (numbers("Uid:").first().copied()?, [numbers("Gid:"), numbers("Groups:")].concat());
        let inner_pid = numbers("NSpid:").last().copied().unwrap_or(pid);
        Some(Self {
            pid,
            uid,
            inside: Inside::of(&folder, (inner_pid, uid, &gids)),
            gids,
            exe: std::fs::read_link(folder.join("exe")).map(|path| opened_as(path.as_os_str().as_bytes()).to_vec()).unwrap_or_default(),
            command: command.strip_suffix(b"\0").unwrap_or(&command).iter().map(|c| if *c == 0 { b' ' } else { *c }).collect(),
            environment: std::fs::read(folder.join("environ")).ok().map(|text| environment(&text)),
            cgroup: std::fs::read(folder.join("cgroup")).unwrap_or_default(),
            has_library: files.as_ref().map(|files| files.iter().any(|file| opened_as(file.as_bytes()).ends_with(b"/libcuvisor.so"))),
            drivers: files.as_ref().map(|files| files.iter().filter(|file| file.contains("/libcuda.so")).cloned().collect()),
            files,
            start_time: start_time(&stat),
            nodes: nodes(&folder.join("fd")),
            no_new_privs: field("NoNewPrivs:") == "1",
        })
    }
}

/// The files in the text of a `maps` file, each once.
fn mapped(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let mut files: Vec<String> = text.lines().filter_map(|line| line.find('/').map(|at| line[at..].to_owned())).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// Field 22 of a `stat` file; the name in parentheses may hold anything.
fn start_time(text: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(text);
    text.rsplit(')').next()?.split_whitespace().nth(19)?.parse().ok()
}

fn environment(text: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let pair = |entry: &[u8]| {
        let at = entry.iter().position(|c| *c == b'=')?;
        Some((entry[..at].to_vec(), entry[at + 1..].to_vec()))
    };
    text.split(|c| *c == 0).filter_map(pair).collect()
}

/// The GPU nodes among a process's descriptors.
fn nodes(folder: &Path) -> Option<BTreeMap<u32, usize>> {
    let mut nodes = BTreeMap::new();
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let minor =
            opened_as(target.as_os_str().as_bytes()).strip_prefix(b"/dev/nvidia").and_then(|n| std::str::from_utf8(n).ok()?.parse().ok());
        if let Some(minor) = minor {
            *nodes.entry(minor).or_default() += 1;
        }
    }
    Some(nodes)
}

/// The ids of all processes, in order.
pub fn ids(root: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    let mut ids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}
