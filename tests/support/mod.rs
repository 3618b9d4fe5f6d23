//! A child process, its environment, and what it left.

mod artefacts;

pub use artefacts::{artefacts, python, pythons, root};

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A child that is being prepared. Nothing of this process's environment reaches it.
pub struct Child {
    command: Command,
    /// Its own folder: the drivers are in `driver/`, the audit file is `audit.jsonl`.
    pub dir: TempDir,
    preload: Vec<PathBuf>,
    name: String,
}

/// What a child left.
#[derive(Debug)]
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code; none where a signal ended it.
    pub code: Option<i32>,
    /// The audit file's lines, each parsed.
    pub events: Vec<serde_json::Value>,
    /// The fake driver's log, without look-ups.
    pub calls: Vec<String>,
}

impl Child {
    /// A program of tests/callers, compiled.
    pub fn caller(name: &str) -> Self {
        Self::new(artefacts().callers.join(name))
    }

    /// prog.c on one route with these steps. The route `linked` is a program of its own.
    pub fn prog<'a>(route: &str, steps: impl IntoIterator<Item = &'a str>) -> Self {
        let mut child = Self::caller(if route == "linked" { "prog_linked" } else { "prog" });
        child.command.arg(route).args(steps);
        child
    }

    /// Any program, with the library, on a machine of 4 fake GPUs.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let name = Path::new(program.as_ref()).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).current_dir(dir.path());
        let child = Self { command, dir, preload: vec![artefacts().library.clone()], name };
        child.install("driver", &artefacts().fake);
        let libraries = format!("{}:{}", child.path("driver").display(), artefacts().callers.display());
        let log = child.path("calls");
        child.env("LD_LIBRARY_PATH", libraries).env("FAKE_CUDA_GPUS", "4").env("FAKE_CUDA_LOG", log)
    }

    /// Puts a driver into a folder of the child's.
    pub fn install(&self, folder: &str, driver: &Path) -> PathBuf {
        let path = self.path(folder).join("libcuda.so.1");
        std::fs::create_dir_all(self.path(folder)).expect("a folder");
        std::fs::copy(driver, &path).expect("the driver's copy");
        path
    }

    /// Puts a driver without some of its functions into a folder: their names are changed in its symbol table.
    pub fn install_without(&self, folder: &str, names: &[&str]) {
        let path = self.install(folder, &artefacts().fake);
        let mut bytes = std::fs::read(&path).expect("the driver");
        for name in names {
            let wanted = format!("\0{name}\0").into_bytes();
            let mut found = false;
            for at in 0..bytes.len() - wanted.len() {
                if bytes[at..].starts_with(&wanted) {
                    bytes[at + 1] = b'x';
                    found = true;
                }
            }
            assert!(found, "{name} is not in the driver's symbol table");
        }
        std::fs::write(path, bytes).expect("the driver's copy");
    }

    /// A path in the child's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub fn args<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.command.args(arguments);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn unset(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// `CUVISOR_DEVICES`, and the audit file.
    pub fn devices(self, list: &str) -> Self {
        let audit = self.path("audit.jsonl");
        self.env("CUVISOR_DEVICES", list).env("CUVISOR_AUDIT", audit)
    }

    /// A policy file; `AUDIT` in it stands for the audit file's path, `DIR` for the child's folder.
    pub fn policy(self, text: &str) -> Self {
        let path = self.path("policy.toml");
        let dir = self.dir.path().display().to_string();
        std::fs::write(&path, text.replace("AUDIT", &format!("{dir}/audit.jsonl")).replace("DIR", &dir)).expect("the policy");
        self.env("CUVISOR_POLICY", path)
    }

    /// The libraries to preload instead of Cuvisor alone.
    pub fn preload(mut self, libraries: &[&Path]) -> Self {
        self.preload = libraries.iter().map(|path| path.to_path_buf()).collect();
        self
    }

    /// Without Cuvisor.
    pub fn bare(self) -> Self {
        self.preload(&[])
    }

    /// The command, for what has no method here.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Starts the child and leaves it running.
    pub fn start(&mut self) -> std::process::Child {
        self.prepare();
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the child starts")
    }

    /// The same, with its output thrown away.
    pub fn start_silent(&mut self) -> std::process::Child {
        self.prepare();
        self.command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the child starts")
    }

    fn prepare(&mut self) {
        if !self.preload.is_empty() {
            let list: Vec<_> = self.preload.iter().map(|p| p.display().to_string()).collect();
            self.command.env("LD_PRELOAD", list.join(":"));
        }
        self.command.stdin(Stdio::null());
    }

    /// Runs the child to its end.
    pub fn run(mut self) -> Output {
        self.finish()
    }

    fn finish(&mut self) -> Output {
        self.prepare();
        let output = self.command.output().unwrap_or_else(|error| panic!("{}: {error}", self.name));
        Output {
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
            code: output.status.code(),
            events: self.events("audit.jsonl"),
            calls: self.calls(),
        }
    }

    /// The same, and what `look` finds in the child's folder before it is gone.
    pub fn run_and<T>(mut self, look: impl FnOnce() -> T) -> (Output, T) {
        let output = self.finish();
        (output, look())
    }

    /// The events in a file of the child's folder.
    pub fn events(&self, file: &str) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.path(file)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("calls")).unwrap_or_default();
        text.lines().filter(|line| !line.contains("cuGetProcAddress(")).map(str::to_owned).collect()
    }
}

impl Output {
    /// Its standard output, after it is sure that all went well and nothing was said beside it.
    #[track_caller]
    pub fn told(&self) -> &str {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        &self.stdout
    }

    /// The names of the events, in order.
    pub fn names(&self) -> Vec<&str> {
        self.events.iter().map(|event| event["event"].as_str().unwrap_or("?")).collect()
    }

    /// The one event of this name.
    #[track_caller]
    pub fn event(&self, name: &str) -> &serde_json::Value {
        let all: Vec<_> = self.events.iter().filter(|event| event["event"] == name).collect();
        assert_eq!(all.len(), 1, "{name}: {self:?}");
        all[0]
    }
}

/// Says on a line of its own that a test could not be done, and why.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
}

/// Writes a folder that stands for `/` on a machine with these fake GPUs: the driver's files in
/// `proc/`, and the nodes in `dev/` as plain files.
pub fn inventory(root: &Path, gpus: &[usize]) {
    std::fs::create_dir_all(root.join("dev")).expect("a folder");
    for k in gpus {
        let folder = root.join(format!("proc/driver/nvidia/gpus/0000:1{k:x}:00.0"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let uuid = format!("GPU-{}-0000-4000-8000-00000000000{k:x}", format!("{k:x}").repeat(8));
        let text = format!(
            "Model: \t\t NVIDIA H200\nIRQ:   \t\t 30\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\nBus Location: \t 0000:1{k:x}:00.0\nDevice Minor: \t {k}\n"
        );
        std::fs::write(folder.join("information"), text).expect("the information");
        std::fs::write(root.join(format!("dev/nvidia{k}")), "").expect("the node");
    }
}
