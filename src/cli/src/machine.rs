//! The machine's GPUs, users and groups, read as the library reads them.

use crate::guarded;
use cuvisor_policy::inventory::{Gpu, Inventory};
use cuvisor_policy::names;
use std::path::{Path, PathBuf};

/// The folder that stands for `/` where GPUs are looked for.
pub fn root() -> PathBuf {
    std::env::var_os(names::PROC_ROOT).map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// The GPUs whose device node exists, in PCI order.
pub fn inventory(root: &Path) -> Inventory {
    let mut inventory = Inventory::new();
    let folder = root.join("proc/driver/nvidia/gpus");
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = std::fs::read(entry.path().join("information")).unwrap_or_default();
        if let Some(gpu) = Gpu::parse(&text)
            && root.join(format!("dev/nvidia{}", gpu.minor)).exists()
        {
            inventory.add(gpu);
        }
    }
    inventory
}

/// How many MIG instances a GPU is split into, as the driver's capabilities tell.
pub fn instances(root: &Path, gpu: &Gpu) -> usize {
    let folder = root.join(format!("proc/driver/nvidia/capabilities/gpu{}/mig", gpu.minor));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("gi")).count()
}

/// A machine of so many equal GPUs that are not there, for `explain --gpus`.
pub fn imagined(count: usize) -> Inventory {
    let mut inventory = Inventory::new();
    for k in 0..count {
        let text = format!("Bus Location: 0000:{:02x}:00.0\nDevice Minor: {k}\n", k + 1);
        if let Some(gpu) = Gpu::parse(text.as_bytes()) {
            inventory.add(gpu);
        }
    }
    inventory
}

/// A line of `/etc/passwd`.
pub struct User {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
}

/// The text of a list of users or groups; empty where there is none.
fn list(root: &Path, path: &str) -> String {
    const LIMIT: u64 = 256 << 20;
    String::from_utf8_lossy(&guarded::read(root, Path::new(path), LIMIT).unwrap_or_default()).into_owned()
}

/// The users of `/etc/passwd`.
pub fn users() -> Vec<User> {
    users_of(Path::new("/"))
}

/// The same where `root` is `/`.
pub fn users_of(root: &Path) -> Vec<User> {
    let text = list(root, "/etc/passwd");
    let user = |line: &str| {
        let fields: Vec<_> = line.split(':').collect();
        Some(User { name: (*fields.first()?).to_owned(), uid: fields.get(2)?.parse().ok()?, gid: fields.get(3)?.parse().ok()? })
    };
    text.lines().filter_map(user).collect()
}

/// A line of `/etc/group`: name, id, members.
pub struct Group {
    /// Name.
    pub name: String,
    /// Group id.
    pub gid: u32,
    /// Login names of its members.
    pub members: Vec<String>,
}

/// The groups of `/etc/group`.
pub fn groups() -> Vec<Group> {
    groups_of(Path::new("/"))
}

/// The same where `root` is `/`.
pub fn groups_of(root: &Path) -> Vec<Group> {
    let text = list(root, "/etc/group");
    let group = |line: &str| {
        let fields: Vec<_> = line.split(':').collect();
        let members = fields.get(3)?.split(',').map(str::to_owned).collect();
        Some(Group { name: (*fields.first()?).to_owned(), gid: fields.get(2)?.parse().ok()?, members })
    };
    text.lines().filter_map(group).collect()
}
