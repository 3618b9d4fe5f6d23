//! Folders and what is in them.

use core::ffi::CStr;

use super::{Buffer, File, written};

/// An open folder.
pub struct Directory(pub(super) File);

impl Directory {
    /// Opens a folder.
    pub fn open(path: &CStr) -> Option<Self> {
        File::open_with(path, libc::O_RDONLY | libc::O_DIRECTORY, 0).ok().map(Self)
    }

    /// Opens a folder in this one: a path that begins here.
    pub fn open_in(&self, path: &CStr) -> Option<Self> {
        File::open_from(self.0.0, path, libc::O_RDONLY | libc::O_DIRECTORY, 0).ok().map(Self)
    }

    /// What a small file of the kernel in this folder says, in the one read that such a file needs.
    pub fn read<'b>(&self, path: &CStr, room: &'b mut Buffer) -> Option<&'b [u8]> {
        File::open_from(self.0.0, path, libc::O_RDONLY | libc::O_NONBLOCK, 0).ok()?.read_once(room)
    }

    /// Calls `look` with the name of each entry but `.` and `..`, and its kind as far as the file system tells it.
    /// The room must hold an entry: 300 bytes do.
    pub fn each(&self, room: &mut Buffer, mut look: impl FnMut(&CStr, EntryKind)) {
        loop {
            // SAFETY: the descriptor is open; the kernel writes at most as many bytes as the room has.
            let count = unsafe { system_call!(SYS_getdents64, self.0.0, room.as_mut_ptr(), room.len()) };
            // SAFETY: the kernel has written so many bytes; after an error it is none.
            let mut rest = unsafe { written(room, usize::try_from(count).unwrap_or_default()) }.unwrap_or_default();
            if rest.is_empty() {
                return;
            }
            while let Some((name, kind, after)) = entry(rest) {
                rest = after;
                if !matches!(name.to_bytes(), b"." | b"..") {
                    look(name, kind);
                }
            }
        }
    }
}

/// What an entry of a folder is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A symbolic link.
    Link,
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Anything else.
    Other,
    /// The file system does not tell.
    Unknown,
}

/// The first entry's name and kind, and what follows it: `struct linux_dirent64` has 19 bytes before the
/// name, of which the 17th and 18th are the entry's length and the 19th its kind (getdents64(2)).
fn entry(entries: &[u8]) -> Option<(&CStr, EntryKind, &[u8])> {
    let len = usize::from(u16::from_ne_bytes(*entries.get(16..18)?.first_chunk()?));
    let kind = match *entries.get(18)? {
        libc::DT_LNK => EntryKind::Link,
        libc::DT_REG => EntryKind::File,
        libc::DT_DIR => EntryKind::Folder,
        libc::DT_UNKNOWN => EntryKind::Unknown,
        _ => EntryKind::Other,
    };
    let name = CStr::from_bytes_until_nul(entries.get(19..len)?).ok()?;
    Some((name, kind, entries.get(len..)?))
}
