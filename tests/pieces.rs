//! Policies larger than what the library reads at a time (some 6 KiB): they mean the same as small ones.

use crate::support::{Child, skip};
use std::fmt::Write;

/// Rules that match nothing here, some 70 bytes each.
fn others(rules: std::ops::Range<usize>) -> String {
    rules.fold(String::new(), |mut text, k| {
        let _ = write!(text, "[[rule]]\nname = \"r{k}\"\nenv = [\"JOB=j{k}\"] # job {k}\ndevices = [{}]\n\n", k % 4);
        text
    })
}

fn under(policy: &str) -> Child {
    Child::prog("handle", ["init", "count", "get:0"]).policy(policy)
}

/// What the first GPU is, and by which rule.
#[track_caller]
fn given(policy: &str, job: &str) -> (String, String) {
    let out = under(policy).env("JOB", job).run();
    assert_eq!(out.stderr, "");
    let gpu = out.told().lines().nth(2).unwrap_or_default().to_owned();
    (gpu, out.event("init")["rule"].to_string())
}

#[test]
fn tables_may_stand_in_any_order_in_a_large_policy() {
    let middle = "[[rule]]\nname = \"mine\"\nenv = [\"JOB=mine\"]\ndevices = [3]\n";
    let (before, after) = (others(0..300), others(300..600));
    let audit = "[audit]\nfile = \"AUDIT\"\n";
    let default = "[default]\ndevices = [2]\n";
    let policies = [
        format!("{audit}{default}{before}{middle}{after}"),
        format!("{before}{middle}{after}{default}{audit}"),
        format!("{default}{middle}{before}{after}{audit}"),
        format!("mode = \"enforce\"\n{before}{audit}{after}{default}{middle}"),
    ];
    for policy in &policies {
        assert_eq!(given(policy, "mine"), ("get 0 0 GPU-33333333".into(), "\"mine\"".into()));
        assert_eq!(given(policy, "j299"), ("get 0 0 GPU-33333333".into(), "\"r299\"".into()));
        assert_eq!(given(policy, "j301"), ("get 0 0 GPU-11111111".into(), "\"r301\"".into()));
        assert_eq!(given(policy, "nobody"), ("get 0 0 GPU-22222222".into(), "null".into()));
    }
}

#[test]
fn a_large_policy_is_off_or_locked_as_its_first_lines_say() {
    let rules = others(0..300);
    let out = under(&format!("mode = \"off\"\n{rules}[default]\ndevices = [2]\n")).run();
    assert_eq!(out.told(), "init 0\ncount 0 4\nget 0 0 GPU-00000000\n");
    let out = under(&format!("locked = true\n[audit]\nfile = \"AUDIT\"\n{rules}[default]\ndevices = [2]\n")).devices("1").run();
    assert_eq!(out.told(), "init 0\ncount 0 1\nget 0 0 GPU-22222222\n");
    assert_eq!(out.event("init")["ignored"][0], "CUVISOR_DEVICES");
}

/// Runs a program under a policy with a fault, and compares what it is told.
#[track_caller]
fn denied(text: &str, message: &str) {
    let child = under(text);
    let policy = child.path("policy.toml").display().to_string();
    let out = child.run();
    assert_eq!(out.stdout, "init 100\ncount 3 untouched\nget 0 3 untouched\n");
    assert_eq!(out.stderr, format!("cuvisor: no GPU for this process: {policy}:{message}\n"));
}

#[test]
fn a_fault_far_down_is_told_with_its_place() {
    let rules = others(0..500);
    let line = rules.lines().count() + 1;
    denied(
        &format!("{rules}device = [0]\n"),
        &format!(
            "{line}:1: unknown key: `device`; a rule has the keys name, user, group, exe, argv, env, cgroup, devices, request, emit, seal and mode"
        ),
    );
    denied(
        &format!("{rules}[[rule]]\nname = \"é\" ü\ndevices = [0]\n{rules}"),
        &format!("{}:12: unexpected text at the end of the line: `ü`; put it on a line of its own, or # before a comment", line + 1),
    );
    let later = format!("{rules}[default]\n{rules}[default]\n");
    let twice = later.lines().count();
    denied(&later, &format!("{twice}:2: this table stands twice: `default`; join the two"));
}

