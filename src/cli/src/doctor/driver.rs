//! The driver, asked in a process that does nothing else and has a time limit: doctor itself never
//! initialises CUDA, and a driver that hangs is a finding.

use super::{Finding, failure, hardware, lossy, ok, warning};
use crate::system::Answer;
use cuvisor_policy::inventory::Inventory;
use cuvisor_policy::{names, record};
use nvml_wrapper::Nvml;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The hidden subcommand that asks.
pub const ASK: &str = "ask-driver";

pub fn check(root: &Path, inventory: &Inventory, limit: Duration) -> Vec<Finding> {
    let here = match ask(limit, false) {
        Ok(answer) => answer,
        Err(reason) => {
            return vec![failure("driver", reason, "look at dmesg and nvidia-smi; other programs will hang or fail in cuInit likewise")];
        }
    };
    let mut findings = vec![library(root, inventory, &here), copies(&here), result(&here)];
    if here.init.is_some() {
        findings.push(lists(root, inventory, &here, limit));
    }
    findings
}

/// Asks with this shell's variables, or with every GPU visible in PCI order.
fn ask(limit: Duration, whole: bool) -> Result<Answer, String> {
    let own = std::env::current_exe().map_err(|error| format!("this command's own file is not known: {error}"))?;
    let mut command = Command::new(own);
    command.arg(ASK).env_remove("LD_PRELOAD").env(names::DISABLE, "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    if whole {
        command.env_remove(names::VISIBLE_DEVICES).env(names::DEVICE_ORDER, names::PCI_ORDER);
    }
    let mut child = command.spawn().map_err(|error| format!("the driver could not be asked: {error}"))?;
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                // It may be stuck in the kernel, where no signal reaches it: it is not waited for.
                let _ = child.kill();
                return Err(format!("cuInit has not come back after {} s", limit.as_secs()));
            }
        }
    };
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        let _ = stdout.read_to_string(&mut text);
    }
    serde_json::from_str(&text).map_err(|_| format!("the driver ended the process that asked it: {status}"))
}

fn library(root: &Path, inventory: &Inventory, answer: &Answer) -> Finding {
    const CHECK: &str = "driver";
    let Some(path) = &answer.path else {
        let error = answer.error.clone().unwrap_or_default();
        let remedy =
            "install the driver's user-space part; in a container: start it with the GPUs and NVIDIA_DRIVER_CAPABILITIES=compute,utility";
        let cause = format!("libcuda.so.1 cannot be loaded: {error}");
        return if inventory.is_empty() { warning(CHECK, cause, remedy) } else { failure(CHECK, cause, remedy) };
    };
    let file = Path::new(path).canonicalize().unwrap_or_else(|_| PathBuf::from(path));
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let cuda = answer.version.map(|v| format!(", CUDA {}.{}", v / 1000, v % 1000 / 10)).unwrap_or_default();
    if path.contains("/stubs/") || answer.init == Some(34) {
        let cause = format!("{path} is the toolkit's stub, made for linking: cuInit fails with 34");
        return failure(CHECK, cause, "take the stubs folder out of LD_LIBRARY_PATH");
    }
    if path.contains("/compat/") || path.contains("/compat-") {
        let cause = format!(
            "{path} is a forward-compatibility copy{cuda}: it works on data-centre GPUs only (else cuInit gives 804), and only newer than the kernel's part"
        );
        return warning(CHECK, cause, "take the compat folder out of LD_LIBRARY_PATH and ld.so.conf if cuInit gives 803 or 804");
    }
    match (hardware::kernel_version(root), name.strip_prefix("libcuda.so.").filter(|v| v.contains('.'))) {
        (Some(kernel), Some(user)) if kernel != user => failure(
            CHECK,
            format!("{path} is of version {user}, the kernel's part of {kernel}: cuInit fails with 803"),
            "restart the machine after a driver upgrade, or install the version that the kernel runs",
        ),
        _ => ok(CHECK, format!("{path}{cuda}")),
    }
}

/// Every libcuda.so.1 that a program of this shell could meet (C11).
fn copies(answer: &Answer) -> Finding {
    let own = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let known = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/compat", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"];
    let folders = std::env::split_paths(&own).chain(known.map(PathBuf::from));
    let mut files = BTreeSet::new();
    for folder in folders.filter(|folder| !folder.as_os_str().is_empty()) {
        if let Ok(file) = folder.join("libcuda.so.1").canonicalize() {
            files.insert(file);
        }
    }
    if let Some(path) = answer.path.as_ref().and_then(|path| Path::new(path).canonicalize().ok()) {
        files.insert(path);
    }
    let lines: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    match files.len() {
        0 => ok("copies", "there is no libcuda.so.1 in the usual folders"),
        1 => ok("copies", "there is one libcuda.so.1"),
        several => {
            let cause = format!(
                "there are {several} copies of libcuda.so.1: which one answers depends on LD_LIBRARY_PATH and on how a program opens it"
            );
            warning("copies", cause, "keep the driver's own, and take the others out of the way").with(lines)
        }
    }
}

