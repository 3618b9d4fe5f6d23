//! Field cases D: who used which GPU, and when.

use crate::support::{Child, artefacts, skip};

#[test]
fn d01_a_namespaced_process_is_told_by_more_than_its_pid() {
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("d01_a_namespaced_process_is_told_by_more_than_its_pid", "only root can make a pid namespace");
    }
    let prog = artefacts().callers.join("prog").display().to_string();
    // A new /proc shows only the inner pid; the old one shows both.
    for (flags, pids) in [(&["-p", "-f", "--mount-proc"][..], 0), (&["-p", "-f"], 2)] {
        let out = Child::new("unshare").args(flags.iter().copied()).args([prog.as_str(), "handle", "init"]).devices("1").run();
        assert_eq!(out.told(), "init 0\n");
        let init = out.event("init");
        assert_eq!(init["pid"], 1);
        assert!(init["start_time"].as_u64().is_some_and(|ticks| ticks > 0) || pids == 2, "{init}");
        assert_eq!(init.get("ns_pids").map_or(0, |p| p.as_array().unwrap().len()), pids, "{init}");
        if pids == 2 {
            assert_eq!(init["ns_pids"][1], 1);
        }
        let inode = init["pid_namespace"].as_u64().unwrap();
        assert!(inode != 0xEFFF_FFFC && inode > 0, "{init}");
    }
    let out = Child::prog("handle", ["init"]).devices("1").run();
    assert_eq!(out.event("init").get("ns_pids"), None);
}

#[test]
fn d01_a_container_is_known_by_its_mounts_where_its_cgroup_shows_only_a_part() {
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("d01_a_container_is_known_by_its_mounts_where_its_cgroup_shows_only_a_part", "only root can make namespaces");
    }
    let prog = artefacts().callers.join("prog").display().to_string();
    let id = "3f4a5b6c7d8e9f00112233445566778899aabbccddeeff00112233445566778f";
    // In the machine's own cgroup and pid namespaces the cgroup is told whole, and the mounts are not asked.
    for (flags, container) in [("-mC", id.into()), ("-mpf", id.into()), ("-m", serde_json::Value::Null)] {
        let child = Child::new("unshare").args([flags, "sh", "-ec", "mount --bind $0 /etc/hostname; exec $1 handle init"]);
        let folder = child.dir.path().join("docker/containers").join(id);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hostname"), "c\n").unwrap();
        let out = child.args([folder.join("hostname").to_str().unwrap(), &prog]).devices("1").run();
        assert_eq!(out.told(), "init 0\n");
        assert_eq!(out.event("init")["container"], container, "unshare {flags}");
    }
}

#[test]
fn d03_without_proc_what_is_not_known_is_null_and_the_list_holds() {
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("d03_without_proc_what_is_not_known_is_null_and_the_list_holds", "only root can mount");
    }
    let prog = artefacts().callers.join("prog").display().to_string();
    let policy = "[audit]\nfile = \"AUDIT\"\n[default]\ndevices = [1]\n[[rule]]\nexe = [\"*\"]\ndevices = \"none\"\n[[rule]]\ncgroup = [\"*\"]\ndevices = \"none\"\n";
    let out =
        Child::new("unshare").args(["-m", "sh", "-ec", "mount -t tmpfs none /proc; exec $0 handle init get:0", &prog]).policy(policy).run();
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-11111111\n");
    let init = out.event("init");
    assert_eq!((&init["effective"], init["devices"].as_array().unwrap().len(), &init["argv"][0]), (&"1".into(), 1, &prog.into()));
    for key in ["exe", "cgroup", "start_time", "login_uid", "container", "rule"] {
        assert_eq!(init.get(key), Some(&serde_json::Value::Null), "{key}: {init}");
    }
}

#[test]
fn d03_a_folder_that_is_gone_is_named_all_the_same() {
    let prog = artefacts().callers.join("prog").display().to_string();
    let child = Child::new("sh").args(["-ec", "mkdir gone; cd gone; rmdir ../gone; exec $0 handle init", &prog]).devices("1");
    let folder = child.dir.path().canonicalize().unwrap();
    assert_eq!(child.run().event("init")["cwd"], format!("{}/gone (deleted)", folder.display()));
}

