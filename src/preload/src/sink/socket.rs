//! The journal and syslog: one datagram an event, never waiting.

use core::ffi::CStr;
use cuvisor_policy::buffer::Text;

use crate::sys::{self, Socket};

/// Priority "informational" of the facility "user" (RFC 5424): 1 * 8 + 6.
const SYSLOG_HEAD: &[u8] = b"<14>cuvisor[";

/// Sends a line to the journal in its native protocol. The journal itself adds `_PID`, `_UID` and `_EXE`,
/// which the process cannot forge. `root` stands for `/` in tests.
pub fn journal(root: &[u8], event: &str, line: &[u8]) -> bool {
    let json = line.strip_suffix(b"\n").unwrap_or(line);
    let parts: [&[u8]; 6] = [b"SYSLOG_IDENTIFIER=cuvisor\nPRIORITY=6\nCUVISOR_EVENT=", event.as_bytes(), b"\nMESSAGE=", json, b"\n", b""];
    send(root, b"/run/systemd/journal/socket", &parts)
}

/// Sends a line to syslog.
pub fn syslog(root: &[u8], line: &[u8]) -> bool {
    let json = line.strip_suffix(b"\n").unwrap_or(line);
    let mut process = Text::<10>::new();
    process.push_number(u64::try_from(sys::process()).unwrap_or_default());
    send(root, b"/dev/log", &[SYSLOG_HEAD, process.as_bytes(), b"]: ", json, b"", b""])
}

fn send(root: &[u8], place: &[u8], parts: &[&[u8]; 6]) -> bool {
    let mut path = Text::<108>::of(root);
    path.push_some(place);
    path.push(b"\0");
    match (CStr::from_bytes_with_nul(path.as_bytes()), Socket::datagram()) {
        (Ok(path), Some(socket)) => socket.send(path, parts),
        _ => false,
    }
}
