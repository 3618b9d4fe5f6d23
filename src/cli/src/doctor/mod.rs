//! `cuvisor doctor`: named checks, each with one line of cause and one of remedy.

mod audit_line;
mod driver;
mod hardware;
mod policy;
mod preload;
mod process;
mod variables;

pub use driver::ASK;

use crate::args::Doctor;
use crate::exit::Exit;
use crate::machine;
use crate::output::terminal::{harmless, print};
use crate::process::Running;
use crate::subject::Subject;
use crate::verdict;
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warning,
    Failure,
}

/// One question, and its answer.
#[derive(Serialize)]
struct Finding {
    check: &'static str,
    level: Level,
    cause: String,
    remedy: Option<String>,
    /// Facts side by side, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<String>,
}

impl Finding {
    fn with(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }
}

fn ok(check: &'static str, cause: impl Into<String>) -> Finding {
    Finding { check, level: Level::Ok, cause: cause.into(), remedy: None, details: Vec::new() }
}

fn bad(check: &'static str, level: Level, cause: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { check, level, cause: cause.into(), remedy: Some(remedy.into()), details: Vec::new() }
}

fn warning(check: &'static str, cause: impl Into<String>, remedy: impl Into<String>) -> Finding {
    bad(check, Level::Warning, cause, remedy)
}

fn failure(check: &'static str, cause: impl Into<String>, remedy: impl Into<String>) -> Finding {
    bad(check, Level::Failure, cause, remedy)
}

/// Asks the questions. Exit code 0: all is well; 1: a warning; 2: a failure, or there is no such process.
///
/// # Errors
/// None but that of writing to stdout.
pub fn run(args: &Doctor) -> Result<Exit> {
    let findings = match args.pid {
        Some(pid) => of_process(pid)?,
        None => of_shell(Duration::from_secs(args.limit))?,
    };
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&findings)?))?;
    } else {
        print(&text(&findings))?;
    }
    Ok(match findings.iter().map(|finding| finding.level).max() {
        Some(Level::Failure) => Exit::CannotRead,
        Some(Level::Warning) => Exit::Found,
        _ => Exit::Success,
    })
}

fn of_process(pid: u32) -> Result<Vec<Finding>> {
    let root = machine::root();
    match Running::read(&root, pid) {
        None => {
            let cause = format!("{pid} is gone, a zombie, or a kernel thread");
            Ok(vec![failure("process", cause, "look with ps which process you mean")])
        }
        Some(running) => process::examine(&running, &machine::inventory(&root)),
    }
}

fn of_shell(limit: Duration) -> Result<Vec<Finding>> {
    let root = machine::root();
    let inventory = machine::inventory(&root);
    let mut subject = Subject::here();
    let verdict = verdict::of(&mut subject, None)?;
    let mut findings = variables::check(&inventory);
    findings.extend(hardware::check(&root, &inventory));
    findings.extend(driver::check(&root, &inventory, limit));
    findings.extend(preload::check(&root, &verdict));
    findings.extend(policy::check(&verdict, &mut subject));
    Ok(findings)
}

fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or_default() + 2;
    let mut text = String::new();
    for finding in findings {
        let level = match finding.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Failure => "failure",
        };
        let _ = writeln!(text, "{:<width$}{level:<9}{}", finding.check, harmless(&finding.cause));
        let margin = " ".repeat(width + 9);
        for detail in &finding.details {
            let _ = writeln!(text, "{margin}{}", harmless(detail));
        }
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(text, "{margin}-> {}", harmless(remedy));
        }
    }
    text
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
