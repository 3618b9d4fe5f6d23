//! `cuvisor install` and `cuvisor uninstall`: the library, the policy and the line in `/etc/ld.so.preload`.
//!
//! The order keeps the machine working whenever this is ended in between: the line comes last and goes first, and
//! every file appears whole, by a rename (B13).

mod jupyter;
mod place;
mod preload_file;
mod trial;
mod whole;

use crate::args::{Install, Uninstall};
use crate::audit::files;
use crate::exit::Exit;
use crate::library;
use crate::source::{self, Source};
use anyhow::{Context, Result, bail};
use cuvisor_policy::names;
use place::Place;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What a policy file says before its owner has written one: nothing.
const EMPTY_POLICY: &str = include_str!("policy.toml");

/// Installs. Without `--system` or `--jupyter` there is nothing to do, which is an error.
///
/// # Errors
/// Says what stands in the way; then nothing has been changed.
pub fn install(args: &Install) -> Result<Exit> {
    if let Some(name) = &args.jupyter {
        return jupyter::write(name, args);
    }
    if !args.system {
        bail!("say what to install: --system for all programs of this machine, --jupyter NAME for a notebook kernel");
    }
    match system(args) {
        Ok(said) => {
            said.iter().for_each(|line| println!("{line}"));
            Ok(Exit::Success)
        }
        Err(error) => {
            eprintln!("cuvisor: not installed, and no program is affected: {error:#}");
            Ok(Exit::Found)
        }
    }
}

fn system(args: &Install) -> Result<Vec<String>> {
    let root = absolute(args.root.as_deref())?;
    let place = Place::of(&root)?;
    let library = library::find()?;
    let stub = library.with_file_name(library::STUB_NAME);
    let stub = stub.is_file().then_some(stub);
    let policy = policy_text(args.policy.as_deref())?;
    let bytes = fs::read(&library).with_context(|| library.display().to_string())?;
    let mut said = Vec::new();

    let folder = place.library.parent().context("the library has a folder")?;
    whole::folder(folder)?;
    let waiting = whole::Waiting::write(&place.library, &bytes, 0o644)?;
    if let Err(error) = trial::run(&root, waiting.path()) {
        drop(waiting);
        // Only if it was made just now.
        let _ = fs::remove_dir(folder);
        return Err(error);
    }
    said.push(waiting.put()?);
    if let Some(stub) = &stub {
        let bytes = fs::read(stub).with_context(|| stub.display().to_string())?;
        whole::folder(place.stub.parent().context("the stub has a folder")?)?;
        said.push(whole::Waiting::write(&place.stub, &bytes, 0o644)?.put()?);
    }

    let file = root.join(names::SYSTEM_POLICY.trim_start_matches('/'));
    // The one that says nothing was put there by a package, and is no policy yet.
    if fs::read(&file).is_ok_and(|text| text != EMPTY_POLICY.as_bytes()) {
        said.push(format!("kept {}: a policy is never overwritten", file.display()));
    } else {
        whole::folder(file.parent().context("the policy has a folder")?)?;
        said.push(whole::Waiting::write(&file, policy.as_bytes(), 0o644)?.put()?);
    }
    said.extend(log_folder(&root, &file)?);

    let line = place.line(place.stub.exists());
    said.push(preload_file::add(&root, &line)?);
    Ok(said)
}

/// The policy to install, checked before anything is touched.
fn policy_text(path: Option<&Path>) -> Result<String> {
    let Some(path) = path else { return Ok(EMPTY_POLICY.to_owned()) };
    let text = source::load(path)?;
    if let Some(error) = source::parse(&text).errors.first() {
        bail!("the policy has an error, and would give no GPU to anybody:\n{}", Source::new(path, &text).show(error).trim_end());
    }
    Ok(String::from_utf8(text)?)
}

