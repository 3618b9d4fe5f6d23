//! Field cases A: what CUDA_VISIBLE_DEVICES is, and when it counts.

use crate::support::{Child, artefacts, inventory, python};

/// Python with the driver through ctypes; `init()`, `count()` and `first()` are there.
fn script(program: &str) -> Child {
    let prelude = "import ctypes, os\n\
        def driver():\n    return ctypes.CDLL('libcuda.so.1')\n\
        def init():\n    return driver().cuInit(0)\n\
        def count():\n    n = ctypes.c_int(-1)\n    rc = driver().cuDeviceGetCount(ctypes.byref(n))\n    return n.value if rc == 0 else -rc\n\
        def first():\n    b = ctypes.create_string_buffer(16)\n    driver().cuDeviceGetUuid(b, 0)\n    return b.raw[:4].hex()\n";
    Child::new(python()).args(["-c", &format!("{prelude}{program}")])
}

#[test]
fn a01_a_late_assignment_in_python_does_not_count() {
    let cases = [
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "0"),
        ("del os.environ['CUDA_VISIBLE_DEVICES']", "null"),
        ("gpus = os.environ['FAKE_CUDA_GPUS']; os.environ.clear(); os.environ['FAKE_CUDA_GPUS'] = gpus", "null"),
    ];
    for (change, request) in cases {
        let out = script(&format!("{change}\nprint(init(), count(), first())")).env("FAKE_CUDA_GPUS", "2").devices("1").run();
        assert_eq!(out.told(), "0 1 11111111\n", "{change}");
        let init = out.event("init");
        assert_eq!(init["request"].as_str().unwrap_or("null"), request, "{change}");
        assert_eq!((&init["effective"], &init["changed"], &init["rewritten"]), (&"1".into(), &true.into(), &true.into()), "{change}");
    }
    // An assignment after cuInit changes nothing and is not reported as effective.
    let out = script("init()\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nprint(init(), count(), first())")
        .env("FAKE_CUDA_GPUS", "2")
        .devices("1")
        .run();
    assert_eq!(out.told(), "0 1 11111111\n");
    assert!(out.events.iter().all(|e| e.get("effective").is_none_or(|v| v == "1")), "{out:?}");
}

#[test]
fn a02_an_import_that_initialises_cuda_changes_nothing() {
    let program = "import sys, types\nm = types.ModuleType('m')\nm.rc = init()\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nprint(m.rc, count(), first())";
    let out = script(program).env("FAKE_CUDA_GPUS", "2").devices("1").run();
    assert_eq!(out.told(), "0 1 11111111\n");
    assert_eq!(out.event("init")["effective"], "1");
}

#[test]
fn a04_python_sees_the_policys_value_at_its_first_line() {
    for before in ["0,0", "7"] {
        let out =
            script("print(os.environ['CUDA_VISIBLE_DEVICES'], init(), count())").env("CUDA_VISIBLE_DEVICES", before).devices("0").run();
        assert_eq!(out.told(), "0 0 1\n", "{before}");
    }
}

#[test]
fn a06_a_policy_beyond_the_machine_gives_its_valid_leading_part() {
    for (gpus, devices, stdout) in [("2", "1,5,0", "0 1\n"), ("1", "3", "100 -3\n"), ("3", "0,2,1", "0 3\n")] {
        let out = script("print(init(), count())").env("FAKE_CUDA_GPUS", gpus).devices(devices).run();
        assert_eq!(out.told(), stdout, "{devices}");
        assert_eq!(out.event("init")["effective"], devices);
    }
    for devices in ["-1,0", "0,one,1", "0,2,-1,1"] {
        let out = script("print(init(), count())").devices(devices).run();
        assert_eq!((out.code, out.stdout.as_str()), (Some(0), "100 -3\n"), "{devices}");
        assert!(out.stderr.starts_with("cuvisor: no GPU for this process: CUVISOR_DEVICES: "), "{}", out.stderr);
    }
}

