//! `cuvisor doctor`, about the shell it is started from. Each check is made to fail and to pass.

use crate::support::{Child, Output, artefacts, inventory, skip};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A machine of two GPUs, whose files are in `root`, with a fake driver to match.
fn ask(prepare: impl FnOnce(Child, &Path) -> Child) -> Output {
    let child = Child::new(&artefacts().cuvisor).bare().args(["doctor", "--json", "--limit", "20"]);
    let root = child.path("root");
    inventory(&root, &[0, 1]);
    for node in ["nvidiactl", "nvidia-uvm"] {
        std::fs::write(root.join("dev").join(node), "").unwrap();
    }
    std::fs::write(
        root.join("proc/driver/nvidia/version"),
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Mon\nGCC version:\n",
    )
    .unwrap();
    let child = child.env("CUVISOR_PROC_ROOT", &root).env("FAKE_CUDA_GPUS", "2");
    prepare(child, &root).run()
}

/// The level, cause and remedy of a check.
#[track_caller]
fn found(out: &Output, check: &str) -> (String, String, String) {
    let all: Vec<serde_json::Value> = serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    let one = all.iter().find(|f| f["check"] == check).unwrap_or_else(|| panic!("{check}: {out:?}"));
    let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
    (text("level"), text("cause"), text("remedy"))
}

#[track_caller]
fn expect(out: &Output, check: &str, level: &str, cause: &str) {
    let (is_level, is_cause, remedy) = found(out, check);
    assert_eq!((is_level.as_str(), is_cause.as_str()), (level, cause), "{check}");
    assert_eq!(remedy.is_empty(), level == "ok", "{check}: a finding that is not ok tells what to do");
}

fn variable(name: &str, value: &str) -> Output {
    ask(|child, _| child.env(name, value))
}

#[test]
fn on_a_sound_machine_nothing_is_wrong() {
    let out = ask(|child, _| child.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID").env("CUDA_VISIBLE_DEVICES", "0,1"));
    let all: Vec<serde_json::Value> = serde_json::from_str(&out.stdout).unwrap();
    let bad: Vec<_> = all.iter().filter(|f| f["level"] != "ok").collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""));
    let checks: Vec<_> = all.iter().map(|f| f["check"].as_str().unwrap()).collect();
    let expected = [
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "spelling",
        "renumbering",
        "switches",
        "kernel driver",
        "GPUs",
        "nodes",
        "MIG",
        "driver",
        "copies",
        "cuInit",
        "lists",
        "library",
        "loaded",
        "preloads",
        "versions",
        "policy file",
        "policy",
        "audit file",
        "kernel seal",
    ];
    assert_eq!(checks, expected);
    expect(&out, "kernel driver", "ok", "NVIDIA 580.159.04");
    expect(&out, "GPUs", "ok", "2, as nvidia-smi numbers them");
    expect(&out, "nodes", "ok", "this user can open all of them");
    expect(&out, "cuInit", "ok", "0, 2 GPUs visible");
    expect(&out, "lists", "ok", "nvidia-smi and the driver both list 2 GPUs, in one order");
    assert!(out.calls.iter().all(|call| !call.contains("PrimaryCtx")), "no context is made: {:?}", out.calls);
}

#[test]
fn people_read_a_table() {
    let child = Child::new(&artefacts().cuvisor).bare().args(["doctor"]).env("CUDA_VISIBLE_DEVICES", "0,x");
    let root = child.path("root");
    inventory(&root, &[0]);
    let out = child.env("CUVISOR_PROC_ROOT", &root).run();
    let expected = "CUDA_VISIBLE_DEVICES  warning  \"0,x\": the driver stops reading at element 2\n                               `0`: the driver reads 0\n\
                    \x20                              `x`: the list ends here: this is no device\n                               -> remove that element\n";
    assert!(out.stdout.starts_with(expected), "{}", out.stdout);
    assert_eq!(out.code, Some(2), "nvidiactl is not there: {}", out.stdout);
}

