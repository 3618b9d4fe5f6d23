//! The kernel seal, on character nodes that stand in for GPUs: copies of /dev/null in a /dev of the test's own.

use std::process::Command;

use cuvisor_policy::device::Devices;
use cuvisor_policy::sealed;

use crate::support::{Child, Output, artefacts, inventory, skip};

/// Whether this machine can run these tests; says so where it cannot.
fn possible(test: &str) -> bool {
    // SAFETY: geteuid takes nothing.
    let root = unsafe { libc::geteuid() } == 0;
    // SAFETY: with the flag 1 the call only tells the version.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, 1) };
    if !root || abi < 5 {
        skip(test, &format!("it needs root (to make nodes) and Landlock ABI 5; here root: {root}, ABI: {abi}"));
    }
    root && abi >= 5
}

/// Runs a script under a policy, with a /dev of 4 GPUs, each with a display and a MIG capability node.
/// `ioctl` and `static` in it stand for the program and its static twin, `PROG` for prog.
fn sealed(policy: &str, script: &str, prepare: impl FnOnce(Child) -> Child) -> Output {
    let ioctl = artefacts().callers.join("ioctl").display().to_string();
    let setup = "mount -t tmpfs none /dev && mkdir /dev/dri /dev/nvidia-caps /dev/pts /dev/shm && mknod /dev/null c 1 3 && mknod /dev/full c 1 7 && mknod /dev/nvidiactl c 1 3 && \
                 mknod /dev/nvidia-uvm c 1 3 && for k in 0 1 2 3; do mknod /dev/nvidia$k c 1 3; mknod /dev/dri/card$k c 1 3; mknod /dev/dri/renderD12$k c 1 3; \
                 mknod /dev/nvidia-caps/nvidia-cap3$k c 1 3; done && ln -s /proc/self/fd/1 /dev/stdout && ln -s /dev/loop /dev/loop && chmod 666 /dev/nvidia* /dev/null || exit 9\n";
    let script = script.replace("static ", &format!("{ioctl}_static ")).replace("ioctl ", &format!("{ioctl} "));
    let script = script.replace("PROG", &artefacts().callers.join("prog").display().to_string());
    let preload = format!("export LD_PRELOAD={}\n", artefacts().library.display());
    let child = Child::new("unshare").bare().args(["-m", "bash", "-c", &format!("{setup}{preload}{script}")]).policy(policy);
    let root = child.path("root");
    inventory(&root, &[0, 1, 2, 3]);
    for k in 0..4 {
        let drm = root.join(format!("sys/bus/pci/devices/0000:1{k}:00.0/drm"));
        std::fs::create_dir_all(drm.join(format!("card{k}"))).unwrap();
        std::fs::create_dir_all(drm.join(format!("renderD12{k}"))).unwrap();
        let mig = root.join(format!("proc/driver/nvidia/capabilities/gpu{k}/mig/gi1"));
        std::fs::create_dir_all(&mig).unwrap();
        std::fs::write(mig.join("access"), format!("DeviceFileMinor: 3{k}\nDeviceFileMode: 256\n")).unwrap();
    }
    prepare(child.env("CUVISOR_PROC_ROOT", root)).run()
}

const ONE: &str = "[audit]\nfile = \"AUDIT\"\n[default]\ndevices = [1]\nseal = true\n";

#[test]
fn the_other_gpus_nodes_are_denied_and_nothing_else() {
    if !possible("the_other_gpus_nodes_are_denied_and_nothing_else") {
        return;
    }
    let out = sealed(
        ONE,
        "exec ioctl /dev/nvidia0 /dev/nvidia1 /dev/nvidia3 /dev/dri/card0 /dev/dri/card1 /dev/dri/renderD121 /dev/dri/renderD122 \
        /dev/nvidia-caps/nvidia-cap30 /dev/nvidia-caps/nvidia-cap31 /dev/nvidiactl /dev/nvidia-uvm /dev/null",
        |c| c,
    );
    let expected = "/dev/nvidia0 13\n/dev/nvidia1 25\n/dev/nvidia3 13\n/dev/dri/card0 13\n/dev/dri/card1 25\n/dev/dri/renderD121 25\n/dev/dri/renderD122 13\n\
                    /dev/nvidia-caps/nvidia-cap30 13\n/dev/nvidia-caps/nvidia-cap31 25\n/dev/nvidiactl 25\n/dev/nvidia-uvm 25\n/dev/null 25\n";
    assert_eq!(out.told(), expected);
}

