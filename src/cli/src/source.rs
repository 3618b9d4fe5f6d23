//! A policy file as the command shows it: its rules in order, and its faults with their places.

use anyhow::{Context, Result};
use cuvisor_policy::file::error::{Error, Fault, Position};
use cuvisor_policy::file::policy::{Audit, Grant, Mode, Policy, Rule};
use cuvisor_policy::file::reader::{Sink, read};
use std::fmt::Write;
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
    fn mode(&mut self, mode: Mode) {
        self.policy.mode = mode;
    }

    fn locked(&mut self, locked: bool) {
        self.policy.locked = locked;
    }

    fn audit(&mut self, audit: &Audit<'a>) {
        self.policy.audit = *audit;
    }

    fn default(&mut self, grant: &Grant<'a>) {
        self.policy.default = *grant;
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

/// Reads a file.
///
/// # Errors
/// Names the file and what the system said.
pub fn load(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{}", path.display()))
}

/// An error as a compiler shows it: place, message, the line with the text marked, and what to write instead.
pub fn show(path: &Path, text: &[u8], error: &Error<'_>) -> String {
    let about = format!("error: {}", error.fault.message());
    let mark = if error.fault == Fault::NotUtf8 { b"" } else { error.text };
    show_at(path, text, error.offset, mark, &about, error.fault.remedy())
}

/// The same for a warning.
pub fn show_at(path: &Path, text: &[u8], offset: usize, mark: &[u8], about: &str, remedy: &str) -> String {
    let Position { line, column } = Position::of(text, offset);
    let source = text.split(|c| *c == b'\n').nth(line - 1).unwrap_or_default();
    let source = String::from_utf8_lossy(source).trim_end().replace('\t', " ");
    let first = mark.split(|c| *c == b'\n').next().unwrap_or_default();
    let width = String::from_utf8_lossy(first).chars().count().clamp(1, source.chars().count().max(1));
    let margin = " ".repeat(line.to_string().len());
    let mut shown = String::new();
    let _ = writeln!(shown, "{}:{line}:{column}: {about}", path.display());
    let _ = writeln!(shown, "{line} | {source}");
    let _ = writeln!(shown, "{margin} | {}{}", " ".repeat(column - 1), "^".repeat(width));
    let _ = writeln!(shown, "{margin} = {remedy}");
    shown
}

/// A rule's name, or its line.
pub fn rule_name(text: &[u8], rule: &Rule<'_>) -> String {
    match rule.name {
        Some(name) => format!("\"{}\"", String::from_utf8_lossy(name)),
        None => format!("at line {}", Position::of(text, rule.offset).line),
    }
}
