//! The guard: where the driver shows more than the policy allows.

use crate::support::{Child, artefacts, inventory, skip};

#[test]
fn a_driver_that_disregards_the_variable_gives_no_device() {
    for devices in ["1", "none", "GPU-11111111"] {
        let steps = ["init", "count", "get:0", "get:1", "pci:0000:11:00.0", "retain:1", "create1:1", "create3:1", "init"];
        let out = Child::prog("v2", steps).env("FAKE_CUDA_IGNORE_CVD", "1").devices(devices).run();
        let expected = "init 100\ncount 3 untouched\nget 0 3 untouched\nget 1 3 untouched\npci 3 untouched\n\
                        cuDevicePrimaryCtxRetain 1 3 untouched\ncuCtxCreate 1 3 untouched\ncuCtxCreate_v3 1 3 untouched\ninit 100\n";
        assert_eq!(out.told(), expected, "{devices}");
        let init = out.event("init");
        assert_eq!((&init["outcome"], &init["result"]), (&"denied".into(), &100.into()), "{devices}");
        assert_eq!(init["devices"].as_array().map(Vec::len), Some(4), "{devices}");
        let denied = out.events.iter().find(|e| e["event"] == "denied").expect("denied");
        assert_eq!(denied["reason"], "the driver shows a device outside the policy");
        assert_eq!(denied["allowed"], devices);
    }
}

#[test]
fn initialised_behind_our_back_a_device_outside_is_refused_and_the_count_is_true() {
    let steps =
        ["set:CUDA_VISIBLE_DEVICES=0,1", "behind", "count", "get:0", "get:1", "pci:0000:10:00.0", "retain:0", "create2:0", "retain:1"];
    let out = Child::prog("handle", steps).devices("GPU-11111111").run();
    let expected = "behind 0\ncount 0 2\nget 0 101 untouched\nget 1 0 GPU-11111111\npci 101 untouched\n\
                    cuDevicePrimaryCtxRetain 0 46 untouched\ncuCtxCreate_v2 0 46 untouched\ncuDevicePrimaryCtxRetain 1 0\n";
    assert_eq!(out.told(), expected);
    assert_eq!(out.names(), ["denied", "device", "context", "exit"], "{out:?}");
    assert_eq!(out.event("denied")["device"]["uuid"], "GPU-00000000-0000-4000-8000-000000000000");
    assert_eq!(out.event("exit")["calls"]["denied"], 4);
}

#[test]
fn an_index_policy_without_an_inventory_refuses_all_of_too_many() {
    let steps = ["set:CUDA_VISIBLE_DEVICES=0,1", "behind", "count", "get:0", "get:1", "retain:1"];
    let out = Child::prog("handle", steps).devices("1").run();
    assert_eq!(out.told(), "behind 0\ncount 0 2\nget 0 101 untouched\nget 1 101 untouched\ncuDevicePrimaryCtxRetain 1 46 untouched\n");
}

#[test]
fn an_index_policy_is_compared_through_the_inventory() {
    let steps = ["set:CUDA_VISIBLE_DEVICES=0,1", "behind", "get:0", "get:1"];
    let child = Child::prog("handle", steps).devices("1");
    crate::support::inventory(&child.path("root"), &[0, 1, 2, 3]);
    let root = child.path("root");
    let out = child.env("CUVISOR_PROC_ROOT", root).run();
    assert_eq!(out.told(), "behind 0\nget 0 101 untouched\nget 1 0 GPU-11111111\n");
}

#[test]
fn a_cuinit_of_ours_after_one_behind_our_back_is_refused_too() {
    let steps = ["set:CUDA_VISIBLE_DEVICES=0,1", "behind", "init", "count", "get:0"];
    let out = Child::prog("handle", steps).devices("GPU-11111111").run();
    assert_eq!(out.told(), "behind 0\ninit 100\ncount 3 untouched\nget 0 3 untouched\n");
}

#[test]
fn audit_mode_reports_the_same_and_changes_nothing() {
    let steps = ["init", "count", "get:0", "retain:0", "get:1"];
    let child = Child::prog("handle", steps).env("CUVISOR_MODE", "audit").env("FAKE_CUDA_IGNORE_CVD", "1");
    let out = child.devices("GPU-11111111").run();
    assert_eq!(out.told(), "init 0\ncount 0 4\nget 0 0 GPU-00000000\ncuDevicePrimaryCtxRetain 0 0\nget 1 0 GPU-11111111\n");
    assert!(out.events.iter().all(|event| event["outcome"] == "audited"), "{out:?}");
    assert_eq!(out.names(), ["init", "denied", "denied", "device", "exit"], "{out:?}");
}

/// How many files of the inventory a program opens.
fn read_files(policy: &str, steps: &[&str], lacking: Option<usize>) -> usize {
    let prog = artefacts().callers.join("prog").display().to_string();
    let preload = format!("LD_PRELOAD={}", artefacts().library.display());
    let child = Child::new("strace").args(["-f", "-o", "trace", "-e", "trace=openat", "-E", &preload, &prog, "handle"]);
    let child = child.args(steps.iter().copied()).bare().policy(policy);
    let (root, trace) = (child.path("root"), child.path("trace"));
    inventory(&root, &[0, 1, 2, 3]);
    if let Some(gpu) = lacking {
        std::fs::remove_file(root.join(format!("dev/nvidia{gpu}"))).unwrap();
    }
    let mut child = child.env("CUVISOR_PROC_ROOT", root);
    assert!(child.start().wait_with_output().unwrap().status.success());
    std::fs::read_to_string(trace).unwrap().lines().filter(|line| line.contains("information\"")).count()
}

#[test]
fn the_inventory_is_read_when_something_has_changed_and_no_more() {
    const NAME: &str = "the_inventory_is_read_when_something_has_changed_and_no_more";
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        return skip(NAME, "strace is not installed");
    }
    let again = ["init", "get:0", "init", "init"];
    let changed = ["init", "set:CUDA_VISIBLE_DEVICES=3", "init", "init"];
    let indices = "[default]\ndevices = [1, 2]\n";
    assert_eq!(read_files(indices, &again, None), 0, "the names in the folder are enough");
    assert_eq!(read_files(indices, &changed, None), 0);
    assert_eq!(read_files(indices, &again, Some(3)), 4, "a GPU without a node may be another container's: once for the guard");
    let translated = "[default]\ndevices = [1, 2]\nemit = \"uuid\"\n";
    assert_eq!(read_files(translated, &again, None), 4, "once, by the constructor");
    assert_eq!(read_files(translated, &changed, None), 8, "and once for the change");
    assert_eq!(read_files("[default]\ndevices = [\"GPU-11\"]\n", &changed, None), 0);
}
