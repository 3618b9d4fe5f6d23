//! `cuvisor install --system` and `uninstall`, in roots of the test's own: a small one with true, sh and what they need.

use crate::support::{Child, Output, artefacts, inventory, root as repository, skip};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether this user can chroot; says so where not.
fn possible(test: &str) -> bool {
    // SAFETY: geteuid takes nothing.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        skip(test, "only root can chroot");
    }
    root
}

/// A system of two programs.
fn small_root(at: &Path) -> PathBuf {
    let root = at.join("system");
    for folder in ["etc", "tmp", "usr/lib/x86_64-linux-gnu", "lib64", "bin"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    for program in ["/bin/true", "/bin/sh"] {
        std::fs::copy(program, root.join(program.trim_start_matches('/'))).unwrap();
        let out = Command::new("ldd").arg(program).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        for library in text.split_whitespace().filter(|word| word.starts_with('/')) {
            let place = root.join(library.trim_start_matches('/'));
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::copy(library, place).unwrap();
        }
    }
    root
}

/// Debian's place for it; a cleared environment has no PATH to look in.
const CHROOT: &str = "/usr/sbin/chroot";
const POLICY: &str = "[audit]\nfile = \"/var/log/cuvisor/{uid}.jsonl\"\n[default]\ndevices = [1]\n";

struct System {
    dir: tempfile::TempDir,
    root: PathBuf,
}

impl System {
    fn new() -> Self {
        let dir = tempfile::TempDir::new().unwrap();
        let root = small_root(dir.path());
        std::fs::write(dir.path().join("policy.toml"), POLICY).unwrap();
        Self { dir, root }
    }

    fn cuvisor(&self, arguments: &[&str]) -> Output {
        let child = Child::new(&artefacts().cuvisor).bare().args(arguments.iter().copied());
        child.arg("--root").arg(&self.root).run()
    }

    fn install(&self) -> Output {
        let policy = self.dir.path().join("policy.toml").display().to_string();
        self.cuvisor(&["install", "--system", "--policy", &policy])
    }

    fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// A command inside: exit code, stdout, stderr.
    fn inside(&self, command: &str) -> (Option<i32>, String, String) {
        let out = Command::new(CHROOT).arg(&self.root).args(["/bin/sh", "-c", command]).env_clear().output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (out.status.code(), text(out.stdout), text(out.stderr))
    }

    /// Every file inside, sorted.
    fn files(&self) -> Vec<String> {
        fn walk(folder: &Path, files: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                files.push(entry.path().display().to_string());
                if entry.file_type().unwrap().is_dir() {
                    walk(&entry.path(), files);
                }
            }
        }
        let mut files = Vec::new();
        walk(&self.root, &mut files);
        files.sort();
        files
    }
}

const LIBRARY: &str = "usr/lib/x86_64-linux-gnu/cuvisor/libcuvisor.so";
const PRELOAD: &str = "etc/ld.so.preload";
const SHOW: &str = "echo \"$CUDA_VISIBLE_DEVICES\"";

fn ok(text: &str) -> (Option<i32>, String, String) {
    (Some(0), text.to_owned(), String::new())
}

#[test]
fn a_process_inside_is_explained_from_outside() {
    if !possible("a_process_inside_is_explained_from_outside") {
        return;
    }
    let system = System::new();
    assert_eq!(system.install().code, Some(0));
    let mut inside = Command::new(CHROOT);
    inside.arg(&system.root).args(["/bin/sh", "-c", "echo waiting; read end"]).env_clear();
    let mut process = inside.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(process.stdout.take().unwrap()), &mut line).unwrap();
    let pid = process.id();
    let out = Child::new(&artefacts().cuvisor).bare().args(["doctor", "--json", "--pid", &pid.to_string()]).run();
    drop(process.stdin.take());
    process.wait().unwrap();
    let findings: Vec<serde_json::Value> = serde_json::from_str(&out.stdout).unwrap_or_else(|error| panic!("{error}: {out:?}"));
    let cause = |check: &str| findings.iter().find(|finding| finding["check"] == check).unwrap()["cause"].as_str().unwrap().to_owned();
    assert_eq!(cause("library"), "libcuvisor.so is in it");
    assert_eq!(cause("policy"), format!("/proc/{pid}/root/etc/cuvisor/policy.toml, [default]: enforce 1"));
}