#[test]
fn a10_the_list_is_read_as_the_driver_does() {
    let cases = [
        ("", "ok", "set and empty: no GPU is visible"),
        ("all", "failure", "\"all\" is a word of NVIDIA_VISIBLE_DEVICES: to the driver it is no device, so no GPU is visible"),
        ("void", "failure", "\"void\" is a word of NVIDIA_VISIBLE_DEVICES: to the driver it is no device, so no GPU is visible"),
        ("-1", "failure", "\"-1\": the first element is no device, so no GPU is visible"),
        ("NoDevFiles", "failure", "\"NoDevFiles\": the first element is no device, so no GPU is visible"),
        ("0,0", "failure", "\"0,0\" names a GPU twice: cuInit fails with 101"),
        ("5", "failure", "\"5\" names no GPU of this machine, so none is visible"),
        ("0,5", "warning", "\"0,5\": the driver shows 1 of 2 devices"),
        ("0,one,1", "warning", "\"0,one,1\": the driver stops reading at element 2"),
        ("0,GPU-1", "warning", "\"0,GPU-1\" mixes indices and UUIDs: the driver reads only the kind of the first"),
        ("0x1", "warning", "\"0x1\": the driver ignores a part of it"),
        ("GPU-11", "ok", "\"GPU-11\""),
        ("1,0", "ok", "\"1,0\""),
    ];
    for (value, level, cause) in cases {
        expect(&variable("CUDA_VISIBLE_DEVICES", value), "CUDA_VISIBLE_DEVICES", level, cause);
    }
    expect(&ask(|c, _| c), "CUDA_VISIBLE_DEVICES", "ok", "unset: every GPU is visible");
}

#[test]
fn the_order_is_one_of_the_drivers() {
    expect(
        &variable("CUDA_DEVICE_ORDER", "pci_bus_id"),
        "CUDA_DEVICE_ORDER",
        "failure",
        "\"pci_bus_id\" is no order: cuInit fails with 101",
    );
    expect(
        &variable("CUDA_DEVICE_ORDER", "FASTEST_FIRST"),
        "CUDA_DEVICE_ORDER",
        "ok",
        "FASTEST_FIRST: this need not be nvidia-smi's order",
    );
    let cause = "unset, and CUDA_VISIBLE_DEVICES holds indices: the driver numbers the fastest GPU first, nvidia-smi by PCI bus id";
    expect(&variable("CUDA_VISIBLE_DEVICES", "1"), "CUDA_DEVICE_ORDER", "warning", cause);
}

