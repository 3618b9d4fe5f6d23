//! Files that appear whole: written under another name, forced to the disk, and renamed.

use anyhow::{Context, Result};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file that is complete and waits beside its place; removed unless it is put there.
pub struct Waiting {
    path: PathBuf,
    place: PathBuf,
    is_new: bool,
    is_put: bool,
}

impl Waiting {
    /// Writes it beside `place`.
    ///
    /// # Errors
    /// Names the file and what the system said.
    pub fn write(place: &Path, bytes: &[u8], mode: u32) -> Result<Self> {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let path = place.with_file_name(format!(".{name}.{}", std::process::id()));
        let waiting = Self { path, place: place.to_owned(), is_new: fs::read(place).ok().as_deref() != Some(bytes), is_put: false };
        let shown = || waiting.path.display().to_string();
        // Whoever left a file of this name is gone: its process id is this one's.
        let _ = fs::remove_file(&waiting.path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&waiting.path).with_context(shown)?;
        file.write_all(bytes).with_context(shown)?;
        // Whatever the umask.
        file.set_permissions(PermissionsExt::from_mode(mode)).with_context(shown)?;
        file.sync_all().with_context(shown)?;
        Ok(waiting)
    }

    /// Where it waits.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it in its place, where processes that use the old file keep that; says what was done.
    ///
    /// # Errors
    /// Names the file and what the system said.
    pub fn put(mut self) -> Result<String> {
        let shown = self.place.display().to_string();
        if !self.is_new {
            return Ok(format!("unchanged {shown}"));
        }
        let verb = if self.place.exists() { "replaced" } else { "wrote" };
        fs::rename(&self.path, &self.place).with_context(|| shown.clone())?;
        self.is_put = true;
        sync(self.place.parent())?;
        Ok(format!("{verb} {shown}"))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_put {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes a folder, and those above it, open to all.
///
/// # Errors
/// Names the folder and what the system said.
pub fn folder(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), folder)?;
    DirBuilder::new().mode(0o755).create(path).with_context(|| path.display().to_string())?;
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).with_context(|| path.display().to_string())?;
    sync(path.parent())
}

/// Forces a folder's list of names to the disk.
pub fn sync(folder: Option<&Path>) -> Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    File::open(folder).and_then(|file| file.sync_all()).with_context(|| folder.display().to_string())
}
