#![allow(clippy::expect_used, clippy::arithmetic_side_effects, clippy::indexing_slicing)]
//! The policy file's format is TOML: what is accepted means the same to the `toml` crate.

use cuvisor_policy::file::error::{Error, Position};
use cuvisor_policy::file::policy::{DeviceSpec, Part, Policy, Rule};
use cuvisor_policy::file::raw::{Array, Value};
use cuvisor_policy::file::reader::{Progress, Sink, read};
use proptest::prelude::*;

struct Kept<'a> {
    policy: Policy<'a>,
    rules: Vec<Rule<'a>>,
    errors: Vec<Error<'a>>,
}

impl<'a> Sink<'a> for Kept<'a> {
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

fn parse(text: &[u8]) -> Kept<'_> {
    let mut kept = Kept { policy: Policy::EMPTY, rules: Vec::new(), errors: Vec::new() };
    read(text, &mut kept);
    kept
}

/// An array's elements in TOML's own values.
fn values(array: &Array<'_>) -> toml::Value {
    let value = |v: Value<'_>| {
        let text = std::str::from_utf8(v.text()).expect("UTF-8").to_owned();
        match v {
            Value::Bare(_) => toml::Value::Integer(text.parse().expect("a number")),
            _ => toml::Value::String(text),
        }
    };
    toml::Value::Array(array.elements().map(value).collect())
}

fn devices(spec: &DeviceSpec<'_>) -> toml::Value {
    match spec {
        DeviceSpec::All => toml::Value::String("all".into()),
        DeviceSpec::None => toml::Value::String("none".into()),
        DeviceSpec::List(array) => values(array),
    }
}

/// Compares an accepted policy with TOML's reading of the same text.
fn compare(text: &str) -> Result<(), TestCaseError> {
    let kept = parse(text.as_bytes());
    let policy = &kept.policy;
    if !kept.errors.is_empty() {
        return Ok(());
    }
    let table: toml::Table = toml::from_str(text).map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
    let word = |t: Option<&toml::Table>, key: &str| t.and_then(|t| t.get(key)).cloned();
    let top = Some(&table);
    prop_assert_eq!(word(top, "mode").unwrap_or("enforce".into()), toml::Value::from(policy.mode.word()));
    prop_assert_eq!(word(top, "locked").and_then(|v| v.as_bool()).unwrap_or(false), policy.locked);
    let audit = table.get("audit").and_then(toml::Value::as_table);
    let file = policy.audit.file.map(|f| toml::Value::from(std::str::from_utf8(f).expect("UTF-8")));
    prop_assert_eq!(word(audit, "file"), file);
    let default = table.get("default").and_then(toml::Value::as_table);
    prop_assert_eq!(word(default, "devices").unwrap_or("all".into()), devices(&policy.default.devices));
    let rules = table.get("rule").and_then(toml::Value::as_array).cloned().unwrap_or_default();
    prop_assert_eq!(rules.len(), kept.rules.len());
    for (theirs, ours) in rules.iter().zip(&kept.rules) {
        let theirs = theirs.as_table();
        for (key, own) in
            [("user", ours.user), ("group", ours.group), ("exe", ours.exe), ("argv", ours.argv), ("env", ours.env), ("cgroup", ours.cgroup)]
        {
            prop_assert_eq!(word(theirs, key), own.as_ref().map(values), "{}", key);
        }
        prop_assert_eq!(word(theirs, "devices").unwrap_or("all".into()), devices(&ours.grant.devices));
    }
    Ok(())
}

/// A line as somebody might write it, right or nearly.
fn line() -> impl Strategy<Value = String> {
    let keys = ["mode", "locked", "file", "calls", "devices", "request", "emit", "name", "user", "exe", "argv", "env", "cgroup"];
    let values = [
        "\"enforce\"",
        "\"audit\"",
        "'off'",
        "true",
        "false",
        "\"/var/log/a.jsonl\"",
        "'/a{uid}'",
        "\"first\"",
        "\"all\"",
        "\"none\"",
        "[0, 1]",
        "[ 0,\n 1, # one\n]",
        "['GPU-11', \"GPU-22\"]",
        "[\"a\", 1000]",
        "[\"*\"]",
        "[\"A=b\"]",
        "[]",
        "[0,,1]",
        "[1 2]",
        "1",
        "1.5",
        "\"a\\\"b\"",
        "'''x'''",
        "{ a = 1 }",
        "[[0]]",
        "\"uuid\"",
        "\"narrow\"",
        "\"x\" # c",
        "2026-12-01",
        "\"unclosed",
        "[\"#\", ']']",
        "\"é\"",
    ];
    let entry =
        (proptest::sample::select(keys.to_vec()), proptest::sample::select(values.to_vec())).prop_map(|(k, v)| format!("{k} = {v}"));
    let odd = [
        "[audit]",
        "[default]",
        "[[rule]]",
        "[rule]",
        "[ default ]",
        "[[ rule ]] # r",
        "# comment",
        "",
        "  ",
        "\t",
        "[x]",
        "mode",
        "= 1",
        "\"mode\" = 1",
        "a.b = 1",
    ];
    prop_oneof![5 => entry, 3 => proptest::sample::select(odd.to_vec()).prop_map(str::to_owned)]
}

