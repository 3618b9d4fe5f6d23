//! The copies of the driver library in this process, a slot for each.
//!
//! More than one can be loaded (a compat package, a wheel's own, WSL's shim), and a call must reach the
//! copy whose handle was asked (C11). Each hook is therefore generated once for each slot. Slot 0 is no
//! copy but "whatever stands behind us": it serves programs that are linked to the driver while another
//! preload with the same hooks stands between, and those for which no copy is loaded at all.

mod copies;
mod seen;

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use cuvisor_policy::device::{MAX_GPUS, PciId, Uuid};
use cuvisor_policy::guard::Seen;

pub use self::copies::{behind_us, slot_of};
use self::seen::SeenCell;
use crate::hot::hot;
use crate::loader::{Module, Opened};
use crate::table::{COUNT, HOOKS, Hook};

/// A result code of the driver.
pub type Code = c_int;

/// Codes that the library itself answers.
pub mod code {
    use super::Code;
    /// CUDA_ERROR_NOT_INITIALIZED
    pub const NOT_INITIALIZED: Code = 3;
    /// CUDA_ERROR_DEVICE_UNAVAILABLE
    pub const DEVICE_UNAVAILABLE: Code = 46;
    /// CUDA_ERROR_NO_DEVICE
    pub const NO_DEVICE: Code = 100;
    /// CUDA_ERROR_INVALID_DEVICE
    pub const INVALID_DEVICE: Code = 101;
}

/// How many slots there are: slot 0 and up to seven copies. A copy beyond is not hooked; its devices
/// are still those of the environment.
pub const SLOTS: usize = 8;

/// What is known about the devices that a copy shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No `cuInit` came through us, and nothing has been looked at.
    Unseen,
    /// Looked at; [`Slot::outside`] has a bit for each device outside the policy.
    Known,
    /// Our `cuInit` answered that there is no device, although the driver has some.
    Refused,
}

/// One copy of the driver.
#[repr(C)] // the devices last: what one GPU's process writes lies in one page
pub struct Slot {
    /// Where the copy is mapped; 0 while the slot is free.
    base: AtomicUsize,
    real: [AtomicPtr<c_void>; COUNT],
    uuid: AtomicPtr<c_void>,
    pci: AtomicPtr<c_void>,
    verdict: AtomicU8,
    /// A bit for each visible device that the policy does not give.
    pub outside: AtomicU64,
    /// First touches that have been logged: a bit for each device.
    pub got: AtomicU64,
    /// The same for contexts.
    pub used: AtomicU64,
    /// The same for calls that failed or were refused.
    pub failed: AtomicU64,
    seen_count: AtomicU32,
    seen: [SeenCell; MAX_GPUS],
}

static SLOT_LIST: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];

/// The slot of this number.
#[inline]
pub fn slot(number: usize) -> &'static Slot {
    // Numbers come from const generics below SLOTS; the last slot stands in for any other.
    let [rest @ .., last] = &SLOT_LIST;
    rest.get(number).unwrap_or(last)
}

/// Declares every ordinal of every slot settled: there is no policy.
pub fn settle_all() {
    hot().settled.iter().for_each(|bits| bits.store(u64::MAX, Ordering::Relaxed));
}

/// All slots.
pub fn slots() -> impl Iterator<Item = (usize, &'static Slot)> {
    SLOT_LIST.iter().enumerate()
}