#[test]
fn a_list_that_a_table_would_cut_is_a_fault_wherever_it_stands() {
    let rules = others(0..200);
    let line = rules.lines().count() + 2;
    for more in [String::new(), rules.clone()] {
        denied(
            &format!("{rules}[[rule]]\nenv = [\"A\",\n[[rule]]\ndevices = [0]\n{more}"),
            &format!("{}:1: a list inside a list: `[`; write the elements in one list", line + 1),
        );
    }
}

#[test]
fn a_table_may_be_larger_than_a_piece() {
    let names = (0..3000).fold(String::new(), |mut text, k| {
        let _ = writeln!(text, "  \"JOB=k{k}\", # [not a table]");
        text
    });
    let rule = format!("[[rule]]\nname = \"long\"\nenv = [\n{names}]\ndevices = [3]\n");
    let head = "[audit]\nfile = \"AUDIT\"\n[default]\ndevices = [2]\n";
    for (before, after) in [(0, 0), (0, 300), (300, 0), (300, 300)] {
        let policy = format!("{head}{}{rule}{}", others(0..before), others(before..before + after));
        assert_eq!(given(&policy, "k2999"), ("get 0 0 GPU-33333333".into(), "\"long\"".into()));
        assert_eq!(given(&policy, "nobody"), ("get 0 0 GPU-22222222".into(), "null".into()));
        if after > 0 {
            let last = before + after - 1;
            assert_eq!(given(&policy, &format!("j{last}")).1, format!("\"r{last}\""));
        }
    }
    let comment = format!("# {}\n", "x".repeat(100_000));
    assert_eq!(given(&format!("{comment}{head}{comment}"), "any").0, "get 0 0 GPU-22222222");
}

#[test]
fn what_is_no_text_is_found_in_every_piece() {
    let rules = others(0..300);
    let line = rules.lines().count() + 1;
    denied(&format!("{rules}[default]\ndevices = [0]\n# \u{1}\n"), &format!("{}:3: a control character; remove it", line + 2));
    let mut bytes = format!("{rules}[default]\n# ").into_bytes();
    bytes.push(0xff);
    let child = under("");
    let policy = child.path("policy.toml");
    std::fs::write(&policy, bytes).unwrap();
    let out = child.run();
    let message = format!("{}:{}:3: the file is not UTF-8 text; save the file as UTF-8", policy.display(), line + 1);
    assert_eq!(out.stderr, format!("cuvisor: no GPU for this process: {message}\n"));
}

#[test]
fn a_policy_may_be_four_mebibytes_long_and_not_more() {
    let mut policy = format!("[default]\ndevices = [2]\n{}", others(0..45_000));
    let left = (4usize << 20) - policy.len();
    policy.push_str(&format!("#{}\n", "x".repeat(left - 2)));
    assert_eq!(under(&policy).env("JOB", "j44999").run().told(), "init 0\ncount 0 1\nget 0 0 GPU-33333333\n");
    policy.push('\n');
    let child = under(&policy);
    let path = child.path("policy.toml").display().to_string();
    let out = child.run();
    assert_eq!(
        out.stderr,
        format!("cuvisor: no GPU for this process: {path}: the policy is larger than 4 MiB; join rules that give the same devices\n")
    );
}

#[test]
fn a_file_that_ends_before_its_length_is_not_taken_for_the_whole() {
    // Files of sysfs have a length of a page and hold less, as a file has that somebody is about to write anew.
    let path = "/sys/kernel/uevent_seqnum";
    if std::fs::metadata(path).map_or(0, |m| m.len()) != 4096 {
        return skip("a_file_that_ends_before_its_length_is_not_taken_for_the_whole", "there is no /sys/kernel/uevent_seqnum");
    }
    let out = Child::prog("handle", ["init"]).env("CUVISOR_POLICY", path).run();
    assert_eq!(out.stdout, "init 100\n");
    let message = "the policy became shorter while it was read; write a new file and rename it to this name";
    assert_eq!(out.stderr, format!("cuvisor: no GPU for this process: {path}: {message}\n"));
}
