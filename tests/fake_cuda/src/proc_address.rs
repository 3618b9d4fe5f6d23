//! cuGetProcAddress in both forms: the function of a name for a version of CUDA.
#![allow(non_snake_case, clippy::missing_safety_doc)]

use crate::calls::{self, VERSION};
use crate::{log, memory};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// Name, the CUDA version from which on it means this function, and the function.
fn table() -> Vec<(&'static str, c_int, *const c_void)> {
    macro_rules! table {
        ($($name:literal $since:literal $function:path;)*) => { vec![$(($name, $since, $function as *const c_void)),*] };
    }
    table! {
        "cuInit" 2000 calls::cuInit;
        "cuDriverGetVersion" 2020 calls::cuDriverGetVersion;
        "cuDeviceGet" 2000 calls::cuDeviceGet;
        "cuDeviceGetCount" 2000 calls::cuDeviceGetCount;
        "cuDeviceGetName" 2000 calls::cuDeviceGetName;
        "cuDeviceGetByPCIBusId" 4010 calls::cuDeviceGetByPCIBusId;
        "cuDeviceGetPCIBusId" 4010 calls::cuDeviceGetPCIBusId;
        "cuDeviceGetUuid" 9020 calls::cuDeviceGetUuid;
        "cuDeviceGetUuid" 11040 calls::cuDeviceGetUuid_v2;
        "cuDeviceGetAttribute" 2000 calls::cuDeviceGetAttribute;
        "cuDeviceTotalMem" 3020 calls::cuDeviceTotalMem_v2;
        "cuDevicePrimaryCtxRetain" 7000 calls::cuDevicePrimaryCtxRetain;
        "cuDevicePrimaryCtxRelease" 11000 calls::cuDevicePrimaryCtxRelease_v2;
        "cuDevicePrimaryCtxGetState" 7000 calls::cuDevicePrimaryCtxGetState;
        "cuCtxCreate" 2000 calls::cuCtxCreate;
        "cuCtxCreate" 3020 calls::cuCtxCreate_v2;
        "cuCtxCreate" 11040 calls::cuCtxCreate_v3;
        "cuCtxCreate" 12050 calls::cuCtxCreate_v4;
        "cuCtxDestroy" 4000 calls::cuCtxDestroy_v2;
        "cuCtxSetCurrent" 4000 calls::cuCtxSetCurrent;
        "cuCtxSynchronize" 2000 calls::cuCtxSynchronize;
        "cuGetExportTable" 3000 calls::cuGetExportTable;
        "cuGetErrorName" 6000 calls::cuGetErrorName;
        "cuGetErrorString" 6000 calls::cuGetErrorString;
        "cuMemAlloc" 3020 memory::cuMemAlloc_v2;
        "cuMemFree" 3020 memory::cuMemFree_v2;
        "cuMemcpyHtoD" 3020 memory::cuMemcpyHtoD_v2;
        "cuMemcpyDtoH" 3020 memory::cuMemcpyDtoH_v2;
        "cuGetProcAddress" 11030 cuGetProcAddress;
        "cuGetProcAddress" 12000 cuGetProcAddress_v2;
    }
}

/// The function, or the status that says why there is none: 1 unknown, 2 too old a version.
fn find(name: &str, version: c_int) -> Result<*const c_void, c_uint> {
    let table = table();
    let mut known = table.iter().filter(|(n, _, _)| *n == name).peekable();
    if known.peek().is_none() {
        return Err(1);
    }
    known.rfind(|(_, since, _)| *since <= version).map(|(_, _, function)| *function).ok_or(2)
}

fn get(name: *const c_char, out: *mut *const c_void, version: c_int, flags: u64) -> Result<(), Result<c_uint, c_int>> {
    if name.is_null() || out.is_null() || version > VERSION {
        return Err(Err(1));
    }
    // SAFETY: not NULL, and by the driver's contract a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    log::call(|| format!("cuGetProcAddress({name:?}, {version}, {flags})"));
    let found = find(&name, version);
    // SAFETY: not NULL, and by the driver's contract a place for a pointer.
    unsafe { out.write(found.unwrap_or(std::ptr::null())) };
    found.map(|_| ()).map_err(Ok)
}

/// The form of CUDA 11.3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(name: *const c_char, out: *mut *const c_void, version: c_int, flags: u64) -> c_int {
    match get(name, out, version, flags) {
        Ok(()) => 0,
        Err(Ok(_)) => 500,
        Err(Err(code)) => code,
    }
}

/// The form of CUDA 12, with a status that may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    out: *mut *const c_void,
    version: c_int,
    flags: u64,
    status: *mut c_uint,
) -> c_int {
    let (code, word) = match get(name, out, version, flags) {
        Ok(()) => (0, Some(0)),
        Err(Ok(status)) => (0, Some(status)),
        Err(Err(code)) => (code, None),
    };
    if let Some(word) = word.filter(|_| !status.is_null()) {
        // SAFETY: not NULL, and by the driver's contract a place for the status.
        unsafe { status.write(word) };
    }
    code
}
