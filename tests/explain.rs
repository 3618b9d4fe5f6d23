//! `cuvisor check` and `cuvisor explain`.

use crate::support::{Child, Output, artefacts, inventory};
use proptest::prelude::*;

fn cuvisor(arguments: &[&str], prepare: impl FnOnce(Child) -> Child) -> Output {
    prepare(Child::new(&artefacts().cuvisor).bare().args(arguments.iter().copied())).run()
}

#[test]
fn check_shows_all_errors_like_a_compiler() {
    let file = "mode = \"strict\"\n[default]\ndevices = [0, 0x1, 0]\n[[rule]]\nvisible_device = \"0\"\n";
    let out = cuvisor(&["check", "policy.toml"], |child| child.policy(file));
    let expected = "\
policy.toml:1:9: error: unknown mode
1 | mode = \"strict\"
  |         ^^^^^^
  = write \"enforce\", \"audit\" or \"off\"

policy.toml:3:15: error: an index in hexadecimal (the driver would read 0)
3 | devices = [0, 0x1, 0]
  |               ^^^
  = write the index in decimal

policy.toml:3:20: error: names the same device as an earlier element (the driver would fail with error 101)
3 | devices = [0, 0x1, 0]
  |                    ^
  = remove one of the two

policy.toml:5:1: error: unknown key
5 | visible_device = \"0\"
  | ^^^^^^^^^^^^^^
  = a rule has the keys name, user, group, exe, argv, env, cgroup, devices, request, emit, seal and mode

policy.toml: 0 rules, 4 errors, 0 warnings
";
    assert_eq!((out.code, out.stdout.as_str(), out.stderr.as_str()), (Some(1), expected, ""));
}

#[test]
fn check_warns_of_what_is_sound_and_surely_not_meant() {
    let file = "[[rule]]\nname = \"a\"\nexe = [\"/usr/bin/*\", \"/x\"]\ndevices = [1]\n[[rule]]\nname = \"a\"\nexe = [\"/x\"]\nenv = [\"Y\"]\ndevices = [9]\n\
                [[rule]]\nuser = [\"no-such-user\"]\ngroup = [\"no-such-group\"]\nargv = [\"*vllm*\"]\ndevices = [\"GPU-11\"]\n";
    let out = cuvisor(&["check", "policy.toml"], |child| {
        inventory(&child.path("root"), &[0, 1]);
        let other = child.path("root/proc/driver/nvidia/gpus/0000:11:00.0/information");
        let text = std::fs::read_to_string(&other).unwrap().replace("H200", "H100");
        std::fs::write(other, text).unwrap();
        let root = child.path("root");
        child.policy(file).env("CUVISOR_PROC_ROOT", root)
    });
    let warnings: Vec<_> =
        out.stdout.lines().filter_map(|l| l.split_once(" warning: ").map(|(place, text)| format!("{place} {text}"))).collect();
    assert_eq!(
        warnings,
        [
            "policy.toml:4:12: indices on a machine whose GPUs differ",
            "policy.toml:5:3: this rule never matches: the rule \"a\" before it matches all that it does",
            "policy.toml:5:3: a second rule of this name",
            "policy.toml:9:12: indices on a machine whose GPUs differ",
            "policy.toml:9:12: this names no GPU of this machine, or several",
            "policy.toml:11:10: no user `no-such-user` in /etc/passwd",
            "policy.toml:12:11: no group `no-such-group` in /etc/group",
            "policy.toml:13:10: vllm may read CUDA_VISIBLE_DEVICES as numbers, and this rule writes UUIDs",
        ],
        "{}",
        out.stdout
    );
    assert_eq!(out.code, Some(0));
    assert!(out.stdout.ends_with("policy.toml: 3 rules, 0 errors, 8 warnings\n"), "{}", out.stdout);
}

#[test]
fn check_warns_of_a_file_that_others_can_write() {
    use std::os::unix::fs::PermissionsExt;
    let out = cuvisor(&["check", "policy.toml"], |child| {
        let child = child.policy("");
        std::fs::set_permissions(child.path("policy.toml"), std::fs::Permissions::from_mode(0o666)).unwrap();
        child
    });
    assert!(out.stdout.contains("warning: others than root can change this file"), "{}", out.stdout);
}

#[test]
fn check_of_a_file_that_is_not_there_exits_2() {
    let out = cuvisor(&["check", "/nowhere/policy.toml"], |child| child);
    assert_eq!((out.code, out.stderr.as_str()), (Some(2), "cuvisor: /nowhere/policy.toml: No such file or directory (os error 2)\n"));
}

#[test]
fn explain_tells_the_rule_the_request_and_what_is_seen() {
    let file = "[default]\ndevices = \"none\"\n[[rule]]\nname = \"other\"\nargv = [\"*serve.py*\"]\ndevices = [0]\n\
                [[rule]]\nname = \"trainers\"\nargv = [\"*train.py*\"]\ndevices = [1, 3]\nrequest = \"narrow\"\n";
    let out = cuvisor(&["explain", "--policy", "policy.toml", "--", "/bin/true", "train.py"], |child| {
        inventory(&child.path("root"), &[0, 1, 2, 3]);
        let root = child.path("root");
        child.policy(file).env("CUVISOR_PROC_ROOT", root).env("CUDA_VISIBLE_DEVICES", "3,0x1,one")
    });
    let expected = "\
policy     policy.toml
mode       enforce
not        rule \"other\": its argv does not match
matched    rule \"trainers\"
devices    1,3
request    3,0x1,one
           `3`: the driver reads 3
           `0x1`: the driver reads 0 and ignores `x1`
           `one`: the list ends here: this is no device
effective  3
because    the request names a device outside the policy
cuda:0     GPU-33333333-0000-4000-8000-000000000003  0000:13:00.0  nvidia-smi index 3  NVIDIA H200
";
    assert_eq!(out.told(), expected);
}

