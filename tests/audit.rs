//! The audit line: its keys, its order, and what becomes of it where it cannot be written.

use crate::support::Child;

#[test]
fn the_line_has_the_documented_keys_in_their_order() {
    let child = Child::prog("v2", ["init", "get:0"]).env("CUDA_VISIBLE_DEVICES", "0");
    let out = child.policy("[audit]\nfile = \"AUDIT\"\n[default]\ndevices = [1]\n").run();
    let keys = |event: &serde_json::Value| event.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let init = out.event("init");
    let head = "schema time event outcome pid ppid start_time uid euid login_uid exe argv cwd container cgroup policy rule";
    assert_eq!(keys(init), sorted(&format!("{head} result result_name request effective changed rewritten caller driver devices")));
    assert_eq!(keys(out.event("device")), sorted(&format!("{head} result result_name call caller driver device")));
    assert_eq!(init["schema"], "cuvisor.audit/1");
    assert_eq!(init["request"], "0");
    assert_eq!(init["effective"], "1");
    assert_eq!(init["changed"], true);
    assert_eq!(init["rule"], serde_json::Value::Null);
    assert_eq!(init["argv"][1], "v2");
    assert_eq!(init["caller"], "prog");
    assert_eq!(init["devices"][0]["pci"], "0000:11:00.0");
    assert!(init["policy"].as_str().unwrap().ends_with("/policy.toml"));
    let time = init["time"].as_str().unwrap();
    assert!(time.len() == 27 && time.ends_with('Z') && time.starts_with("20"), "{time}");
}

#[test]
fn b24_threads_that_write_at_once_write_a_whole_line_each() {
    // 9 rounds of 8 threads, each with 100 calls; cuInit and the first call before them; all of them one identity.
    let child = Child::caller("bench").args(["get", "100", "8"]).unset("FAKE_CUDA_LOG");
    let out = child.policy("[audit]\nfile = \"AUDIT\"\ncalls = \"all\"\n[default]\ndevices = [1]\n").run();
    assert_eq!(out.code, Some(0), "{}", out.stderr);
    let (first, rest) = out.events.split_first().unwrap();
    let (last, calls) = rest.split_last().unwrap();
    assert_eq!((&first["event"], &last["event"], calls.len()), (&"init".into(), &"exit".into(), 7201));
    let who = |event: &serde_json::Value| ["pid", "start_time", "exe", "cwd", "cgroup"].map(|key| event[key].clone());
    for call in calls {
        assert_eq!((&call["event"], &call["device"]["uuid"]), (&"device".into(), &"GPU-11111111-0000-4000-8000-000000000001".into()));
        assert_eq!(who(call), who(first));
    }
}

/// serde_json gives an object's keys sorted.
fn sorted(keys: &str) -> String {
    let mut keys: Vec<_> = keys.split(' ').collect();
    keys.sort_unstable();
    keys.join(" ")
}

#[test]
fn a_later_cuinit_is_logged_only_if_it_differs() {
    let out = Child::prog("handle", ["times:11:init", "set:CUDA_VISIBLE_DEVICES=0", "init", "init"]).devices("1").run();
    let inits: Vec<_> = out.events.iter().filter(|e| e["event"] == "init").map(|e| e["request"].clone()).collect();
    assert_eq!(inits, [serde_json::Value::Null, "0".into()]);
    assert_eq!(out.event("exit")["calls"]["init"], 13);
}

#[test]
fn all_calls_are_logged_where_that_is_asked_for() {
    let policy = "[audit]\nfile = \"AUDIT\"\ncalls = \"all\"\n[default]\ndevices = [1]\n";
    let out = Child::prog("handle", ["init", "init", "times:3:get:0"]).policy(policy).run();
    assert_eq!(out.names(), ["init", "init", "device", "device", "device", "exit"]);
}

#[test]
fn uid_and_pid_are_put_into_the_files_name() {
    let child = Child::prog("handle", ["init"]).policy("[audit]\nfile = \"DIR/a-{uid}-{pid}.jsonl\"\n");
    let dir = child.dir.path().to_owned();
    let mut child = child;
    let process = child.start();
    let pid = process.id();
    process.wait_with_output().unwrap();
    // SAFETY: getuid takes nothing.
    let uid = unsafe { libc::getuid() };
    assert!(dir.join(format!("a-{uid}-{pid}.jsonl")).is_file());
}

#[test]
fn a_file_that_cannot_be_written_is_not_noticed() {
    let child = Child::prog("handle", ["init", "get:0", "exec:init"]).devices("1");
    let audit = child.path("audit.jsonl");
    std::fs::create_dir(&audit).unwrap();
    let out = child.run();
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-11111111\ninit 0\n");
}

#[test]
fn drops_are_told_by_the_next_event() {
    // The folder of the log is missing for the first two events and there for the last.
    let child = Child::prog("handle", ["init", "get:0", "mkdir:later", "get:7"]);
    let audit = child.path("later/audit.jsonl");
    let child = child.env("CUVISOR_AUDIT", audit).env("CUVISOR_DEVICES", "1");
    let events = |child: &Child| child.events("later/audit.jsonl");
    let mut child = child;
    let output = child.start().wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let events = events(&child);
    assert_eq!(events[0]["dropped"], 2, "{events:?}");
    assert_eq!(events[1]["event"], "exit");
    assert_eq!(events[1].get("dropped"), None);
}

#[test]
fn a_fifo_a_device_and_a_full_quota_do_not_stop_the_program() {
    let child = Child::prog("handle", ["init"]).devices("1");
    let fifo = child.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let out = child.env("CUVISOR_AUDIT", fifo).run();
    assert_eq!(out.told(), "init 0\n");
    let out = Child::prog("handle", ["init"]).devices("1").env("CUVISOR_AUDIT", "/dev/full").run();
    assert_eq!(out.told(), "init 0\n");
    // A write beyond the limit would end the program by SIGXFSZ.
    let prog = crate::support::artefacts().callers.join("prog");
    let out = Child::new("bash")
        .args(["-c", &format!("ulimit -f 0; exec {} handle init", prog.display())])
        .devices("1")
        .unset("FAKE_CUDA_LOG")
        .run();
    assert_eq!(out.told(), "init 0\n");
    assert!(out.events.is_empty());
}
