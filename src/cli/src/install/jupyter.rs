//! A notebook kernel that starts under Cuvisor (Jupyter's kernel specification).

use super::whole::{self, Waiting};
use crate::args::Install;
use crate::commands::run::check_devices;
use crate::exit::Exit;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Writes `kernels/NAME/kernel.json` into this user's Jupyter folder, or below `$JUPYTER_DATA_DIR`.
///
/// # Errors
/// The name or the devices are none, or no Python is found.
pub fn write(name: &str, args: &Install) -> Result<Exit> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(plain) {
        bail!("--jupyter {name}: a kernel's name has letters, digits, dots, dashes and underscores only");
    }
    let Some(devices) = &args.devices else { bail!("--jupyter {name}: say which GPUs it may use: --devices LIST") };
    check_devices(devices)?;
    let python = python(args.python.as_deref())?;
    let own = std::env::current_exe().context("this command's own file is not known")?;
    let file = folder()?.join("kernels").join(name.to_lowercase()).join("kernel.json");
    let specification = json!({
        "argv": [own, "run", "--devices", devices, "--", python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": format!("{name} (GPU {devices})"),
        "language": "python",
        "metadata": { "debugger": true },
    });
    whole::folder(file.parent().context("a kernel has a folder")?)?;
    println!("{}", Waiting::write(&file, format!("{specification:#}\n").as_bytes(), 0o644)?.put()?);
    Ok(Exit::Success)
}

/// The Python of the kernel: the one that was named, the active environment's, else the first on the PATH.
fn python(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named {
        if !path.is_file() {
            bail!("--python {}: there is no such file", path.display());
        }
        return Ok(std::path::absolute(path)?);
    }
    let environment = std::env::var_os("VIRTUAL_ENV").map(|folder| PathBuf::from(folder).join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = environment.into_iter().chain(std::env::split_paths(&path));
    folders
        .find_map(|folder| Some(folder.join("python3")).filter(|file| file.is_file()))
        .context("there is no python3 on the PATH: name one with --python")
}

/// Jupyter's folder for this user's data.
fn folder() -> Result<PathBuf> {
    let filled = |name: &str| std::env::var_os(name).filter(|value| value != OsStr::new("")).map(PathBuf::from);
    let home = || filled("HOME").map(|home| home.join(".local/share"));
    let data = filled("JUPYTER_DATA_DIR").or_else(|| filled("XDG_DATA_HOME").or_else(home).map(|data| data.join("jupyter")));
    data.context("neither JUPYTER_DATA_DIR nor HOME is set: there is no place for the kernel")
}
