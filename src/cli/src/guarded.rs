//! Files whose names come from others: from another process's environment or mappings, or out of a container. Opening a
//! FIFO would hold this command up, a device has no end, and a link may lead out of the container.

use crate::inside;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The largest program or library that is looked into, in bytes.
pub const PROGRAM_LIMIT: u64 = 1 << 30;

/// Opens a path as a process sees it whose `/` is `root`; links, too, stay below it (openat2(2)). Nothing is waited for.
///
/// # Errors
/// What the system says.
pub fn open(root: &Path, path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let folder = File::open(root)?;
    match openat2(&folder, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
        Ok(file) => Ok(file.into()),
        // Before Linux 5.6, and where a filter of system calls does not know it.
        Err(Errno::NOSYS | Errno::PERM) => {
            let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
            std::fs::OpenOptions::new().read(true).custom_flags(flags).open(inside::below(root, path))
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens a regular file.
///
/// # Errors
/// What the system says, or that it is none.
pub fn open_regular(root: &Path, path: &Path) -> Result<File> {
    let file = open(root, path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Error::new(ErrorKind::InvalidInput, "it is no regular file")) }
}

/// Reads a regular file of at most so many bytes.
///
/// # Errors
/// What the system says, or that it is none or larger.
pub fn read(root: &Path, path: &Path, most: u64) -> Result<Vec<u8>> {
    whole(&open_regular(root, path)?, most)
}

/// Reads a file of at most so many bytes to its end.
///
/// # Errors
/// What the system says, or that it is larger.
pub fn whole(file: &File, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}
