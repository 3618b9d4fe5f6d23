//! A running process as it sees itself: a container's has files, users, numbers and GPUs of its own, and what holds for it
//! is what the library in it finds there.

use cuvisor_policy::inventory::Inventory;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a process takes for itself and its surroundings.
pub struct Inside {
    /// The folder that is `/` for it, as this command reaches it; `/` where this user may not look.
    pub root: PathBuf,
    /// Whether that is another folder than this command's: a container or a chroot.
    pub is_elsewhere: bool,
    /// Its working directory, from its own `/`.
    pub folder: PathBuf,
    /// Its process id in its own pid namespace.
    pub pid: u32,
    /// Its real user id in its own user namespace.
    pub uid: u32,
    /// Its groups there.
    pub gids: Vec<u32>,
}

impl Inside {
    /// From a process's folder in /proc; ids are those that this command sees.
    pub fn of(folder: &Path, (pid, uid, gids): (u32, u32, &[u32])) -> Self {
        let own = folder.join("root");
        let number = |path: &Path| path.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
        let (root, is_elsewhere) = match (number(&own), number(Path::new("/"))) {
            (Some(inside), Some(here)) => (own, inside != here),
            _ => ("/".into(), false),
        };
        let folder_of_work = std::fs::read_link(folder.join("cwd")).unwrap_or_else(|_| "/".into());
        let map = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        let (users, groups) = (map("uid_map"), map("gid_map"));
        Self {
            root,
            is_elsewhere,
            folder: folder_of_work,
            pid,
            uid: mapped(&users, uid),
            gids: gids.iter().map(|gid| mapped(&groups, *gid)).collect(),
        }
    }

    /// The GPUs whose nodes it has, which the indices of a policy in a container number.
    pub fn inventory(&self, machine: &Inventory) -> Inventory {
        if !self.is_elsewhere {
            return *machine;
        }
        let mut inventory = Inventory::new();
        machine
            .iter()
            .filter(|(_, gpu)| below(&self.root, Path::new(&format!("/dev/nvidia{}", gpu.minor))).exists())
            .for_each(|(_, gpu)| inventory.add(*gpu));
        inventory
    }
}

/// A path where `root` is `/`.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// An id in another user namespace (user_namespaces(7)): each line of the map is its first id there, the same here, and
/// how many. One that is in none is the kernel's "nobody".
fn mapped(map: &str, id: u32) -> u32 {
    const NOBODY: u32 = 65534;
    if map.trim().is_empty() {
        return id;
    }
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().map_while(|number| number.parse::<u32>().ok());
        let (inside, here, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        id.checked_sub(here).filter(|at| *at < count).and_then(|at| inside.checked_add(at))
    };
    map.lines().find_map(line).unwrap_or(NOBODY)
}

#[cfg(test)]
mod tests {
    use super::mapped;

    #[test]
    fn ids_are_those_of_the_namespace() {
        let map = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!([1000, 100_000, 100_999, 0, 165_536].map(|id| mapped(map, id)), [0, 1, 1000, 65534, 65534]);
        assert_eq!([0, 77].map(|id| mapped("0 0 4294967295\n", id)), [0, 77]);
        assert_eq!(mapped("", 5), 5);
    }
}
