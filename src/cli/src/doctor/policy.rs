//! The policy for this user, its audit file, and what the kernel can hold.

use super::{Finding, failure, ok, warning};
use crate::subject::Subject;
use crate::verdict::Verdict;
use crate::{machine, source, system};
use cuvisor_policy::file::policy::Seal;
use cuvisor_policy::names;
use cuvisor_policy::rule::Facts;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub fn check(verdict: &Verdict, subject: &mut Subject) -> Vec<Finding> {
    vec![file(), rule(verdict), audit(verdict, subject), seal(verdict)]
}

/// The machine's own file: whose it is and who can change it.
fn file() -> Finding {
    const CHECK: &str = "policy file";
    let path = Path::new(names::SYSTEM_POLICY);
    let Ok(metadata) = path.metadata() else {
        return if path.symlink_metadata().is_ok() {
            failure(CHECK, format!("{} is a link to nothing that this user can read", path.display()), "make it a readable file")
        } else {
            ok(CHECK, format!("there is no {}", path.display()))
        };
    };
    if metadata.uid() != 0 || metadata.mode() & 0o022 != 0 {
        let cause = format!("{} can be changed by others than root, so it gives no GPU to anybody", path.display());
        return failure(CHECK, cause, "chown root:root and chmod 0644");
    }
    match std::fs::read(path) {
        Ok(text) => {
            let locked = source::parse(&text).policy.locked;
            ok(CHECK, format!("{}, {}", path.display(), if locked { "locked" } else { "not locked: variables go before it" }))
        }
        Err(error) => failure(CHECK, format!("{}: {error}: so it gives this user no GPU", path.display()), "chmod 0644"),
    }
}

/// The rule that a program of this shell meets.
pub fn rule(verdict: &Verdict) -> Finding {
    if let Some(broken) = &verdict.broken {
        let cause = format!("it is broken, and so gives no GPU: {}", broken.lines().next().unwrap_or_default());
        return failure("policy", cause, "cuvisor check tells all that is wrong with it");
    }
    let file = verdict.policy.as_ref().map_or("no file".to_owned(), |path| path.display().to_string());
    let rule = verdict.rule.as_ref().map_or("[default]".to_owned(), |rule| format!("rule {rule}"));
    let devices = String::from_utf8_lossy(verdict.rights.devices.text()).into_owned();
    let finding = ok("policy", format!("{file}, {rule}: {} {devices}", verdict.mode.word()));
    finding.with(verdict.ignored.iter().map(|name| format!("{name} does not count: the policy is locked")).collect())
}

fn audit(verdict: &Verdict, subject: &mut Subject) -> Finding {
    const CHECK: &str = "audit file";
    let Some(pattern) = &verdict.audit else { return ok(CHECK, "none is asked for") };
    let path = PathBuf::from(pattern.replace("{uid}", &subject.uid().to_string()).replace("{pid}", "0"));
    let folder = path.parent().unwrap_or(Path::new("/"));
    let shown = path.display();
    match path.symlink_metadata() {
        Ok(metadata) if metadata.file_type().is_symlink() => {
            failure(CHECK, format!("{shown} is a symbolic link: nothing is written through one"), "name the file itself")
        }
        Ok(metadata) if metadata.file_type().is_fifo() || !metadata.is_file() => {
            failure(CHECK, format!("{shown} is no regular file"), "name a file")
        }
        Ok(metadata) if metadata.uid() != 0 && metadata.uid() != subject.uid() => failure(
            CHECK,
            format!("{shown} belongs to another user, who could change it: nothing is written there"),
            "put {uid} into the name",
        ),
        Ok(_) if system::may_write(&path) => ok(CHECK, format!("{shown} can be written")),
        Ok(_) => failure(
            CHECK,
            format!("{shown} cannot be written by this user: its events are lost"),
            "put {uid} into the name, and give the folder mode 1733",
        ),
        Err(_) if !folder.is_dir() => failure(
            CHECK,
            format!("{} is not there: events are lost", folder.display()),
            format!("install -d -m 1733 {}", folder.display()),
        ),
        Err(_) if system::may_write(folder) => ok(CHECK, format!("{shown} can be made")),
        Err(_) => failure(
            CHECK,
            format!("{} cannot be written by this user: events are lost", folder.display()),
            format!("chmod 1733 {}", folder.display()),
        ),
    }
}

/// What the kernel can hold here, whether or not the policy asks for it.
fn seal(verdict: &Verdict) -> Finding {
    const CHECK: &str = "kernel seal";
    let asked = verdict.seal != Seal::No;
    let lists = machine::root().join("proc/driver/nvidia/gpus").is_dir();
    let level = match system::landlock_abi() {
        None if asked => {
            return failure(
                CHECK,
                "the policy asks for one, and this kernel has no Landlock",
                "boot with lsm=landlock,..., or use cgroup device rules; seal = \"require\" gives no GPU here",
            );
        }
        None => return ok(CHECK, "not possible here: this kernel has no Landlock"),
        Some(abi) if abi >= 5 => format!("Landlock ABI {abi}: commands to the nodes of other GPUs can be denied"),
        Some(1) => {
            "Landlock ABI 1: opening the nodes of other GPUs for writing can be denied, and below such a seal no file can be renamed into another folder"
                .to_owned()
        }
        Some(abi) => format!("Landlock ABI {abi}: opening the nodes of other GPUs for writing can be denied"),
    };
    if asked && !lists {
        return warning(
            CHECK,
            format!("{level}; without /proc/driver/nvidia/gpus only a policy of no GPU can be sealed"),
            "seal where the driver is loaded",
        );
    }
    ok(CHECK, if asked { level } else { format!("{level}; the policy does not ask for it") })
}
