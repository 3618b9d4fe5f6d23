//! A trial of the library before every program of the system depends on it.

use super::place::is_there;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What is started: it must end and say the same with the library and without.
const PROGRAMS: [(&str, &[&str]); 3] =
    [("/bin/true", &[]), ("/bin/sh", &["-c", "echo $((6 * 7)); echo six >&2; exit 7"]), ("/usr/bin/python3", &["-c", "print(6 * 7)"])];

/// Starts each program that the system has, without the library and with it.
///
/// # Errors
/// Names the program and what was different.
pub fn run(root: &Path, library: &Path) -> Result<()> {
    let inside = Path::new("/").join(library.strip_prefix(root).unwrap_or(library));
    for (program, arguments) in PROGRAMS {
        if !is_there(root, program) {
            continue;
        }
        let mut command = if root == Path::new("/") {
            Command::new(program)
        } else {
            let mut command = chroot();
            command.arg(root).arg(program);
            command
        };
        command.args(arguments).stdin(Stdio::null()).env_remove("LD_PRELOAD");
        let mut start = |what: &str| command.output().with_context(|| format!("{program} could not be started {what} the library"));
        let bare = start("without")?;
        let mut held = if root == Path::new("/") { Command::new(program) } else { chrooted(root, program, &inside) };
        if root == Path::new("/") {
            held.env("LD_PRELOAD", &inside);
        }
        let held = held
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{program} could not be started with the library"))?;
        if told(&bare) != told(&held) {
            bail!("{program} behaves differently under the library: {} instead of {}", words(&held), words(&bare));
        }
    }
    Ok(())
}

/// The library is given to the program alone, and not to chroot itself, which runs outside.
fn chrooted(root: &Path, program: &str, library: &Path) -> Command {
    let mut command = chroot();
    let loader = "/lib64/ld-linux-x86-64.so.2";
    command.arg(root).arg(loader).arg("--preload").arg(library).arg(program).env_remove("LD_PRELOAD");
    command
}

/// chroot(8), which lies beside the PATH of many users.
fn chroot() -> Command {
    let places = ["/usr/sbin/chroot", "/usr/bin/chroot", "/sbin/chroot"];
    Command::new(places.into_iter().find(|place| Path::new(place).exists()).unwrap_or("chroot"))
}

fn told(output: &Output) -> (Option<i32>, &[u8], &[u8]) {
    (output.status.code(), &output.stdout, &output.stderr)
}

fn words(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().chars().take(200).collect::<String>();
    format!("{}, stdout {:?}, stderr {:?}", output.status, text(&output.stdout), text(&output.stderr))
}
