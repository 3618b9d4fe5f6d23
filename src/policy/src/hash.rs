//! A hash for telling texts apart, not for keeping secrets: FNV-1a.

/// Where a hash begins.
pub const START: u64 = 0xcbf2_9ce4_8422_2325;

/// Takes bytes into a hash.
pub fn add(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
