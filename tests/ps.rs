//! `cuvisor ps`, over a made-up /proc and over this machine's.

use crate::support::{Child, Output, artefacts, inventory, skip};
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
fn a_process_in_a_container_is_judged_by_its_own_files_and_numbers() {
    let dir = tempfile::TempDir::new().unwrap();
    inventory(dir.path(), &[0, 1, 2]);
    let text = "[default]\ndevices = \"none\"\n[[rule]]\nname = \"hers\"\nuser = [\"ada\"]\ngroup = [\"lab\"]\ndevices = [0]\n";
    // Pid 10's container has the machine's GPU 1, which is 0 there, and its uid 5 is the machine's 100005; 11 has no container.
    for pid in [10, 11] {
        process(dir.path(), pid, 100_005, "python3 train.py", "CUVISOR_POLICY=/link.toml", true, &[(1, 20)]);
    }
    let folder = dir.path().join("proc/10");
    std::fs::write(folder.join("uid_map"), "0 100000 65536\n").unwrap();
    std::fs::write(folder.join("gid_map"), "7 0 1\n").unwrap();
    let root = folder.join("root");
    for folder in ["dev", "etc"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let files = [("dev/nvidia1", ""), ("etc/passwd", "ada:x:5:5::/:\n"), ("etc/group", "lab:x:7:\n"), ("policy.toml", text)];
    for (file, text) in files {
        std::fs::write(root.join(file), text).unwrap();
    }
    std::os::unix::fs::symlink("/policy.toml", root.join("link.toml")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&ps(dir.path(), &["--json"]).stdout).unwrap();
    let facts = |k: usize| (&json[k]["rule"], &json[k]["gpus"][0]["index"], &json[k]["gpus"][0]["allowed"]);
    assert_eq!(facts(0), (&"\"hers\"".into(), &1.into(), &true.into()));
    assert_eq!(facts(1), (&serde_json::Value::Null, &1.into(), &false.into()), "outside there is no such file, which denies");
}

#[test]
fn a_container_without_a_policy_is_judged_by_the_machines() {
    const NAME: &str = "a_container_without_a_policy_is_judged_by_the_machines";
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip(NAME, "only root can make a mount namespace");
    }
    let dir = tempfile::TempDir::new().unwrap();
    inventory(dir.path(), &[0, 1]);
    process(dir.path(), 10, 0, "python3 train.py", "", false, &[(0, 20)]);
    std::fs::create_dir_all(dir.path().join("proc/10/root/dev")).unwrap();
    std::fs::write(dir.path().join("proc/10/root/dev/nvidia0"), "").unwrap();
    let script = "mount -t tmpfs none /mnt && cp -a /etc/. /mnt/ && mkdir -p /mnt/cuvisor && mount --bind /mnt /etc
        printf '[default]\\ndevices = [1]\\n' >/etc/cuvisor/policy.toml && exec $0 ps --json";
    let child = Child::new("unshare").bare().args(["-m", "sh", "-ec", script]).arg(&artefacts().cuvisor);
    let out = child.env("CUVISOR_PROC_ROOT", dir.path()).run();
    let json: serde_json::Value = serde_json::from_str(&out.stdout).unwrap_or_else(|error| panic!("{error}: {out:?}"));
    let marks = ["has a GPU open that the policy does not give it", "the library is not in it"];
    assert_eq!((&json[0]["marks"], out.code), (&serde_json::json!(marks), Some(1)));
}