#[test]
fn d03_a_short_job_leaves_who_what_and_when() {
    let child = Child::prog("handle", ["init", "get:0", "_exit:0"]).env("CUDA_VISIBLE_DEVICES", "3").env("SLURM_JOB_ID", "4711");
    let dir = child.dir.path().canonicalize().unwrap();
    let out = child.devices("1").run();
    assert_eq!(out.names(), ["init", "device"], "both are on disk although the process left by _exit");
    let init = out.event("init");
    assert_eq!(init["cwd"], dir.display().to_string());
    assert_eq!(init["slurm_job"], "4711");
    assert_eq!((&init["request"], &init["effective"]), (&"3".into(), &"1".into()));
    assert!(init["exe"].as_str().unwrap().ends_with("/target/callers/prog"));
    assert_eq!(init["argv"].as_array().unwrap().len(), 5);
    for key in ["login_uid", "container"] {
        assert!(init.get(key).is_some(), "{key} is there, null or not: {init}");
    }
    assert!(init["cgroup"].as_str().unwrap().starts_with('/'));
}

#[test]
fn d04_a_title_does_not_change_the_command_line() {
    let out = Child::prog("handle", ["title:ray::worker", "init"]).devices("1").run();
    assert_eq!(out.told(), "init 0\n");
    let argv = &out.event("init")["argv"];
    assert_eq!((&argv[1], &argv[2], &argv[3]), (&"handle".into(), &"title:ray::worker".into(), &"init".into()), "{argv}");
    assert!(argv[0].as_str().unwrap().ends_with("/prog"), "{argv}");
    let mut child = Child::prog("handle", ["init"]).devices("1");
    let odd = std::ffi::OsString::from(unsafe_bytes(b"set:X=a\xffb\x07"));
    child.command().arg(odd).arg("");
    let out = child.run();
    let argv = &out.event("init")["argv"];
    assert_eq!((&argv[3], &argv[4]), (&"set:X=a\u{f7ff}b\u{7}".into(), &"".into()));
    assert_eq!(out.event("init")["raw_bytes"], true);
}

fn unsafe_bytes(bytes: &[u8]) -> &std::ffi::OsStr {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes)
}

#[test]
fn d06_each_process_on_a_device_has_its_own_record_and_cuinit_alone_is_no_use() {
    let dir = tempfile::TempDir::new().unwrap();
    let audit = dir.path().join("audit.jsonl");
    let mut three: Vec<_> = (0..3).map(|_| Child::prog("handle", ["init", "retain:0"]).devices("1").env("CUVISOR_AUDIT", &audit)).collect();
    let running: Vec<_> = three.iter_mut().map(Child::start).collect();
    running.into_iter().for_each(|process| assert!(process.wait_with_output().unwrap().status.success()));
    Child::prog("handle", ["init"]).devices("1").env("CUVISOR_AUDIT", &audit).run();
    Child::prog("handle", ["open", "find:cuInit"]).devices("1").env("CUVISOR_AUDIT", &audit).run();
    let text = std::fs::read_to_string(&audit).unwrap();
    let events: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let of = |name: &str| events.iter().filter(|e| e["event"] == name).cloned().collect::<Vec<_>>();
    assert_eq!((of("init").len(), of("context").len(), of("exit").len()), (4, 3, 4), "a process that only looks names up leaves no record");
    let pids: std::collections::HashSet<_> = of("context").iter().map(|e| e["pid"].as_i64()).collect();
    assert_eq!(pids.len(), 3);
    assert!(of("context").iter().all(|e| e["device"]["uuid"] == "GPU-11111111-0000-4000-8000-000000000001"));
}

#[test]
fn a_change_after_cuinit_is_told_once_for_each_value() {
    let steps = ["init", "retain:0", "set:CUDA_VISIBLE_DEVICES=3", "retain:0", "retain:0", "unset:CUDA_VISIBLE_DEVICES", "retain:0"];
    let out = Child::prog("handle", steps).env("CUVISOR_MODE", "audit").env("CUDA_VISIBLE_DEVICES", "1").devices("all").run();
    let changes: Vec<_> = out.events.iter().filter(|e| e["event"] == "late_change").map(|e| (e["old"].clone(), e["new"].clone())).collect();
    assert_eq!(changes, [("1".into(), "3".into()), ("1".into(), serde_json::Value::Null)]);
    let change = out.events.iter().find(|e| e["event"] == "late_change").unwrap();
    assert!(change["seconds"].as_f64().is_some_and(|s| s < 5.0), "{change}");
    assert_eq!(change["reason"], "the driver read the variable at cuInit and does not look again");
    // One that nobody calls CUDA after is found at exit.
    let out = Child::prog("handle", ["init", "set:CUDA_VISIBLE_DEVICES=3"]).env("CUVISOR_MODE", "audit").devices("all").run();
    assert_eq!(out.names(), ["init", "late_change", "exit"]);
    // One before cuInit is a request, not a late change.
    let out = Child::prog("handle", ["set:CUDA_VISIBLE_DEVICES=3", "init", "retain:0"]).devices("1").run();
    assert_eq!(out.names(), ["init", "context", "exit"]);
}