#[test]
fn a17_a_variable_that_is_nearly_one_is_told() {
    for (name, meant) in [
        ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("CUDA_VISABLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        ("cuda_visible_devices", "CUDA_VISIBLE_DEVICES"),
        ("CUDA_DEVICES_ORDER", "CUDA_DEVICE_ORDER"),
        ("CUVISOR_DEVICE", "CUVISOR_DEVICES"),
    ] {
        let out = variable(name, "1");
        expect(&out, "spelling", "warning", &format!("{name} is set, and nobody reads it"));
        assert_eq!(found(&out, "spelling").2, format!("write {meant}"));
    }
    let known = ask(|c, _| c.env("NVIDIA_VISIBLE_DEVICES", "all").env("CUVISOR_DEVICES", "1").env("CUDA_HOME", "/x"));
    expect(&known, "spelling", "ok", "no variable is nearly one that counts");
}

#[test]
fn who_numbers_anew_is_told() {
    let out = ask(|c, _| c.env("SLURM_JOB_GPUS", "2,3").env("NVIDIA_VISIBLE_DEVICES", "all").env("KUBERNETES_SERVICE_HOST", "10.0.0.1"));
    expect(&out, "renumbering", "ok", "something numbers the GPUs anew: name them by UUID");
    assert_eq!(out.stdout.matches("begin at 0").count(), 3, "{}", out.stdout);
    let cause = "CUDA_MPS_PIPE_DIRECTORY=/tmp/mps: the MPS daemon's own list comes first, and indices count within it";
    expect(&variable("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps"), "renumbering", "warning", cause);
    expect(
        &variable("CUVISOR_DISABLE", "1"),
        "switches",
        "warning",
        "CUVISOR_DISABLE=1: the library does nothing unless the policy is locked",
    );
    expect(&variable("CUVISOR_DEVICES", "1"), "policy", "ok", "no file, [default]: enforce 1");
}

#[test]
fn the_machine_is_looked_at() {
    let out = ask(|c, root| {
        std::fs::remove_dir_all(root.join("proc")).unwrap();
        c
    });
    expect(&out, "kernel driver", "warning", "not loaded: /proc/driver/nvidia is not there");
    expect(&out, "GPUs", "warning", "none: /proc/driver/nvidia/gpus lists no GPU");
    let out = ask(|c, root| {
        for k in 0..2 {
            std::fs::remove_file(root.join(format!("dev/nvidia{k}"))).unwrap();
        }
        c
    });
    expect(&out, "GPUs", "failure", "the driver knows 2, and none has its node in /dev");
    let out = ask(|c, root| {
        std::fs::remove_file(root.join("dev/nvidia0")).unwrap();
        c
    });
    expect(&out, "GPUs", "ok", "1 of the machine's 2 have their node here: this is a container with its own indices");
    let out = ask(|c, root| {
        std::fs::remove_file(root.join("dev/nvidia-uvm")).unwrap();
        c
    });
    expect(&out, "nodes", "failure", "one that the driver needs is not there");
    let out = ask(|c, root| {
        std::fs::create_dir_all(root.join("proc/driver/nvidia/capabilities/gpu1/mig/gi1")).unwrap();
        c
    });
    expect(&out, "MIG", "ok", "a program sees one instance of a split GPU; name it by its MIG- UUID (nvidia-smi -L)");
    assert!(out.stdout.contains("GPU 1: 1 GPU instances"));
}

#[test]
fn nodes_that_this_user_may_not_open_are_told() {
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("nodes_that_this_user_may_not_open_are_told", "only root can become another user");
    }
    let child =
        Child::new("setpriv").bare().args(["--reuid", "1000", "--clear-groups"]).arg(&artefacts().cuvisor).args(["doctor", "--json"]);
    let root = child.path("root");
    inventory(&root, &[0]);
    std::fs::set_permissions(child.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(root.join("dev/nvidia0"), PermissionsExt::from_mode(0o600)).unwrap();
    for node in ["nvidiactl", "nvidia-uvm"] {
        std::fs::write(root.join("dev").join(node), "").unwrap();
        std::fs::set_permissions(root.join("dev").join(node), PermissionsExt::from_mode(0o666)).unwrap();
    }
    let out = child.env("CUVISOR_PROC_ROOT", &root).env("FAKE_CUDA_GPUS", "1").run();
    if out.stdout.is_empty() {
        return skip("nodes_that_this_user_may_not_open_are_told", "the repository is in a folder that other users cannot enter");
    }
    expect(&out, "nodes", "failure", "this user may not open them all");
    assert!(out.stdout.contains("/dev/nvidia0: Permission denied"), "{}", out.stdout);
}

#[test]
fn c10_a_stub_a_missing_and_a_mismatched_driver_are_told() {
    let out = ask(|child, _| {
        child.install("stubs", &artefacts().fake);
        let stubs = child.path("stubs");
        child.env("LD_LIBRARY_PATH", stubs).env("FAKE_CUDA_INIT_RESULT", "34")
    });
    let (level, cause, _) = found(&out, "driver");
    assert!(
        level == "failure" && cause.ends_with("/stubs/libcuda.so.1 is the toolkit's stub, made for linking: cuInit fails with 34"),
        "{cause}"
    );
    expect(&out, "cuInit", "failure", "34 CUDA_ERROR_STUB_LIBRARY");
    let out = ask(|child, _| child.unset("LD_LIBRARY_PATH"));
    if std::fs::exists("/usr/lib/x86_64-linux-gnu/libcuda.so.1").unwrap() {
        skip("a missing driver", "this machine has one");
    } else {
        let (level, cause, _) = found(&out, "driver");
        assert!(
            level == "failure" && cause.starts_with("libcuda.so.1 cannot be loaded: libcuda.so.1: cannot open shared object file"),
            "{cause}"
        );
    }
    let out = ask(|child, _| {
        let path = child.install("driver", &artefacts().fake);
        std::fs::rename(&path, path.with_file_name("libcuda.so.550.54.14")).unwrap();
        std::os::unix::fs::symlink("libcuda.so.550.54.14", path).unwrap();
        child.env("FAKE_CUDA_INIT_RESULT", "803")
    });
    let (level, cause, _) = found(&out, "driver");
    assert!(
        level == "failure" && cause.ends_with("is of version 550.54.14, the kernel's part of 580.159.04: cuInit fails with 803"),
        "{cause}"
    );
    expect(&out, "cuInit", "failure", "803 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
    assert_eq!(out.code, Some(2));
}

#[test]
fn c11_a_compat_copy_and_a_second_copy_are_told() {
    let out = ask(|child, _| {
        child.install("compat", &artefacts().fake);
        let folders = format!("{}:{}", child.path("compat").display(), child.path("driver").display());
        child.env("LD_LIBRARY_PATH", folders).env("FAKE_CUDA_INIT_RESULT", "804")
    });
    let (level, cause, _) = found(&out, "driver");
    assert!(level == "warning" && cause.contains("/compat/libcuda.so.1 is a forward-compatibility copy"), "{cause}");
    let (level, cause, _) = found(&out, "copies");
    assert!(level == "warning" && cause.starts_with("there are ") && cause.contains("copies of libcuda.so.1"), "{cause}");
    expect(&out, "cuInit", "failure", "804 CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE");
}

#[test]
fn a_driver_that_hangs_or_dies_is_a_finding() {
    let start = std::time::Instant::now();
    let child = Child::new(&artefacts().cuvisor).bare().args(["doctor", "--json", "--limit", "1"]).env("FAKE_CUDA_HANG", "1");
    let out = child.run();
    expect(&out, "driver", "failure", "cuInit has not come back after 1 s");
    assert!(start.elapsed().as_secs() < 15);
    let (level, _, _) = found(&out, "kernel seal");
    assert_eq!(level, "ok", "the other checks are made all the same");
}

#[test]
fn the_two_lists_stand_side_by_side() {
    let out = ask(|c, _| c.env("CUDA_VISIBLE_DEVICES", "1"));
    expect(&out, "lists", "warning", "nvidia-smi lists 2 GPUs, the driver shows this shell 1: CUDA_VISIBLE_DEVICES hides the others");
    assert!(out.stdout.contains("nvidia-smi 0  GPU-00000000-0000-4000-8000-000000000000  not visible"), "{}", out.stdout);
    assert!(out.stdout.contains("nvidia-smi 1  GPU-11111111-0000-4000-8000-000000000001  cuda:0"), "{}", out.stdout);
    let out = ask(|c, _| c.env("FAKE_CUDA_FASTEST_LAST", "1"));
    expect(&out, "lists", "warning", "nvidia-smi lists 2 GPUs, the driver shows this shell 2, in another order");
    let out = ask(|c, _| c.env("FAKE_CUDA_GPUS", "1"));
    expect(&out, "lists", "warning", "nvidia-smi lists 2 GPUs, the driver shows this shell 1");
}

#[test]
fn b13_a_library_that_is_missing_closed_or_broken_is_told() {
    let out = variable("CUVISOR_LIBRARY", "/nowhere/libcuvisor.so");
    let (level, cause, _) = found(&out, "library");
    assert!(level == "failure" && cause.starts_with("libcuvisor.so is not there: looked at /nowhere/libcuvisor.so"), "{cause}");
    let copy = |mode: u32, bytes: Option<&[u8]>| {
        ask(|child, _| {
            let path = child.path("libcuvisor.so");
            match bytes {
                Some(bytes) => std::fs::write(&path, bytes).unwrap(),
                None => drop(std::fs::copy(&artefacts().library, &path).unwrap()),
            }
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            std::fs::set_permissions(child.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
            child.env("CUVISOR_LIBRARY", path)
        })
    };
    assert_eq!(found(&copy(0o644, None), "library").0, "ok");
    let (level, cause, remedy) = found(&copy(0o600, None), "library");
    assert!(level == "failure" && cause.contains("not in reach of other users") && remedy.starts_with("chmod 0644 "), "{cause}");
    let (level, cause, _) = found(&copy(0o644, Some(b"\x7fELF\x01")), "library");
    assert!(level == "failure" && cause.ends_with("is no library for 64-bit x86"), "{cause}");
    let mut torn = std::fs::read(&artefacts().library).unwrap();
    torn.truncate(torn.len() / 4);
    let (level, cause, _) = found(&copy(0o644, Some(&torn)), "library");
    assert!(level == "failure" && cause.starts_with("the loader does not take "), "{cause}");
    let mut newer = std::fs::read(&artefacts().library).unwrap();
    let at = newer.windows(6).position(|w| w == b"GLIBC_").unwrap();
    newer[at + 6..at + 10].copy_from_slice(b"9.99");
    let (level, cause, _) = found(&copy(0o644, Some(&newer)), "library");
    assert!(level == "failure" && cause.contains("needs glibc 9.99"), "{cause}");
}

#[test]
fn b13_b16_whether_it_is_loaded_is_told() {
    let mut child = Child::new(&artefacts().cuvisor).args(["doctor", "--json"]).devices("1");
    child.command().env("CUVISOR_PROC_ROOT", "/nowhere");
    let (level, cause, _) = found(&child.run(), "loaded");
    assert!(level == "ok" && cause.ends_with("libcuvisor.so is in this process, by LD_PRELOAD; env -i, sudo and cron drop it"), "{cause}");
    let out = ask(|child, root| {
        std::fs::create_dir_all(root.join("etc")).unwrap();
        std::fs::write(root.join("etc/ld.so.preload"), "# a comment\n/usr/lib/cuvisor/libcuvisor.so\n").unwrap();
        child
    });
    let cause = "/etc/ld.so.preload names /usr/lib/cuvisor/libcuvisor.so, and it is not in this process: the policy is not enforced";
    expect(&out, "loaded", "failure", cause);
    expect(
        &out,
        "preloads",
        "failure",
        "/etc/ld.so.preload names /usr/lib/cuvisor/libcuvisor.so, which is not there: every command says so on stderr",
    );
    let out = ask(|child, _| child.policy("[default]\ndevices = [0]\n"));
    expect(&out, "loaded", "warning", "there is a policy, and nothing puts the library into this shell's programs");
    expect(&ask(|c, _| c), "loaded", "ok", "nothing puts the library into this shell's programs; cuvisor run does for one");
}

#[test]
fn other_preloads_and_other_copies_are_told() {
    let other = artefacts().callers.join("libother.so");
    let out = ask(|child, _| child.preload(&[&other]));
    expect(&out, "preloads", "warning", "another preloaded library hooks CUDA, too");
    assert!(out.stdout.contains("libother.so also defines cuInit; it stands before libcuvisor.so"), "{}", out.stdout);
    let out = ask(|child, _| child.preload(&[&artefacts().callers.join("libempty.so")]));
    expect(&out, "preloads", "ok", "1 in all; no other hooks CUDA");
    let out = ask(|child, _| {
        let site = child.path("venv/lib/python3.11/site-packages/cuvisor");
        std::fs::create_dir_all(&site).unwrap();
        std::fs::write(site.join("libcuvisor.so"), "older").unwrap();
        let venv = child.path("venv");
        child.env("VIRTUAL_ENV", venv)
    });
    expect(&out, "versions", "warning", "there are copies of libcuvisor.so that differ");
}

#[test]
fn a_broken_policy_is_told_and_the_rest_is_checked() {
    let out = ask(|child, _| child.policy("devices = 1\n"));
    let (level, cause, remedy) = found(&out, "policy");
    assert!(level == "failure" && cause.starts_with("it is broken, and so gives no GPU: "), "{cause}");
    assert_eq!(remedy, "cuvisor check tells all that is wrong with it");
    expect(&out, "cuInit", "ok", "0, 2 GPUs visible");
    let out = ask(|child, _| child.policy("[[rule]]\nname = \"mine\"\nenv = [\"PATH\"]\ndevices = [1]\n"));
    let (level, cause, _) = found(&out, "policy");
    assert!(level == "ok" && cause.ends_with("policy.toml, rule \"mine\": enforce 1"), "{cause}");
}

#[test]
fn the_audit_file_must_be_writable() {
    let with = |file: &str, prepare: fn(&Path)| {
        let text = format!("[audit]\nfile = \"{file}\"\n");
        let out = ask(|child, _| {
            prepare(child.dir.path());
            child.policy(&text)
        });
        let (level, cause, _) = found(&out, "audit file");
        (level, cause.rsplit('/').next().unwrap_or_default().to_owned())
    };
    assert_eq!(with("DIR/a-{uid}.jsonl", |_| ()).0, "ok");
    assert_eq!(with("DIR/a.jsonl", |dir| std::fs::write(dir.join("a.jsonl"), "").unwrap()), ("ok".into(), "a.jsonl can be written".into()));
    assert_eq!(with("DIR/none/a.jsonl", |_| ()), ("failure".into(), "none is not there: events are lost".into()));
    let link = with("DIR/a.jsonl", |dir| std::os::unix::fs::symlink("x", dir.join("a.jsonl")).unwrap());
    assert_eq!(link, ("failure".into(), "a.jsonl is a symbolic link: nothing is written through one".into()));
    assert_eq!(with("DIR/sub", |dir| std::fs::create_dir(dir.join("sub")).unwrap()), ("failure".into(), "sub is no regular file".into()));
    expect(&ask(|c, _| c), "audit file", "ok", "none is asked for");
}

#[test]
fn the_machines_own_policy_file_is_checked() {
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("the_machines_own_policy_file_is_checked", "only root can make a mount namespace");
    }
    for (text, mode, level, cause) in [
        ("locked = true\n[default]\ndevices = [1]\n", "644", "ok", "/etc/cuvisor/policy.toml, locked"),
        ("[default]\ndevices = [1]\n", "644", "ok", "/etc/cuvisor/policy.toml, not locked: variables go before it"),
        (
            "[default]\ndevices = [1]\n",
            "666",
            "failure",
            "/etc/cuvisor/policy.toml can be changed by others than root, so it gives no GPU to anybody",
        ),
    ] {
        let script = format!(
            "mount -t tmpfs none /mnt && mkdir /mnt/etc && cp -a /etc/. /mnt/etc/ && mkdir -p /mnt/etc/cuvisor && cat > /mnt/etc/cuvisor/policy.toml <<'END'\n{text}END\n\
             chmod {mode} /mnt/etc/cuvisor/policy.toml && mount --bind /mnt/etc /etc && exec {} doctor --json",
            artefacts().cuvisor.display()
        );
        let out = Child::new("unshare").bare().args(["-m", "bash", "-c", &script]).run();
        expect(&out, "policy file", level, cause);
    }
}

#[test]
fn what_the_kernel_can_hold_is_told() {
    let sealed = "[default]\ndevices = [1]\nseal = true\n";
    let out = ask(|c, _| c.policy(sealed));
    // SAFETY: with the flag 1 the call only tells the version.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, 1) };
    if abi < 1 {
        expect(&out, "kernel seal", "failure", "the policy asks for one, and this kernel has no Landlock");
        return skip("what_the_kernel_can_hold_is_told", "this kernel has no Landlock; that it has none was told");
    }
    let what = if abi >= 5 { "commands to the nodes of other GPUs" } else { "opening the nodes of other GPUs for writing" };
    expect(&out, "kernel seal", "ok", &format!("Landlock ABI {abi}: {what} can be denied"));
    let out = ask(|child, root| {
        std::fs::remove_dir_all(root.join("proc")).unwrap();
        child.policy(sealed)
    });
    assert_eq!(found(&out, "kernel seal").0, "warning");
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        return skip("a kernel without Landlock", "strace is not installed");
    }
    let inject = ["-f", "-o", "/dev/null", "-e", "inject=landlock_create_ruleset:error=EOPNOTSUPP"];
    let child = Child::new("strace").bare().args(inject).arg(&artefacts().cuvisor).args(["doctor", "--json"]);
    expect(&child.policy(sealed).run(), "kernel seal", "failure", "the policy asks for one, and this kernel has no Landlock");
}
