//! `cuvisor run --expect-no-cuda`: for test suites of libraries that promise not to touch the GPU on import.

use crate::audit::event::Event;
use crate::commands::run::cannot_start;
use crate::exit::Exit;
use crate::output::terminal::harmless;
use anyhow::{Context, Result};
use cuvisor_policy::names;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the command without GPUs and waits for it. Code 3, and a line for each process that called `cuInit`,
/// as soon as one did; else the command's own code. What outlives the command is not waited for.
///
/// # Errors
/// There is no place for a temporary file.
pub fn no_cuda(mut command: Command) -> Result<Exit> {
    let folder = Folder::new()?;
    let log = folder.0.join("audit.jsonl");
    command.env(names::DEVICES, "none").env(names::MODE, "enforce").env(names::AUDIT, &log).env(names::TRACE, "log");
    command.env_remove(names::POLICY).env_remove(names::SEAL).env_remove(names::DISABLE);
    let status = match command.status() {
        Ok(status) => status,
        Err(error) => return Ok(cannot_start(&command.get_program().display(), &error)),
    };
    let lines = std::fs::read_to_string(&log).unwrap_or_default();
    if report(&lines) {
        return Ok(Exit::CudaUsed);
    }
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(Exit::Program(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)))
}

/// Tells the first `cuInit` of each process; whether there was one.
fn report(lines: &str) -> bool {
    let mut told = BTreeSet::new();
    for event in lines.lines().filter_map(|line| Event::parse(line).ok()).filter(|event| event.event == "init") {
        if told.insert((event.pid, event.start_time)) {
            let result = event.result.unwrap_or_default();
            let line = format!(
                "cuvisor: CUDA was not expected: {} (pid {}): {:.2} s cuInit -> {result}{} by {}{}",
                event.program(),
                event.pid,
                event.process_seconds.unwrap_or_default(),
                event.result_name.as_deref().filter(|_| result != 0).map(|name| format!(" {name}")).unwrap_or_default(),
                event.caller.as_deref().unwrap_or("code outside any library"),
                event.origin()
            );
            eprintln!("{}", harmless(&line));
        }
    }
    !told.is_empty()
}

/// A folder that only this user may look into, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let random = RandomState::new().hash_one(std::process::id());
        let path = std::env::temp_dir().join(format!("cuvisor-{random:016x}"));
        let path = std::path::absolute(&path)?;
        std::fs::DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("{}: set TMPDIR", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all::<&Path>(&self.0);
    }
}