#[test]
fn what_another_process_names_cannot_hold_up_or_fill_the_command() {
    let dir = tempfile::TempDir::new().unwrap();
    inventory(dir.path(), &[0]);
    let fifo = dir.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let huge = dir.path().join("huge");
    std::fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    let cases = [
        (fifo.display().to_string(), "the policy is no regular file; name a file"),
        ("/dev/zero".to_owned(), "the policy is no regular file; name a file"),
        (huge.display().to_string(), "the policy is larger than 4 MiB; join rules that give the same devices"),
    ];
    for (pid, (path, reason)) in (10..).zip(cases) {
        process(dir.path(), pid, 0, "x", &format!("CUVISOR_POLICY={path}"), true, &[(0, 4)]);
        std::fs::write(dir.path().join(format!("proc/{pid}/stat")), format!("{pid} (x) S 1 {} 4242 0", "0 ".repeat(17))).unwrap();
        let command = artefacts().cuvisor.display().to_string();
        let ask = |arguments: &[&str]| {
            let child = Child::new("timeout").bare().args(["20", &command]).args(arguments.iter().copied());
            child.env("CUVISOR_PROC_ROOT", dir.path()).env("CUVISOR_POLICY", &path).run()
        };
        let of_process = ask(&["doctor", "--pid", &pid.to_string()]);
        assert!(of_process.stdout.contains(&format!("{path}: {reason}")), "{of_process:?}");
        let explained = ask(&["explain", "--", "true"]);
        assert!(explained.stdout.contains(&format!("broken     {path}: {reason}\n")), "{explained:?}");
        // The library's own words.
        let held = Child::prog("handle", ["init"]).env("CUVISOR_POLICY", &path).run();
        assert_eq!((held.stdout.as_str(), held.stderr), ("init 100\n", format!("cuvisor: no GPU for this process: {path}: {reason}\n")));
    }
    let marked: serde_json::Value = serde_json::from_str(&ps(dir.path(), &["--json"]).stdout).unwrap();
    assert_eq!(marked.as_array().unwrap().iter().filter(|one| one["gpus"][0]["allowed"] == false).count(), 3);
    // So with its audit file, which may be a FIFO as well.
    process(dir.path(), 20, 0, "x", &format!("CUVISOR_DEVICES=0\0CUVISOR_AUDIT={}", fifo.display()).replace('\0', " "), true, &[(0, 4)]);
    let child = Child::new("timeout").bare().arg("20").arg(&artefacts().cuvisor).args(["doctor", "--pid", "20"]);
    let out = child.env("CUVISOR_PROC_ROOT", dir.path()).run();
    assert!(out.stdout.contains("whether its cuInit came through the library is not known"), "{out:?}");
}

#[test]
fn what_another_user_writes_cannot_move_the_cursor() {
    let dir = tempfile::TempDir::new().unwrap();
    inventory(dir.path(), &[0]);
    process(dir.path(), 10, 0, "a\u{1b}[2J\n10\u{9b}1mb", "CUDA_VISIBLE_DEVICES=\u{1b}[31m CUVISOR_POLICY=/no\rne", true, &[(0, 4)]);
    let lines = [("init", ",\"result\":0,\"request\":\"\\u001b[2J\",\"effective\":\"0\""), ("device", ",\"result\":0")].map(|(event, more)| {
        format!(
            "{{\"schema\":\"cuvisor.audit/1\",\"time\":\"2026-11-01T10:00:00.000000Z\",\"event\":\"{event}\",\"outcome\":\"enforced\",\"pid\":10,\
             \"uid\":0,\"exe\":\"/x\\u001b[2J\\ny\",\"argv\":[]{more}}}\n"
        )
    });
    std::fs::write(dir.path().join("a.jsonl"), lines.concat() + "\u{1b}[2Jno event\n").unwrap();
    std::fs::write(dir.path().join("p.toml"), "devices = \"\u{1b}[2J\"\n").unwrap();
    let ask = |arguments: &[&str]| {
        let mut child = Child::new(&artefacts().cuvisor).bare().args(arguments.iter().copied()).env("CUVISOR_PROC_ROOT", dir.path());
        child.command().current_dir(dir.path());
        child.run()
    };
    for arguments in [
        &["ps"][..],
        &["doctor", "--pid", "10"],
        &["tail", "a.jsonl"],
        &["report", "a.jsonl"],
        &["check", "p.toml"],
        &["explain", "--policy", "p.toml", "--", "a\u{1b}b"],
        &["explain", "--env", "CUDA_VISIBLE_DEVICES=\u{1b}[2J", "--", "true"],
    ] {
        let out = ask(arguments);
        let text = out.stdout + &out.stderr;
        assert!(text.contains('?') && !text.contains(|c: char| c.is_control() && c != '\n'), "{arguments:?}: {text:?}");
    }
    assert_eq!(ask(&["ps"]).stdout.lines().count(), 2, "a line of its own for none");
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
