//! Why a policy file is refused before it is read. The library and the command refuse the same files in the same words.

use crate::names::POLICY_LIMIT;

/// A reason, and what to do about it.
pub type Refusal = (&'static str, &'static str);

/// It is there and this user may not read it.
pub const FORBIDDEN: Refusal = ("the policy cannot be read by this user", "make it readable by everybody: chmod 0644");

/// It is longer than [`POLICY_LIMIT`].
pub const TOO_LARGE: Refusal = ("the policy is larger than 4 MiB", "join rules that give the same devices");

/// What fstat(2) tells of a file.
pub struct Status {
    /// A regular file.
    pub is_regular: bool,
    /// Owner.
    pub uid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Length in bytes.
    pub len: u64,
}

/// Why a file is no policy; none where it may be one. The system's own must be root's alone to change.
pub fn of(status: &Status, is_system: bool) -> Option<Refusal> {
    if !status.is_regular {
        Some(("the policy is no regular file", "name a file"))
    } else if !usize::try_from(status.len).is_ok_and(|len| len <= POLICY_LIMIT) {
        Some(TOO_LARGE)
    } else if is_system && (status.uid != 0 || status.mode & 0o022 != 0) {
        Some(("the policy can be changed by others than root", "chown root:root and chmod 0644"))
    } else {
        None
    }
}
