//! Field cases C: the driver's interface.

use crate::support::{Child, artefacts};

#[test]
fn c01_what_cu_get_proc_address_gives_is_hooked_and_reaches_the_driver_once() {
    for route in ["v1", "v2"] {
        let out = Child::prog(route, ["init", "get:0"]).devices("1").run();
        assert_eq!(out.told(), "init 0\nget 0 0 GPU-11111111\n");
        assert_eq!(out.names(), ["init", "device", "exit"]);
        let inits = out.calls.iter().filter(|call| call.contains("cuInit")).count();
        assert_eq!(inits, 1, "{:?}", out.calls);
        // cuInit's own look at the one device, then the program's call.
        assert_eq!(out.calls.iter().filter(|call| call.contains("cuDeviceGet(0) = 0")).count(), 2, "{:?}", out.calls);
    }
}

#[test]
fn c02_both_forms_keep_their_own_arity_and_the_drivers_status() {
    let steps = [
        "ask:cuInit=2000",
        "ask:cuDeviceGet=2000",
        "ask:cuCtxCreate=12050",
        "ask:cuDeviceGetName=2000",
        "ask:nothing=2000",
        "ask:cuInit=0",
        "ask:cuInit=99000",
    ];
    let out = Child::prog("handle", steps).devices("1").run();
    let expected = "ask cuInit 0 libcuvisor.so 0\nask cuDeviceGet 0 libcuvisor.so 0\nask cuCtxCreate 0 libcuvisor.so 0\n\
                    ask cuDeviceGetName 0 libcuda.so.1 0\nask nothing 0 NULL 1\nask cuInit 0 NULL 2\nask cuInit 1 untouched 77\n";
    assert_eq!(out.told(), expected);
    let bare = Child::prog("handle", steps).bare().run();
    assert_eq!(bare.told(), expected.replace("libcuvisor.so", "libcuda.so.1"));
}

#[test]
fn c04_asking_for_the_asker_gives_the_hook_of_the_right_form() {
    let out = Child::prog("handle", ["ask:cuGetProcAddress=11030", "ask:cuGetProcAddress=12000"]).devices("1").run();
    assert_eq!(out.told(), "ask cuGetProcAddress 0 libcuvisor.so 0\nask cuGetProcAddress 0 libcuvisor.so 0\n");
    for route in ["v1v1", "v2v2"] {
        let out = Child::prog(route, ["init", "get:0"]).devices("1").run();
        assert_eq!(out.told(), "init 0\nget 0 0 GPU-11111111\n", "{route}");
        assert_eq!(out.names(), ["init", "device", "exit"], "{route}");
    }
}

#[test]
fn c05_a_driver_without_the_name_gives_null() {
    let steps = ["find:cuGetProcAddress_v2", "find:cuGetProcAddress", "init", "get:0"];
    for (missing, old) in [(&["cuGetProcAddress_v2"][..], "libcuvisor.so"), (&["cuGetProcAddress_v2", "cuGetProcAddress"], "NULL")] {
        let child = Child::prog("handle", steps).devices("1");
        child.install_without("driver", missing);
        let out = child.run();
        let first = out.stdout.lines().next().unwrap();
        assert!(
            first.starts_with("find cuGetProcAddress_v2 NULL ") && first.ends_with("libcuda.so.1: undefined symbol: cuGetProcAddress_v2"),
            "{first}"
        );
        assert!(out.stdout.contains(&format!("find cuGetProcAddress {old} ")), "{}", out.stdout);
        assert!(out.stdout.ends_with("init 0\nget 0 0 GPU-11111111\n"), "{}", out.stdout);
    }
}

#[test]
fn c07_results_flags_and_errno_pass_unaltered() {
    // On the exported names errno stays as well, with and without another preload behind.
    let other = artefacts().callers.join("libother.so");
    for libraries in [&[artefacts().library.as_path()][..], &[&artefacts().library, &other]] {
        let out = Child::prog("linked", ["errno:42", "init", "showerrno", "errno:43", "get:0", "showerrno"])
            .devices("1")
            .preload(libraries)
            .run();
        assert_eq!(out.told().replace("other\n", ""), "init 0\nerrno 42\nget 0 0 GPU-11111111\nerrno 43\n", "{libraries:?}");
    }
    for code in [0, 3, 34, 100, 101, 803, 804, 805, 999, 12345] {
        let value = code.to_string();
        let child = Child::prog("handle", ["errno:42", "init", "showerrno"]).env("FAKE_CUDA_INIT_RESULT", &value).devices("1");
        let out = child.env("CUVISOR_AUDIT", "/nowhere/x").run();
        assert_eq!(out.told(), format!("init {code}\nerrno 42\n"));
        let out = Child::prog("handle", ["init"]).env("FAKE_CUDA_INIT_RESULT", &value).devices("1").run();
        let init = out.event("init");
        assert_eq!(init["result"], code);
        assert_eq!(init["result_name"].is_null(), code == 12345, "{init}");
    }
    let out = Child::prog("handle", ["init:7"]).devices("1").run();
    assert_eq!(out.told(), "init 1\n");
    assert_eq!(out.calls, ["driver cuInit(7) = 1 CVD=\"1\" ORDER=\"PCI_BUS_ID\""]);
}