#[test]
fn explain_takes_another_user_environment_and_machine() {
    let file = "[default]\ndevices = [0]\n[[rule]]\nuser = [\"daemon\"]\nenv = [\"A=1\"]\ndevices = [2]\n";
    let json = |arguments: &[&str]| {
        let out = cuvisor(&[&["explain", "--json", "--gpus", "4", "--policy", "policy.toml"], arguments, &["--", "true"]].concat(), |c| {
            c.policy(file)
        });
        let told: serde_json::Value = serde_json::from_str(out.told()).unwrap();
        told
    };
    assert_eq!(json(&["--as", "daemon", "--env", "A=1"])["effective"], "2");
    assert_eq!(json(&["--as", "1", "--env", "A=1"])["effective"], "2");
    assert_eq!(json(&["--as", "daemon"])["effective"], "0");
    assert_eq!(json(&["--env", "A=1"])["sees"][0]["index"], 0);
    let out = cuvisor(&["explain", "--as", "nobody-of-this-name", "--", "true"], |c| c);
    assert_eq!((out.code, out.stderr.as_str()), (Some(125), "cuvisor: --as nobody-of-this-name: no such user in /etc/passwd\n"));
    let out = cuvisor(&["explain", "--policy", "policy.toml", "--", "true"], |c| c.policy("devices = 1"));
    assert_eq!(out.code, Some(1));
    assert!(out.stdout.contains("unknown key") && out.stdout.contains("effective  \"\"\n"), "{}", out.stdout);
}

/// A policy's list: mostly sound.
fn devices() -> impl Strategy<Value = String> {
    let element = proptest::sample::select(vec![
        "0",
        "1",
        "2",
        "3",
        "5",
        "\"GPU-00000000\"",
        "\"GPU-1\"",
        "\"GPU-22222222-0000-4000\"",
        "\"GPU-f\"",
        "\"0000:11:00.0\"",
        "\"0000:77:00.0\"",
    ]);
    prop_oneof![
        1 => Just("\"all\"".to_owned()),
        1 => Just("\"none\"".to_owned()),
        8 => proptest::collection::vec(element, 1..4).prop_map(|list| format!("[{}]", list.join(", "))),
    ]
}

fn request() -> impl Strategy<Value = Option<String>> {
    let element = proptest::sample::select(vec![
        "0",
        "1",
        "2",
        "3",
        "6",
        "-1",
        "0x1",
        " 1",
        "one",
        "",
        "GPU-11",
        "GPU-2222",
        "GPU-",
        "GPU-33333333-0000-4000-8000-000000000003x",
    ]);
    proptest::option::of(proptest::collection::vec(element, 0..4).prop_map(|list| list.join(",")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_explain_says_is_what_a_child_sees(
        devices in devices(),
        narrow in any::<bool>(),
        emit in proptest::sample::select(vec!["as-written", "uuid", "index"]),
        mode in proptest::sample::select(vec!["enforce", "enforce", "enforce", "audit", "off"]),
        request in request(),
        gpus in 0usize..5,
        listed in any::<bool>(),
    ) {
        let file = format!(
            "mode = \"{mode}\"\n[default]\ndevices = {devices}\nemit = \"{emit}\"\nrequest = \"{}\"\n",
            if narrow { "narrow" } else { "fixed" }
        );
        let prepare = |child: Child| {
            let root = child.path("root");
            inventory(&root, &(0..if listed { gpus } else { 0 }).collect::<Vec<_>>());
            let child = child.policy(&file).env("CUVISOR_PROC_ROOT", root).env("FAKE_CUDA_GPUS", gpus.to_string());
            match &request {
                Some(value) => child.env("CUDA_VISIBLE_DEVICES", value),
                None => child,
            }
        };
        let told = cuvisor(&["explain", "--json", "--", "true"], prepare);
        let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
        let steps = ["env:CUDA_VISIBLE_DEVICES", "init", "env:CUDA_VISIBLE_DEVICES", "get:0", "get:1", "get:2", "get:3"];
        let seen = prepare(Child::prog("handle", steps)).run();
        let mut lines = seen.stdout.lines();
        let variable = format!("CUDA_VISIBLE_DEVICES={}", told["effective"].as_str().unwrap_or("(unset)"));
        prop_assert_eq!(lines.next(), Some(variable.as_str()), "{}", &file);
        let result = lines.next().unwrap().trim_start_matches("init ").to_owned();
        prop_assert_eq!(lines.next(), Some(variable.as_str()), "{}", &file);
        if listed && gpus > 0 {
            prop_assert_eq!(told["result"].to_string(), result, "{}", &file);
            let uuids: Vec<String> = lines.filter_map(|l| Some(l.split_once(" GPU-")?.1.to_owned())).collect();
            let expected: Vec<String> = told["sees"].as_array().unwrap().iter().map(|s| s["uuid"].as_str().unwrap()[4..12].to_owned()).collect();
            prop_assert_eq!(expected, uuids, "{}", &file);
        }
    }
}
