//! `cuvisor run`: sets the variables and replaces itself by the program.

use crate::args::Run;
use crate::commands::expect;
use crate::exit::Exit;
use crate::library;
use crate::source::{self, Source, Unread};
use anyhow::{Result, bail};
use cuvisor_policy::device::Devices;
use cuvisor_policy::file::policy::{Mode, Seal, check_audit_file};
use cuvisor_policy::names;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts the program. Returns only where that fails: signals, terminal and exit code are the program's own.
///
/// # Errors
/// Says which option is wrong and what to write instead, or that the library is not there.
pub fn run(args: &Run) -> Result<Exit> {
    let Some((program, arguments)) = args.command.split_first() else { bail!("no command was given") };
    check_policy(args)?;
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(devices) = &args.devices {
        check_devices(devices)?;
        command.env(names::DEVICES, devices);
    }
    if let Some(mode) = &args.mode {
        if Mode::parse(mode.as_bytes()).is_none() {
            bail!("--mode {mode}: write enforce, audit or off");
        }
        command.env(names::MODE, mode);
    }
    if let Some(seal) = &args.seal {
        if Seal::parse(seal.as_bytes()).is_none() {
            bail!("--seal={seal}: write --seal or --seal=require");
        }
        command.env(names::SEAL, seal);
    }
    if let Some(audit) = &args.audit {
        command.env(names::AUDIT, audit_path(audit)?);
    }
    if let Some(policy) = &args.policy {
        command.env(names::POLICY, absolute(policy)?);
    }
    if args.trace {
        command.env(names::TRACE, "1");
    }
    let preload = library::preload(&library::find()?, std::env::var_os("LD_PRELOAD").as_deref());
    command.env("LD_PRELOAD", preload);
    if args.expect_no_cuda {
        return expect::no_cuda(command);
    }
    Ok(cannot_start(&program.display(), &command.exec()))
}

/// Says why a program did not start, and gives the code for it.
pub fn cannot_start(program: &impl std::fmt::Display, error: &std::io::Error) -> Exit {
    eprintln!("cuvisor: {program}: {error}");
    if error.kind() == ErrorKind::NotFound { Exit::NotFound } else { Exit::CannotStart }
}

/// A policy that is named and cannot count would give the program no GPU, and tell so only where it uses CUDA; an option
/// that a locked policy will not listen to would show only in the log.
fn check_policy(args: &Run) -> Result<()> {
    let given = [
        ("--devices", args.devices.is_some()),
        ("--mode", args.mode.is_some()),
        ("--audit", args.audit.is_some()),
        ("--seal", args.seal.is_some()),
        ("--expect-no-cuda", args.expect_no_cuda),
    ];
    let own = args.policy.as_deref().map(|path| (path, false));
    for (path, is_system) in [Some((Path::new(names::SYSTEM_POLICY), true)), own].into_iter().flatten() {
        let text = match source::policy(Path::new("/"), &absolute(path)?, path, is_system) {
            Ok(text) => text,
            Err(_) if is_system => continue,
            Err(Unread::Missing(error)) => bail!("--policy {}: {error}", path.display()),
            Err(Unread::Refused(reason)) => bail!("--policy {reason}"),
        };
        let parsed = source::parse(&text);
        if let Some(error) = parsed.errors.first().filter(|_| !is_system) {
            bail!("the policy has an error, and would give no GPU to the program:\n{}", Source::new(path, &text).show(error).trim_end());
        }
        if !parsed.policy.locked {
            continue;
        }
        let policy = is_system && args.policy.is_some();
        if let Some((option, _)) = given.into_iter().chain([("--policy", policy)]).find(|(_, is_given)| *is_given) {
            bail!("{option} does not count: the policy {} is locked; leave the option out", path.display());
        }
    }
    Ok(())
}

/// Whether a list of devices is sound.
///
/// # Errors
/// Names the element and what to write instead.
pub fn check_devices(value: &str) -> Result<()> {
    if let Err((at, fault)) = Devices::parse(value.as_bytes()) {
        let element = value.split(',').nth(at).unwrap_or_default().trim();
        bail!("--devices {value}: element {} `{element}`: {}; {}", at + 1, fault.message(), fault.remedy());
    }
    Ok(())
}

fn audit_path(path: &Path) -> Result<PathBuf> {
    let path = absolute(path)?;
    if let Err(fault) = check_audit_file(path.as_os_str().as_bytes()) {
        bail!("--audit {}: {}; {}", path.display(), fault.message(), fault.remedy());
    }
    Ok(path)
}

/// The program and its children may change their folder.
fn absolute(path: &Path) -> Result<PathBuf> {
    Ok(std::path::absolute(path)?)
}
