//! Field cases B: a guest in every process.

use crate::support::{Child, artefacts, python, root, skip};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn b01_rtld_next_is_the_callers() {
    let wrap = artefacts().callers.join("libwrap_f.so");
    let ours = &artefacts().library;
    for order in [[ours.as_path(), &wrap], [&wrap, ours.as_path()]] {
        let out = Child::caller("call_f").devices("1").preload(&order).run();
        assert_eq!(out.told(), "1 1 1\n", "{order:?}");
    }
}

#[test]
fn b03_dlerror_is_as_the_look_up_left_it() {
    let steps = ["find:cuInit", "find:no_such", "find:cuGetProcAddress_v2", "find:cuDeviceGetX"];
    let out = Child::prog("handle", steps).devices("1").run();
    let driver = out.stdout.lines().nth(1).unwrap().split(' ').nth(3).unwrap().trim_end_matches(':').to_owned();
    let expected = format!(
        "find cuInit libcuvisor.so (no error)\nfind no_such NULL {driver}: undefined symbol: no_such\nagain NULL\n\
         find cuGetProcAddress_v2 libcuvisor.so (no error)\nfind cuDeviceGetX NULL {driver}: undefined symbol: cuDeviceGetX\nagain NULL\n"
    );
    assert_eq!(out.told(), expected);
    assert!(driver.ends_with("/driver/libcuda.so.1"));
}

#[test]
fn b04_the_policy_reaches_the_children_of_shells_and_interpreters() {
    let code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])";
    let shell = format!("{} -c \"{code}\"", python());
    let node = "console.log(process.env.CUDA_VISIBLE_DEVICES)";
    let mut cases = vec![
        vec!["bash", "-c", &shell],
        vec!["dash", "-c", &shell],
        vec![python(), "-c", code],
        vec!["bash", "-c", "echo $CUDA_VISIBLE_DEVICES"],
    ];
    if Command::new("node").arg("--version").output().is_ok() {
        cases.push(vec!["node", "-e", node]);
    } else {
        skip("b04 for node", "node is not installed");
    }
    for case in cases {
        let out = Child::new(case[0]).args(case[1..].iter().copied()).env("CUDA_VISIBLE_DEVICES", "0").devices("7").run();
        assert_eq!(out.told(), "7\n", "{case:?}");
    }
}