#[test]
fn c08_names_match_exactly() {
    let names = [
        "cudnnCreate",
        "cuFFTExec",
        "cuInitX",
        "cuDeviceGetName",
        "cuDeviceGetUuid",
        "cuIni",
        "cuCtxCreate_v5",
        "cu",
        "c",
        "d",
        "dl",
        "dlsymX",
    ];
    let steps: Vec<String> = names.iter().map(|name| format!("find:{name}")).chain(["find:".into()]).collect();
    let run = |child: Child| child.run().told().replace(|c: char| c.is_ascii_digit(), "");
    let with = run(Child::prog("handle", steps.iter().map(String::as_str)).devices("1").env("LD_LIBRARY_PATH", plain_driver()));
    let without = run(Child::prog("handle", steps.iter().map(String::as_str)).bare().env("LD_LIBRARY_PATH", plain_driver()));
    assert_eq!(with, without);
    assert!(with.contains("find cuDeviceGetName libcuda.so. (no error)"), "{with}");
}

/// A folder with the driver that is the same for every child.
fn plain_driver() -> String {
    let folder = artefacts().callers.join("plain");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(&artefacts().fake, folder.join("libcuda.so.1")).unwrap();
    folder.display().to_string()
}

#[test]
fn c10_a_stub_is_named_in_the_log() {
    let child = Child::prog("handle", []).env("FAKE_CUDA_INIT_RESULT", "34").devices("1");
    let stub = child.install("stubs", &artefacts().fake);
    let out = child.arg(format!("library:{}", stub.display())).arg("init").run();
    assert_eq!(out.told(), "init 34\n");
    assert_eq!(out.event("init")["driver"], stub.display().to_string());
    assert_eq!(out.event("init")["result_name"], "CUDA_ERROR_STUB_LIBRARY");
}

#[test]
fn c11_each_call_goes_to_the_copy_whose_handle_was_asked() {
    let child = Child::prog("handle", []).devices("1");
    let (a, b) = (child.install("a", &artefacts().fake), child.install("b", &artefacts().fake));
    let (a, b) = (format!("library:{}", a.display()), format!("library:{}", b.display()));
    let out = child.args([a.as_str(), "init", b.as_str(), "init", "get:0", a.as_str(), "get:0", "route:v2", b.as_str(), "count"]).run();
    assert_eq!(out.told(), "init 0\ninit 0\nget 0 0 GPU-11111111\nget 0 0 GPU-11111111\ncount 0 1\n");
    let folders: Vec<_> = out.calls.iter().filter(|c| c.contains("cuInit")).map(|c| &c[..1]).collect();
    assert_eq!(folders, ["a", "b"]);
    let drivers: Vec<_> = out.events.iter().filter(|e| e["event"] == "init").map(|e| e["driver"].as_str().unwrap()).collect();
    assert!(drivers[0].ends_with("/a/libcuda.so.1") && drivers[1].ends_with("/b/libcuda.so.1"), "{drivers:?}");
}

#[test]
fn c11_a_shim_that_passes_cuinit_on_is_one_event() {
    let child = Child::prog("handle", ["init", "get:0"]).devices("1");
    let second = child.install("second", &artefacts().fake);
    let out = child.env("FAKE_CUDA_SHIM", &second).run();
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-11111111\n");
    assert_eq!(out.names(), ["init", "device", "exit"]);
    let folders: Vec<_> = out.calls.iter().filter(|c| c.contains("cuInit")).map(|c| c.split(' ').next().unwrap()).collect();
    assert_eq!(folders, ["second", "driver"]);
}

#[test]
fn c11_more_copies_than_slots_still_see_the_list() {
    let mut child = Child::prog("handle", []).devices("2");
    for k in 0..10 {
        let path = child.install(&format!("copy{k}"), &artefacts().fake);
        child = child.arg(format!("library:{}", path.display())).args(["init", "get:0"]);
    }
    assert_eq!(child.run().told(), "init 0\nget 0 0 GPU-22222222\n".repeat(10));
}

#[test]
fn c13_a_child_forked_after_cuinit_is_answered_by_the_driver() {
    let out = Child::prog("handle", ["init", "fork:init"]).devices("1").run();
    assert_eq!(out.told(), "init 0\ninit 3\n");
    let inits: Vec<_> = out.events.iter().filter(|e| e["event"] == "init").collect();
    assert_eq!(inits.len(), 2, "{out:?}");
    assert_eq!(inits[1]["result"], 3);
    assert_eq!(inits[1]["forked_after_init"], true);
    assert_eq!(inits[1]["ppid"], inits[0]["pid"]);
    assert_eq!(inits[0].get("forked_after_init"), None);
}

