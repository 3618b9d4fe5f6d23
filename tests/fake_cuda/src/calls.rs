//! The driver's functions that concern devices and contexts.
#![allow(non_snake_case, clippy::missing_safety_doc)]

use crate::{gpus, log};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// The version that this driver reports: CUDA 13.0.
pub const VERSION: c_int = 13000;

macro_rules! driver {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) $body:block)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int $body
        )*
    };
}

fn text(value: Option<Vec<u8>>) -> String {
    value.map_or("(unset)".into(), |v| format!("{:?}", String::from_utf8_lossy(&v)))
}

/// Writes an out value that may be NULL; the driver answers 1 then.
fn put<T>(out: *mut T, value: T) -> c_int {
    if out.is_null() {
        return 1;
    }
    // SAFETY: not NULL, and by the driver's contract a place for one T.
    unsafe { out.write(value) };
    0
}

fn physical(device: c_int) -> Result<usize, c_int> {
    let visible = gpus::visible().ok_or(3)?;
    usize::try_from(device).ok().and_then(|d| visible.physical.get(d)).copied().ok_or(101)
}

fn uuid(out: *mut [u8; 16], device: c_int) -> c_int {
    match (physical(device), gpus::visible()) {
        (Ok(k), Some(visible)) => put(out, gpus::uuid_bytes(&visible.uuids[k])),
        (Err(code), _) => code,
        _ => 3,
    }
}

fn context(name: &str, out: *mut *mut c_void, device: c_int) -> c_int {
    let result = match physical(device) {
        Ok(k) => put(out, std::ptr::without_provenance_mut(0x1000 + k)),
        Err(code) => code,
    };
    log::call(|| format!("{name}({device}) = {result}"));
    result
}

fn shim() -> Option<c_int> {
    let path = log::variable("FAKE_CUDA_SHIM")?;
    let path = std::ffi::CString::new(path).ok()?;
    // SAFETY: the path is a C string.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return Some(999);
    }
    // SAFETY: a handle of dlopen and a C string.
    let function = unsafe { libc::dlsym(handle, c"cuInit".as_ptr()) };
    // SAFETY: the function's name says its type.
    let function: unsafe extern "C" fn(c_uint) -> c_int = unsafe { std::mem::transmute(function) };
    // The second copy must not pass it on again.
    // SAFETY: tests that use the shim have one thread.
    unsafe { libc::unsetenv(c"FAKE_CUDA_SHIM".as_ptr()) };
    // SAFETY: cuInit takes any flags.
    Some(unsafe { function(0) })
}