#[test]
fn b07_nothing_that_is_wrong_at_the_start_ends_the_process() {
    let quiet = |child: Child, what: &str| {
        let out = child.run();
        assert_eq!((out.told(), out.events.len()), ("", 0), "{what}");
    };
    let with = |path: &str| Child::new("/bin/true").env("CUVISOR_POLICY", path);
    quiet(with("/"), "a folder");
    quiet(with(""), "no name");
    quiet(with("/nowhere/at/all"), "a missing file");
    quiet(with("/dev/zero"), "a device");
    let child = Child::new("/bin/true");
    let huge = child.path("huge");
    std::fs::File::create(&huge).unwrap().set_len(1 << 30).unwrap();
    quiet(child.env("CUVISOR_POLICY", &huge), "1 GiB");
    let child = Child::new("/bin/true");
    let link = child.path("link");
    std::os::unix::fs::symlink(&link, &link).unwrap();
    quiet(child.env("CUVISOR_POLICY", &link), "a link to itself");
    quiet(Child::new("/bin/true").policy("mode = \"enf"), "a cut file");
    let child = Child::new("/bin/true");
    let noise: Vec<u8> = (0..20_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(child.path("noise"), noise).unwrap();
    let path = child.path("noise");
    quiet(child.env("CUVISOR_POLICY", path), "noise");
    for limit in ["-s 64", "-v 65536", "-n 6"] {
        let script = format!("ulimit {limit}; exec /bin/true");
        quiet(Child::new("bash").args(["-c", &script]).devices("1"), limit);
    }
    let child = Child::new("bash").args(["-c", "mkdir gone; cd gone; rmdir ../gone; exec /bin/true"]);
    quiet(child.devices("1"), "a folder that is gone");
    let long = "x".repeat(100_000);
    quiet(Child::new("/bin/true").devices("1").env("CUDA_VISIBLE_DEVICES", &long).env("CUVISOR_AUDIT", &long), "long values");
}

#[test]
fn b09_the_log_is_never_on_a_standard_descriptor() {
    for closed in [">&-", "<&- >&- 2>&-"] {
        let script = format!("exec {} handle init get:0 {closed}", artefacts().callers.join("prog").display());
        let out = Child::new("bash").args(["-c", &script]).devices("1").run();
        assert_eq!((out.code, out.stdout.as_str()), (Some(0), ""), "{closed}");
        assert_eq!(out.names(), ["init", "device", "exit"], "{closed}");
    }
}

#[test]
fn b10_a_daemon_that_closes_everything_loses_no_event_and_no_file() {
    let program = "import ctypes, os\nd = ctypes.CDLL('libcuda.so.1')\nd.cuInit(0)\nos.closerange(3, 256)\n\
        f = os.open('mine', os.O_WRONLY | os.O_CREAT)\nd.cuDeviceGet(ctypes.byref(ctypes.c_int()), 0)\nos.write(f, b'mine')\n\
        os.spawnlp(os.P_WAIT, 'ls', 'ls', '/proc/self/fd')";
    let child = Child::new(python()).args(["-c", program]).devices("1");
    let mine = child.path("mine");
    let dir = child.dir.path().to_owned();
    let mut child = child;
    let output = child.start().wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0\n1\n2\n3\n", "descriptors of a child: the last is ls's own");
    assert_eq!(std::fs::read(mine).unwrap(), b"mine");
    assert_eq!(child.events("audit.jsonl").len(), 3, "{}", dir.display());
}

#[test]
fn b12_there_is_no_noise() {
    for (policy, audit) in [("devices = [", "/nowhere/x"), ("[default]\ndevices = [1]", "/proc/x"), ("", "/")] {
        for command in ["x=$(true 2>&1); printf %s \"$x\"", "PYTHON -c 1 2>&1", "dash -c : 2>&1", "cat /dev/null"] {
            let out =
                Child::new("bash").args(["-c", &command.replace("PYTHON", python())]).policy(policy).env("CUVISOR_AUDIT", audit).run();
            assert_eq!(out.told(), "", "{command} under {policy}");
        }
    }
}

#[test]
fn b19_children_forked_amid_calls_do_not_hang() {
    let out = Child::caller("forker").arg("500").devices("1").unset("FAKE_CUDA_LOG").run();
    assert_eq!(out.told(), "500 of 500\n");
    let pids: std::collections::HashSet<_> = out.events.iter().filter(|e| e["event"] == "device").map(|e| e["pid"].as_i64()).collect();
    assert_eq!(pids.len(), 501, "each child's first touch is an event with the child's pid");
}

#[test]
fn b21_a_second_copy_is_inert() {
    for route in ["handle", "linked", "global", "v2v2"] {
        for second in ["same", "link", "copy"] {
            let child = Child::prog(route, ["init", "get:0", "retain:0"]).devices("1");
            let path = match second {
                "same" => artefacts().library.clone(),
                "link" => {
                    let path = child.path("liblink.so");
                    std::os::unix::fs::symlink(&artefacts().library, &path).unwrap();
                    path
                }
                _ => {
                    let path = child.path("libcopy.so");
                    std::fs::copy(&artefacts().library, &path).unwrap();
                    path
                }
            };
            let out = child.preload(&[&artefacts().library, &path]).run();
            assert_eq!(out.told(), "init 0\nget 0 0 GPU-11111111\ncuDevicePrimaryCtxRetain 0 0\n", "{route} {second}");
            assert_eq!(out.names(), ["init", "device", "context", "exit"], "{route} {second}");
        }
    }
}

#[test]
fn b22_links_and_foreign_files_are_not_written() {
    let child = Child::prog("handle", ["init"]).devices("1");
    let (audit, target) = (child.path("audit.jsonl"), child.path("target"));
    std::os::unix::fs::symlink(&target, &audit).unwrap();
    let out = child.run();
    assert_eq!(out.told(), "init 0\n");
    assert!(!target.exists() && out.events.is_empty());

    let child = Child::prog("handle", ["init"]).devices("1");
    let (audit, target) = (child.path("audit.jsonl"), child.path("target"));
    std::fs::write(&target, "keep").unwrap();
    std::os::unix::fs::symlink(&target, &audit).unwrap();
    let prog = child;
    let dir = prog.dir.path().to_owned();
    let mut prog = prog;
    prog.start().wait_with_output().unwrap();
    assert_eq!(std::fs::read_to_string(dir.join("target")).unwrap(), "keep");

    // The mode of a file that is made does not depend on the umask.
    for umask in ["077", "000"] {
        let script = format!("umask {umask}; exec {} handle init", artefacts().callers.join("prog").display());
        let mut child = Child::new("bash").args(["-c", &script]).devices("1");
        child.start().wait_with_output().unwrap();
        let mode = child.path("audit.jsonl").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "umask {umask}");
    }
}