fn result(answer: &Answer) -> Finding {
    const CHECK: &str = "cuInit";
    let Some(code) = answer.init else { return ok(CHECK, "there is no driver to ask") };
    let name = record::result_name(code).map_or_else(|| code.to_string(), |name| format!("{code} {name}"));
    let remedy = match code {
        0 => return ok(CHECK, format!("0, {} visible", devices(answer.devices.len()))),
        34 => "see driver",
        100 => "see CUDA_VISIBLE_DEVICES, GPUs and nodes",
        101 => "name each GPU once in CUDA_VISIBLE_DEVICES, and write CUDA_DEVICE_ORDER as PCI_BUS_ID or not at all",
        802 => "the machine's GPUs are joined by NVSwitch: start nvidia-fabricmanager, of the driver's version",
        803 => "the driver's two parts differ in version: restart the machine, or remove the copy that is not the kernel's",
        804 => "a forward-compatibility copy on a GPU that does not have that: take /usr/local/cuda/compat out of the way",
        805..=809 => "the MPS daemon does not answer: start it, or unset CUDA_MPS_PIPE_DIRECTORY",
        _ => "look at dmesg | grep NVRM, and at nvidia-smi",
    };
    failure(CHECK, name, remedy)
}

fn devices(count: usize) -> String {
    if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") }
}

/// nvidia-smi's list beside the driver's own.
fn lists(root: &Path, inventory: &Inventory, here: &Answer, limit: Duration) -> Finding {
    const CHECK: &str = "lists";
    let smi = if root == Path::new("/") { nvml() } else { None };
    let smi: Vec<String> = smi.unwrap_or_else(|| {
        let uuid = |(_, gpu): (usize, &cuvisor_policy::inventory::Gpu)| gpu.uuid.map(|uuid| format!("GPU-{}", lossy(&uuid.text())));
        inventory.iter().filter_map(uuid).collect()
    });
    let all = ask(limit, true).unwrap_or_default();
    let names = |answer: &Answer| answer.devices.iter().map(|device| device.uuid.clone().unwrap_or_default()).collect::<Vec<_>>();
    let (all, seen) = (names(&all), names(here));
    let ordinal = |uuid: &String| seen.iter().position(|other| other == uuid).map_or("not visible".to_owned(), |at| format!("cuda:{at}"));
    let mut lines: Vec<_> = smi.iter().enumerate().map(|(at, uuid)| format!("nvidia-smi {at}  {uuid}  {}", ordinal(uuid))).collect();
    lines.extend(seen.iter().filter(|uuid| !smi.contains(uuid)).map(|uuid| format!("not in nvidia-smi's list  {uuid}  {}", ordinal(uuid))));
    if smi.is_empty() {
        return ok(CHECK, format!("the driver shows {}; nvidia-smi's list cannot be had", devices(seen.len()))).with(lines);
    }
    let cause = format!("nvidia-smi lists {}, the driver shows this shell {}", devices(smi.len()), seen.len());
    if smi == seen {
        return ok(CHECK, format!("nvidia-smi and the driver both list {}, in one order", devices(smi.len()))).with(lines);
    }
    if seen.len() < all.len() {
        return warning(
            CHECK,
            format!("{cause}: CUDA_VISIBLE_DEVICES hides the others"),
            "that is right if it is meant: nvidia-smi does not read the variable",
        )
        .with(lines);
    }
    if seen.len() == smi.len() {
        return warning(
            CHECK,
            format!("{cause}, in another order"),
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID, and list the GPUs in nvidia-smi's order",
        )
        .with(lines);
    }
    warning(CHECK, cause, "MIG, a container, or a seal keeps the others from this shell: see nodes and MIG").with(lines)
}

/// NVML's list, in its order; none where it cannot be asked.
fn nvml() -> Option<Vec<String>> {
    let nvml = Nvml::init().ok()?;
    let count = nvml.device_count().ok()?;
    Some((0..count).filter_map(|index| nvml.device_by_index(index).ok()?.uuid().ok()).collect())
}
