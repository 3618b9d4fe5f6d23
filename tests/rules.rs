//! Rules: who gets what, and what the program's own request counts for.

use crate::support::{Child, artefacts, inventory, skip};

/// Runs prog's init and says which GPUs it got.
fn got(child: Child) -> String {
    let out = child.args(["init", "count", "get:0"]).run();
    let told = out.told();
    match told.lines().nth(2) {
        Some(line) if told.starts_with("init 0") => {
            format!("{} {}", told.lines().nth(1).unwrap().trim_start_matches("count 0 "), &line[8..])
        }
        _ => "none".into(),
    }
}

fn under(policy: &str) -> Child {
    Child::prog("handle", []).policy(policy)
}

#[test]
fn the_first_rule_whose_conditions_all_hold_counts() {
    let file = "[default]\ndevices = [0]\n[[rule]]\nname = \"two\"\nargv = [\"*handle*\"]\nenv = [\"ROLE=worker*\"]\ndevices = [2]\n\
                [[rule]]\nname = \"three\"\nenv = [\"ROLE\"]\ndevices = [3]\n[[rule]]\nname = \"one\"\nexe = [\"*/prog\", \"/nothing\"]\ndevices = [1]\n";
    assert_eq!(got(under(file).env("ROLE", "worker7")), "1 GPU-22222222");
    assert_eq!(got(under(file).env("ROLE", "driver")), "1 GPU-33333333");
    assert_eq!(got(under(file)), "1 GPU-11111111");
    let linked = Child::prog("linked", []).policy(file).args(["init", "get:0"]).run();
    assert_eq!(linked.told(), "init 0\nget 0 0 GPU-00000000\n");
    let out = under(&format!("[audit]\nfile = \"AUDIT\"\n{file}")).arg("init").run();
    assert_eq!(out.event("init")["rule"], "one");
}

#[test]
fn a_group_is_found_wherever_its_line_stands_and_only_at_its_beginning() {
    const NAME: &str = "a_group_is_found_wherever_its_line_stands_and_only_at_its_beginning";
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip(NAME, "only root can make a mount namespace");
    }
    let line = |name: &str, len: usize| format!("{name}:x:4000000:{}\n", "m".repeat(len.saturating_sub(name.len() + 12)));
    // The file is read through 4 KiB: the line begins before, at and behind that, behind a line of a whole such piece or of
    // several, and, last, as the rest of one, which is no line.
    let mut files: Vec<(String, bool)> = (4080..=4112).map(|len| (line("other", len) + "wanted:x:0:\nlast:x:4000001:\n", true)).collect();
    files.push((line("a", 40_000) + &line("b", 3) + "wanted:x:0:", true));
    files.push((format!("{}wanted:x:0:\n", line("other", 4097).trim_end()), false));
    files.push((format!("{}wanted:x:0:", "m".repeat(8192)), false));
    files.push((String::new(), false));
    let child = Child::new("unshare").policy("[default]\ndevices = [0]\n[[rule]]\ngroup = [\"wanted\"]\ndevices = [2]\n");
    let (mut script, mut expected) = ("set -e\n".to_owned(), String::new());
    let prog = artefacts().callers.join("prog").display().to_string();
    for (number, (text, is_there)) in files.iter().enumerate() {
        let file = child.path(&format!("group{number}"));
        std::fs::write(&file, text).unwrap();
        script += &format!("mount --bind {} /etc/group; {prog} handle env:CUDA_VISIBLE_DEVICES; umount /etc/group\n", file.display());
        expected += if *is_there { "CUDA_VISIBLE_DEVICES=2\n" } else { "CUDA_VISIBLE_DEVICES=0\n" };
    }
    assert_eq!(child.args(["-m", "bash", "-c", &script]).run().told(), expected);
}