/// The folder of the audit file, where the policy names one that is not there: everybody may make a file of their own
/// in it, and nobody read another's, if the name tells users apart.
fn log_folder(root: &Path, policy: &Path) -> Result<Option<String>> {
    let text = source::load(policy)?;
    let Some(file) = source::parse(&text).policy.audit.file else { return Ok(None) };
    let file = String::from_utf8_lossy(file).into_owned();
    let folder = Path::new(&file).parent().unwrap_or(Path::new("/"));
    let here = root.join(folder.strip_prefix("/").unwrap_or(folder));
    if here.exists() || folder.to_string_lossy().contains('{') {
        return Ok(None);
    }
    let mode = if file.contains("{uid}") { 0o1733 } else { 0o755 };
    fs::DirBuilder::new().recursive(true).mode(0o755).create(&here).with_context(|| here.display().to_string())?;
    fs::set_permissions(&here, PermissionsExt::from_mode(mode)).with_context(|| here.display().to_string())?;
    Ok(Some(format!("made {} with mode {mode:o}", here.display())))
}

/// Removes the line, then the library. The policy and the audit files are their owner's and stay, unless `--purge`.
///
/// # Errors
/// A file cannot be removed; the line is gone by then, so nothing depends on it.
pub fn uninstall(args: &Uninstall) -> Result<Exit> {
    let root = absolute(args.root.as_deref())?;
    println!("{}", preload_file::remove(&root)?);
    if args.keep_library {
        return Ok(Exit::Success);
    }
    let packaged = package_files(&root);
    for file in place::all(&root).iter().filter(|file| file.exists()) {
        if packaged.contains(file) {
            println!("kept {}: it belongs to the package cuvisor (apt remove cuvisor)", file.display());
            continue;
        }
        fs::remove_file(file).with_context(|| file.display().to_string())?;
        println!("removed {}", file.display());
        // Only as far as nothing else is in them.
        let _ = file.ancestors().skip(1).take(2).try_for_each(fs::remove_dir);
    }
    let policy = root.join(names::SYSTEM_POLICY.trim_start_matches('/'));
    if policy.exists() {
        let text = source::load(&policy)?;
        let log = source::parse(&text).policy.audit.file.map(|file| String::from_utf8_lossy(file).into_owned());
        if args.purge && !packaged.contains(&policy) {
            purge(&root, &policy, log.as_deref())?;
        } else {
            println!("kept {}", policy.display());
            log.iter().for_each(|log| println!("kept the audit files: {log}"));
        }
    }
    Ok(Exit::Success)
}

/// The files that Debian's package manager has under this package's name.
fn package_files(root: &Path) -> Vec<PathBuf> {
    let list = fs::read_to_string(root.join("var/lib/dpkg/info/cuvisor.list")).unwrap_or_default();
    list.lines().map(|line| root.join(line.trim_start_matches('/'))).collect()
}

fn purge(root: &Path, policy: &Path, log: Option<&str>) -> Result<()> {
    fs::remove_file(policy).with_context(|| policy.display().to_string())?;
    println!("removed {}", policy.display());
    let _ = policy.parent().map(fs::remove_dir);
    let Some(log) = log.map(Path::new) else { return Ok(()) };
    let log = root.join(log.strip_prefix("/").unwrap_or(log));
    for file in files::expand(&log) {
        fs::remove_file(&file).with_context(|| file.display().to_string())?;
        println!("removed {}", file.display());
    }
    let Some(folder) = log.parent() else { return Ok(()) };
    if fs::remove_dir(folder).is_ok() {
        println!("removed {}", folder.display());
    }
    Ok(())
}

fn absolute(root: Option<&Path>) -> Result<PathBuf> {
    let Some(root) = root else { return Ok(PathBuf::from("/")) };
    let path = root.canonicalize().with_context(|| format!("--root {}", root.display()))?;
    if !path.is_dir() {
        bail!("--root {}: this is no folder", root.display());
    }
    Ok(path)
}