#[test]
fn secrets_on_the_command_line_are_not_written_down() {
    let policy = "[audit]\nfile = \"AUDIT\"\nredact = [\"--token\", \"--password\"]\n[default]\ndevices = [1]\n";
    let mut child = Child::prog("handle", ["init"]).policy(policy);
    child.command().args(["set:A=1", "set:--token=abc", "_exit:0", "--token=s3cret", "--password", "s3cret", "--tokens=shown", "--token"]);
    let out = child.run();
    let argv: Vec<_> = out.event("init")["argv"].as_array().unwrap().iter().skip(4).map(|a| a.as_str().unwrap().to_owned()).collect();
    assert_eq!(argv, ["set:--token=abc", "_exit:0", "--token=***", "--password", "***", "--tokens=shown", "--token"]);
}

#[test]
fn the_journal_and_syslog_get_each_event_as_a_datagram() {
    let policy = "[audit]\njournald = true\nsyslog = true\n[default]\ndevices = [1]\n";
    let child = Child::prog("handle", ["init"]).policy(policy);
    let root = child.path("r");
    std::fs::create_dir_all(root.join("run/systemd/journal")).unwrap();
    std::fs::create_dir_all(root.join("dev")).unwrap();
    let journal = std::os::unix::net::UnixDatagram::bind(root.join("run/systemd/journal/socket")).unwrap();
    let syslog = std::os::unix::net::UnixDatagram::bind(root.join("dev/log")).unwrap();
    let child = child.env("CUVISOR_PROC_ROOT", &root);
    assert_eq!(child.run().told(), "init 0\n");
    let receive = |socket: &std::os::unix::net::UnixDatagram| {
        socket.set_nonblocking(true).unwrap();
        let mut buffer = [0u8; 16384];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    let text = receive(&journal);
    let message = text.strip_prefix("SYSLOG_IDENTIFIER=cuvisor\nPRIORITY=6\nCUVISOR_EVENT=init\nMESSAGE=").unwrap().trim_end();
    let event: serde_json::Value = serde_json::from_str(message).unwrap();
    assert_eq!(event["event"], "init");
    assert!(receive(&journal).contains("CUVISOR_EVENT=exit\n"));
    let text = receive(&syslog);
    assert!(text.starts_with(&format!("<14>cuvisor[{}]: {{\"schema\":\"cuvisor.audit/1\"", event["pid"])), "{text}");
    // Nobody listens: nothing is noticed.
    drop((journal, syslog));
    let child = Child::prog("handle", ["init"]).policy(policy).env("CUVISOR_PROC_ROOT", "/nowhere");
    assert_eq!(child.run().told(), "init 0\n");
}

#[test]
fn a_file_of_another_user_is_not_written_though_it_may_be() {
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("a_file_of_another_user_is_not_written_though_it_may_be", "only root can make one");
    }
    let child = Child::prog("handle", ["init"]).devices("1");
    let audit = child.path("audit.jsonl");
    std::fs::write(&audit, "").unwrap();
    std::os::unix::fs::chown(&audit, Some(1234), None).unwrap();
    assert_eq!(child.run().events.len(), 0);
}

#[test]
fn b24_sixty_four_writers_of_a_thousand_events_lose_none() {
    let policy = "[audit]\nfile = \"AUDIT\"\ncalls = \"all\"\n[default]\ndevices = [1]\n";
    let keeper = Child::prog("handle", []).policy(policy);
    let policy = keeper.path("policy.toml");
    let mut writers: Vec<_> =
        (0..64).map(|_| Child::prog("handle", ["init", "times:998:get:0"]).unset("FAKE_CUDA_LOG").env("CUVISOR_POLICY", &policy)).collect();
    let running: Vec<_> = writers.iter_mut().map(Child::start_silent).collect();
    let audit = keeper.path("audit.jsonl");
    for k in 1..=3 {
        let wanted = 2 << 20;
        while audit.metadata().map_or(0, |m| m.len()) < wanted {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        std::fs::rename(&audit, keeper.path(&format!("audit.jsonl.{k}"))).unwrap();
    }
    for mut process in running {
        process.wait().unwrap();
    }
    let total: usize =
        ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.3"].iter().map(|file| keeper.events(file).len()).sum();
    assert_eq!(total, 64 * 1000, "every line parses and none is lost");
}
