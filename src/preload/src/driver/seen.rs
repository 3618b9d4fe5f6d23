//! A device that a copy of the driver shows, in memory that all threads share.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};
use cuvisor_policy::device::{PciId, Uuid};
use cuvisor_policy::guard::Seen;

/// A [`Seen`] that threads may write at once: they all write what the driver told them, which is the same.
pub struct SeenCell {
    handle: AtomicI32,
    uuid: [AtomicU64; 2],
    pci: AtomicU64,
    known: AtomicU8,
}

impl SeenCell {
    /// Nothing.
    pub const fn new() -> Self {
        Self { handle: AtomicI32::new(0), uuid: [const { AtomicU64::new(0) }; 2], pci: AtomicU64::new(0), known: AtomicU8::new(0) }
    }

    /// Writes what the driver told.
    pub fn store(&self, handle: c_int, uuid: Option<Uuid>, pci: Option<PciId>) {
        self.handle.store(handle, Ordering::Relaxed);
        let bytes = uuid.map_or([0; 16], |u| u.0);
        for (place, half) in self.uuid.iter().zip(bytes.as_chunks::<8>().0) {
            place.store(u64::from_be_bytes(*half), Ordering::Relaxed);
        }
        let packed =
            pci.map_or(0, |p| u64::from(p.domain) << 32 | u64::from(p.bus) << 16 | u64::from(p.device) << 8 | u64::from(p.function));
        self.pci.store(packed, Ordering::Relaxed);
        self.known.store(u8::from(uuid.is_some()) | u8::from(pci.is_some()) << 1, Ordering::Release);
    }

    /// Reads it.
    pub fn load(&self, ordinal: c_int) -> Seen {
        let known = self.known.load(Ordering::Acquire);
        let mut bytes = [0u8; 16];
        for (chunk, half) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&self.uuid) {
            *chunk = half.load(Ordering::Relaxed).to_be_bytes();
        }
        let packed = self.pci.load(Ordering::Relaxed).to_be_bytes();
        let [d3, d2, d1, d0, _, bus, device, function] = packed;
        Seen {
            ordinal,
            handle: self.handle.load(Ordering::Relaxed),
            uuid: (known & 1 != 0).then_some(Uuid(bytes)),
            pci: (known & 2 != 0).then_some(PciId { domain: u32::from_be_bytes([d3, d2, d1, d0]), bus, device, function }),
        }
    }
}