#[test]
fn b22_another_user_who_may_not_append_is_not_disturbed() {
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("b22_another_user_who_may_not_append_is_not_disturbed", "only root can become another user");
    }
    let child = Child::prog("handle", ["init"]).devices("1");
    std::fs::write(child.path("audit.jsonl"), "").unwrap();
    std::fs::set_permissions(child.path("audit.jsonl"), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(child.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = child;
    use std::os::unix::process::CommandExt;
    // The build's folder may be closed to others: the child runs copies in its own.
    for file in ["prog", "libcuvisor.so"] {
        let from = if file == "prog" { artefacts().callers.join(file) } else { artefacts().library.clone() };
        std::fs::copy(from, child.path(file)).unwrap();
    }
    let copy = child.path("libcuvisor.so");
    let prog = child.path("prog");
    let mut other = Child::new(&prog).args(["handle", "init"]).unset("FAKE_CUDA_LOG");
    let driver = child.path("driver");
    other =
        other.env("LD_LIBRARY_PATH", driver).env("CUVISOR_DEVICES", "1").env("CUVISOR_AUDIT", child.path("audit.jsonl")).preload(&[&copy]);
    other.command().current_dir("/").uid(1000).gid(1000);
    let output = other.start().wait_with_output().unwrap();
    assert_eq!((String::from_utf8_lossy(&output.stdout).as_ref(), output.stderr.len()), ("init 0\n", 0));
    child.command().args(["x"]);
    assert!(child.events("audit.jsonl").is_empty());
}

#[test]
fn b24_lines_stay_whole_with_many_writers_a_truncation_and_a_renaming() {
    let policy = "[audit]\nfile = \"AUDIT\"\ncalls = \"all\"\n[default]\ndevices = [1]\n";
    let long = "y".repeat(5000);
    let child = Child::prog("handle", []).policy(policy);
    let policy = child.path("policy.toml");
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let mut one =
                Child::prog("handle", ["init", "times:400:get:0", "set:PAD=1"]).unset("FAKE_CUDA_LOG").env("CUVISOR_POLICY", &policy);
            one.command().arg(format!("set:X={long}"));
            (one.start(), one)
        })
        .collect();
    let (audit, moved) = (child.path("audit.jsonl"), child.path("audit.jsonl.1"));
    while audit.metadata().map_or(0, |m| m.len()) < 1 << 20 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::fs::rename(&audit, &moved).unwrap();
    for (process, one) in writers {
        assert!(process.wait_with_output().unwrap().status.success());
        drop(one);
    }
    let total = child.events("audit.jsonl").len() + child.events("audit.jsonl.1").len();
    assert_eq!(total, 8 * (1 + 400 + 1), "every line parses and none is lost");
    let bytes = std::fs::read(&audit).unwrap();
    assert!(!bytes.contains(&0) && bytes.iter().filter(|c| **c == b'\n').count() > 0);
    // After a truncation the next line stands at the beginning.
    std::fs::File::options().write(true).open(&audit).unwrap().set_len(0).unwrap();
    let mut one = Child::prog("handle", ["init"]).env("CUVISOR_POLICY", &policy);
    one.start().wait_with_output().unwrap();
    assert_eq!(child.events("audit.jsonl").len(), 2);
}

#[test]
fn b26_a_constructor_that_runs_before_ours_is_held_too() {
    let out = Child::caller("early_main").env("CUDA_VISIBLE_DEVICES", "0").devices("2").run();
    assert_eq!(out.told(), "early 0 2\nmain 1 0\n");
    assert_eq!(out.event("init")["request"], "0");
    // The driver itself may call cuInit while it is loaded.
    let out = Child::prog("linked", ["count", "get:0"])
        .env("FAKE_CUDA_INIT_IN_CONSTRUCTOR", "1")
        .env("CUDA_VISIBLE_DEVICES", "0")
        .devices("2")
        .run();
    assert_eq!(out.told(), "count 0 1\nget 0 0 GPU-22222222\n");
}

