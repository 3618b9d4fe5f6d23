//! `cuvisor ps`, over a made-up /proc and over this machine's.

use crate::support::{Child, Output, artefacts, inventory};
use std::path::Path;

/// A process in a made-up /proc, with so many descriptors of each node.
fn process(root: &Path, pid: u32, uid: u32, command: &str, environ: &str, library: bool, nodes: &[(u32, usize)]) {
    let folder = root.join("proc").join(pid.to_string());
    std::fs::create_dir_all(folder.join("fd")).unwrap();
    std::fs::write(
        folder.join("status"),
        format!(
            "Name:\tx\nState:\tS (sleeping)\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t0\t0\t0\t0\nGroups:\t\nKthread:\t0\nNoNewPrivs:\t0\n"
        ),
    )
    .unwrap();
    std::fs::write(folder.join("cmdline"), command.replace(' ', "\0") + "\0").unwrap();
    std::fs::write(folder.join("environ"), environ.replace(' ', "\0")).unwrap();
    std::fs::write(folder.join("cgroup"), "0::/\n").unwrap();
    std::fs::write(
        folder.join("maps"),
        if library { "7f00-7f01 r-xp 0 0:0 1 /usr/lib/libcuvisor.so\n" } else { "7f00-7f01 r-xp 0 0:0 1 /usr/lib/libc.so.6\n" },
    )
    .unwrap();
    std::os::unix::fs::symlink("/usr/bin/python3", folder.join("exe")).unwrap();
    let mut fd = 3;
    for (minor, count) in nodes {
        for _ in 0..*count {
            std::os::unix::fs::symlink(format!("/dev/nvidia{minor}"), folder.join(format!("fd/{fd}"))).unwrap();
            fd += 1;
        }
    }
    std::os::unix::fs::symlink("/dev/nvidiactl", folder.join("fd/1000")).unwrap();
}

fn ps(root: &Path, arguments: &[&str]) -> Output {
    Child::new(&artefacts().cuvisor).bare().arg("ps").args(arguments.iter().copied()).env("CUVISOR_PROC_ROOT", root).run()
}

#[test]
fn opened_used_and_not_allowed_are_told_apart() {
    let dir = tempfile::TempDir::new().unwrap();
    inventory(dir.path(), &[0, 1, 2]);
    let policy = dir.path().join("policy.toml");
    std::fs::write(&policy, "[default]\ndevices = [1]\nseal = true\n").unwrap();
    let held = format!("CUVISOR_POLICY={} CUDA_VISIBLE_DEVICES=1", policy.display());
    process(dir.path(), 10, 0, "python3 train.py", &held, true, &[(1, 20)]);
    process(dir.path(), 11, 1, "python3 stray.py", &held, false, &[(0, 4), (1, 23)]);
    process(dir.path(), 12, 0, "top", "", false, &[]);
    process(dir.path(), 13, 0, "nvtop", "", false, &[(2, 3)]);
    std::fs::create_dir_all(dir.path().join("proc/14")).unwrap();
    let out = ps(dir.path(), &[]);
    let expected = "\
pid  user    container  GPUs                             variable at start  library  seal       rule  mark                                                                           command
 10  root    -          1 used                           1                  yes      by policy  -                                                                                    python3 train.py
 11  daemon  -          0 opened (not allowed), 1 used   1                  no       -     -     has a GPU open that the policy does not give it; the library is not in it      python3 stray.py
 13  root    -          2 opened                         unset              no       -     -                                                                                    nvtop
";
    let squeeze = |text: &str| text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
    assert_eq!(squeeze(&out.stdout), squeeze(expected));
    assert_eq!(out.code, Some(1), "a marked process is told by the exit code");
    let json: serde_json::Value = serde_json::from_str(&ps(dir.path(), &["--json"]).stdout).unwrap();
    assert_eq!(json[0]["gpus"][0]["uuid"], "GPU-11111111-0000-4000-8000-000000000001");
    assert_eq!((&json[1]["gpus"][0]["allowed"], &json[1]["gpus"][1]["used"]), (&false.into(), &true.into()));
}

#[test]
fn what_was_replaced_since_is_known_by_its_name() {
    let dir = tempfile::TempDir::new().unwrap();
    inventory(dir.path(), &[0, 1]);
    let policy = dir.path().join("policy.toml");
    std::fs::write(&policy, "[default]\ndevices = \"none\"\n[[rule]]\nexe = [\"/usr/bin/python3\"]\ndevices = [1]\n").unwrap();
    process(dir.path(), 10, 0, "python3 train.py", &format!("CUVISOR_POLICY={}", policy.display()), true, &[]);
    let folder = dir.path().join("proc/10");
    std::fs::write(folder.join("maps"), "7f00-7f01 r-xp 0 0:0 1 /usr/lib/libcuvisor.so (deleted)\n").unwrap();
    std::fs::remove_file(folder.join("exe")).unwrap();
    for (target, name) in [("/usr/bin/python3 (deleted)", "exe"), ("/dev/nvidia1 (deleted)", "fd/3"), ("/dev/nvidia10x (deleted)", "fd/4")]
    {
        std::os::unix::fs::symlink(target, folder.join(name)).unwrap();
    }
    let json: serde_json::Value = serde_json::from_str(ps(dir.path(), &["--json"]).told()).unwrap();
    let gpus: Vec<_> = json[0]["gpus"].as_array().unwrap().iter().map(|gpu| (&gpu["minor"], &gpu["allowed"])).collect();
    assert_eq!((gpus, &json[0]["library"], &json[0]["marks"]), (vec![(&1.into(), &true.into())], &true.into(), &serde_json::json!([])));
}

#[test]
fn five_thousand_processes_and_odd_ones_are_no_trouble() {
    let dir = tempfile::TempDir::new().unwrap();
    for pid in 1..5000 {
        std::fs::create_dir_all(dir.path().join(format!("proc/{pid}/fd"))).unwrap();
        std::fs::write(dir.path().join(format!("proc/{pid}/status")), "State:\tZ (zombie)\nUid:\t0\n").unwrap();
    }
    process(dir.path(), 6000, 0, "a\u{fffd}b", "", true, &[(7, 1)]);
    let out = ps(dir.path(), &["--json"]);
    let json: serde_json::Value = serde_json::from_str(out.told()).unwrap();
    assert_eq!(
        (json.as_array().unwrap().len(), &json[0]["gpus"][0]["minor"], &json[0]["gpus"][0]["index"]),
        (1, &7.into(), &serde_json::Value::Null)
    );
}

#[test]
fn on_this_machine_it_says_what_is_open_or_that_nothing_is() {
    let out = Child::new(&artefacts().cuvisor).bare().arg("ps").run();
    assert!(out.stdout.starts_with("no process has a GPU open\n") || out.stdout.starts_with("pid"), "{out:?}");
}
