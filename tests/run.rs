//! `cuvisor run`.

use crate::support::{Child, Output, artefacts};

fn run(arguments: &[&str], prepare: impl FnOnce(Child) -> Child) -> Output {
    let child = Child::new(&artefacts().cuvisor).bare().arg("run");
    prepare(child.args(arguments.iter().copied())).run()
}

fn prog() -> String {
    artefacts().callers.join("prog").display().to_string()
}

#[test]
fn the_program_gets_its_gpu_and_its_children_do_too() {
    let out = run(&["--devices", "1", "--", &prog(), "handle", "init", "get:0", "exec:init", "env:CUDA_VISIBLE_DEVICES"], |c| c);
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-11111111\ninit 0\nCUDA_VISIBLE_DEVICES=1\n");
}

#[test]
fn options_stand_before_the_command_and_the_dashes_may_be_left_out() {
    let out = run(&["-d", "none", &prog(), "handle", "init", "env:CUVISOR_MODE"], |c| c);
    assert_eq!(out.told(), "init 100\nCUVISOR_MODE=(unset)\n");
    let out = run(&["--mode", "audit", "--audit", "audit.jsonl", &prog(), "handle", "init"], |c| c);
    assert_eq!(out.told(), "init 0\n");
    assert_eq!(out.event("init")["outcome"], "audited");
}

#[test]
fn exit_codes_are_the_programs_own_or_those_of_env() {
    assert_eq!(run(&["sh", "-c", "exit 7"], |c| c).code, Some(7));
    let out = run(&["no-such-program"], |c| c);
    assert_eq!((out.code, out.stderr.as_str()), (Some(127), "cuvisor: no-such-program: No such file or directory (os error 2)\n"));
    let out = run(&["/etc/passwd"], |c| c);
    assert_eq!((out.code, out.stderr.as_str()), (Some(126), "cuvisor: /etc/passwd: Permission denied (os error 13)\n"));
}

#[test]
fn a_wrong_option_is_told_with_what_to_write_instead() {
    let cases = [
        (["--devices", "0,1-3"], "--devices 0,1-3: element 2 `1-3`: a range of devices; write each index: 0, 1, 2"),
        (
            ["--devices", "0,0"],
            "--devices 0,0: element 2 `0`: names the same device as an earlier element (the driver would fail with error 101); remove one of the two",
        ),
        (["--mode", "strict"], "--mode strict: write enforce, audit or off"),
        (["--audit", "/a{x}"], "--audit /a{x}: unknown placeholder in a file name; only {uid} and {pid} are replaced"),
    ];
    for (arguments, message) in cases {
        let out = run(&[arguments[0], arguments[1], "true"], |c| c);
        assert_eq!((out.code, out.stderr.as_str()), (Some(125), format!("cuvisor: {message}\n").as_str()));
    }
}

#[test]
fn c20_what_was_preloaded_and_injected_stays() {
    let other = artefacts().callers.join("libother.so").display().to_string();
    let show = "printf '%s|%s|%s' \"$LD_PRELOAD\" \"$CUDA_INJECTION64_PATH\" \"$LD_LIBRARY_PATH\"";
    let before = std::env::temp_dir().display().to_string();
    let out = run(&["-d", "1", "sh", "-c", show], |c| {
        c.env("LD_PRELOAD", &other).env("CUDA_INJECTION64_PATH", "/x y").env("LD_LIBRARY_PATH", &before)
    });
    assert_eq!(out.told(), format!("{}:{other}|/x y|{before}", artefacts().library.display()));
}

#[test]
fn a_library_that_is_not_there_or_cannot_be_loaded_is_an_error() {
    let out = run(&["true"], |c| c.env("CUVISOR_LIBRARY", "/nowhere/libcuvisor.so"));
    let message = "cuvisor: libcuvisor.so is not there: looked at /nowhere/libcuvisor.so; set CUVISOR_LIBRARY to its path\n";
    assert_eq!((out.code, out.stderr.as_str()), (Some(125), message));
    let child = Child::new(&artefacts().cuvisor).bare().args(["run", "true"]);
    let path = child.path("a folder/libcuvisor.so");
    std::fs::create_dir(child.path("a folder")).unwrap();
    std::fs::copy(&artefacts().library, &path).unwrap();
    let out = child.env("CUVISOR_LIBRARY", &path).run();
    assert_eq!(out.code, Some(125));
    assert!(out.stderr.contains("a folder/libcuvisor.so: the loader cannot take a path with a blank or a colon"), "{}", out.stderr);
}

#[test]
fn a_policy_that_cannot_count_is_an_error_before_the_program_starts() {
    let told = |path: &str, text: &str| {
        let out = run(&["--policy", path, "echo", "started"], |c| c.policy(text));
        assert_eq!((out.code, out.stdout.as_str()), (Some(125), ""), "{out:?}");
        out.stderr
    };
    assert_eq!(told("none.toml", ""), "cuvisor: --policy none.toml: No such file or directory (os error 2)\n");
    assert_eq!(told(".", ""), "cuvisor: --policy .: the policy is no regular file; name a file\n");
    let broken = "\
cuvisor: the policy has an error, and would give no GPU to the program:
policy.toml:2:12: error: an index in hexadecimal (the driver would read 0)
2 | devices = [0x1]
  |            ^^^
  = write the index in decimal
";
    assert_eq!(told("policy.toml", "[default]\ndevices = [0x1]\n"), broken);
    let large = "#".repeat((4 << 20) + 1);
    assert_eq!(
        told("policy.toml", &large),
        "cuvisor: --policy policy.toml: the policy is larger than 4 MiB; join rules that give the same devices\n"
    );
    let out = Child::new(&artefacts().cuvisor).bare().args(["check", "policy.toml"]).policy(&large).run();
    assert_eq!(
        (out.code, out.stderr.as_str()),
        (Some(2), "cuvisor: policy.toml: the policy is larger than 4 MiB; join rules that give the same devices\n")
    );
}

#[test]
fn an_option_that_a_locked_policy_will_not_listen_to_is_an_error() {
    for (option, value) in [("--devices", "1"), ("--mode", "off"), ("--audit", "/x")] {
        let out = run(&["--policy", "policy.toml", option, value, "true"], |c| c.policy("locked = true\n"));
        let message = format!("cuvisor: {option} does not count: the policy policy.toml is locked; leave the option out\n");
        assert_eq!((out.code, out.stderr), (Some(125), message));
    }
    let out =
        run(&["--policy", "policy.toml", &prog(), "handle", "init", "count"], |c| c.policy("locked = true\n[default]\ndevices = [1]\n"));
    assert_eq!(out.told(), "init 0\ncount 0 1\n");
}