/// A policy that is sound by construction, in one of many writings.
fn sound() -> impl Strategy<Value = String> {
    let string = || proptest::sample::select(vec!["\"a\"", "'/usr/*'", "\"x y\"", "'\\d#'", "\"é[1]\"", "\"],\""]);
    let list = || {
        let separators = proptest::sample::select(vec![", ", ",", " ,\n\t", ", # c\n "]);
        (proptest::collection::vec(string(), 1..4), separators, any::<bool>())
            .prop_map(|(l, s, trailing)| format!("[ {}{} ]", l.join(s), if trailing { s } else { "" }))
    };
    let devices = || proptest::sample::select(vec!["\"all\"", "'none'", "[0]", "[ 3, 1 ,\n2, ]", "['GPU-1a', \"GPU-2b\"]", "[\"7\"]"]);
    let rule = (list(), list(), devices(), string(), any::<bool>()).prop_map(|(exe, user, devices, name, narrow)| {
        let request = if narrow { "request = \"narrow\" # n\n" } else { "" };
        format!("[[rule]]\nname={name}\n  exe = {exe}\nuser = {user}\ndevices = {devices}\n{request}\n")
    });
    let head = proptest::sample::select(vec!["", "mode = 'audit'\n", "\u{feff}locked = true\n", "# c\nmode=\"off\" # d\nlocked=false\n"]);
    (head, devices(), proptest::collection::vec(rule, 0..4)).prop_map(|(head, devices, rules)| {
        format!("{head}[audit]\nfile = '/a/{{uid}}'\n[ default ]\ndevices = {devices}\n{}", rules.concat())
    })
}

/// Cases of a property: more are tried where `CUVISOR_CASES` says so.
fn cases() -> ProptestConfig {
    let cases = std::env::var("CUVISOR_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(4000);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn an_accepted_policy_means_the_same_to_toml(lines in proptest::collection::vec(line(), 0..12), crlf in any::<bool>()) {
        compare(&lines.join(if crlf { "\r\n" } else { "\n" }))?;
    }

    #[test]
    fn a_sound_policy_is_accepted_and_means_the_same_to_toml(text in sound()) {
        prop_assert!(parse(text.as_bytes()).errors.is_empty(), "{:?}: {text}", parse(text.as_bytes()).errors);
        compare(&text)?;
    }

    #[test]
    fn any_bytes_are_read_without_a_panic_and_errors_lie_in_the_text(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for error in &parse(&bytes).errors {
            prop_assert!(error.offset <= bytes.len());
            prop_assert!(Position::of(&bytes, error.offset).line >= 1);
        }
    }

    #[test]
    fn a_policy_means_the_same_in_pieces(rules in proptest::collection::vec(sound(), 1..4), odd in proptest::option::of(line()), window in 1..400usize) {
        // Only the first text may begin with what stands before any table; the others are their rules.
        let rest = rules.iter().skip(1).map(|text| text.find("[[rule]]").map_or("", |at| &text[at..]));
        let text: String = rules.iter().take(1).map(String::as_str).chain(rest).chain(odd.as_deref()).collect();
        let whole = parse(text.as_bytes());
        let mut pieces = Kept { policy: Policy::EMPTY, rules: Vec::new(), errors: Vec::new() };
        let (mut progress, mut left) = (Progress::default(), text.as_bytes());
        while left.len() > window {
            let (piece, rest) = left.split_at(Progress::whole_tables(&left[..window]));
            if piece.is_empty() {
                break;
            }
            progress.read(piece, &mut pieces);
            left = rest;
        }
        progress.read(left, &mut pieces);
        prop_assert_eq!(&whole.errors, &pieces.errors);
        let told = |kept: &Kept<'_>| format!("{:?}{:?}", kept.rules, kept.policy);
        prop_assert_eq!(told(&whole), told(&pieces));
    }

    #[test]
    fn text_that_looks_like_a_policy_is_read_without_a_panic(text in "[\\[\\]\"'=,#a-z0-9 \n.{}-]{0,200}") {
        compare(&text)?;
    }

    #[test]
    fn any_value_of_the_variable_is_read_without_a_panic(value in proptest::collection::vec(any::<u8>(), 0..200)) {
        let elements = cuvisor_policy::visible::elements(&value).count();
        prop_assert_eq!(elements, value.iter().filter(|c| **c == b',').count() + 1);
        let _ = cuvisor_policy::device::Devices::parse(&value);
    }
}