driver! {
    /// Fixes the visible devices.
    fn cuInit(flags: c_uint) {
        let passed_on = shim();
        let result = gpus::init(flags);
        log::call(|| {
            let (list, order) = (log::raw_variable("CUDA_VISIBLE_DEVICES"), log::raw_variable("CUDA_DEVICE_ORDER"));
            format!("cuInit({flags}) = {result} CVD={} ORDER={}", text(list), text(order))
        });
        passed_on.filter(|code| *code != 0).unwrap_or(result)
    }

    /// CUDA version.
    fn cuDriverGetVersion(out: *mut c_int) {
        put(out, VERSION)
    }

    /// The handle of an ordinal: the ordinal itself.
    fn cuDeviceGet(out: *mut c_int, ordinal: c_int) {
        let result = if out.is_null() { 1 } else { physical(ordinal).map_or_else(|code| code, |_| put(out, ordinal)) };
        log::call(|| format!("cuDeviceGet({ordinal}) = {result}"));
        result
    }

    /// How many devices are visible.
    fn cuDeviceGetCount(out: *mut c_int) {
        match gpus::visible() {
            Some(visible) => put(out, visible.physical.len() as c_int),
            None => 3,
        }
    }

    /// The device of a PCI bus id.
    fn cuDeviceGetByPCIBusId(out: *mut c_int, id: *const c_char) {
        let Some(visible) = gpus::visible() else { return 3 };
        if id.is_null() {
            return 1;
        }
        // SAFETY: not NULL, and by the driver's contract a C string.
        let id = unsafe { CStr::from_ptr(id) }.to_string_lossy().to_lowercase();
        let found = visible.physical.iter().position(|k| gpus::pci(*k) == id);
        let result = found.map_or(101, |ordinal| put(out, ordinal as c_int));
        log::call(|| format!("cuDeviceGetByPCIBusId({id}) = {result}"));
        result
    }

    /// The 16 bytes of the UUID.
    fn cuDeviceGetUuid(out: *mut [u8; 16], device: c_int) {
        uuid(out, device)
    }

    /// The same; a MIG instance's own on a GPU with MIG.
    fn cuDeviceGetUuid_v2(out: *mut [u8; 16], device: c_int) {
        uuid(out, device)
    }

    /// `dddd:bb:dd.f`.
    fn cuDeviceGetPCIBusId(out: *mut c_char, len: c_int, device: c_int) {
        let id = match physical(device) {
            Ok(k) => gpus::pci(k),
            Err(code) => return code,
        };
        if out.is_null() || usize::try_from(len).is_ok_and(|len| len <= id.len()) {
            return 1;
        }
        // SAFETY: the caller's array has `len` bytes, more than the id.
        unsafe { out.copy_from_nonoverlapping(id.as_ptr().cast(), id.len()) };
        // SAFETY: as above: the byte after the id.
        unsafe { out.wrapping_add(id.len()).write(0) };
        0
    }

    /// The GPU's product name.
    fn cuDeviceGetName(out: *mut c_char, len: c_int, device: c_int) {
        let name = match physical(device) {
            Ok(k) => format!("Fake GPU {k}"),
            Err(code) => return code,
        };
        if out.is_null() || usize::try_from(len).is_ok_and(|len| len <= name.len()) {
            return 1;
        }
        // SAFETY: the caller's array has `len` bytes, more than the name.
        unsafe { out.copy_from_nonoverlapping(name.as_ptr().cast(), name.len()) };
        // SAFETY: as above: the byte after the name.
        unsafe { out.wrapping_add(name.len()).write(0) };
        0
    }

    /// Any attribute; compute capability 9.0, else 1.
    fn cuDeviceGetAttribute(out: *mut c_int, attribute: c_int, device: c_int) {
        match physical(device) {
            Ok(_) => put(out, match attribute { 75 => 9, 76 => 0, _ => 1 }),
            Err(code) => code,
        }
    }

    /// 80 GiB.
    fn cuDeviceTotalMem_v2(out: *mut usize, device: c_int) {
        physical(device).map_or_else(|code| code, |_| put(out, 80 << 30))
    }

    /// Makes the primary context.
    fn cuDevicePrimaryCtxRetain(out: *mut *mut c_void, device: c_int) {
        context("cuDevicePrimaryCtxRetain", out, device)
    }

    /// Gives it back.
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        physical(device).map_or_else(|code| code, |_| 0)
    }

    /// Whether it is active: never.
    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) {
        match physical(device) {
            Ok(_) => put(flags, 0).max(put(active, 0)),
            Err(code) => code,
        }
    }

    /// Makes a context, as the first drivers had it.
    fn cuCtxCreate(out: *mut *mut c_void, _flags: c_uint, device: c_int) {
        context("cuCtxCreate", out, device)
    }

    /// Makes a context, since CUDA 3.2.
    fn cuCtxCreate_v2(out: *mut *mut c_void, _flags: c_uint, device: c_int) {
        context("cuCtxCreate_v2", out, device)
    }

    /// Makes a context, since CUDA 11.4.
    fn cuCtxCreate_v3(out: *mut *mut c_void, _affinity: *mut c_void, _count: c_int, _flags: c_uint, device: c_int) {
        context("cuCtxCreate_v3", out, device)
    }

    /// Makes a context, since CUDA 12.5.
    fn cuCtxCreate_v4(out: *mut *mut c_void, _params: *mut c_void, _flags: c_uint, device: c_int) {
        context("cuCtxCreate_v4", out, device)
    }

    /// Ends a context.
    fn cuCtxDestroy_v2(_context: *mut c_void) {
        0
    }

    /// Makes a context the thread's.
    fn cuCtxSetCurrent(_context: *mut c_void) {
        0
    }

    /// The thread's context: the one that was made current last, anywhere.
    fn cuCtxGetCurrent(out: *mut *mut c_void) {
        put(out, std::ptr::without_provenance_mut(0x1000))
    }

    /// Waits for nothing.
    fn cuStreamCreate(out: *mut *mut c_void, _flags: c_uint) {
        put(out, std::ptr::without_provenance_mut(0x2000))
    }

    /// Ends a stream.
    fn cuStreamDestroy_v2(_stream: *mut c_void) {
        0
    }

    /// Makes an event.
    fn cuEventCreate(out: *mut *mut c_void, _flags: c_uint) {
        put(out, std::ptr::without_provenance_mut(0x3000))
    }

    /// Ends an event.
    fn cuEventDestroy_v2(_event: *mut c_void) {
        0
    }

    /// Waits for nothing.
    fn cuCtxSynchronize() {
        0
    }

    /// A table that nobody but the runtime knows.
    fn cuGetExportTable(out: *mut *const c_void, _id: *const [u8; 16]) {
        static TABLE: [usize; 4] = [32, 0, 0, 0];
        put(out, TABLE.as_ptr().cast())
    }

    /// A result's name.
    fn cuGetErrorName(code: c_int, out: *mut *const c_char) {
        let name = match code {
            0 => c"CUDA_SUCCESS",
            3 => c"CUDA_ERROR_NOT_INITIALIZED",
            46 => c"CUDA_ERROR_DEVICE_UNAVAILABLE",
            100 => c"CUDA_ERROR_NO_DEVICE",
            101 => c"CUDA_ERROR_INVALID_DEVICE",
            _ => c"CUDA_ERROR_UNKNOWN",
        };
        put(out, name.as_ptr())
    }

    /// A result in words.
    fn cuGetErrorString(_code: c_int, out: *mut *const c_char) {
        put(out, c"an error of the fake driver".as_ptr())
    }
}