#[test]
fn a_system_is_held_after_one_command_and_as_before_after_another() {
    if !possible("a_system_is_held_after_one_command_and_as_before_after_another") {
        return;
    }
    let system = System::new();
    std::fs::write(system.path(PRELOAD), "# mine\n/no/such/thing.so # but for this\n").unwrap();
    std::fs::remove_file(system.path(PRELOAD)).unwrap();
    let before = system.files();
    let out = system.install();
    let root = system.root.display();
    let told = format!(
        "wrote {root}/{LIBRARY}\nwrote {root}/etc/cuvisor/policy.toml\nmade {root}/var/log/cuvisor with mode 1733\nadded to {root}/{PRELOAD}: /{LIBRARY}\n"
    );
    assert_eq!(out.told(), told);
    assert_eq!(system.inside(SHOW), ok("1\n"));
    assert_eq!(system.read("etc/cuvisor/policy.toml"), POLICY);
    for (file, mode) in
        [(LIBRARY, 0o100644), ("etc/cuvisor/policy.toml", 0o100644), (PRELOAD, 0o100644), ("usr/lib/x86_64-linux-gnu/cuvisor", 0o40755)]
    {
        assert_eq!(system.path(file).metadata().unwrap().mode(), mode, "{file}");
    }
    assert_eq!(system.path("var/log/cuvisor").metadata().unwrap().mode() & 0o7777, 0o1733);
    // Once more changes nothing.
    let files = system.files();
    let told = format!(
        "unchanged {root}/{LIBRARY}\nkept {root}/etc/cuvisor/policy.toml: a policy is never overwritten\nunchanged {root}/{PRELOAD}\n"
    );
    assert_eq!(system.install().told(), told);
    assert_eq!(system.files(), files);
    // Back: the policy and the log are their owner's, unless they are given up as well.
    let told = format!(
        "removed {root}/{PRELOAD}: nothing else was in it\nremoved {root}/{LIBRARY}\nkept {root}/etc/cuvisor/policy.toml\nkept the audit files: /var/log/cuvisor/{{uid}}.jsonl\n"
    );
    assert_eq!(system.cuvisor(&["uninstall"]).told(), told);
    assert_eq!(system.inside(SHOW), ok("\n"));
    for file in ["1000.jsonl.1.gz", "1000.jsonl"] {
        std::fs::write(system.path("var/log/cuvisor").join(file), "{}\n").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let told = format!(
        "{root}/{PRELOAD} does not name the library\nremoved {root}/etc/cuvisor/policy.toml\nremoved {root}/var/log/cuvisor/1000.jsonl.1.gz\nremoved {root}/var/log/cuvisor/1000.jsonl\nremoved {root}/var/log/cuvisor\n"
    );
    assert_eq!(system.cuvisor(&["uninstall", "--purge"]).told(), told);
    let left: Vec<_> = system
        .files()
        .into_iter()
        .filter(|file| !before.contains(file) && !file.ends_with("/var") && !file.ends_with("/var/log"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn other_lines_stay_and_an_older_path_of_the_library_is_replaced() {
    if !possible("other_lines_stay_and_an_older_path_of_the_library_is_replaced") {
        return;
    }
    let system = System::new();
    std::fs::copy(artefacts().callers.join("libempty.so"), system.path("tmp/empty.so")).unwrap();
    std::fs::write(system.path(PRELOAD), "# site\n/tmp/empty.so\n/old/libcuvisor.so\n# end").unwrap();
    std::fs::set_permissions(system.path(PRELOAD), PermissionsExt::from_mode(0o640)).unwrap();
    assert_eq!(system.install().code, Some(0));
    assert_eq!(system.read(PRELOAD), format!("# site\n/tmp/empty.so\n# end\n/{LIBRARY}\n"));
    assert_eq!(system.path(PRELOAD).metadata().unwrap().mode() & 0o7777, 0o640);
    std::fs::write(system.path(PRELOAD), "# site\n/tmp/empty.so\n# end").unwrap();
    assert_eq!(system.install().code, Some(0));
    assert_eq!(system.read(PRELOAD), format!("# site\n/tmp/empty.so\n# end\n/{LIBRARY}\n"));
    assert_eq!(system.cuvisor(&["uninstall"]).code, Some(0));
    assert_eq!(system.read(PRELOAD), "# site\n/tmp/empty.so\n# end\n");
}

#[test]
fn what_a_system_cannot_take_is_refused_and_nothing_is_changed() {
    if !possible("what_a_system_cannot_take_is_refused_and_nothing_is_changed") {
        return;
    }
    let refused = |prepare: &dyn Fn(&System), library: Option<&Path>| {
        let system = System::new();
        prepare(&system);
        let before = system.files();
        let policy = system.dir.path().join("policy.toml").display().to_string();
        let child = Child::new(&artefacts().cuvisor).bare().args(["install", "--system", "--policy", &policy, "--root"]).arg(&system.root);
        let out = if let Some(library) = library { child.env("CUVISOR_LIBRARY", library) } else { child }.run();
        assert_eq!((out.code, out.stdout.as_str()), (Some(1), ""), "{out:?}");
        assert_eq!(system.files(), before);
        assert!(out.stderr.starts_with("cuvisor: not installed, and no program is affected: "), "{}", out.stderr);
        out.stderr
    };
    let text = refused(
        &|system| {
            std::fs::remove_dir_all(system.path("lib64")).unwrap();
            std::fs::create_dir_all(system.path("lib")).unwrap();
            std::fs::write(system.path("lib/ld-musl-x86_64.so.1"), "").unwrap();
        },
        None,
    );
    assert!(text.ends_with("its C library is musl (Alpine); the library would not be loaded\n"), "{text}");
    let text = refused(&|system| std::fs::write(system.dir.path().join("policy.toml"), "[default]\ndevices = [x]\n").unwrap(), None);
    assert!(text.contains("policy.toml:2:12: error: "), "{text}");
    // A library that changes what programs say or how they end.
    let broken = tempfile::TempDir::new().unwrap();
    let source = broken.path().join("b.c");
    std::fs::write(&source, "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { write(1, \"!\", 1); }\n").unwrap();
    let library = broken.path().join("libcuvisor.so");
    assert!(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap().success());
    let text = refused(&|_| (), Some(&library));
    assert!(text.contains("/bin/true behaves differently under the library: exit status: 0, stdout \"!\""), "{text}");
    let text = refused(&|_| (), Some(Path::new("/nowhere/libcuvisor.so")));
    assert!(text.contains("libcuvisor.so is not there"), "{text}");
    let out = Child::new(&artefacts().cuvisor).bare().arg("install").run();
    assert_eq!(out.code, Some(125), "{out:?}");
    assert!(out.stderr.contains("say what to install: --system"), "{}", out.stderr);
}

#[test]
fn a_noexec_file_system_is_refused() {
    if !possible("a_noexec_file_system_is_refused") {
        return;
    }
    let system = System::new();
    let mount = system.path("usr/lib/x86_64-linux-gnu/cuvisor").display().to_string();
    let script = format!(
        "mkdir -p {mount} && mount -t tmpfs -o noexec none {mount} && exec {} install --system --root {}",
        artefacts().cuvisor.display(),
        system.root.display()
    );
    let out = Child::new("unshare").bare().args(["-m", "bash", "-c", &script]).run();
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.stderr.contains(&format!("lies on {mount}, which is mounted noexec")), "{}", out.stderr);
}

#[test]
fn b13_an_upgrade_leaves_the_old_file_to_those_who_use_it() {
    if !possible("b13_an_upgrade_leaves_the_old_file_to_those_who_use_it") {
        return;
    }
    let system = System::new();
    system.install().told();
    let old = system.path(LIBRARY).metadata().unwrap().ino();
    let mut running = Command::new(CHROOT)
        .arg(&system.root)
        .args(["/bin/sh", "-c", "read line; echo $line $CUDA_VISIBLE_DEVICES"])
        .env_clear()
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let newer = tempfile::TempDir::new().unwrap();
    let library = newer.path().join("libcuvisor.so");
    let mut bytes = std::fs::read(&artefacts().library).unwrap();
    bytes.push(0);
    std::fs::write(&library, &bytes).unwrap();
    let out = Child::new(&artefacts().cuvisor)
        .bare()
        .args(["install", "--system", "--root"])
        .arg(&system.root)
        .env("CUVISOR_LIBRARY", &library)
        .run();
    assert!(out.told().starts_with(&format!("replaced {}/{LIBRARY}\n", system.root.display())), "{out:?}");
    let new = system.path(LIBRARY).metadata().unwrap().ino();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", running.id())).unwrap();
    assert!(old != new && maps.lines().any(|line| line.contains(&format!(" {old} ")) && line.contains("libcuvisor.so")), "{maps}");
    std::io::Write::write_all(running.stdin.as_mut().unwrap(), b"still\n").unwrap();
    let out = running.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(out.stdout).unwrap(), "still 1\n");
}

/// The system calls that change something, or could be seen by others in between.
const CALLS: &str = "openat,write,fsync,rename,mkdir,chmod,fchmod,unlink,unlinkat,rmdir,clone3,execve";

#[test]
fn b13_killed_at_any_system_call_the_system_still_works() {
    const NAME: &str = "b13_killed_at_any_system_call_the_system_still_works";
    if !possible(NAME) {
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skip(NAME, "strace is not installed");
    }
    let policy = repository().join("src/cli/src/install/policy.toml").display().to_string();
    for action in [&["install", "--system", "--policy", &policy][..], &["uninstall", "--purge"]] {
        let mut kills = 0;
        for at in 1.. {
            let system = System::new();
            if action[0] == "uninstall" {
                system.install().told();
            }
            let inject = format!("inject={CALLS}:signal=KILL:when={at}");
            let mut strace = Child::new("strace").bare().args(["-o", "/dev/null", "-e", &format!("trace={CALLS}"), "-e", &inject]);
            strace = strace.arg(&artefacts().cuvisor).args(action.iter().copied()).arg("--root").arg(&system.root);
            let out = strace.run();
            let (code, _, stderr) = system.inside("/bin/true");
            assert_eq!((code, stderr.as_str()), (Some(0), ""), "{action:?}, killed at call {at}");
            let named = system.path(PRELOAD).exists();
            assert!(!named || system.path(LIBRARY).exists(), "{action:?}, killed at call {at}: the line names a file that is not there");
            if out.code == Some(0) {
                break;
            }
            kills += 1;
        }
        assert!(kills > 10, "{action:?}: only {kills} places to be killed at");
        println!("{}: killed at {kills} places", action[0]);
    }
}

#[test]
fn a_notebook_kernel_starts_under_the_command() {
    let child = Child::new(&artefacts().cuvisor).bare().args(["install", "--jupyter", "Two", "--devices", "0,1", "--python", "/bin/sh"]);
    let data = child.path("data");
    let out = child.env("JUPYTER_DATA_DIR", &data).run();
    // The folder is gone with the child: what was written is in its words.
    assert_eq!(out.told(), format!("wrote {}/kernels/two/kernel.json\n", data.display()));
    let kernel = |name: &str, devices: &str| {
        let out = Child::new(&artefacts().cuvisor)
            .bare()
            .args(["install", "--jupyter", name, "--devices", devices])
            .env("HOME", "/nowhere")
            .run();
        (out.code, out.stderr)
    };
    assert_eq!(kernel("a/b", "1").1, "cuvisor: --jupyter a/b: a kernel's name has letters, digits, dots, dashes and underscores only\n");
    assert!(kernel("a", "0-1").1.contains("--devices 0-1: element 1"));
    let out = Child::new(&artefacts().cuvisor).bare().args(["install", "--jupyter", "a"]).run();
    assert_eq!(out.stderr, "cuvisor: --jupyter a: say which GPUs it may use: --devices LIST\n");
}

#[test]
fn b16_b15_the_installed_line_holds_sudo_cron_and_clean_environments() {
    const NAME: &str = "b16_b15_the_installed_line_holds_sudo_cron_and_clean_environments";
    if !possible(NAME) {
        return;
    }
    let system = System::new();
    inventory(&system.dir.path().join("unused"), &[0]);
    assert_eq!(system.inside(SHOW), ok("\n"));
    system.install().told();
    // `inside` clears the environment, as env -i, sudo and cron do.
    assert_eq!(system.inside(SHOW), ok("1\n"));
    assert_eq!(system.inside("unset CUDA_VISIBLE_DEVICES; /bin/sh -c 'echo \"$CUDA_VISIBLE_DEVICES\"'"), ok("1\n"));
}
