//! Streams events: threads read and parse pieces of a file side by side, and the pieces are handed on in
//! order, so that memory does not grow with the file.

use super::brief::{Fact, Words};
use super::files;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};

/// How much one thread parses at a time.
const PIECE: usize = 1 << 20;
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
pub fn each(paths: &[PathBuf], mut take: impl FnMut(Fact)) -> Result<Faults> {
    let mut faults = Faults::default();
    let total: u64 = paths.iter().filter_map(|path| path.metadata().ok()).map(|m| m.len()).sum();
    let mut progress = Progress { total, done: 0, shown: 0, on: total > LONG && std::io::stderr().is_terminal() };
    for path in paths {
        one_file(path, &mut faults, &mut progress, &mut take)?;
    }
    progress.clear();
    Ok(faults)
}

/// What a thread made of a piece: its number, its size, and its lines.
type Parsed = (usize, u64, Vec<Result<Fact, String>>);

fn one_file(path: &Path, faults: &mut Faults, progress: &mut Progress, take: &mut impl FnMut(Fact)) -> Result<()> {
    let pieces = Mutex::new(Pieces { reader: files::open(path)?, rest: Vec::new(), number: 0, error: None });
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let mut line = 0u64;
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel::<Parsed>(workers * 2);
        for _ in 0..workers {
            let (sender, pieces) = (sender.clone(), &pieces);
            scope.spawn(move || {
                let mut words = Words::default();
                while let Some((number, piece)) = pieces.lock().ok().and_then(|mut pieces| pieces.next()) {
                    if sender.send((number, piece.len() as u64, parse(&piece, &mut words))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // Pieces may be done out of order; they are taken in order.
        let mut early = BTreeMap::new();
        let mut wanted = 0;
        for (number, size, parsed) in receiver {
            progress.add(size);
            early.insert(number, parsed);
            while let Some(parsed) = early.remove(&wanted) {
                wanted += 1;
                for fact in parsed {
                    line += 1;
                    match fact {
                        Ok(fact) => take(fact),
                        Err(reason) => {
                            faults.count += 1;
                            faults.first.get_or_insert_with(|| format!("{}:{line}: {reason}", path.display()));
                        }
                    }
                }
            }
        }
    });
    match pieces.into_inner().ok().and_then(|pieces| pieces.error) {
        Some(error) => Err(error).with_context(|| format!("{}", path.display())),
        None => Ok(()),
    }
}

/// A file in pieces of whole lines.
struct Pieces {
    reader: Box<dyn Read + Send>,
    rest: Vec<u8>,
    number: usize,
    error: Option<std::io::Error>,
}

impl Pieces {
    fn next(&mut self) -> Option<(usize, Vec<u8>)> {
        let mut piece = Vec::with_capacity(self.rest.len() + PIECE);
        piece.append(&mut self.rest);
        let before = piece.len();
        loop {
            let count = self.reader.by_ref().take(PIECE as u64).read_to_end(&mut piece).map_err(|error| self.error = Some(error)).ok()?;
            let whole = memchr::memrchr(b'\n', &piece).map_or(0, |at| at + 1);
            if count > 0 && whole <= before {
                // A line longer than a piece.
                continue;
            }
            if count > 0 {
                self.rest.extend_from_slice(&piece[whole..]);
                piece.truncate(whole);
            }
            self.number += 1;
            return (!piece.is_empty()).then_some((self.number - 1, piece));
        }
    }
}

fn parse(piece: &[u8], words: &mut Words) -> Vec<Result<Fact, String>> {
    let piece = piece.strip_suffix(b"\n").unwrap_or(piece);
    let mut parsed = Vec::with_capacity(piece.len() / 400);
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', piece).chain([piece.len()]) {
        parsed.push(Fact::parse(&piece[start..end], words));
        start = end + 1;
    }
    parsed
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