#[test]
fn a_rule_asks_for_user_group_and_cgroup() {
    // SAFETY: getuid takes nothing.
    let uid = unsafe { libc::getuid() };
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let name = passwd
        .lines()
        .find_map(|l| l.split(':').nth(2).filter(|n| *n == uid.to_string()).and_then(|_| l.split(':').next()))
        .unwrap_or("nobody")
        .to_owned();
    // SAFETY: getegid takes nothing.
    let gid = unsafe { libc::getegid() };
    let group_text = std::fs::read_to_string("/etc/group").unwrap();
    let group = group_text
        .lines()
        .find_map(|l| l.split(':').nth(2).filter(|n| *n == gid.to_string()).and_then(|_| l.split(':').next()))
        .unwrap_or("nogroup");
    for (condition, expected) in [
        (format!("user = [\"{name}\"]"), "1 GPU-22222222"),
        (format!("user = [{uid}]"), "1 GPU-22222222"),
        ("user = [\"nobody-of-this-name\", 4000000]".into(), "1 GPU-00000000"),
        (format!("group = [\"{group}\"]"), "1 GPU-22222222"),
        (format!("group = [4000000, {gid}]"), "1 GPU-22222222"),
        ("group = [\"no-such-group\"]".into(), "1 GPU-00000000"),
        ("cgroup = [\"/*\"]".into(), "1 GPU-22222222"),
        ("cgroup = [\"*/kubepods-of-nowhere/*\"]".into(), "1 GPU-00000000"),
    ] {
        let file = format!("[default]\ndevices = [0]\n[[rule]]\n{condition}\ndevices = [2]\n");
        assert_eq!(got(under(&file)), expected, "{condition}");
    }
    if uid != 0 {
        return skip("supplementary groups", "only root can choose them");
    }
    let file = "[default]\ndevices = [0]\n[[rule]]\ngroup = [4242]\ndevices = [2]\n";
    let mut child = Child::new("setpriv").args(["--groups", "4242,7", "--"]).policy(file);
    let prog = artefacts().callers.join("prog").display().to_string();
    child.command().arg(prog).args(["handle", "init", "get:0"]);
    assert_eq!(child.run().told(), "init 0\nget 0 0 GPU-22222222\n");
}

#[test]
fn a_rule_may_have_a_mode_of_its_own() {
    let file = "[audit]\nfile = \"AUDIT\"\n[default]\ndevices = \"none\"\n[[rule]]\nenv = [\"FREE\"]\nmode = \"off\"\n[[rule]]\nenv = [\"WATCHED\"]\nmode = \"audit\"\ndevices = [1]\n";
    assert_eq!(got(under(file)), "none");
    assert_eq!(got(under(file).env("FREE", "1")), "4 GPU-00000000");
    let out = under(file).env("WATCHED", "1").args(["init", "count"]).run();
    assert_eq!(out.told(), "init 0\ncount 0 4\n");
    assert_eq!(out.names(), ["init", "denied", "exit"]);
    assert!(out.events.iter().all(|e| e["outcome"] == "audited"));
}

#[test]
fn a15_workers_narrow_the_list_and_cannot_widen_it() {
    let file = "[audit]\nfile = \"AUDIT\"\n[default]\ndevices = [0, 1, 2, 3]\nrequest = \"narrow\"\n";
    let eight = |request: &str| under(file).env("FAKE_CUDA_GPUS", "8").env("CUDA_VISIBLE_DEVICES", request);
    for k in 0..4 {
        assert_eq!(got(eight(&k.to_string())), format!("1 GPU-{}", k.to_string().repeat(8)));
    }
    assert_eq!(got(eight("6")), "none");
    assert_eq!(got(eight("2,6")), "1 GPU-22222222");
    assert_eq!(got(eight("3,1")), "2 GPU-33333333");
    assert_eq!(got(eight("")), "none");
    assert_eq!(got(eight("-1")), "none");
    assert_eq!(got(eight("1,1")), "none");
    assert_eq!(got(under(file).env("FAKE_CUDA_GPUS", "8")), "4 GPU-00000000");
    let out = eight("2,6").arg("init").run();
    let init = out.event("init");
    assert_eq!(
        (&init["request"], &init["effective"], &init["reason"]),
        (&"2,6".into(), &"2".into(), &"the request names a device outside the policy".into())
    );
    // A launcher that has the whole list gives each worker its own part; the worker's children keep it.
    let steps = [
        "init",
        "count",
        "set:CUDA_VISIBLE_DEVICES=2",
        "exec:exec:env:CUDA_VISIBLE_DEVICES",
        "exec:init",
        "set:CUDA_VISIBLE_DEVICES=6",
        "exec:init",
    ];
    let out = under(file).env("FAKE_CUDA_GPUS", "8").args(steps).run();
    assert_eq!(out.told(), "init 0\ncount 0 4\nCUDA_VISIBLE_DEVICES=2\ninit 0\ninit 100\n");
    // Under fixed all workers see all four.
    let fixed = "[default]\ndevices = [0, 1, 2, 3]\n";
    assert_eq!(got(under(fixed).env("FAKE_CUDA_GPUS", "8").env("CUDA_VISIBLE_DEVICES", "2")), "4 GPU-00000000");
}