impl Slot {
    const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            real: [const { AtomicPtr::new(core::ptr::null_mut()) }; COUNT],
            uuid: AtomicPtr::new(core::ptr::null_mut()),
            pci: AtomicPtr::new(core::ptr::null_mut()),
            verdict: AtomicU8::new(0),
            outside: AtomicU64::new(0),
            got: AtomicU64::new(0),
            used: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            seen_count: AtomicU32::new(0),
            seen: [const { SeenCell::new() }; MAX_GPUS],
        }
    }

    /// Looks the copy's functions up. It is done again for a copy that is known: another file may have
    /// been loaded at the address since.
    fn learn(&self, module: &Module, library: &Opened) {
        // A library is mapped in one piece: what lies between two places of it is of it. Asking the loader means that it
        // goes through all of the library's names.
        let (mut first, mut last) = (module.base, module.base);
        let mut own = |name: &CStr| {
            let found = library.lookup(name);
            let is_between = (first..=last).contains(&found.addr());
            if is_between || Module::of(found).is_some_and(|m| m.base == module.base) {
                (first, last) = (first.min(found.addr()), last.max(found.addr()));
                found
            } else {
                core::ptr::null_mut()
            }
        };
        for (place, (_, name)) in self.real.iter().zip(HOOKS) {
            place.store(own(name), Ordering::Release);
        }
        let uuid = [c"cuDeviceGetUuid_v2", c"cuDeviceGetUuid"].into_iter().map(&mut own).find(|f| !f.is_null());
        self.uuid.store(uuid.unwrap_or(core::ptr::null_mut()), Ordering::Release);
        self.pci.store(own(c"cuDeviceGetPCIBusId"), Ordering::Release);
    }

    /// The real function behind a hook; NULL where there is none.
    #[inline]
    pub fn real(&self, hook: Hook) -> *mut c_void {
        let known = self.real.get(hook.index()).map_or(core::ptr::null_mut(), |place| place.load(Ordering::Relaxed));
        if !known.is_null() || self.base.load(Ordering::Relaxed) != 0 {
            return known;
        }
        self.find_behind_us(hook)
    }

    #[cold]
    fn find_behind_us(&self, hook: Hook) -> *mut c_void {
        let found = crate::loader::lookup(libc::RTLD_NEXT, hook.name());
        if let Some(place) = self.real.get(hook.index()) {
            place.store(found, Ordering::Release);
        }
        found
    }

    /// The bits of the ordinals of this slot that are settled.
    #[inline]
    pub fn settled(&self) -> &'static AtomicU64 {
        // A slot is always one of the list: its place there is its number.
        let offset = core::ptr::from_ref(self).addr().wrapping_sub(SLOT_LIST.as_ptr().addr());
        let number = offset.checked_div(size_of::<Self>()).unwrap_or_default();
        let [rest @ .., last] = &hot().settled;
        rest.get(number).unwrap_or(last)
    }

    /// The hook whose real function in this copy is `function`.
    pub fn hook_of(&self, function: *const c_void) -> Option<Hook> {
        let same = |place: &AtomicPtr<c_void>| core::ptr::eq(place.load(Ordering::Acquire), function) && !function.is_null();
        self.real.iter().zip(HOOKS).find(|(place, _)| same(place)).map(|(_, (hook, _))| hook)
    }

    /// The real function as a Rust function pointer.
    fn function<F: Copy>(&self, hook: Hook) -> Option<F> {
        typed(self.real(hook))
    }

    /// Calls the real `cuInit`; none where there is none.
    pub fn init(&self, flags: c_uint) -> Option<Code> {
        let function: unsafe extern "C" fn(c_uint) -> Code = self.function(Hook::Init)?;
        // SAFETY: the driver's cuInit takes any flags.
        Some(unsafe { function(flags) })
    }

    /// Calls the real `cuDeviceGet` with the program's own pointer.
    #[inline]
    pub fn device_get(&self, out: *mut c_int, ordinal: c_int) -> Option<Code> {
        let function: unsafe extern "C" fn(*mut c_int, c_int) -> Code = self.function(Hook::DeviceGet)?;
        // SAFETY: `out` is what the program passed or a place of ours; the driver checks it for NULL (C14).
        Some(unsafe { function(out, ordinal) })
    }

    /// Calls the real `cuDeviceGetCount`.
    pub fn device_count(&self, out: *mut c_int) -> Option<Code> {
        let function: unsafe extern "C" fn(*mut c_int) -> Code = self.function(Hook::DeviceGetCount)?;
        // SAFETY: as for `device_get`.
        Some(unsafe { function(out) })
    }

    /// Calls the real `cuDeviceGetByPCIBusId`.
    pub fn device_by_pci(&self, out: *mut c_int, id: *const c_char) -> Option<Code> {
        let function: unsafe extern "C" fn(*mut c_int, *const c_char) -> Code = self.function(Hook::DeviceGetByPciBusId)?;
        // SAFETY: both pointers are the program's or places of ours; the driver checks them for NULL.
        Some(unsafe { function(out, id) })
    }

    /// The device of a handle that the driver has shown.
    pub fn device_of(&self, handle: c_int) -> Option<Seen> {
        self.visible().find(|seen| seen.handle == handle)
    }

    /// The devices that the driver has shown.
    pub fn visible(&self) -> impl Iterator<Item = Seen> + Clone {
        let count = usize::try_from(self.seen_count.load(Ordering::Acquire)).unwrap_or_default();
        (0i32..).zip(self.seen.iter().take(count)).map(|(ordinal, cell)| cell.load(ordinal))
    }

    /// Asks the driver which devices it shows now, and says whether it did not show the same ones before; none where it
    /// is not initialised.
    pub fn look(&self) -> Option<bool> {
        let mut count: c_int = 0;
        if self.device_count(&raw mut count)? != 0 {
            return None;
        }
        let (mut kept, mut is_new) = (0u32, false);
        for (cell, ordinal) in self.seen.iter().zip(0..count) {
            let mut handle: c_int = 0;
            if self.device_get(&raw mut handle, ordinal)? != 0 {
                break;
            }
            let before = cell.load(ordinal);
            cell.store(handle, self.uuid_of(handle), self.pci_of(handle));
            is_new |= before != cell.load(ordinal);
            kept = kept.saturating_add(1);
        }
        is_new |= self.seen_count.swap(kept, Ordering::AcqRel) != kept;
        Some(is_new)
    }

    /// A function that only we call: in a copy it was looked up with the others, behind us it is looked up now.
    fn helper(&self, known: &AtomicPtr<c_void>, names: &[&CStr]) -> *mut c_void {
        let known = known.load(Ordering::Acquire);
        if !known.is_null() || self.base.load(Ordering::Relaxed) != 0 {
            return known;
        }
        let behind_us = |name: &&CStr| Some(crate::loader::lookup(libc::RTLD_NEXT, name)).filter(|f| !f.is_null());
        names.iter().find_map(behind_us).unwrap_or(core::ptr::null_mut())
    }

    fn uuid_of(&self, handle: c_int) -> Option<Uuid> {
        let names = [c"cuDeviceGetUuid_v2", c"cuDeviceGetUuid"];
        let function: unsafe extern "C" fn(*mut [u8; 16], c_int) -> Code = typed(self.helper(&self.uuid, &names))?;
        let mut bytes = [0u8; 16];
        // SAFETY: the function writes 16 bytes, a CUuuid, and takes a handle that the driver gave.
        let result = unsafe { function(&raw mut bytes, handle) };
        (result == 0).then_some(Uuid(bytes))
    }

    fn pci_of(&self, handle: c_int) -> Option<PciId> {
        let function: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code = typed(self.helper(&self.pci, &[c"cuDeviceGetPCIBusId"]))?;
        let mut text = [0u8; 32];
        // SAFETY: the function writes at most the 32 bytes that it is told of, with a NUL among them.
        let result = unsafe { function(text.as_mut_ptr().cast(), 32, handle) };
        let text = text.split(|c| *c == 0).next().unwrap_or_default();
        PciId::parse(text).filter(|_| result == 0)
    }

    /// What is known about this copy's devices.
    pub fn verdict(&self) -> Verdict {
        match self.verdict.load(Ordering::Acquire) {
            0 => Verdict::Unseen,
            1 => Verdict::Known,
            _ => Verdict::Refused,
        }
    }

    /// Notes what is known now.
    pub fn judge(&self, verdict: Verdict, outside: u64) {
        self.outside.store(outside, Ordering::Release);
        self.verdict.store(verdict as u8, Ordering::Release);
    }

    /// The file that the copy was loaded from.
    pub fn module(&self) -> Option<Module> {
        Module::of(self.real(Hook::Init))
    }

    /// Forgets what was logged, for a forked child: its touches are its own.
    pub fn forget_touches(&self) {
        for touched in [self.settled(), &self.got, &self.used, &self.failed] {
            touched.store(0, Ordering::Relaxed);
        }
    }
}

/// A non-NULL pointer as a function pointer of type `F`.
pub fn typed<F: Copy>(function: *mut c_void) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    if function.is_null() {
        return None;
    }
    // SAFETY: `F` is as large as a pointer, and every caller names the type that the driver's header gives to the name looked up.
    Some(unsafe { core::mem::transmute_copy::<*mut c_void, F>(&function) })
}

/// The real function of a hook as a function pointer of the caller's type.
pub fn typed_real<F: Copy>(slot: &Slot, hook: Hook) -> Option<F> {
    slot.function(hook)
}
