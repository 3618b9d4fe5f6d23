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
        let start = |library: Option<&Path>| {
            let output = command(root, program, library).args(arguments).stdin(Stdio::null()).output();
            output.with_context(|| {
                format!("{program} could not be started {} the library", if library.is_some() { "with" } else { "without" })
            })
        };
        let (bare, held) = (start(None)?, start(Some(&inside))?);
        if told(&bare) != told(&held) {
            bail!("{program} behaves differently under the library: {} instead of {}", words(&held), words(&bare));
        }
    }
    Ok(())
}

/// A program of the system, under the library where one is given. In a root the library is given to the program alone,
/// and not to chroot itself, which runs outside.
fn command(root: &Path, program: &str, library: Option<&Path>) -> Command {
    let mut command;
    if root == Path::new("/") {
        command = Command::new(program);
        command.env_remove("LD_PRELOAD").envs(library.map(|library| ("LD_PRELOAD", library)));
    } else {
        command = chroot();
        command.env_remove("LD_PRELOAD").arg(root);
        if let Some(library) = library {
            command.args(["/lib64/ld-linux-x86-64.so.2", "--preload"]).arg(library);
        }
        command.arg(program);
    }
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
