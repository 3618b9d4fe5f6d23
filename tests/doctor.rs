//! `cuvisor doctor --pid`, about real processes.

use crate::support::{Child, Output, artefacts, inventory, skip};
use std::io::BufRead;
use std::path::Path;
use std::process::Stdio;

/// A process that has started and waits; ended when dropped.
struct Waiting(std::process::Child);

impl Waiting {
    /// Starts a child and waits until it says that it does, or has had time to start.
    fn start(child: &mut Child, speaks: bool) -> Self {
        let mut process = child.start();
        if speaks {
            let mut lines = std::io::BufReader::new(process.stdout.take().unwrap()).lines();
            while lines.next().is_some_and(|line| line.unwrap() != "waiting") {}
        } else {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        Self(process)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn doctor(pid: u32, prepare: impl FnOnce(Child) -> Child) -> Output {
    prepare(Child::new(&artefacts().cuvisor).bare().args(["doctor", "--json", "--pid"]).arg(pid.to_string())).run()
}

/// A finding's level and cause.
fn finding(out: &Output, check: &str) -> (String, String) {
    let all: Vec<serde_json::Value> = serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    let one = all.iter().find(|f| f["check"] == check).unwrap_or_else(|| panic!("{check}: {out:?}"));
    (one["level"].as_str().unwrap().to_owned(), one["cause"].as_str().unwrap().to_owned())
}

#[test]
fn a_held_process_is_explained() {
    let mut child = Child::prog("handle", ["set:CUDA_VISIBLE_DEVICES=3", "init", "wait"]).env("CUDA_VISIBLE_DEVICES", "0").devices("1");
    let process = Waiting::start(&mut child, true);
    let out = doctor(process.0.id(), |c| c);
    assert_eq!(finding(&out, "library"), ("ok".into(), "libcuvisor.so is in it".into()));
    assert_eq!(
        finding(&out, "variable").1,
        "at start \"0\"; at cuInit it asked for \"3\" and got \"1\"",
        "a change within the process does not show in /proc"
    );
    assert!(finding(&out, "driver").1.ends_with("/driver/libcuda.so.1 is loaded"));
    assert_eq!(finding(&out, "GPUs").1, "it has no GPU open");
    assert_eq!(finding(&out, "policy").1, "no file, [default]: enforce 1");
    assert_eq!(finding(&out, "seal"), ("ok".into(), "none that can be seen from outside; NoNewPrivs is not set".into()));
    assert_eq!(out.code, Some(0));
}

#[test]
fn b13_an_upgrade_of_library_and_program_is_no_escape() {
    let dir = tempfile::TempDir::new().unwrap();
    let files =
        [(artefacts().library.clone(), dir.path().join("libcuvisor.so")), (artefacts().callers.join("prog"), dir.path().join("prog"))];
    let replace = |(from, to): &(std::path::PathBuf, std::path::PathBuf)| {
        std::fs::copy(from, dir.path().join("new")).unwrap();
        std::fs::rename(dir.path().join("new"), to).unwrap();
    };
    files.iter().for_each(replace);
    let [(_, library), (_, program)] = &files;
    let policy = format!("[default]\ndevices = \"none\"\n[[rule]]\nname = \"mine\"\nexe = [\"{}\"]\ndevices = [1]\n", program.display());
    let mut child = Child::new(program).args(["handle", "init", "wait"]).preload(&[library]).policy(&policy);
    let process = Waiting::start(&mut child, true);
    let before = doctor(process.0.id(), |c| c);
    assert_eq!(finding(&before, "library"), ("ok".into(), "libcuvisor.so is in it".into()));
    assert!(finding(&before, "policy").1.ends_with("rule \"mine\": enforce 1"), "{before:?}");
    // The kernel now writes " (deleted)" behind both names.
    files.iter().for_each(replace);
    assert_eq!(doctor(process.0.id(), |c| c).stdout, before.stdout);
}

#[test]
fn the_reason_why_the_library_is_missing_is_told() {
    let say = |child: &mut Child, speaks: bool| {
        let process = Waiting::start(child, speaks);
        let policy = child.path("policy.toml");
        std::fs::write(&policy, "[default]\ndevices = [1]\n").unwrap();
        finding(&doctor(process.0.id(), |c| c), "library")
    };
    let mut bare = Child::prog("handle", ["init", "wait"]).devices("1").bare();
    let absent = "neither LD_PRELOAD nor /etc/ld.so.preload names it: somebody cleaned the environment, or it was never there";
    assert_eq!(say(&mut bare, true), ("ok".into(), format!("libcuvisor.so is not in it, and no policy asks for it ({absent})")));
    let policy = |child: Child| child.policy("[default]\ndevices = [1]\n");
    let mut bare = policy(Child::prog("handle", ["init", "wait"])).bare();
    assert_eq!(say(&mut bare, true), ("failure".into(), format!("libcuvisor.so is not in it: {absent}")));
    let waiter = artefacts().callers.join("waiter_static");
    let mut fixed = policy(Child::new(&waiter));
    assert_eq!(
        say(&mut fixed, false),
        ("failure".into(), "libcuvisor.so is not in it: it is a static program: nothing can be preloaded into it".into())
    );
}

#[test]
fn a_gpu_outside_the_policy_is_a_failure_and_a_seal_is_told_from_the_log() {
    let dir = tempfile::TempDir::new().unwrap();
    let root = dir.path();
    inventory(root, &[0, 1]);
    let policy = root.join("policy.toml");
    std::fs::write(&policy, "[default]\ndevices = [1]\nseal = true\n").unwrap();
    let folder = root.join("proc/77");
    std::fs::create_dir_all(folder.join("fd")).unwrap();
    std::fs::write(folder.join("status"), "State:\tS\nUid:\t0 0 0 0\nGid:\t0 0 0 0\nGroups:\t\nNoNewPrivs:\t1\n").unwrap();
    std::fs::write(folder.join("cmdline"), "x\0").unwrap();
    std::fs::write(folder.join("stat"), format!("77 (a ) b) S 1 {} 4242 0", "0 ".repeat(17))).unwrap();
    std::fs::write(
        folder.join("maps"),
        "0-1 r-xp 0 0:0 1 /usr/lib/libcuvisor.so\n0-1 r-xp 0 0:0 1 /usr/lib/libcuda.so.1\n0-1 r-xp 0 0:0 1 /compat/libcuda.so.1\n",
    )
    .unwrap();
    let write = |audit: &Path, seal: &str| {
        std::fs::write(folder.join("environ"), format!("CUVISOR_POLICY={}\0CUVISOR_AUDIT={}\0", policy.display(), audit.display()))
            .unwrap();
        let line = format!(
            "{{\"schema\":\"cuvisor.audit/1\",\"time\":\"2026-11-01T00:00:00.000000Z\",\"event\":\"init\",\"outcome\":\"enforced\",\"pid\":77,\"start_time\":4242,\"uid\":0,\"exe\":\"/x\",\
             \"request\":null,\"effective\":\"1\",\"seal\":{seal}}}\n"
        );
        std::fs::write(audit, line).unwrap();
    };
    for k in 0..3 {
        std::os::unix::fs::symlink("/dev/nvidia0", folder.join(format!("fd/{k}"))).unwrap();
    }
    let audit = root.join("audit.jsonl");
    write(&audit, "{\"level\":\"ioctl\",\"abi\":7,\"denied\":[\"/dev/nvidia0\"]}");
    let ask = || doctor(77, |c| c.env("CUVISOR_PROC_ROOT", root));
    let out = ask();
    assert_eq!(finding(&out, "GPUs"), ("failure".into(), "GPU 0 opened, no context; the policy does not give it GPU 0".into()));
    assert_eq!(
        finding(&out, "driver"),
        ("warning".into(), "2 copies of libcuda are loaded: /compat/libcuda.so.1, /usr/lib/libcuda.so.1".into())
    );
    assert_eq!(finding(&out, "seal"), ("ok".into(), "ioctl: denied are /dev/nvidia0 (NoNewPrivs is set)".into()));
    assert_eq!(out.code, Some(2));
    write(&audit, "{\"level\":\"failed\",\"reason\":\"no landlock\"}");
    assert_eq!(finding(&ask(), "seal"), ("failure".into(), "it failed: no landlock".into()));
    std::fs::remove_file(&audit).unwrap();
    let unknown = "the policy asks for one; whether it holds is not known: no audit line is there; NoNewPrivs is set";
    assert_eq!(finding(&ask(), "seal"), ("warning".into(), unknown.into()));
    let mut environ = std::fs::read(folder.join("environ")).unwrap();
    environ.extend(b"CUVISOR_SEALED=/dev/nvidia0 #0123456789abcdef\0");
    std::fs::write(folder.join("environ"), environ).unwrap();
    let inherited = "inherited, as its environment says: denied are /dev/nvidia0 (NoNewPrivs is set)";
    assert_eq!(finding(&ask(), "seal"), ("ok".into(), inherited.into()));
    std::fs::remove_dir_all(folder.join("fd")).unwrap();
    assert_eq!(finding(&ask(), "GPUs"), ("warning".into(), "its descriptors may not be read".into()));
    std::fs::write(&policy, "devices = 1\n").unwrap();
    assert_eq!(finding(&ask(), "policy").0, "failure", "doctor works under a broken policy");
}

/// A process 77 as its folder in a root's /proc shows it, with so many descriptors of /dev/nvidia0.
fn imagined(root: &Path, maps: &str, descriptors: usize, environment: &[u8]) -> std::path::PathBuf {
    let folder = root.join("proc/77");
    std::fs::create_dir_all(folder.join("fd")).unwrap();
    std::fs::write(folder.join("status"), "Name:\tx\nState:\tS\nUid:\t0 0 0 0\nGid:\t0 0 0 0\nGroups:\t\nNoNewPrivs:\t0\n").unwrap();
    std::fs::write(folder.join("cmdline"), b"/x\xff\0\xfe\0").unwrap();
    std::fs::write(folder.join("stat"), format!("77 (x) S 1 {} 4242 0", "0 ".repeat(17))).unwrap();
    std::fs::write(folder.join("maps"), maps).unwrap();
    std::fs::write(folder.join("environ"), environment).unwrap();
    for k in 0..descriptors {
        std::os::unix::fs::symlink("/dev/nvidia0", folder.join(format!("fd/{k}"))).unwrap();
    }
    std::os::unix::fs::symlink("/", folder.join("root")).unwrap();
    folder
}

#[test]
fn b18_a_way_past_the_hooks_is_told() {
    let dir = tempfile::TempDir::new().unwrap();
    let audit = dir.path().join("audit.jsonl");
    std::fs::write(&audit, "").unwrap();
    let deep = artefacts().callers.join("libdeep.so");
    let maps =
        format!("0-1 r-xp 0 0:0 1 /usr/lib/libcuvisor.so\n0-1 r-xp 0 0:0 1 /usr/lib/libcuda.so.1\n0-1 r-xp 0 0:0 2 {}\n", deep.display());
    let environment = format!("CUVISOR_DEVICES=0\0CUVISOR_AUDIT={}\0", audit.display());
    let folder = imagined(dir.path(), &maps, 4, environment.as_bytes());
    let ask = || doctor(77, |c| c.env("CUVISOR_PROC_ROOT", dir.path()));
    let (level, cause) = finding(&ask(), "route");
    assert!(level == "warning" && cause.contains("RTLD_DEEPBIND"), "{cause}");
    assert!(ask().stdout.contains(&format!("linked to libcuda: {}", deep.display())));
    std::fs::remove_file(folder.join("fd/0")).unwrap();
    assert_eq!(finding(&ask(), "route"), ("ok".into(), "it has not initialised CUDA".into()));
    std::os::unix::fs::symlink("/dev/nvidia0", folder.join("fd/0")).unwrap();
    std::fs::remove_file(&audit).unwrap();
    let unknown = "whether its cuInit came through the library is not known: no audit file can be read";
    assert_eq!(finding(&ask(), "route"), ("ok".into(), unknown.into()));
}

#[test]
fn names_that_are_no_text_are_no_obstacle() {
    let dir = tempfile::TempDir::new().unwrap();
    imagined(dir.path(), "0-1 r-xp 0 0:0 1 /usr/lib/libcuda.so.1\n", 1, b"CUDA_VISIBLE_DEVICES=\xff0\0\xff=\xfe\0");
    let out = doctor(77, |c| c.env("CUVISOR_PROC_ROOT", dir.path()));
    assert_eq!(finding(&out, "GPUs").1, "minor 0 opened, no context");
    assert_eq!(finding(&out, "variable").1, "at start \"\u{fffd}0\"; what it was at cuInit is not known: no audit line is there");
}

#[test]
fn another_users_process_is_told_as_far_as_it_can_be_read() {
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("another_users_process_is_told_as_far_as_it_can_be_read", "only root can become another user");
    }
    let mut child = Child::prog("handle", ["init", "wait"]).devices("1");
    let process = Waiting::start(&mut child, true);
    let other = Child::new("setpriv").bare().args(["--reuid", "1000", "--clear-groups"]).arg(&artefacts().cuvisor);
    let out = other.args(["doctor", "--json", "--pid"]).arg(process.0.id().to_string()).run();
    if out.stdout.is_empty() {
        return skip(
            "another_users_process_is_told_as_far_as_it_can_be_read",
            "the repository is in a folder that other users cannot enter",
        );
    }
    assert_eq!(finding(&out, "driver"), ("warning".into(), "its mappings may not be read".into()));
    assert_eq!(finding(&out, "GPUs"), ("warning".into(), "its descriptors may not be read".into()));
    assert!(finding(&out, "variable").1.starts_with("at start may not be read"));
    assert_eq!(out.code, Some(1));
}

#[test]
fn five_thousand_processes_are_no_obstacle() {
    let dir = tempfile::TempDir::new().unwrap();
    imagined(dir.path(), "0-1 r-xp 0 0:0 1 /usr/lib/libcuda.so.1\n", 4, b"");
    for pid in 1000..6000 {
        let folder = dir.path().join(format!("proc/{pid}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("status"), "State:\tS\nUid:\t0 0 0 0\n").unwrap();
        std::fs::write(folder.join("cmdline"), "x\0").unwrap();
    }
    let out = Child::new(&artefacts().cuvisor).bare().args(["ps", "--json"]).env("CUVISOR_PROC_ROOT", dir.path()).run();
    let all: Vec<serde_json::Value> = serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    assert_eq!((all.len(), all[0]["pid"].as_u64()), (1, Some(77)));
}

#[test]
fn a_process_that_is_gone_a_zombie_or_the_kernels_is_told() {
    let mut zombie = std::process::Command::new("true").stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    for pid in [zombie.id(), 4_000_000, 2] {
        let out = doctor(pid, |c| c);
        assert_eq!(out.code, Some(2));
        assert_eq!(finding(&out, "process").1, format!("{pid} is gone, a zombie, or a kernel thread"));
    }
    zombie.wait().unwrap();
    let out = Child::new(&artefacts().cuvisor).bare().args(["doctor", "--pid", "4000000"]).run();
    assert_eq!(
        out.stdout,
        "process  failure  4000000 is gone, a zombie, or a kernel thread\n                  -> look with ps which process you mean\n"
    );
}