#[test]
fn b15_a_privileged_process_trusts_no_variable() {
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("b15_a_privileged_process_trusts_no_variable", "only root can make a set-user-ID program and a mount namespace");
    }
    let child = Child::prog("handle", []);
    let dir = child.dir.path().display().to_string();
    // A set-user-ID copy of prog, and an ld.so.preload of its own in a mount namespace.
    let script = format!(
        "set -e\nmount -t tmpfs none /mnt\nmkdir /mnt/etc\ncp -a /etc/. /mnt/etc/\ncp {lib} /mnt/libcuvisor.so\nchmod 755 /mnt /mnt/libcuvisor.so\n\
         cp {prog} /mnt/prog\nchown 0 /mnt/prog\nchmod 4755 /mnt/prog\ncp {dir}/driver/libcuda.so.1 /mnt/\nmkdir -p /mnt/etc/cuvisor\n\
         printf '[default]\\ndevices = \"none\"\\n' > /mnt/etc/cuvisor/policy.toml\nchmod 644 /mnt/etc/cuvisor/policy.toml\n\
         echo /mnt/libcuvisor.so > /mnt/etc/ld.so.preload\nmount --bind /mnt/etc /etc\n\
         printf '[default]\\ndevices = \"all\"\\n' > {dir}/evil.toml\nchmod 755 {dir}\n\
         exec setpriv --reuid 1000 --clear-groups env CUVISOR_POLICY={dir}/evil.toml CUVISOR_AUDIT=/root/owned CUVISOR_DISABLE=1 \\\n\
         /mnt/prog handle library:/mnt/libcuda.so.1 init env:CUDA_VISIBLE_DEVICES",
        lib = artefacts().library.display(),
        prog = artefacts().callers.join("prog").display(),
    );
    let out = Command::new("unshare").args(["-m", "bash", "-c", &script]).output().unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout);
    assert_eq!((stdout.as_ref(), String::from_utf8_lossy(&out.stderr).as_ref()), ("init 100\nCUDA_VISIBLE_DEVICES=\n", ""));
    assert!(!std::path::Path::new("/root/owned").exists());
    assert!(!std::path::Path::new("/etc/ld.so.preload").exists(), "the namespace is gone with its process");
}

#[test]
fn b16_a_fresh_environment_escapes_ld_preload_but_not_ld_so_preload() {
    let prog = artefacts().callers.join("prog").display().to_string();
    let child = Child::new("env").args(["-i", &prog, "handle", "env:CUDA_VISIBLE_DEVICES"]).devices("1");
    assert_eq!(child.run().told(), "CUDA_VISIBLE_DEVICES=(unset)\n");
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("b16 for ld.so.preload", "only root can make a mount namespace");
    }
    let script = format!(
        "set -e\nmount -t tmpfs none /mnt\nmkdir /mnt/etc\ncp -a /etc/. /mnt/etc/\nmkdir -p /mnt/etc/cuvisor\n\
         printf '[default]\\ndevices = [2]\\n' > /mnt/etc/cuvisor/policy.toml\necho {} > /mnt/etc/ld.so.preload\nmount --bind /mnt/etc /etc\n\
         env -i {prog} handle env:CUDA_VISIBLE_DEVICES\n\
         {python} -c 'import os, subprocess; print(os.environ[\"CUDA_VISIBLE_DEVICES\"], subprocess.run([\"{prog}\", \"handle\", \"env:CUDA_VISIBLE_DEVICES\"], env=dict(), capture_output=True, text=True).stdout, end=\"\")'",
        artefacts().library.display(),
        python = python(),
    );
    let out = Command::new("unshare").args(["-m", "bash", "-c", &script]).output().unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout);
    assert_eq!(stdout, "CUDA_VISIBLE_DEVICES=2\n2 CUDA_VISIBLE_DEVICES=2\n", "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn b18_asan_and_deepbind() {
    let child = Child::prog("handle", ["env:CUDA_VISIBLE_DEVICES", "behind", "count"]).devices("1");
    assert_eq!(child.run().told(), "CUDA_VISIBLE_DEVICES=1\nbehind 0\ncount 0 1\n", "the list holds, the event is missing");
    let source = root().join("tests/callers/early_main.c");
    let child = Child::new("true");
    let target = child.path("asan");
    let folder = format!("-L{}", artefacts().callers.display());
    let built =
        Command::new("cc").args(["-fsanitize=address", "-o"]).arg(&target).arg(source).arg(folder).args(["-learly", "-lcuda"]).output();
    if !built.is_ok_and(|o| o.status.success()) {
        return skip("b18 for ASan", "cc has no address sanitizer");
    }
    let runtime = Command::new("cc").arg("-print-file-name=libasan.so").output().unwrap().stdout;
    let runtime = String::from_utf8(runtime).unwrap();
    let out = Child::new(&target)
        .devices("2")
        .preload(&[std::path::Path::new(runtime.trim()), &artefacts().library])
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .run();
    assert_eq!(out.told(), "early 0 2\nmain 1 0\n");
}
