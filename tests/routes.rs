//! Every way of reaching the driver, each under each kind of policy.

use crate::support::Child;

/// The routes of prog.c.
const ROUTES: [&str; 9] = ["linked", "handle", "global", "whole", "v1", "v2", "v1v1", "v2v2", "dlsym"];

const STEPS: [&str; 8] = ["init", "count", "get:0", "get:1", "pci:0000:11:00.0", "retain:0", "create2:0", "create4:0"];

#[test]
fn each_route_is_held_to_the_list() {
    for route in ROUTES {
        let out = Child::prog(route, STEPS).env("CUDA_VISIBLE_DEVICES", "0,2").devices("1").run();
        let expected = "init 0\ncount 0 1\nget 0 0 GPU-11111111\nget 1 101 untouched\npci 0\ncuDevicePrimaryCtxRetain 0 0\n\
                        cuCtxCreate_v2 0 0\ncuCtxCreate_v4 0 0\n";
        assert_eq!(out.told(), expected, "{route}");
        // The failed look at ordinal 1 is an event of its own; the second context on the device is none.
        assert_eq!(out.names(), ["init", "device", "device", "context", "exit"], "{route}: {:?}", out.events);
    }
}

#[test]
fn each_route_is_denied_under_none() {
    for route in ROUTES {
        let out = Child::prog(route, ["init", "count", "get:0", "retain:0"]).devices("none").run();
        assert_eq!(out.told(), "init 100\ncount 3 untouched\nget 0 3 untouched\ncuDevicePrimaryCtxRetain 0 3 untouched\n", "{route}");
        assert_eq!(out.event("init")["effective"], "", "{route}");
    }
}

#[test]
fn each_route_is_only_logged_in_audit_mode() {
    for route in ROUTES {
        let child = Child::prog(route, ["init", "count", "get:0", "retain:1"]).env("CUDA_VISIBLE_DEVICES", "2,3");
        let out = child.env("CUVISOR_MODE", "audit").devices("2,3").run();
        assert_eq!(out.told(), "init 0\ncount 0 2\nget 0 0 GPU-22222222\ncuDevicePrimaryCtxRetain 1 0\n", "{route}");
        assert_eq!(out.names(), ["init", "device", "context", "exit"], "{route}");
        assert!(out.events.iter().all(|event| event["outcome"] == "audited"), "{route}: {out:?}");
        assert_eq!(out.event("context")["device"]["uuid"], "GPU-33333333-0000-4000-8000-000000000003", "{route}");
    }
}

#[test]
fn every_hook_is_reached_on_every_route() {
    let names = [
        "cuInit",
        "cuDeviceGet",
        "cuDeviceGetCount",
        "cuDeviceGetByPCIBusId",
        "cuDevicePrimaryCtxRetain",
        "cuCtxCreate",
        "cuCtxCreate_v2",
        "cuCtxCreate_v3",
        "cuCtxCreate_v4",
    ];
    for route in ROUTES {
        let steps: Vec<String> = names.iter().map(|name| format!("ours:{name}")).collect();
        let out = Child::prog(route, steps.iter().map(String::as_str)).devices("1").run();
        let expected: String = names.iter().map(|name| format!("ours {name} libcuvisor.so\n")).collect();
        assert_eq!(out.told(), expected, "{route}");
    }
}

#[test]
fn a_step_from_another_thread_is_no_different() {
    for route in ROUTES {
        let out = Child::prog(route, ["thread:init", "thread:count", "thread:get:0"]).devices("3").run();
        assert_eq!(out.told(), "init 0\ncount 0 1\nget 0 0 GPU-33333333\n", "{route}");
    }
}

#[test]
fn a_library_that_is_opened_locally_reaches_its_own_driver() {
    let out = Child::prog("handle", ["local", "count", "get:0"]).devices("2").run();
    assert_eq!(out.told(), "local 0\ncount 0 1\nget 0 0 GPU-22222222\n");
    assert_eq!(out.event("init")["caller"], "libdeep.so");
}

#[test]
fn without_a_driver_nothing_changes() {
    for with in [true, false] {
        let child = Child::prog("global", ["library:libnone.so", "init"]).devices("1");
        let out = if with { child } else { child.bare() }.run();
        assert_eq!((out.code, out.stdout.as_str()), (Some(9), "libnone.so: cannot open shared object file: No such file or directory\n"));
    }
}

#[test]
fn without_a_policy_nothing_is_done() {
    for (name, value) in [("NOTHING", "1"), ("CUVISOR_DISABLE", "1")] {
        let mut child = Child::prog("handle", ["ours:cuInit", "init", "count", "get:3", "env:CUDA_VISIBLE_DEVICES"]).env(name, value);
        if name == "CUVISOR_DISABLE" {
            child = child.devices("1");
        }
        let out = child.run();
        assert_eq!(out.told(), "ours cuInit libcuda.so.1\ninit 0\ncount 0 4\nget 3 0 GPU-33333333\nCUDA_VISIBLE_DEVICES=(unset)\n");
        assert!(out.events.is_empty());
    }
}
