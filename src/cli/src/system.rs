//! The few calls that std has no safe name for: all the unsafe code of the command.
#![allow(unsafe_code)]

use libloading::os::unix::{Library, RTLD_NOW};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The version of the kernel's Landlock; none where it has none (landlock(7)).
pub fn landlock_abi() -> Option<u32> {
    const VERSION: c_uint = 1;
    // SAFETY: with this flag the call takes no attributes and only tells a number.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION) };
    u32::try_from(abi).ok().filter(|abi| *abi > 0)
}

/// Whether this process, as its effective user, may write to a path (faccessat(2)).
pub fn may_write(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: `path` is a C string that lives through the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}

/// The version of the C library that this process runs with.
pub fn glibc() -> Option<(u32, u32)> {
    // SAFETY: the function takes nothing and gives a C string that is never freed.
    let text = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: as above.
    let text = unsafe { CStr::from_ptr(text) };
    let mut parts = text.to_str().ok()?.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// What the driver answers to a process that does nothing but ask it.
#[derive(Serialize, Deserialize, Debug, Default)]
pub struct Answer {
    /// The library's path; none where there is none.
    pub path: Option<String>,
    /// What the loader says where it could not load it.
    pub error: Option<String>,
    /// `cuInit`'s code.
    pub init: Option<i32>,
    /// The CUDA version of the driver: 1000 * major + 10 * minor.
    pub version: Option<i32>,
    /// The devices in the driver's order.
    pub devices: Vec<Device>,
}

/// A device as the driver names it.
#[derive(Serialize, Deserialize, Debug)]
pub struct Device {
    /// `GPU-` and 36 characters.
    pub uuid: Option<String>,
    /// PCI bus id.
    pub pci: Option<String>,
}

/// Loads the driver into this process and asks it. This initialises CUDA, so it is done in a process of its own.
pub fn ask_driver() -> Answer {
    // SAFETY: loading the driver runs its constructors, which is what any CUDA program does.
    let library = match unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW) } {
        Ok(library) => library,
        Err(error) => {
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            return Answer { error: Some(reason), ..Answer::default() };
        }
    };
    let mut answer = Answer { path: mapped(), ..Answer::default() };
    answer.version = number(&library, b"cuDriverGetVersion\0");
    answer.init = init(&library);
    if answer.init == Some(0) {
        let count = number(&library, b"cuDeviceGetCount\0").unwrap_or_default();
        answer.devices = (0..count).filter_map(|ordinal| device(&library, ordinal)).collect();
    }
    // It is never unloaded: the driver's threads may outlive a dlclose.
    std::mem::forget(library);
    answer
}

fn mapped() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).find(|path| path.contains("/libcuda.so")).map(str::to_owned)
}

fn init(library: &Library) -> Option<i32> {
    // SAFETY: cuda.h gives the function of this name this type.
    let function = unsafe { library.get::<unsafe extern "C" fn(c_uint) -> c_int>(b"cuInit\0") }.ok()?;
    // SAFETY: cuInit takes 0 for its flags.
    Some(unsafe { function(0) })
}

/// A function that writes one number.
fn number(library: &Library, name: &[u8]) -> Option<i32> {
    // SAFETY: cuda.h gives both functions that this is called for this type.
    let function = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(name) }.ok()?;
    let mut value = 0;
    // SAFETY: the pointer is that of one int.
    let code = unsafe { function(&raw mut value) };
    (code == 0).then_some(value)
}

fn device(library: &Library, ordinal: c_int) -> Option<Device> {
    // SAFETY: cuda.h gives the function of this name this type.
    let get = unsafe { library.get::<unsafe extern "C" fn(*mut c_int, c_int) -> c_int>(b"cuDeviceGet\0") }.ok()?;
    let mut handle = 0;
    // SAFETY: the pointer is that of one int.
    let code = unsafe { get(&raw mut handle, ordinal) };
    (code == 0).then(|| Device { uuid: uuid(library, handle), pci: pci(library, handle) })
}

fn uuid(library: &Library, handle: c_int) -> Option<String> {
    type Uuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int;
    // SAFETY: cuda.h gives the function of this name, and its older form, this type.
    let function = unsafe { library.get::<Uuid>(b"cuDeviceGetUuid_v2\0") };
    // SAFETY: as above.
    let function = function.or_else(|_| unsafe { library.get::<Uuid>(b"cuDeviceGetUuid\0") }).ok()?;
    let mut bytes = [0; 16];
    // SAFETY: a CUuuid has 16 bytes.
    let code = unsafe { function(&raw mut bytes, handle) };
    let text = cuvisor_policy::device::Uuid(bytes).text();
    (code == 0).then(|| format!("GPU-{}", String::from_utf8_lossy(&text)))
}

fn pci(library: &Library, handle: c_int) -> Option<String> {
    type Pci = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
    // SAFETY: cuda.h gives the function of this name this type.
    let function = unsafe { library.get::<Pci>(b"cuDeviceGetPCIBusId\0") }.ok()?;
    let mut text = [0u8; 32];
    // SAFETY: the pointer and length are those of one array, whose last byte the function sets to NUL at most.
    let code = unsafe { function(text.as_mut_ptr().cast(), 32, handle) };
    let text = text.split(|c| *c == 0).next().unwrap_or_default();
    (code == 0).then(|| String::from_utf8_lossy(text).to_lowercase())
}
