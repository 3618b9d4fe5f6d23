//! `cuvisor check`: what is wrong with a policy file, all of it.

mod earlier;

use crate::args::Check;
use crate::exit::Exit;
use crate::machine;
use crate::output::terminal::show;
use crate::source::{self, Source};
use anyhow::Result;
use cuvisor_policy::device::{Kind, Selector};
use cuvisor_policy::file::policy::{DeviceSpec, Emit, Grant, Mode, Rule, id};
use cuvisor_policy::file::raw::{Array, Value};
use cuvisor_policy::inventory::Inventory;
use cuvisor_policy::names;
use earlier::Earlier;
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Programs that are known to read every element of `CUDA_VISIBLE_DEVICES` as a number.
const NUMBER_READERS: [&str; 4] = ["vllm", "ray", "deepspeed", "flux"];

struct Warning {
    offset: usize,
    mark: Vec<u8>,
    text: String,
    remedy: &'static str,
}

/// Prints the errors, then the warnings, then a line that counts them.
///
/// # Errors
/// The file cannot be read: exit code 2.
pub fn run(args: &Check) -> Result<Exit> {
    let path = args
        .file
        .clone()
        .unwrap_or_else(|| std::env::var_os(names::POLICY).map_or_else(|| PathBuf::from(names::SYSTEM_POLICY), PathBuf::from));
    let text = match source::load(&path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("cuvisor: {error:#}");
            return Ok(Exit::CannotRead);
        }
    };
    let (parsed, source) = (source::parse(&text), Source::new(&path, &text));
    let mut shown: Vec<String> = parsed.errors.iter().map(|error| source.show(error)).collect();
    let inventory = machine::inventory(&machine::root());
    let mut warnings = file_warnings(&path);
    warnings.extend(rule_warnings(&source, &parsed.rules));
    warnings.extend(grant_warnings(&source, &inventory, &parsed.policy.default, None));
    parsed.rules.iter().for_each(|rule| warnings.extend(grant_warnings(&source, &inventory, &rule.grant, Some(rule))));
    warnings.sort_by_key(|warning| warning.offset);
    for warning in &warnings {
        let about = format!("warning: {}", warning.text);
        shown.push(source.show_at(warning.offset, &warning.mark, &about, warning.remedy));
    }
    let count = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    shown.push(format!(
        "{}: {}, {}, {}",
        path.display(),
        count(parsed.rules.len(), "rule"),
        count(parsed.errors.len(), "error"),
        count(warnings.len(), "warning")
    ));
    show(&format!("{}\n", shown.join("\n")))?;
    Ok(if parsed.errors.is_empty() { Exit::Success } else { Exit::Found })
}

/// A file that others can change can be made to say anything.
fn file_warnings(path: &Path) -> Vec<Warning> {
    let Ok(metadata) = path.metadata() else { return Vec::new() };
    if metadata.mode() & 0o022 == 0 && metadata.uid() == 0 {
        return Vec::new();
    }
    let is_system = path == Path::new(names::SYSTEM_POLICY);
    let text = if is_system {
        "others than root can change this file, so the library denies all GPUs"
    } else {
        "others than root can change this file"
    };
    vec![Warning { offset: 0, mark: Vec::new(), text: text.into(), remedy: "chown root:root and chmod 0644, if it is to hold for others" }]
}

/// Rules that never match, names that are unknown, rules of one name.
fn rule_warnings<'a>(source: &Source<'a>, rules: &[Rule<'a>]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let (users, groups) = (machine::users(), machine::groups());
    let users: HashSet<_> = users.iter().map(|user| user.name.as_bytes()).collect();
    let groups: HashSet<_> = groups.iter().map(|group| group.name.as_bytes()).collect();
    let mut earlier = Earlier::default();
    for rule in rules {
        let mut warn = |offset, mark: &[u8], text, remedy| warnings.push(Warning { offset, mark: mark.to_vec(), text, remedy });
        if let Some(covering) = earlier.covering(rule) {
            let message =
                format!("this rule never matches: the rule {} before it matches all that it does", source.rule_name(&rules[covering]));
            warn(rule.offset, b"rule", message, "put the narrower rule first");
        }
        if earlier.has_name_of(rule) {
            warn(rule.offset, b"rule", "a second rule of this name".into(), "give each rule its own name: the log tells rules apart by it");
        }
        earlier.add(rule);
        for (list, known, kind, file) in [(rule.user, &users, "user", "passwd"), (rule.group, &groups, "group", "group")] {
            let names = list.iter().flat_map(Array::elements).filter(|value| id(value).is_none()).map(|value| value.text());
            for name in names.filter(|name| !known.contains(name)) {
                warn(
                    source.offset_of(name),
                    name,
                    format!("no {kind} `{}` in /etc/{file}", String::from_utf8_lossy(name)),
                    "write the number of one that a directory service knows; the library reads only these files",
                );
            }
        }
    }
    warnings
}

/// Lists that mean something else than one may think.
fn grant_warnings(source: &Source<'_>, inventory: &Inventory, grant: &Grant<'_>, rule: Option<&Rule<'_>>) -> Vec<Warning> {
    let DeviceSpec::List(array) = grant.devices else { return Vec::new() };
    if rule.is_some_and(|rule| rule.mode == Some(Mode::Off)) {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    let mut warn = |value: &Value<'_>, text: String, remedy| {
        warnings.push(Warning { offset: source.offset_of(value.text()), mark: value.text().to_vec(), text, remedy });
    };
    let kinds: Vec<_> = array.elements().filter_map(|v| Some((v, Selector::parse(v.text()).ok()?))).collect();
    let by_index = kinds.iter().find(|(_, s)| s.kind() == Kind::Index);
    let models: std::collections::BTreeSet<_> = inventory.iter().map(|(_, gpu)| gpu.model.as_bytes().to_vec()).collect();
    if let Some((value, _)) = by_index.filter(|_| models.len() > 1) {
        warn(
            value,
            "indices on a machine whose GPUs differ".into(),
            "write UUIDs: an index means another GPU when a card is added or moved",
        );
    }
    for (value, selector) in &kinds {
        if !inventory.is_empty() && selector.kind() != Kind::Mig && inventory.find(selector).is_none() {
            warn(value, "this names no GPU of this machine, or several".into(), "compare with nvidia-smi -L");
        }
    }
    let writes_uuids = match grant.emit {
        Emit::Uuid => true,
        Emit::AsWritten => kinds.iter().any(|(_, s)| matches!(s.kind(), Kind::Uuid | Kind::Mig)),
        Emit::Index => false,
    };
    let patterns = rule.iter().flat_map(|rule| [rule.exe, rule.argv]).flatten().flat_map(|list| list.elements());
    let reader = |value: &Value<'_>| NUMBER_READERS.iter().find(|name| String::from_utf8_lossy(value.text()).contains(*name)).copied();
    if let Some((value, name)) = patterns.filter_map(|v| Some((v, reader(&v)?))).next().filter(|_| writes_uuids) {
        warn(&value, format!("{name} may read CUDA_VISIBLE_DEVICES as numbers, and this rule writes UUIDs"), "add emit = \"index\"");
    }
    warnings
}