#[test]
fn a10_none_is_set_and_empty_and_no_key_leaves_the_variable_alone() {
    for before in [None, Some(""), Some("-1"), Some("NoDevFiles"), Some("0")] {
        let child = Child::prog("handle", ["env:CUDA_VISIBLE_DEVICES", "init", "count"]).env("FAKE_CUDA_GPUS", "2");
        let child = match before {
            Some(value) => child.env("CUDA_VISIBLE_DEVICES", value),
            None => child,
        };
        let out = child.devices("none").run();
        assert_eq!(out.told(), "CUDA_VISIBLE_DEVICES=\ninit 100\ncount 3 untouched\n", "{before:?}");
        assert_eq!(out.event("init")["request"].as_str(), before, "{before:?}");
    }
    let out = Child::prog("handle", ["env:CUDA_VISIBLE_DEVICES", "init", "count"])
        .env("FAKE_CUDA_GPUS", "2")
        .policy("mode = \"enforce\"\n[audit]\nfile = \"AUDIT\"\n")
        .run();
    assert_eq!(out.told(), "CUDA_VISIBLE_DEVICES=(unset)\ninit 0\ncount 0 2\n");
    assert_eq!(out.event("init")["effective"], serde_json::Value::Null);
}

#[test]
fn a12_an_index_that_the_machine_lacks_is_no_device() {
    let out = Child::prog("handle", ["init", "count"]).env("FAKE_CUDA_GPUS", "1").devices("3").run();
    assert_eq!(out.told(), "init 100\ncount 3 untouched\n");
    assert_eq!(out.event("init")["reason"], "the policy names 1 device, the driver shows 0");
    // Where the machine can be asked, the index and what there is.
    let child = Child::prog("handle", ["init", "count"]).env("FAKE_CUDA_GPUS", "1").devices("3");
    let root = child.path("root");
    inventory(&root, &[0]);
    let out = child.env("CUVISOR_PROC_ROOT", root).run();
    assert_eq!(out.told(), "init 100\ncount 3 untouched\n");
    assert_eq!(out.event("init")["reason"], "policy index 3, the machine offers 1 GPU");
}

#[test]
fn a13_an_index_is_nvidia_smis_whatever_the_order() {
    for before in [None, Some("FASTEST_FIRST"), Some("PCI_BUS_ID")] {
        for late in [None, Some("set:CUDA_DEVICE_ORDER=FASTEST_FIRST"), Some("unset:CUDA_DEVICE_ORDER")] {
            let steps = late.into_iter().chain(["init", "get:0", "env:CUDA_DEVICE_ORDER"]);
            let mut child = Child::prog("handle", steps).env("FAKE_CUDA_GPUS", "2").env("FAKE_CUDA_FASTEST_LAST", "1");
            if let Some(order) = before {
                child = child.env("CUDA_DEVICE_ORDER", order);
            }
            let out = child.devices("1").run();
            assert_eq!(out.told(), "init 0\nget 0 0 GPU-11111111\nCUDA_DEVICE_ORDER=PCI_BUS_ID\n", "{before:?} {late:?}");
        }
    }
    // A list of UUIDs needs no order, and the caller's is left alone.
    let child = Child::prog("handle", ["init", "get:0", "env:CUDA_DEVICE_ORDER"]).env("FAKE_CUDA_FASTEST_LAST", "1");
    let out = child.env("CUDA_DEVICE_ORDER", "FASTEST_FIRST").devices("GPU-11111111").run();
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-11111111\nCUDA_DEVICE_ORDER=FASTEST_FIRST\n");
}

#[test]
fn a17_unsetting_the_variable_does_not_help() {
    let out = Child::prog("handle", ["unset:CUDA_VISIBLE_DEVICES", "init", "get:0"]).devices("2").run();
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-22222222\n");
    let prog = artefacts().callers.join("prog").display().to_string();
    let out = Child::new("env").args(["-u", "CUDA_VISIBLE_DEVICES", &prog, "handle", "init", "get:0"]).devices("2").run();
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-22222222\n");
    // A misspelt name is no variable of the driver's.
    let out = Child::prog("handle", ["init", "count"]).env("CUDA_VISIBLE_DEVICE", "0").devices("all").run();
    assert_eq!(out.told(), "init 0\ncount 0 4\n");
}

#[test]
fn a_failed_cuinit_is_followed_by_one_that_is_held_too() {
    let steps =
        ["set:FAKE_CUDA_INIT_RESULT=999", "init", "set:FAKE_CUDA_INIT_RESULT=0", "set:CUDA_VISIBLE_DEVICES=0,3", "init", "get:0", "count"];
    let out = Child::prog("handle", steps).devices("1").run();
    assert_eq!(out.told(), "init 999\ninit 0\nget 0 0 GPU-11111111\ncount 0 1\n");
    let results: Vec<_> = out.events.iter().filter(|e| e["event"] == "init").map(|e| e["result"].as_i64()).collect();
    assert_eq!(results, [Some(999), Some(0)]);
}
