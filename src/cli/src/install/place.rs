//! Where the files go on a system, and whether it can take them.

use crate::library;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Folders of 64-bit libraries as glibc's `$LIB` names them (ld.so(8)), each with that of 32-bit ones: Debian's,
/// Fedora's, and Arch's, which has one name for both in a 64-bit system's loader.
const FOLDERS: [(&str, &str); 3] = [("lib/x86_64-linux-gnu", "lib/i386-linux-gnu"), ("lib64", "lib"), ("lib", "lib32")];

/// The places of one system.
pub struct Place {
    /// The library, below the root.
    pub library: PathBuf,
    /// The empty 32-bit library.
    pub stub: PathBuf,
    inside: String,
}

impl Place {
    /// Finds them.
    ///
    /// # Errors
    /// The system has no glibc for 64-bit x86, or programs' libraries cannot be loaded from there.
    pub fn of(root: &Path) -> Result<Self> {
        let loader = ["lib64/ld-linux-x86-64.so.2", "usr/lib64/ld-linux-x86-64.so.2"];
        if !loader.iter().any(|loader| is_there(root, loader)) {
            let musl = ["lib", "usr/lib"].iter().any(|folder| is_there(root, &format!("{folder}/ld-musl-x86_64.so.1")));
            let what = if musl { "its C library is musl (Alpine)" } else { "there is no /lib64/ld-linux-x86-64.so.2" };
            bail!("{} is no system with glibc for 64-bit x86: {what}; the library would not be loaded", root.display());
        }
        let (lib, lib32) = FOLDERS.into_iter().find(|(lib, _)| root.join("usr").join(lib).is_dir()).unwrap_or(FOLDERS[2]);
        let file = |lib: &str| root.join("usr").join(lib).join("cuvisor").join(library::FILE_NAME);
        let place = Self { library: file(lib), stub: file(lib32), inside: format!("/usr/{lib}/cuvisor/{}", library::FILE_NAME) };
        if let Some(mount) = noexec(&place.library) {
            bail!("{} lies on {mount}, which is mounted noexec: no program could load the library from there", place.library.display());
        }
        Ok(place)
    }

    /// The line for `/etc/ld.so.preload`. With the 32-bit library in place the loader itself chooses between the two.
    pub fn line(&self, has_stub: bool) -> String {
        if has_stub { format!("/usr/$LIB/cuvisor/{}", library::FILE_NAME) } else { self.inside.clone() }
    }
}

/// Whether a system has a file. Its links are not followed: an absolute one would lead out of the root.
pub fn is_there(root: &Path, file: &str) -> bool {
    root.join(file.trim_start_matches('/')).symlink_metadata().is_ok()
}

/// Every place where an installation may have put a file.
pub fn all(root: &Path) -> Vec<PathBuf> {
    let folders = FOLDERS.iter().flat_map(|(lib, lib32)| [*lib, *lib32]);
    let mut files: Vec<_> = folders.map(|lib| root.join("usr").join(lib).join("cuvisor").join(library::FILE_NAME)).collect();
    files.dedup();
    files
}

/// The mount point that a path lies below, if that is mounted noexec (proc_pid_mountinfo(5): fields 5 and 6).
fn noexec(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let existing = path.ancestors().find_map(|place| place.canonicalize().ok())?;
    let fields = |line: &str| {
        let mut fields = line.split(' ').skip(4);
        Some((fields.next()?.replace("\\040", " "), fields.next()?.to_owned()))
    };
    let mounts = text.lines().filter_map(fields).filter(|(point, _)| existing.starts_with(point));
    let (point, options) = mounts.enumerate().max_by_key(|(at, (point, _))| (point.len(), *at))?.1;
    options.split(',').any(|option| option == "noexec").then_some(point)
}
