//! What the tests run: built once for all of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Paths of what was built.
pub struct Artefacts {
    /// libcuvisor.so
    pub library: PathBuf,
    /// The fake driver.
    pub fake: PathBuf,
    /// The command.
    pub cuvisor: PathBuf,
    /// The folder of the compiled callers.
    pub callers: PathBuf,
}

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository")
}

/// The Python interpreter itself: `python3` on the PATH may be a script that looks for it.
pub fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let out = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().expect("python3");
        String::from_utf8(out.stdout).expect("a path").trim().to_owned()
    })
}

/// Every Python from 3.8 on that is installed: the one above, the system's, and what stands beside the first.
pub fn pythons() -> &'static [String] {
    static PYTHONS: OnceLock<Vec<String>> = OnceLock::new();
    PYTHONS.get_or_init(|| {
        let own = Path::new(python());
        let beside = own.ancestors().nth(3).filter(|folder| folder.ends_with("versions")).map(std::fs::read_dir);
        let beside = beside.and_then(Result::ok).into_iter().flatten().flatten().map(|entry| entry.path().join("bin/python3"));
        let mut all: Vec<String> = beside.chain(["/usr/bin/python3".into()]).map(|path| path.display().to_string()).collect();
        all.retain(|path| {
            let recent = Command::new(path).args(["-c", "import ctypes, sys; sys.exit(sys.version_info < (3, 8))"]).output();
            recent.is_ok_and(|out| out.status.success())
        });
        all.retain(|path| path != python());
        all.insert(0, python().to_owned());
        all
    })
}

/// Builds what is not up to date, and tells where it is.
pub fn artefacts() -> &'static Artefacts {
    static ARTEFACTS: OnceLock<Artefacts> = OnceLock::new();
    ARTEFACTS.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        must(build.args(["build", "--release", "--workspace", "--quiet"]).current_dir(root()));
        let release = root().join("target/release");
        let callers = root().join("target/callers");
        std::fs::create_dir_all(&callers).expect("a folder for the callers");
        let artefacts = Artefacts {
            library: release.join("libcuvisor.so"),
            fake: release.join("libfake_cuda.so"),
            cuvisor: release.join("cuvisor"),
            callers,
        };
        compile(&artefacts);
        artefacts
    })
}

/// Compiles the callers in C. They are linked to a libcuda.so in their folder, as to the toolkit's stub.
fn compile(artefacts: &Artefacts) {
    std::fs::copy(&artefacts.fake, artefacts.callers.join("libcuda.so")).expect("the driver's copy");
    let programs: [(&str, &str, &[&str]); 22] = [
        ("prog", "prog.c", &[]),
        ("prog_linked", "prog.c", &["-DLINKED", "-lcuda"]),
        ("libdeep.so", "deep.c", &["-shared", "-lcuda"]),
        ("libearly.so", "early.c", &["-shared", "-lcuda"]),
        ("early_main", "early_main.c", &["-learly", "-lcuda"]),
        ("libother.so", "other.c", &["-shared"]),
        ("libwrap_f.so", "wrap_f.c", &["-shared"]),
        ("libf.so", "f.c", &["-shared"]),
        ("call_f", "call_f.c", &["-lf"]),
        ("forker", "forker.c", &[]),
        ("racer", "racer.c", &[]),
        ("libempty.so", "empty.c", &["-shared"]),
        ("libseal_only.so", "seal_only.c", &["-shared"]),
        ("liblog_only.so", "log_only.c", &["-shared"]),
        ("reader", "reader.c", &[]),
        ("bench", "bench.c", &[]),
        ("log", "log.c", &[]),
        ("libwaiting.so", "waiting.c", &["-shared"]),
        ("waiting", "waiting.c", &["-DMAIN", "-lwaiting"]),
        ("ioctl", "ioctl.c", &[]),
        ("ioctl_static", "ioctl.c", &["-static"]),
        ("waiter_static", "waiter.c", &["-static"]),
    ];
    for (target, source, flags) in &programs {
        let target = artefacts.callers.join(target);
        let source = root().join("tests/callers").join(source);
        let new_enough = |t: &Path| Some(t.metadata().ok()?.modified().ok()? > source.metadata().ok()?.modified().ok()?);
        if new_enough(&target) == Some(true) {
            continue;
        }
        let folder = format!("-L{}", artefacts.callers.display());
        let part = target.with_extension("part");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Wextra", "-fPIC", "-pthread", "-Wl,--no-as-needed", "-o"])
            .arg(&part)
            .arg(source)
            .arg(folder)
            .args(*flags)
            .arg("-ldl");
        must(&mut cc);
        std::fs::rename(part, target).expect("the caller's place");
    }
}

fn must(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
