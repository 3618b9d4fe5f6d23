//! The list of hooked symbols. Everything else follows it or is tested against it.

use core::ffi::CStr;

/// A hooked function of the driver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// `cuInit`
    Init,
    /// `cuDeviceGet`
    DeviceGet,
    /// `cuDeviceGetCount`
    DeviceGetCount,
    /// `cuDeviceGetByPCIBusId`
    DeviceGetByPciBusId,
    /// `cuDevicePrimaryCtxRetain`
    PrimaryCtxRetain,
    /// `cuCtxCreate`
    CtxCreate,
    /// `cuCtxCreate_v2`
    CtxCreateV2,
    /// `cuCtxCreate_v3`
    CtxCreateV3,
    /// `cuCtxCreate_v4`
    CtxCreateV4,
    /// `cuGetProcAddress`
    GetProcAddress,
    /// `cuGetProcAddress_v2`
    GetProcAddressV2,
}

/// How many driver functions are hooked.
pub const COUNT: usize = 11;

/// The hooked functions of the driver with their exact names. Beside these the library exports `dlsym`
/// and the marker [`crate::exports::cuvisor_marker`].
pub const HOOKS: [(Hook, &CStr); COUNT] = [
    (Hook::Init, c"cuInit"),
    (Hook::DeviceGet, c"cuDeviceGet"),
    (Hook::DeviceGetCount, c"cuDeviceGetCount"),
    (Hook::DeviceGetByPciBusId, c"cuDeviceGetByPCIBusId"),
    (Hook::PrimaryCtxRetain, c"cuDevicePrimaryCtxRetain"),
    (Hook::CtxCreate, c"cuCtxCreate"),
    (Hook::CtxCreateV2, c"cuCtxCreate_v2"),
    (Hook::CtxCreateV3, c"cuCtxCreate_v3"),
    (Hook::CtxCreateV4, c"cuCtxCreate_v4"),
    (Hook::GetProcAddress, c"cuGetProcAddress"),
    (Hook::GetProcAddressV2, c"cuGetProcAddress_v2"),
];

impl Hook {
    /// The hook of exactly this name: `cuDeviceGet` is not `cuDeviceGetName` (C08).
    pub fn named(name: &[u8]) -> Option<Self> {
        HOOKS.iter().find(|(_, known)| known.to_bytes() == name).map(|(hook, _)| *hook)
    }

    /// The driver's name.
    pub fn name(self) -> &'static CStr {
        HOOKS.iter().find(|(hook, _)| *hook == self).map_or(c"", |(_, name)| name)
    }

    /// The position in [`HOOKS`].
    pub fn index(self) -> usize {
        self as usize
    }
}