#[test]
fn c14_odd_arguments_are_the_drivers_to_judge() {
    let steps = ["init", "getnull:0", "get:-1", "get:-2147483648", "get:2147483647", "get:64", "asknull", "pci:nonsense", "retain:-5"];
    let expected = "init 0\ngetnull 1\nget -1 101 untouched\nget -2147483648 101 untouched\nget 2147483647 101 untouched\nget 64 101 untouched\n\
                    asknull 1 1 0 1 1\npci 101 untouched\ncuDevicePrimaryCtxRetain -5 101 untouched\n";
    for bare in [true, false] {
        let child = Child::prog("handle", steps).devices("1");
        let out = if bare { child.bare() } else { child }.run();
        assert_eq!(out.told(), expected, "bare: {bare}");
    }
}

#[test]
fn c16_a_killed_process_leaves_nothing_that_stops_another() {
    let dir = tempfile::TempDir::new().unwrap();
    let audit = dir.path().join("audit.jsonl");
    for round in 0..10 {
        let many: Vec<_> = (0..30)
            .map(|k| {
                let steps = if (k + round) % 2 == 0 { ["init", "get:0", "kill"] } else { ["init", "get:0", "env:HOME"] };
                let mut child = Child::prog("handle", steps).devices("1").env("CUVISOR_AUDIT", &audit).unset("FAKE_CUDA_LOG");
                (child.start(), child)
            })
            .collect();
        for (process, child) in many {
            process.wait_with_output().unwrap();
            drop(child);
        }
    }
    let out = Child::prog("handle", ["init"]).devices("1").env("CUVISOR_AUDIT", &audit).run();
    assert_eq!(out.told(), "init 0\n");
    let text = std::fs::read_to_string(&audit).unwrap();
    let count = |name: &str| text.lines().filter(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["event"] == name).count();
    assert_eq!((count("init"), count("device"), count("exit")), (301, 300, 151));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no lock file");
}

#[test]
fn c17_a_device_is_named_by_what_it_is_not_by_its_ordinal() {
    let out = Child::prog("v2", ["init", "get:0", "get:1"]).env("FAKE_CUDA_GPUS", "3").devices("2,0").run();
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-22222222\nget 1 0 GPU-00000000\n");
    let devices: Vec<_> = out.events.iter().filter(|e| e["event"] == "device").map(|e| e["device"].to_string()).collect();
    assert_eq!(
        devices,
        [
            "{\"ordinal\":0,\"pci\":\"0000:12:00.0\",\"uuid\":\"GPU-22222222-0000-4000-8000-000000000002\"}",
            "{\"ordinal\":1,\"pci\":\"0000:10:00.0\",\"uuid\":\"GPU-00000000-0000-4000-8000-000000000000\"}",
        ]
    );
    // A driver that cannot tell the UUID: null, not a guess.
    let child = Child::prog("handle", ["init"]).devices("1");
    child.install_without("driver", &["cuDeviceGetUuid", "cuDeviceGetUuid_v2"]);
    let out = child.run();
    assert_eq!(out.event("init")["devices"].to_string(), "[{\"ordinal\":0,\"pci\":\"0000:11:00.0\",\"uuid\":null}]");
}

#[test]
fn c19_private_routes_are_left_alone_and_the_list_holds() {
    let out = Child::prog("handle", ["table", "versioned", "namespace"]).devices("1").run();
    assert_eq!(out.told(), "table 0 libcuda.so.1\nversioned NULL\nnamespace 0 0 1\n");
}

#[test]
fn c20_two_hooks_of_one_name_both_run_once_in_either_order() {
    let other = artefacts().callers.join("libother.so");
    let ours = &artefacts().library;
    for order in [[ours.as_path(), &other], [&other, ours.as_path()]] {
        let out = Child::prog("linked", ["init", "count", "get:0"]).env("CUDA_INJECTION64_PATH", "/x").devices("1").preload(&order).run();
        assert_eq!(out.told(), "other\ninit 0\ncount 0 1\nget 0 0 GPU-11111111\n", "{order:?}");
        assert_eq!(out.names(), ["init", "device", "exit"], "{order:?}");
        assert_eq!(out.calls.iter().filter(|c| c.contains("cuInit")).count(), 1, "{order:?}");
        assert_eq!(out.event("init")["devices"][0]["uuid"], "GPU-11111111-0000-4000-8000-000000000001", "{order:?}");
    }
}

#[test]
fn c22_the_environment_is_not_written_again() {
    let out = Child::caller("racer").devices("1").unset("FAKE_CUDA_LOG").run();
    assert_eq!(out.told(), "0 same\n");
    // The same holds for a value that was right from the start.
    let out = Child::caller("racer")
        .env("CUDA_VISIBLE_DEVICES", "1")
        .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        .devices("1")
        .unset("FAKE_CUDA_LOG")
        .run();
    assert_eq!(out.told(), "0 same\n");
    let out = Child::prog("handle", ["set:CUDA_VISIBLE_DEVICES= 1", "init", "env:CUDA_VISIBLE_DEVICES"]).devices("1").run();
    assert_eq!(out.told(), "init 0\nCUDA_VISIBLE_DEVICES=1\n");
}
