//! Landlock's three system calls (landlock(7)); the numbers are those of linux/landlock.h.

use core::ffi::{CStr, c_int};

use super::{Directory, EntryKind, File, errno};

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;
const ACCESS_FS_WRITE_FILE: u64 = 1 << 1;
const ACCESS_FS_REFER: u64 = 1 << 13;
const ACCESS_FS_IOCTL_DEV: u64 = 1 << 15;
/// The seal holds for all threads of the process, from ABI 8 on.
const RESTRICT_SELF_TSYNC: u32 = 1 << 3;

/// The version of the kernel's Landlock; below 1 where there is none.
pub fn abi() -> i32 {
    // SAFETY: with this flag the call takes no attributes and only tells a number.
    let abi = unsafe { system_call!(SYS_landlock_create_ruleset, 0usize, 0usize, CREATE_RULESET_VERSION) };
    i32::try_from(abi).unwrap_or_default()
}

/// Whether a ruleset denies commands to devices; before it denies to open files for writing.
pub fn denies_commands(abi: i32) -> bool {
    abi >= 5
}

/// A Landlock ruleset that takes one right, but for what is allowed.
pub struct Ruleset {
    file: File,
    right: u64,
    /// What a folder is allowed.
    in_folders: u64,
    abi: i32,
    opened: Opened,
}

/// Descriptors that are done with. They are closed in batches: the kernel hands out the lowest free numbers, so a
/// batch is a few runs of neighbours, each of which one call closes.
struct Opened {
    numbers: [c_int; Self::MOST],
    count: usize,
}

impl Opened {
    /// A process's first table of descriptors has 64 places; a batch is to fit beside what the program has open.
    const MOST: usize = 32;

    fn add(&mut self, fd: c_int) {
        if self.count == Self::MOST {
            self.close();
        }
        if let Some(place) = self.numbers.get_mut(self.count) {
            *place = fd;
            self.count = self.count.saturating_add(1);
        }
    }

    fn close(&mut self) {
        let numbers = self.numbers.get(..self.count).unwrap_or_default();
        for run in numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                // SAFETY: every number from the first to the last of the run was opened here and is used no more.
                unsafe { system_call!(SYS_close_range, *first, *last, 0) };
            }
        }
        self.count = 0;
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.close();
    }
}

/// `struct landlock_path_beneath_attr`, which is packed.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: c_int,
}

impl Ruleset {
    /// A ruleset without rules: to send commands to devices, or, before ABI 5, to open files for writing. Every ruleset
    /// forbids to rename and link a file into another folder, whether it says so or not; so that is handled too, and
    /// allowed with the rest, from ABI 2 on, which has a name for it.
    pub fn new(abi: i32) -> Option<Self> {
        let right = if denies_commands(abi) { ACCESS_FS_IOCTL_DEV } else { ACCESS_FS_WRITE_FILE };
        let in_folders = if abi >= 2 { right | ACCESS_FS_REFER } else { right };
        // SAFETY: the attributes are one u64, the first member of landlock_ruleset_attr; the size says so.
        let fd = unsafe { system_call!(SYS_landlock_create_ruleset, &raw const in_folders, size_of::<u64>(), 0) };
        let opened = Opened { numbers: [0; Opened::MOST], count: 0 };
        File::lifted(fd).ok().map(|file| Self { file, right, in_folders, abi, opened })
    }

    /// Whether it denies commands to devices.
    pub fn denies_commands(&self) -> bool {
        denies_commands(self.abi)
    }

    /// Whether an entry of this kind needs a rule to stay as it was: what a link points to has its own
    /// place, and commands to devices do not concern a regular file.
    pub fn concerns(&self, kind: EntryKind) -> bool {
        match kind {
            EntryKind::Link => false,
            EntryKind::File => !self.denies_commands(),
            EntryKind::Folder | EntryKind::Other | EntryKind::Unknown => true,
        }
    }

    /// Closes what [`Ruleset::allow`] has opened, so that a folder that is opened next does not lie in the middle of a run.
    pub fn settle(&mut self) {
        self.opened.close();
    }

    /// Allows an entry of a folder and all beneath it what it is allowed without the seal. A symbolic link is left out, since what it
    /// points to has its own place; so is what the kernel has no rule for (a pipe behind `/dev/stdout`).
    ///
    /// The descriptor may be one of the standard ones where the program has closed these: it stands for a path
    /// only, and whoever writes to it meanwhile gets the EBADF that a closed one gives.
    pub fn allow(&mut self, folder: &Directory, name: &CStr, kind: EntryKind) {
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the folder is open, and `name` is a C string.
        let fd = unsafe { system_call!(SYS_openat, folder.0.0, name.as_ptr(), flags) };
        let Ok(fd @ 0..) = c_int::try_from(fd) else { return };
        let is_allowed = |allowed| {
            let rule = PathBeneath { allowed, parent: fd };
            // SAFETY: both descriptors are open, and `rule` is the struct that this type of rule takes.
            unsafe { system_call!(SYS_landlock_add_rule, self.file.0, RULE_PATH_BENEATH, &raw const rule, 0) == 0 }
        };
        // What is no folder is not allowed what only folders are (EINVAL).
        if !(matches!(kind, EntryKind::Folder | EntryKind::Unknown) && is_allowed(self.in_folders)) {
            is_allowed(self.right);
        }
        self.opened.add(fd);
    }

    /// Seals this thread, and where the kernel can, all threads; how many others stay as they were, or none where it
    /// could not. The promise never to gain rights again is made only where the process lacks CAP_SYS_ADMIN: it costs
    /// sudo and ping.
    pub fn restrict(&self) -> Option<u64> {
        if self.abi >= 8 {
            match self.restrict_with(RESTRICT_SELF_TSYNC) {
                Ok(()) => return Some(0),
                // A kernel that numbers its flags otherwise seals at least this thread.
                Err(libc::EINVAL) => {}
                Err(_) => return None,
            }
        }
        self.restrict_with(0).ok().map(|()| super::threads().saturating_sub(1))
    }

    fn restrict_with(&self, flags: u32) -> Result<(), c_int> {
        let seal = || {
            // SAFETY: the descriptor is that of a ruleset.
            let result = unsafe { system_call!(SYS_landlock_restrict_self, self.file.0, flags) };
            if result == 0 { Ok(()) } else { Err(errno()) }
        };
        match seal() {
            Err(libc::EPERM) => {
                // SAFETY: the call takes numbers only.
                let promised = unsafe { system_call!(SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
                if promised == 0 { seal() } else { Err(libc::EPERM) }
            }
            other => other,
        }
    }
}
