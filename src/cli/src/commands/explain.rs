//! `cuvisor explain`: which rule a program meets, and what it will see.

use crate::args::Explain;
use crate::exit::Exit;
use crate::machine;
use crate::output::terminal::{print, show};
use crate::reading::{Token, tokens};
use crate::subject::Subject;
use crate::verdict::{self, Rejected};
use anyhow::Result;
use cuvisor_policy::decide::{self, Applied, Decision};
use cuvisor_policy::file::policy::{Mode, Seal};
use cuvisor_policy::inventory::Inventory;
use cuvisor_policy::names;
use cuvisor_policy::rule::Facts;
use cuvisor_policy::visible;
use serde::Serialize;
use std::path::Path;

/// All that is told, as `--json` gives it.
#[derive(Serialize)]
struct Explanation {
    policy: Option<String>,
    mode: &'static str,
    /// The name of the rule that matches; null for the default.
    rule: Option<String>,
    matched: &'static str,
    rejected: Vec<Rejected>,
    ignored: Vec<String>,
    broken: Option<String>,
    devices: String,
    seal: &'static str,
    request: Option<String>,
    tokens: Vec<Token>,
    effective: Option<String>,
    reason: Option<&'static str>,
    result: Option<i32>,
    sees: Option<Vec<Seen>>,
}

#[derive(Serialize)]
struct Seen {
    ordinal: usize,
    index: usize,
    uuid: Option<String>,
    pci: String,
    model: Option<String>,
}

/// Explains, and runs nothing.
///
/// # Errors
/// The policy cannot be read, or an option makes no sense.
pub fn run(args: &Explain) -> Result<Exit> {
    let mut subject = Subject::starting(args)?;
    let inventory = args.gpus.map_or_else(|| machine::inventory(&subject.root()), machine::imagined);
    let explanation = explain(&mut subject, args.policy.as_deref(), &inventory)?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&explanation)?))?;
    } else {
        show(&text(&explanation, inventory.is_empty()))?;
    }
    Ok(if explanation.broken.is_some() { Exit::Found } else { Exit::Success })
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn explain(subject: &mut Subject, given: Option<&Path>, inventory: &Inventory) -> Result<Explanation> {
    let found = verdict::of(subject, given)?;
    let present = subject.variable(names::VISIBLE_DEVICES.as_bytes()).map(<[u8]>::to_vec);
    let applied = subject.variable(names::APPLIED.as_bytes()).map(<[u8]>::to_vec);
    let enforced = found.mode == Mode::Enforce;
    let request = if enforced { Applied::request_of(present.as_deref(), applied.as_deref()) } else { present.as_deref() };
    let decision = if enforced { decide::decide(&found.rights, request, Some(inventory)) } else { Decision { list: None, reason: None } };
    let effective = decision.list.map(|list| list.as_bytes().to_vec()).or_else(|| present.clone());
    let seen = visible::read(effective.as_deref(), inventory);
    let known = !inventory.is_empty();
    Ok(Explanation {
        policy: found.policy.map(|path| path.display().to_string()),
        mode: found.mode.word(),
        matched: if found.rule.is_some() { "rule" } else { "default" },
        rule: found.rule,
        rejected: found.rejected,
        ignored: found.ignored,
        broken: found.broken,
        devices: lossy(found.rights.devices.text()),
        seal: found.seal.word(),
        request: request.map(lossy),
        tokens: request.map(tokens).unwrap_or_default(),
        effective: effective.as_deref().map(lossy),
        reason: decision.reason.map(decide::Reason::text),
        result: known.then(|| seen.answer.code()),
        sees: known.then(|| seen.indices().iter().enumerate().filter_map(|(ordinal, index)| sight(inventory, ordinal, *index)).collect()),
    })
}

fn sight(inventory: &Inventory, ordinal: usize, index: usize) -> Option<Seen> {
    let gpu = inventory.get(index)?;
    Some(Seen {
        ordinal,
        index,
        uuid: gpu.uuid.map(|uuid| format!("GPU-{}", lossy(&uuid.text()))),
        pci: lossy(gpu.pci.text().as_bytes()),
        model: (!gpu.model.is_empty()).then(|| lossy(gpu.model.as_bytes())),
    })
}

fn text(e: &Explanation, unknown_machine: bool) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name:<11}{value}"));
    let or = |value: &Option<String>, none: &str| match value.as_deref() {
        None => none.to_owned(),
        Some("") => "\"\"".to_owned(),
        Some(text) => text.to_owned(),
    };
    line("policy", or(&e.policy, "none"));
    if let Some(broken) = &e.broken {
        line("broken", broken.replace('\n', "\n           "));
    }
    line("mode", e.mode.to_owned());
    for rejected in &e.rejected {
        line("not", format!("rule {}: its {} does not match", rejected.rule, rejected.because));
    }
    line("matched", e.rule.as_ref().map_or_else(|| "[default]".to_owned(), |name| format!("rule {name}")));
    line("devices", e.devices.clone());
    if e.seal != Seal::No.word() {
        line("seal", e.seal.to_owned());
    }
    if !e.ignored.is_empty() {
        line("ignored", format!("{} (the policy is locked)", e.ignored.join(", ")));
    }
    line("request", or(&e.request, "unset"));
    for token in &e.tokens {
        line("", format!("`{}`: {}", token.text, token.reading));
    }
    line("effective", or(&e.effective, "unset: every GPU"));
    if let Some(reason) = e.reason {
        line("because", reason.to_owned());
    }
    match (&e.sees, e.result) {
        (Some(sees), _) if !sees.is_empty() => {
            for s in sees {
                let what = [s.uuid.clone(), Some(s.pci.clone()), Some(format!("nvidia-smi index {}", s.index)), s.model.clone()];
                line(&format!("cuda:{}", s.ordinal), what.into_iter().flatten().collect::<Vec<_>>().join("  "));
            }
        }
        (_, Some(code)) => line("sees", format!("no GPU (cuInit answers {code})")),
        _ => {}
    }
    if unknown_machine {
        line("sees", "not known: this machine shows no GPU in /proc/driver/nvidia/gpus; try --gpus N".to_owned());
    }
    lines.join("\n") + "\n"
}
