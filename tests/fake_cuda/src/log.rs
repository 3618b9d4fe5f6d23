//! The log of calls, and the variables.

use std::io::Write;
use std::sync::OnceLock;

/// A variable's value, asked of libc at each call: a program may have changed it.
pub fn raw_variable(name: &str) -> Option<Vec<u8>> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: the name is a C string; the result is copied at once.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: getenv gave a C string.
    Some(unsafe { std::ffi::CStr::from_ptr(value) }.to_bytes().to_vec())
}

/// The same as text.
pub fn variable(name: &str) -> Option<String> {
    raw_variable(name).map(|value| String::from_utf8_lossy(&value).into_owned())
}

/// Appends a call to the log, if there is one.
pub fn call(text: impl FnOnce() -> String) {
    static FILE: OnceLock<Option<String>> = OnceLock::new();
    if let Some(path) = FILE.get_or_init(|| variable("FAKE_CUDA_LOG"))
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let line = format!("{} {}\n", own_folder(), text());
        // A log that cannot be written is a test that fails by itself.
        let _ = file.write_all(line.as_bytes());
    }
}

/// The name of the folder that this copy was loaded from.
fn own_folder() -> String {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is this function's own and the struct has room.
    let found = unsafe { libc::dladdr(own_folder as *const libc::c_void, info.as_mut_ptr()) };
    if found == 0 {
        return "?".into();
    }
    // SAFETY: dladdr has filled the struct.
    let info = unsafe { info.assume_init() };
    // SAFETY: the loader's names are C strings.
    let path = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned();
    std::path::Path::new(&path).parent().and_then(|p| p.file_name()).map_or("?".into(), |n| n.to_string_lossy().into_owned())
}