#[test]
fn files_are_renamed_and_linked_into_other_folders_as_before() {
    if !possible("files_are_renamed_and_linked_into_other_folders_as_before") {
        return;
    }
    let script = "mkdir -p a b /dev/shm/a /dev/shm/b; touch a/x a/y /dev/shm/a/x; ln a/y b/y; ln /dev/shm/a/x /dev/shm/b/x; \
                  perl -e 'rename(\"a/x\", \"b/x\") or die \"rename: $!\"'; ls b /dev/shm/b";
    let out = sealed(ONE, script, |c| c);
    assert_eq!((out.told(), &*out.stderr), ("/dev/shm/b:\nx\n\nb:\nx\ny\n", ""));
}

#[test]
fn a_process_that_has_the_variable_and_not_the_seal_is_sealed() {
    if !possible("a_process_that_has_the_variable_and_not_the_seal_is_sealed") {
        return;
    }
    // A batch system takes a job's environment from where it is handed in to where it runs.
    let script = "value=$(bash -c 'echo $CUVISOR_SEALED'); echo ${value% *}; export CUVISOR_SEALED=$value; PROG handle init >/dev/null; \
                  exec ioctl /dev/nvidia0 /dev/nvidia1";
    let out = sealed(ONE, script, |c| c);
    let nodes = "/dev/nvidia0 /dev/dri/card0 /dev/dri/renderD120 /dev/nvidia-caps/nvidia-cap30";
    assert!(out.told().starts_with(nodes), "{out:?}");
    assert!(out.told().ends_with("\n/dev/nvidia0 13\n/dev/nvidia1 25\n"), "{out:?}");
    assert_eq!(out.event("init")["seal"]["level"], "ioctl");
}

#[test]
fn b15_a_privileged_process_does_not_believe_the_variable() {
    if !possible("b15_a_privileged_process_does_not_believe_the_variable") {
        return;
    }
    // A /dev in which the seal cannot be seen, and a set-user-ID program beside the same one without that.
    let mark = sealed::mark(&Devices::None);
    let script = format!(
        "set -e\nmount -t tmpfs none /mnt\nmkdir -p /mnt/etc/cuvisor\ncp -a /etc/. /mnt/etc/\ncp {lib} /mnt/libcuvisor.so\ncp {ioctl} /mnt/plain\n\
         cp {ioctl} /mnt/privileged\nchmod 755 /mnt /mnt/libcuvisor.so /mnt/plain\nchown 0 /mnt/privileged\nchmod 4755 /mnt/privileged\n\
         printf '[default]\\ndevices = \"none\"\\nseal = true\\n' >/mnt/etc/cuvisor/policy.toml\nchmod 644 /mnt/etc/cuvisor/policy.toml\n\
         mount -t tmpfs none /dev\nfor node in null nvidia0; do mknod -m 666 /dev/$node c 1 3; done\n\
         echo /mnt/libcuvisor.so >/mnt/etc/ld.so.preload\nmount --bind /mnt/etc /etc\nexport CUVISOR_SEALED='/dev/nvidia0 {mark}'\n\
         for program in plain privileged; do setpriv --reuid 1000 --clear-groups /mnt/$program /dev/nvidia0; done",
        lib = artefacts().library.display(),
        ioctl = artefacts().callers.join("ioctl").display(),
        mark = String::from_utf8_lossy(&mark),
    );
    let out = Command::new("unshare").args(["-m", "bash", "-c", &script]).output().unwrap();
    let told = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!((told.0.as_ref(), told.1.as_ref()), ("/dev/nvidia0 25\n/dev/nvidia0 13\n", ""));
}