#[test]
fn a15_indices_are_not_compared_with_uuids_without_the_inventory() {
    let file = "[audit]\nfile = \"AUDIT\"\n[default]\ndevices = [\"GPU-11\", \"GPU-22\"]\nrequest = \"narrow\"\n";
    assert_eq!(got(under(file).env("CUDA_VISIBLE_DEVICES", "1").env("CUVISOR_PROC_ROOT", "/nowhere")), "none");
    let out = under(file).env("CUDA_VISIBLE_DEVICES", "1").env("CUVISOR_PROC_ROOT", "/nowhere").arg("init").run();
    assert_eq!(out.event("init")["reason"], "the policy needs /proc/driver/nvidia/gpus, which shows no GPU");
    let with = |request: &str| {
        let child = under(file).env("CUDA_VISIBLE_DEVICES", request);
        let root = child.path("root");
        inventory(&root, &[0, 1, 2, 3]);
        got(child.env("CUVISOR_PROC_ROOT", root))
    };
    assert_eq!(with("2"), "1 GPU-22222222");
    assert_eq!(with("0,2"), "1 GPU-22222222");
    assert_eq!(with("GPU-2222"), "1 GPU-22222222");
    assert_eq!(with("3"), "none");
}

#[test]
fn a09_pci_ids_and_mixed_kinds_are_translated() {
    for (emit, expected) in [
        (
            "uuid",
            "GPU-22222222-0000-4000-8000-000000000002,GPU-11111111-0000-4000-8000-000000000001,GPU-33333333-0000-4000-8000-000000000003",
        ),
        ("index", "2,1,3"),
    ] {
        let file = format!("[default]\ndevices = [\"0000:12:00.0\", 1, \"GPU-33\"]\nemit = \"{emit}\"\n");
        let child = under(&file).args(["env:CUDA_VISIBLE_DEVICES", "init", "get:0", "count"]);
        let root = child.path("root");
        inventory(&root, &[0, 1, 2, 3]);
        let out = child.env("CUVISOR_PROC_ROOT", root).run();
        assert_eq!(out.told(), format!("CUDA_VISIBLE_DEVICES={expected}\ninit 0\nget 0 0 GPU-22222222\ncount 0 3\n"));
        assert_eq!(got(under(&file).env("CUVISOR_PROC_ROOT", "/nowhere")), "none");
    }
    // Only devices whose node exists count: in a container the folder shows the host's.
    let file = "[default]\ndevices = [\"0000:12:00.0\"]\nemit = \"index\"\n";
    let child = under(file).args(["env:CUDA_VISIBLE_DEVICES"]);
    let root = child.path("root");
    inventory(&root, &[0, 1, 2, 3]);
    std::fs::remove_file(root.join("dev/nvidia0")).unwrap();
    assert_eq!(child.env("CUVISOR_PROC_ROOT", root).run().told(), "CUDA_VISIBLE_DEVICES=1\n");
}

#[test]
fn a09_uuids_prefixes_and_mig_words_are_passed_as_written() {
    let seen = |devices: &str| {
        let child = under(&format!("[default]\ndevices = {devices}\n")).args(["env:CUDA_VISIBLE_DEVICES", "init", "count"]);
        child
            .env("FAKE_CUDA_UUIDS", "GPU-7fa61111-0000-4000-8000-000000000001,GPU-7fa62222-0000-4000-8000-000000000002")
            .run()
            .told()
            .to_owned()
    };
    assert_eq!(seen("[\"GPU-7fa62\"]"), "CUDA_VISIBLE_DEVICES=GPU-7fa62\ninit 0\ncount 0 1\n");
    assert_eq!(seen("[\"GPU-7FA62222-0000\"]"), "CUDA_VISIBLE_DEVICES=GPU-7FA62222-0000\ninit 0\ncount 0 1\n");
    assert_eq!(seen("[\"GPU-7fa6\"]"), "CUDA_VISIBLE_DEVICES=GPU-7fa6\ninit 100\ncount 3 untouched\n");
    assert_eq!(seen("[\"GPU-ffff\"]"), "CUDA_VISIBLE_DEVICES=GPU-ffff\ninit 100\ncount 3 untouched\n");
    assert_eq!(
        seen("[\"MIG-11111111-0000-4000-8000-000000000001\"]").lines().next(),
        Some("CUDA_VISIBLE_DEVICES=MIG-11111111-0000-4000-8000-000000000001")
    );
    assert_eq!(seen("[\"MIG-GPU-7fa61111/0/0\"]").lines().next(), Some("CUDA_VISIBLE_DEVICES=MIG-GPU-7fa61111/0/0"));
}

