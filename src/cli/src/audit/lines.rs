//! Streams events: pieces of a file are parsed side by side and handed on in order, so that memory does
//! not grow with the file.

use super::event::Event;
use super::files;
use anyhow::{Context, Result};
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// How much one thread parses at a time.
const PIECE: usize = 4 << 20;
/// From this size on a long input shows how far it has got.
const LONG: u64 = 64 << 20;

/// Lines that are no events: how many, and the first with its place.
#[derive(Default)]
pub struct Faults {
    /// How many.
    pub count: u64,
    /// File, line and reason of the first.
    pub first: Option<String>,
}

/// Calls `take` with each event of the files, in order.
///
/// # Errors
/// A file cannot be opened or read. A line that is no event is none: it is counted in what is returned.
pub fn each(paths: &[PathBuf], mut take: impl FnMut(&Event<'_>)) -> Result<Faults> {
    let mut faults = Faults::default();
    let total: u64 = paths.iter().filter_map(|path| path.metadata().ok()).map(|m| m.len()).sum();
    let mut progress = Progress { total, done: 0, shown: 0, on: total > LONG && std::io::stderr().is_terminal() };
    for path in paths {
        one_file(path, &mut faults, &mut progress, &mut take)?;
    }
    progress.clear();
    Ok(faults)
}

type Parsed<'a> = Vec<Result<Event<'a>, String>>;

fn one_file(path: &Path, faults: &mut Faults, progress: &mut Progress, take: &mut impl FnMut(&Event<'_>)) -> Result<()> {
    let mut reader = files::open(path)?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let mut rest = Vec::new();
    let mut line = 0u64;
    loop {
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        while pieces.len() < workers {
            let mut piece = std::mem::take(&mut rest);
            let count = reader.by_ref().take(PIECE as u64).read_to_end(&mut piece).with_context(|| format!("{}", path.display()))?;
            progress.add(count as u64);
            if count == 0 {
                if !piece.is_empty() {
                    pieces.push(piece);
                }
                break;
            }
            let whole = piece.iter().rposition(|c| *c == b'\n').map_or(0, |at| at + 1);
            rest = piece.split_off(whole);
            if !piece.is_empty() {
                pieces.push(piece);
            }
        }
        if pieces.is_empty() {
            return Ok(());
        }
        std::thread::scope(|scope| {
            let parsing: Vec<_> = pieces.iter().map(|piece| scope.spawn(move || parse(piece))).collect();
            for parsed in parsing {
                for event in parsed.join().unwrap_or_default() {
                    line += 1;
                    match event {
                        Ok(event) => take(&event),
                        Err(reason) => {
                            faults.count += 1;
                            faults.first.get_or_insert_with(|| format!("{}:{line}: {reason}", path.display()));
                        }
                    }
                }
            }
        });
    }
}

fn parse(piece: &[u8]) -> Parsed<'_> {
    let lines = piece.strip_suffix(b"\n").unwrap_or(piece).split(|c| *c == b'\n');
    let event = |line| std::str::from_utf8(line).map_err(|error| error.to_string()).and_then(Event::parse);
    lines.map(event).collect()
}

struct Progress {
    total: u64,
    done: u64,
    shown: u64,
    on: bool,
}

impl Progress {
    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        let percent = (self.done * 100 / self.total.max(1)).min(100);
        if self.on && percent != self.shown {
            self.shown = percent;
            let done = usize::try_from(percent / 4).unwrap_or_default();
            let _ = write!(std::io::stderr(), "\r[{}{}] {percent} %", "#".repeat(done), " ".repeat(25 - done));
        }
    }

    fn clear(&self) {
        if self.on {
            let _ = write!(std::io::stderr(), "\r{}\r", " ".repeat(40));
        }
    }
}