#[test]
fn the_seal_holds_for_every_kind_of_child() {
    if !possible("the_seal_holds_for_every_kind_of_child") {
        return;
    }
    for how in [
        "ioctl",
        "ioctl fork",
        "ioctl vfork",
        "ioctl spawn",
        "ioctl exec",
        "ioctl thread",
        "static",
        "static exec",
        "env -i LD_PRELOAD= ioctl",
        "env -i static",
    ] {
        // The shell is the one that is sealed: what it starts inherits that, whatever it links.
        let out = sealed(ONE, &format!("bash -c '{how} /dev/nvidia0 /dev/nvidia1; true'"), |c| c);
        assert_eq!(out.told(), "/dev/nvidia0 13\n/dev/nvidia1 25\n", "{how}");
    }
    let out = sealed(
        ONE,
        "bash -c 'CUVISOR_DISABLE=1 ioctl /dev/nvidia0; CUVISOR_POLICY=/none ioctl /dev/nvidia0; unset LD_PRELOAD; ioctl /dev/nvidia0'",
        |c| c,
    );
    assert_eq!(out.told(), "/dev/nvidia0 13\n".repeat(3));
}

#[test]
fn narrow_seals_to_the_whole_list_and_none_to_nothing() {
    if !possible("narrow_seals_to_the_whole_list_and_none_to_nothing") {
        return;
    }
    let narrow = "[default]\ndevices = [1, 2]\nrequest = \"narrow\"\nseal = true\n";
    let out = sealed(narrow, "exec ioctl /dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidia3", |c| c.env("CUDA_VISIBLE_DEVICES", "2"));
    assert_eq!(out.told(), "/dev/nvidia0 13\n/dev/nvidia1 25\n/dev/nvidia2 25\n/dev/nvidia3 13\n");
    for root in [true, false] {
        let none = "[default]\ndevices = \"none\"\nseal = true\n";
        let out = sealed(none, "exec ioctl /dev/nvidia0 /dev/nvidia3 /dev/nvidiactl", |c| {
            if root { c } else { c.env("CUVISOR_PROC_ROOT", "/nowhere") }
        });
        assert_eq!(out.told(), "/dev/nvidia0 13\n/dev/nvidia3 13\n/dev/nvidiactl 25\n", "inventory: {root}");
    }
    let out = sealed("[default]\nseal = true\n", "exec ioctl /dev/nvidia0", |c| c);
    assert_eq!(out.told(), "/dev/nvidia0 25\n");
    // A GPU that appears later is beneath no rule.
    let out = sealed(ONE, "bash -c 'mknod /dev/nvidia4 c 1 3; mknod /dev/shm/other c 1 3; ioctl /dev/nvidia4 /dev/shm/other'", |c| c);
    assert_eq!(out.told(), "/dev/nvidia4 13\n/dev/shm/other 25\n");
}

