//! The audit file: opened, appended to with one write, and closed, for each event.
//!
//! A descriptor that stayed open would leak into children, be closed by daemons, and its number be
//! given to the program's own files (B10). One write on an O_APPEND descriptor keeps the lines of
//! many processes whole (B24); a file that was renamed is replaced by a new one at the next event.

use core::ffi::CStr;
use cuvisor_policy::buffer::Text;

use crate::sys::{self, File};

/// Permission bits of a file that is made here, whatever the umask.
const MODE: u32 = 0o640;

/// Appends a line to the file that `pattern` names; whether it was taken whole.
pub fn append(pattern: &[u8], line: &[u8]) -> bool {
    let path = expand(pattern);
    let Ok(path) = CStr::from_bytes_with_nul(path.as_bytes()) else { return false };
    let Some(file) = open(path) else { return false };
    let Some(status) = file.status() else { return false };
    // A FIFO, device or socket is not an audit file: writing could wait, or do something else. A file of
    // another user's, in a folder where everybody may make files, is that user's to read and change.
    let trusted = status.uid == 0 || status.uid == sys::effective_user();
    status.is_regular && trusted && fits(status.len, line) && file.write(line)
}

/// A write beyond RLIMIT_FSIZE would bring the signal SIGXFSZ upon the program.
fn fits(len: u64, line: &[u8]) -> bool {
    let after = len.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
    sys::file_size_limit().is_none_or(|limit| after <= limit)
}

fn open(path: &CStr) -> Option<File> {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    if let Ok(file) = File::open_with(path, flags, 0) {
        return Some(file);
    }
    // O_EXCL: whoever makes the file sets its mode, and a symbolic link is never followed to make one (B22).
    let made = File::open_with(path, flags | libc::O_CREAT | libc::O_EXCL, MODE);
    if let Ok(file) = &made {
        file.set_mode(MODE);
    }
    made.or_else(|_| File::open_with(path, flags, 0)).ok()
}

/// The path with `{uid}` and `{pid}` replaced, and its NUL.
fn expand(pattern: &[u8]) -> Text<600> {
    let mut path = Text::new();
    let mut rest = pattern;
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"{uid}") {
            path.push_number(u64::from(sys::effective_user()));
            rest = after;
        } else if let Some(after) = rest.strip_prefix(b"{pid}") {
            path.push_number(u64::try_from(sys::process()).unwrap_or_default());
            rest = after;
        } else {
            path.push(&[*first]);
            rest = after;
        }
    }
    path.push(b"\0");
    path
}
