//! `cuvisor tail`: events as one readable line each.

use crate::args::Tail;
use crate::audit::event::Event;
use crate::audit::files;
use crate::exit::Exit;
use crate::output::Users;
use crate::output::terminal::harmless;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Prints the last events of the newest file, and with `--follow` those that come.
///
/// # Errors
/// The file cannot be read.
pub fn run(args: &Tail) -> Result<Exit> {
    let named: Vec<_> = args.file.iter().cloned().collect();
    let paths = files::choose(&named)?;
    let Some(path) = paths.last() else { return Ok(Exit::Success) };
    let users = Users::load();
    let mut reader = BufReader::new(files::open(path)?);
    let mut last = std::collections::VecDeque::new();
    let mut line = Vec::new();
    let mut read = 0u64;
    while reader.read_until(b'\n', &mut line).with_context(|| format!("{}", path.display()))? > 0 {
        read += line.len() as u64;
        last.push_back(std::mem::take(&mut line));
        if last.len() > args.lines {
            last.pop_front();
        }
    }
    let mut out = std::io::stdout().lock();
    let mut show = |line: &[u8]| writeln!(out, "{}", harmless(&text(line, &users)));
    for line in &last {
        if show(line).is_err() {
            return Ok(Exit::Success);
        }
    }
    if args.follow { follow(path, read, &mut show) } else { Ok(Exit::Success) }
}

/// Waits for more, also in a new file of the same name after a rotation, until nobody reads any more.
fn follow(path: &Path, mut read: u64, show: &mut impl FnMut(&[u8]) -> std::io::Result<()>) -> Result<Exit> {
    let mut inode = path.metadata().map(|m| m.ino()).unwrap_or_default();
    let mut rest = Vec::new();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let Ok(metadata) = path.metadata() else { continue };
        if metadata.ino() != inode || metadata.len() < read {
            (inode, read) = (metadata.ino(), 0);
            rest.clear();
        }
        if metadata.len() == read {
            continue;
        }
        let mut file = std::fs::File::open(path)?;
        file.seek(SeekFrom::Start(read))?;
        let mut reader = BufReader::new(file);
        loop {
            let count = reader.read_until(b'\n', &mut rest)?;
            read += count as u64;
            if count == 0 || !rest.ends_with(b"\n") {
                break;
            }
            if show(&std::mem::take(&mut rest)).is_err() {
                return Ok(Exit::Success);
            }
        }
    }
}

/// One line for one event: when, who, what.
fn text(line: &[u8], users: &Users) -> String {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end();
    let event = match Event::parse(line) {
        Ok(event) => event,
        Err(reason) => return format!("(no event: {reason}) {}", line.chars().take(80).collect::<String>()),
    };
    let time = event.time.get(..19).unwrap_or(&event.time).replace('T', " ");
    let who = format!("{} {} pid {}", users.name(event.uid), event.program(), event.pid);
    let or_unset = |value: &Option<std::borrow::Cow<'_, str>>| match value.as_deref() {
        None => "unset".to_owned(),
        Some("") => "\"\"".to_owned(),
        Some(text) => text.to_owned(),
    };
    let devices: Vec<_> = event
        .devices
        .iter()
        .chain(&event.device)
        .map(|d| d.name().map_or_else(|| format!("ordinal {}", d.ordinal), str::to_owned))
        .collect();
    let devices = if devices.is_empty() { "no GPU".to_owned() } else { devices.join(" ") };
    let result = event.result_name.as_deref().map_or_else(|| event.result.map(|r| r.to_string()).unwrap_or_default(), str::to_owned);
    let what = match &*event.event {
        "init" => format!(
            "cuInit by {}: {result}, asked for {}, got {}: {devices}",
            event.caller.as_deref().unwrap_or("?"),
            or_unset(&event.request),
            or_unset(&event.effective)
        ),
        "device" | "context" => format!("{}: {result}: {devices}", event.call.as_deref().unwrap_or(&event.event)),
        "denied" => format!(
            "{} denied with {result}: {devices}: {}",
            event.call.as_deref().unwrap_or("call"),
            event.reason.as_deref().unwrap_or_default()
        ),
        "late_change" => format!(
            "CUDA_VISIBLE_DEVICES changed from {} to {} {:.1} s after cuInit: the driver ignores it",
            or_unset(&event.old),
            or_unset(&event.new),
            event.seconds.unwrap_or_default()
        ),
        "exit" => format!("exit {:.1} s after cuInit", event.seconds.unwrap_or_default()),
        other => format!("{other}: {}", event.reason.as_deref().unwrap_or_default()),
    };
    let mark = if event.outcome == "enforced" { String::new() } else { format!(" [{}]", event.outcome) };
    format!("{time}  {who}: {what}{}{mark}", event.origin())
}