#[test]
fn a_mig_instance_by_number_keeps_its_own_nodes_and_one_by_uuid_the_split_gpus() {
    if !possible("a_mig_instance_by_number_keeps_its_own_nodes_and_one_by_uuid_the_split_gpus") {
        return;
    }
    let show = "exec ioctl /dev/nvidia1 /dev/nvidia2 /dev/nvidia-caps/nvidia-cap31 /dev/nvidia-caps/nvidia-cap32 /dev/nvidia-caps/nvidia-cap40 /dev/nvidia-caps/nvidia-cap41";
    // Beside the instance that each GPU has, GPU 1 gets a second one, with a compute instance of its own.
    let split = |policy: &str| {
        let nodes = "for k in 40 41; do mknod /dev/nvidia-caps/nvidia-cap$k c 1 3; done; chmod 666 /dev/nvidia-caps/*; ";
        let more = "m=$CUVISOR_PROC_ROOT/proc/driver/nvidia/capabilities/gpu1/mig/gi7; mkdir -p $m/ci0; echo 'DeviceFileMinor: 40' > $m/access; echo 'DeviceFileMinor: 41' > $m/ci0/access; ";
        let preload = "export LD_PRELOAD=$KEPT; ";
        let out = sealed(policy, &format!("KEPT=$LD_PRELOAD; unset LD_PRELOAD; {nodes}{more}{preload}{show}"), |c| c);
        assert_eq!(out.code, Some(0), "{out:?}");
        out.stdout.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    let one = "[default]\ndevices = [\"MIG-GPU-11111111/7/0\"]\nseal = true\n";
    let out = split(one);
    assert_eq!(out, "25 13 13 13 25 25", "instance 7 of GPU 1: its GPU's node, not instance 1's nodes");
    let out = split("[default]\ndevices = [\"MIG-5c2f0eb7-0000-4000-8000-000000000000\"]\nseal = true\n");
    assert_eq!(out, "25 25 25 25 25 25", "every GPU here is split, and the UUID does not tell which is meant");
}

#[test]
fn the_log_says_which_level_holds() {
    if !possible("the_log_says_which_level_holds") {
        return;
    }
    let init = |policy: &str, script: &str, prepare: fn(Child) -> Child| {
        let out = sealed(policy, script, prepare);
        assert_eq!(out.code, Some(0), "{out:?}");
        out.events.iter().find(|e| e["event"] == "init").unwrap_or_else(|| panic!("{out:?}")).clone()
    };
    let seal = init(ONE, "exec PROG handle init >/dev/null", |c| c)["seal"].clone();
    assert_eq!(seal["level"], "ioctl", "{seal}");
    assert_eq!((seal["denied"].as_array().unwrap().len(), &seal["denied"][0]), (12, &"/dev/nvidia0".into()), "{seal}");
    // A child inherits it and adds no layer: 40 generations, though the kernel allows 16 layers.
    let nested = "n=40; s='PROG handle init >/dev/null'; while [ $n -gt 0 ]; do s=\"bash -c '$(printf %s \"$s\" | sed \"s/'/'\\\\\\\\''/g\")'\"; n=0; done; exec bash -c \"$s\"";
    assert_eq!(init(ONE, nested, |c| c)["seal"]["level"], "inherited");
    let failed = init(ONE, "exec PROG handle init >/dev/null", |c| c.env("CUVISOR_PROC_ROOT", "/nowhere"));
    assert_eq!(failed["seal"]["reason"], "the policy names GPUs, and /proc/driver/nvidia/gpus shows none");
    assert_eq!((&failed["effective"], &failed["result"]), (&"1".into(), &0.into()), "true goes on");
    let required =
        init(&ONE.replace("true", "\"require\""), "exec PROG handle init >/dev/null", |c| c.env("CUVISOR_PROC_ROOT", "/nowhere"));
    assert_eq!((&required["effective"], &required["result"]), (&"".into(), &100.into()), "require denies");
    assert_eq!(init(&ONE.replace("true", "false"), "exec PROG handle init >/dev/null", |c| c).get("seal"), None);
}

#[test]
fn a_thread_that_ran_before_is_covered_or_the_log_says_that_it_is_not() {
    if !possible("a_thread_that_ran_before_is_covered_or_the_log_says_that_it_is_not") {
        return;
    }
    // SAFETY: with the flag 1 the call only tells the version.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, 1) };
    let callers = artefacts().callers.display().to_string();
    let out = sealed(ONE, &format!("LD_LIBRARY_PATH={callers}:$LD_LIBRARY_PATH exec {callers}/waiting /dev/nvidia0 /dev/nvidia1"), |c| c);
    let (denied, uncovered) = if abi >= 8 { (13, None) } else { (25, Some(1.into())) };
    assert_eq!(out.told(), format!("/dev/nvidia0 {denied}\n/dev/nvidia1 25\ninit 0\n"));
    assert_eq!(out.event("init")["seal"].get("threads_not_covered"), uncovered.as_ref());
}

#[test]
fn seventeen_seals_fail_by_name_and_the_process_lives() {
    if !possible("seventeen_seals_fail_by_name_and_the_process_lives") {
        return;
    }
    // Who drops the variable seals again, until the kernel has had enough.
    let script = "export N=20\ncat > again.sh <<'END'\nN=$((N - 1))\nunset CUVISOR_SEALED\n[ $N -gt 0 ] && exec bash again.sh\nexec PROG handle init\nEND\nexec bash again.sh";
    let out = sealed(ONE, script, |c| c);
    assert_eq!(out.told(), "init 0\n");
    assert_eq!(out.event("init")["seal"]["reason"], "landlock refused: too many layers, or no_new_privs cannot be set");
}

#[test]
fn no_new_privs_is_promised_only_without_cap_sys_admin() {
    if !possible("no_new_privs_is_promised_only_without_cap_sys_admin") {
        return;
    }
    let show = "grep NoNewPrivs /proc/self/status";
    assert_eq!(sealed(ONE, &format!("exec {show}"), |c| c).told(), "NoNewPrivs:\t0\n");
    let inner = format!("{show}; ioctl /dev/nvidia0");
    let user = format!(
        "L=$LD_PRELOAD; unset LD_PRELOAD; chmod 755 .; exec setpriv --reuid 1000 --clear-groups env LD_PRELOAD=$L bash -c '{inner}'"
    );
    let out = sealed(ONE, &user, |c| c);
    assert_eq!(out.told(), "NoNewPrivs:\t1\n/dev/nvidia0 13\n");
}

#[test]
fn five_thousand_nodes_are_no_trouble_and_run_seals_too() {
    if !possible("five_thousand_nodes_are_no_trouble_and_run_seals_too") {
        return;
    }
    // Folders, which one program makes at once and which need a rule each, as nodes do.
    let many = "LD_PRELOAD= mkdir $(seq -f /dev/x%g 5000); LD_PRELOAD= mknod /dev/x5000/null c 1 3; ulimit -n 64; ";
    let out = sealed(ONE, &format!("{many}exec ioctl /dev/nvidia0 /dev/nvidia1 /dev/x5000/null"), |c| c);
    assert_eq!(out.told(), "/dev/nvidia0 13\n/dev/nvidia1 25\n/dev/x5000/null 25\n");
    // A display whose node this /dev does not have.
    let out = sealed(ONE, "LD_PRELOAD= rm -r /dev/dri /dev/nvidia-caps; exec ioctl /dev/nvidia0 /dev/nvidia1", |c| c);
    assert_eq!(out.told(), "/dev/nvidia0 13\n/dev/nvidia1 25\n");
    let run = format!("unset LD_PRELOAD; exec {} run --devices 2 --seal -- ioctl /dev/nvidia1 /dev/nvidia2", artefacts().cuvisor.display());
    let out = sealed("", &run, |c| c);
    assert_eq!(out.told(), "/dev/nvidia1 13\n/dev/nvidia2 25\n");
    let run = format!("unset LD_PRELOAD; {} run --seal=always -- true", artefacts().cuvisor.display());
    let out = sealed("", &run, |c| c);
    assert_eq!(out.stderr, "cuvisor: --seal=always: write --seal or --seal=require\n");
}

#[test]
fn below_a_seal_nothing_is_asked_again_and_none_asks_nothing() {
    const NAME: &str = "below_a_seal_nothing_is_asked_again_and_none_asks_nothing";
    if !possible(NAME) || Command::new("strace").arg("-V").output().is_err() {
        return skip(NAME, "strace is not installed, or see above");
    }
    let files = |policy: &str, script: &str| {
        let library = format!("LD_PRELOAD={}", artefacts().library.display());
        let child = Child::new("strace")
            .bare()
            .args(["-f", "-o", "trace", "-e", "trace=openat", "-E", &library, "bash", "-c", script])
            .policy(policy);
        let (root, trace) = (child.path("root"), child.path("trace"));
        inventory(&root, &[0, 1, 2, 3]);
        let mut child = child.env("CUVISOR_PROC_ROOT", root);
        assert!(child.start().wait_with_output().unwrap().status.success());
        std::fs::read_to_string(trace).unwrap().lines().filter(|line| line.contains("information\"")).count()
    };
    let none = "[default]\ndevices = \"none\"\nseal = true\n";
    assert_eq!(files(none, "ls /; ls /; true"), 0);
    assert_eq!(files(ONE, "ls /; ls /; true"), 4, "once, by the first");
    let other = ONE.replace("[1]", "[2]") + "[[rule]]\nenv = [\"JOB\"]\ndevices = [1]\nseal = true\n";
    assert_eq!(files(&other, "ls /; JOB=1 ls /; true"), 8, "another list is another seal");
    assert_eq!(files(ONE, "unset CUVISOR_SEALED; ls /; true"), 8);
}