#[test]
fn a_locked_policy_listens_to_no_variable() {
    let file = "locked = true\n[audit]\nfile = \"AUDIT\"\n[default]\ndevices = [1]\n";
    for (name, value) in [
        ("CUVISOR_DEVICES", "all"),
        ("CUVISOR_MODE", "off"),
        ("CUVISOR_DISABLE", "1"),
        ("CUVISOR_AUDIT", "/dev/null"),
        ("CUVISOR_PROC_ROOT", "/tmp"),
    ] {
        let out = under(file).env(name, value).args(["init", "count", "get:0"]).run();
        assert_eq!(out.told(), "init 0\ncount 0 1\nget 0 0 GPU-11111111\n", "{name}");
        assert_eq!(out.event("init")["ignored"], serde_json::json!([name]), "{name}");
    }
    let out = under(&file.replace("true", "false")).env("CUVISOR_DEVICES", "2").args(["init", "get:0"]).run();
    assert_eq!(out.told(), "init 0\nget 0 0 GPU-22222222\n");
}

#[test]
fn a_system_policy_that_is_locked_or_broken_cannot_be_replaced() {
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("a_system_policy_that_is_locked_or_broken_cannot_be_replaced", "only root can make a mount namespace");
    }
    let prog = artefacts().callers.join("prog").display().to_string();
    let cuvisor = artefacts().cuvisor.display().to_string();
    for (file, mode, stdout) in [
        ("locked = true\n[default]\ndevices = [1]\n", "644", "init 0\nget 0 0 GPU-11111111\n"),
        ("[default]\ndevices = [1]\n", "644", "init 0\nget 0 0 GPU-33333333\n"),
        ("[default]\ndevices = [one]\n", "644", "init 100\nget 0 3 untouched\n"),
        ("[default]\ndevices = [1]\n", "666", "init 100\nget 0 3 untouched\n"),
    ] {
        let script = format!(
            "mount -t tmpfs none /mnt && mkdir /mnt/etc && cp -a /etc/. /mnt/etc/ && mkdir -p /mnt/etc/cuvisor && cat > /mnt/etc/cuvisor/policy.toml <<'END'\n{file}END\n\
             chmod {mode} /mnt/etc/cuvisor/policy.toml && mount --bind /mnt/etc /etc && {prog} handle init get:0
             unset LD_PRELOAD && exec {cuvisor} explain --gpus 4 -- {prog} >explained"
        );
        let own = Child::new("unshare").args(["-m", "bash", "-c", &script]).policy("[default]\ndevices = [3]\n");
        let place = own.path("explained");
        let (out, explained) = own.run_and(|| std::fs::read_to_string(place).unwrap());
        assert_eq!(out.stdout, stdout, "{file} {mode}: {}", out.stderr);
        // What the command says of it.
        let sees = stdout.contains("GPU-").then(|| if stdout.contains("1111") { "nvidia-smi index 1" } else { "nvidia-smi index 3" });
        assert_eq!((explained.contains("broken "), out.code), (sees.is_none(), Some(i32::from(sees.is_none()))), "{explained}");
        assert!(explained.contains(sees.unwrap_or("effective  \"\"")), "{explained}");
    }
}

#[test]
fn an_inherited_list_is_no_request_under_another_policy() {
    let file = "[default]\ndevices = [0, 1]\nrequest = \"narrow\"\n";
    let child = under(file).args(["env:CUDA_VISIBLE_DEVICES", "set:CUVISOR_POLICY=other.toml", "exec:env:CUDA_VISIBLE_DEVICES"]);
    std::fs::write(child.path("other.toml"), "[default]\ndevices = [2, 3]\nrequest = \"narrow\"\n").unwrap();
    assert_eq!(child.run().told(), "CUDA_VISIBLE_DEVICES=0,1\nCUDA_VISIBLE_DEVICES=2,3\n");
    // A request of the parent's own is asked again.
    let child = under(file).env("CUDA_VISIBLE_DEVICES", "1,3").args([
        "env:CUDA_VISIBLE_DEVICES",
        "set:CUVISOR_POLICY=other.toml",
        "exec:env:CUDA_VISIBLE_DEVICES",
    ]);
    std::fs::write(child.path("other.toml"), "[default]\ndevices = [2, 3]\nrequest = \"narrow\"\n").unwrap();
    assert_eq!(child.run().told(), "CUDA_VISIBLE_DEVICES=1\nCUDA_VISIBLE_DEVICES=3\n");
}

#[test]
fn a_policy_of_a_thousand_rules_is_read_to_its_end() {
    let rules: String = (0..1000).map(|k| format!("[[rule]]\nname = \"r{k}\"\nenv = [\"JOB=j{k}\"]\ndevices = [{}]\n", k % 4)).collect();
    assert_eq!(got(under(&rules).env("JOB", "j999")), "1 GPU-33333333");
    let broken = format!("{rules}[[rule]]\ndevices = [x]\n");
    let out = under(&broken).env("JOB", "j0").arg("init").run();
    assert_eq!(out.stdout, "init 100\n");
    assert!(out.stderr.contains("policy.toml:4002:12: "), "{}", out.stderr);
}
