//! A policy file as the command shows it: its rules in order, and its faults with their places.

use crate::guarded;
use anyhow::anyhow;
use cuvisor_policy::file::error::{Error, Fault, Position};
use cuvisor_policy::file::policy::{Part, Policy, Rule};
use cuvisor_policy::file::raw::offset_in;
use cuvisor_policy::file::reader::{Sink, read};
use cuvisor_policy::file::refusal::{self, Refusal, Status};
use cuvisor_policy::names::POLICY_LIMIT;
use std::fmt::Write;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a file says.
pub struct Parsed<'a> {
    /// The parts that stand once.
    pub policy: Policy<'a>,
    /// The rules without faults.
    pub rules: Vec<Rule<'a>>,
    /// The faults, in the order of the file.
    pub errors: Vec<Error<'a>>,
}

impl<'a> Sink<'a> for Parsed<'a> {
    fn part(&mut self, part: Part<'a>) {
        self.policy.take(part);
    }

    fn rule(&mut self, rule: &Rule<'a>) {
        self.rules.push(*rule);
    }

    fn error(&mut self, error: Error<'a>) {
        self.errors.push(error);
    }
}

/// Reads a text by the very code that the library uses.
pub fn parse(text: &[u8]) -> Parsed<'_> {
    let mut parsed = Parsed { policy: Policy::EMPTY, rules: Vec::new(), errors: Vec::new() };
    read(text, &mut parsed);
    parsed.errors.sort_by_key(|error| error.offset);
    parsed
}

/// Reads a file that the user has named, which may be a pipe.
///
/// # Errors
/// Names the file and what the system said, or that it is larger than a policy may be.
pub fn load(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = File::open(path).and_then(|file| guarded::whole(&file, POLICY_LIMIT as u64));
    bytes.map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => anyhow!("{}: {}; {}", path.display(), refusal::TOO_LARGE.0, refusal::TOO_LARGE.1),
        _ => anyhow!("{}: {error}", path.display()),
    })
}

/// Why there is no text of a policy.
#[derive(Debug)]
pub enum Unread {
    /// The file is not there, as the system says.
    Missing(std::io::Error),
    /// It may not count: the path, why, and what to do.
    Refused(String),
}

/// Reads a policy as the library does where `root` is `/`; `shown` is what errors call it, and `is_system` says whether it
/// is the machine's own.
///
/// # Errors
/// It is not there, or the library refuses it.
pub fn policy(root: &Path, path: &Path, shown: &Path, is_system: bool) -> Result<Vec<u8>, Unread> {
    let refused = |(message, remedy): Refusal| Unread::Refused(format!("{}: {message}; {remedy}", shown.display()));
    let file = match guarded::open(root, path) {
        Err(error) if is_system && error.kind() != ErrorKind::NotFound => return Err(refused(refusal::FORBIDDEN)),
        opened => opened.map_err(Unread::Missing)?,
    };
    let metadata = file.metadata().map_err(Unread::Missing)?;
    let status = Status { is_regular: metadata.is_file(), uid: metadata.uid(), mode: metadata.mode() & 0o7777, len: metadata.len() };
    match refusal::of(&status, is_system) {
        Some(refusal) => Err(refused(refusal)),
        None => guarded::whole(&file, POLICY_LIMIT as u64).map_err(Unread::Missing),
    }
}

/// A file's text with the places of its lines, to show parts of it.
pub struct Source<'a> {
    path: &'a Path,
    text: &'a [u8],
    /// Where each line begins.
    lines: Vec<usize>,
}

impl<'a> Source<'a> {
    /// Finds the lines.
    pub fn new(path: &'a Path, text: &'a [u8]) -> Self {
        let ends = text.iter().enumerate().filter(|(_, c)| **c == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Self { path, text, lines }
    }

    /// Where a part of the text begins.
    pub fn offset_of(&self, part: &[u8]) -> usize {
        offset_in(self.text, part)
    }

    /// The line of an offset, counted from 0, and where it begins.
    fn line(&self, offset: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset) - 1;
        (line, self.lines[line])
    }

    /// An error as a compiler shows it: place, message, the line with the text marked, and what to write instead.
    pub fn show(&self, error: &Error<'_>) -> String {
        let about = format!("error: {}", error.fault.message());
        let mark = if error.fault == Fault::NotUtf8 { b"" } else { error.text };
        self.show_at(error.offset, mark, &about, error.fault.remedy())
    }

    /// The same for a warning.
    pub fn show_at(&self, offset: usize, mark: &[u8], about: &str, remedy: &str) -> String {
        let (line, start) = self.line(offset);
        let column = Position::of(&self.text[start..], offset - start).column;
        let source = self.text[start..].split(|c| *c == b'\n').next().unwrap_or_default();
        let source = String::from_utf8_lossy(source).trim_end().replace('\t', " ");
        let first = mark.split(|c| *c == b'\n').next().unwrap_or_default();
        let width = String::from_utf8_lossy(first).chars().count().clamp(1, source.chars().count().max(1));
        let number = (line + 1).to_string();
        let margin = " ".repeat(number.len());
        let mut shown = String::new();
        let _ = writeln!(shown, "{}:{number}:{column}: {about}", self.path.display());
        let _ = writeln!(shown, "{number} | {source}");
        let _ = writeln!(shown, "{margin} | {}{}", " ".repeat(column - 1), "^".repeat(width));
        let _ = writeln!(shown, "{margin} = {remedy}");
        shown
    }

    /// A rule's name, or its line.
    pub fn rule_name(&self, rule: &Rule<'_>) -> String {
        match rule.name {
            Some(name) => format!("\"{}\"", String::from_utf8_lossy(name)),
            None => format!("at line {}", self.line(rule.offset).0 + 1),
        }
    }
}
