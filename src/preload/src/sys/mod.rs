//! The system calls that the library makes, each a safe function.

use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;
use cuvisor_policy::buffer::Text;

/// Makes a system call with libc's `syscall`. Every name that this library imports is looked up at the start
/// of every process, which costs about as much as a system call: so the plain calls share one name.
macro_rules! system_call {
    ($number:ident $(, $argument:expr)*) => {
        libc::syscall(libc::$number $(, $argument)*)
    };
}

pub mod landlock;

/// Keeps errno as it is while `work` runs: a program may rely on it across our hooks (C07).
pub fn keep_errno<T>(work: impl FnOnce() -> T) -> T {
    let before = errno();
    let result = work();
    set_errno(before);
    result
}

fn errno() -> c_int {
    // SAFETY: the location is this thread's own and lives as long as the thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above; nothing else of this thread runs meanwhile.
    unsafe { place.read() }
}

fn set_errno(value: c_int) {
    // SAFETY: the location is this thread's own and lives as long as the thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { place.write(value) }
}

/// An open file, closed when dropped.
pub struct File(c_int);

/// What [`File::status`] tells.
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

impl File {
    /// Opens for reading, never waiting for a FIFO's writer.
    ///
    /// # Errors
    /// Gives errno.
    pub fn open(path: &CStr) -> Result<Self, c_int> {
        Self::open_with(path, libc::O_RDONLY | libc::O_NONBLOCK, 0)
    }

    /// Opens with these flags, close-on-exec, never as descriptor 0 to 2: a program that was started
    /// with one of these closed would write into our file (B09).
    ///
    /// # Errors
    /// Gives errno.
    pub fn open_with(path: &CStr, flags: c_int, mode: u32) -> Result<Self, c_int> {
        // SAFETY: `path` is a C string; open has no other requirement.
        let fd = unsafe { system_call!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC | libc::O_NOCTTY, mode) };
        Self::lifted(fd)
    }

    /// Takes a descriptor that was just opened, moved above the standard ones.
    fn lifted(fd: libc::c_long) -> Result<Self, c_int> {
        let fd = c_int::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(errno());
        }
        let low = Self(fd);
        if fd > 2 {
            return Ok(low);
        }
        // SAFETY: `fd` is ours; F_DUPFD_CLOEXEC takes one number.
        let higher = unsafe { system_call!(SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 3) };
        c_int::try_from(higher).ok().filter(|fd| *fd > 2).map(Self).ok_or_else(errno)
    }

    /// A file in memory that nobody else sees (memfd_create(2)); `name` is for /proc only.
    pub fn in_memory(name: &CStr) -> Option<Self> {
        // SAFETY: `name` is a C string.
        let fd = unsafe { system_call!(SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) };
        Self::lifted(fd).ok()
    }

    /// Calls `use_it` with the descriptor, for a foreign function that writes to it.
    pub fn lent(&self, use_it: impl FnOnce(c_int)) {
        use_it(self.0);
    }

    /// Reads the file from its start, as much as there is room for.
    pub fn read_from_start<'b>(&self, room: &'b mut [MaybeUninit<u8>]) -> Option<&'b [u8]> {
        // SAFETY: the descriptor is open; the rest are numbers.
        let at = unsafe { system_call!(SYS_lseek, self.0, 0, libc::SEEK_SET) };
        let len = room.len();
        if at == 0 { self.read_into(room, len) } else { None }
    }

    /// Its type, owner, mode and length.
    pub fn status(&self) -> Option<Status> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the descriptor is open and `stat` has room for one struct stat.
        let result = unsafe { system_call!(SYS_fstat, self.0, stat.as_mut_ptr()) };
        if result != 0 {
            return None;
        }
        // SAFETY: fstat returned 0, so it has filled the struct.
        let stat = unsafe { stat.assume_init() };
        Some(Status {
            is_regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
            uid: stat.st_uid,
            mode: stat.st_mode & 0o7777,
            len: u64::try_from(stat.st_size).unwrap_or_default(),
        })
    }

    /// One read; the number of bytes, 0 at the end.
    pub fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        // SAFETY: the descriptor is open and the pointer and length are those of one slice.
        let count = unsafe { system_call!(SYS_read, self.0, buffer.as_mut_ptr(), buffer.len()) };
        usize::try_from(count).ok()
    }

    /// Reads until the buffer is full or the file ends; the number of bytes.
    pub fn read_all(&self, buffer: &mut [u8]) -> Option<usize> {
        let mut filled = 0usize;
        while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
            match self.read(room)? {
                0 => break,
                count => filled = filled.saturating_add(count),
            }
        }
        Some(filled)
    }

    /// Reads `len` bytes, or as many as the file has, into room that need not be filled with zeros before.
    pub fn read_into<'b>(&self, room: &'b mut [MaybeUninit<u8>], len: usize) -> Option<&'b [u8]> {
        let mut filled = 0usize;
        while let Some(rest) = room.get_mut(filled..len).filter(|rest| !rest.is_empty()) {
            // SAFETY: the descriptor is open; the kernel writes at most as many bytes as the slice has.
            let count = unsafe { system_call!(SYS_read, self.0, rest.as_mut_ptr(), rest.len()) };
            match usize::try_from(count).ok()? {
                0 => break,
                count => filled = filled.saturating_add(count),
            }
        }
        let text = room.get(..filled)?;
        // SAFETY: the kernel has written the first `filled` bytes.
        Some(unsafe { core::slice::from_raw_parts(text.as_ptr().cast(), filled) })
    }

    /// One write; whether all of it was taken.
    pub fn write(&self, bytes: &[u8]) -> bool {
        // SAFETY: the descriptor is open and the pointer and length are those of one slice.
        let count = unsafe { system_call!(SYS_write, self.0, bytes.as_ptr(), bytes.len()) };
        usize::try_from(count) == Ok(bytes.len())
    }

    /// Sets the permission bits, whatever the umask.
    pub fn set_mode(&self, mode: u32) {
        // SAFETY: the descriptor is open.
        unsafe { system_call!(SYS_fchmod, self.0, mode) };
    }
}

/// An open folder.
pub struct Directory(File);

impl Directory {
    /// Opens a folder.
    pub fn open(path: &CStr) -> Option<Self> {
        File::open_with(path, libc::O_RDONLY | libc::O_DIRECTORY, 0).ok().map(Self)
    }

    /// Calls `look` with the name of each entry but `.` and `..`.
    pub fn each(&self, mut look: impl FnMut(&[u8])) {
        self.each_kind(|name, _| look(name.to_bytes()));
    }

    /// The same with the entry's kind, as far as the file system tells it.
    pub fn each_kind(&self, mut look: impl FnMut(&CStr, EntryKind)) {
        let mut buffer = [0u8; 2048];
        loop {
            // SAFETY: the descriptor is open and the pointer and length are those of one array.
            let count = unsafe { system_call!(SYS_getdents64, self.0.0, buffer.as_mut_ptr(), buffer.len()) };
            let filled = usize::try_from(count).unwrap_or_default();
            let mut rest = buffer.get(..filled).unwrap_or_default();
            if rest.is_empty() {
                return;
            }
            while let Some((name, kind, after)) = entry(rest) {
                rest = after;
                if !matches!(name.to_bytes(), b"." | b"..") {
                    look(name, kind);
                }
            }
        }
    }
}

/// What an entry of a folder is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A symbolic link.
    Link,
    /// A regular file.
    File,
    /// Anything else, or not told.
    Other,
}

/// The first entry's name and kind, and what follows it: `struct linux_dirent64` has 19 bytes before the
/// name, of which the 17th and 18th are the entry's length and the 19th its kind (getdents64(2)).
fn entry(entries: &[u8]) -> Option<(&CStr, EntryKind, &[u8])> {
    let len = usize::from(u16::from_ne_bytes(*entries.get(16..18)?.first_chunk()?));
    let kind = match *entries.get(18)? {
        libc::DT_LNK => EntryKind::Link,
        libc::DT_REG => EntryKind::File,
        _ => EntryKind::Other,
    };
    let name = CStr::from_bytes_until_nul(entries.get(19..len)?).ok()?;
    Some((name, kind, entries.get(len..)?))
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and is not used after this.
        unsafe { system_call!(SYS_close, self.0) };
    }
}

/// A socket for one datagram, closed when dropped.
pub struct Socket(File);

impl Socket {
    /// A local socket that never waits, on no standard descriptor.
    pub fn datagram() -> Option<Self> {
        // SAFETY: socket takes three numbers.
        let fd = unsafe { system_call!(SYS_socket, libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        File::lifted(fd).ok().map(Self)
    }

    /// Sends the parts as one datagram to the socket at `path`; whether it was taken.
    pub fn send(&self, path: &CStr, parts: &[&[u8]; 6]) -> bool {
        let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
        let name = path.to_bytes_with_nul();
        if name.len() > address.sun_path.len() {
            return false;
        }
        address.sun_path.iter_mut().zip(name).for_each(|(place, byte)| *place = byte.cast_signed());
        let mut pieces = parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
        // SAFETY: a msghdr of zeros is valid.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = libc::socklen_t::try_from(size_of::<libc::sockaddr_un>()).unwrap_or_default();
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len();
        // SAFETY: the descriptor is open; the address and the pieces outlive the call, which only reads them.
        let sent = unsafe { system_call!(SYS_sendmsg, self.0.0, &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        usize::try_from(sent) == Ok(parts.iter().map(|part| part.len()).sum())
    }
}

/// Writes to stderr.
pub fn complain(bytes: &[u8]) {
    // SAFETY: the pointer and length are those of one slice; a closed descriptor 2 is an error that does not matter.
    unsafe { system_call!(SYS_write, 2, bytes.as_ptr(), bytes.len()) };
}

/// The whole of a small file, as much as fits.
pub fn read_file<const N: usize>(path: &CStr) -> Option<Text<N>> {
    let file = File::open(path).ok()?;
    let mut text = Text::<N>::new();
    let len = file.read_all(text.room())?;
    text.set_len(len);
    Some(text)
}

/// The same into a text that is there already; it is empty where the file cannot be read.
pub fn read_file_into<const N: usize>(path: &CStr, text: &mut Text<N>) {
    let len = File::open(path).ok().and_then(|file| file.read_all(text.room()));
    text.set_len(len.unwrap_or_default());
}

/// Whether a file of this name exists.
pub fn exists(path: &CStr) -> bool {
    // SAFETY: `path` is a C string.
    unsafe { system_call!(SYS_access, path.as_ptr(), libc::F_OK) == 0 }
}

/// Where a symbolic link points.
pub fn read_link<const N: usize>(path: &CStr) -> Option<Text<N>> {
    let mut text = Text::<N>::new();
    read_link_into(path, &mut text);
    (!text.is_empty()).then_some(text)
}

/// The same into a text that is there already; it is empty where there is no link.
pub fn read_link_into<const N: usize>(path: &CStr, text: &mut Text<N>) {
    // SAFETY: `path` is a C string, and the pointer and length are those of one array.
    let len = unsafe { system_call!(SYS_readlink, path.as_ptr(), text.room().as_mut_ptr(), N) };
    text.set_len(usize::try_from(len).unwrap_or_default());
}

/// Memory of its own from the kernel, zeroed; it is never given back unless [`Memory::release`] is called.
pub struct Memory {
    start: *mut u8,
    len: usize,
}

impl Memory {
    /// Asks for `len` bytes.
    pub fn map(len: usize) -> Option<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: an anonymous mapping at a place of the kernel's choice touches nothing that exists.
        let start = unsafe { system_call!(SYS_mmap, 0usize, len, protection, flags, -1, 0) };
        let start = usize::try_from(start).ok()?;
        Some(Self { start: core::ptr::with_exposed_provenance_mut(start), len })
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the mapping is ours alone, `len` long, and borrowed through `self`.
        unsafe { core::slice::from_raw_parts_mut(self.start.cast(), self.len) }
    }

    /// Where it begins.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Gives it back.
    pub fn release(self) {
        // SAFETY: the mapping is ours, and `self` is consumed, so no reference into it is left.
        unsafe { system_call!(SYS_munmap, self.start, self.len) };
    }
}

/// Whether the process runs with more rights than its user (set-user-ID and the like), so that its
/// environment must not be trusted (getauxval(3), B15).
pub fn is_privileged() -> bool {
    // SAFETY: getauxval only reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Address of the kernel's random bytes for this process: they lie above the environment on the stack.
pub fn stack_top() -> usize {
    // SAFETY: getauxval only reads the auxiliary vector.
    usize::try_from(unsafe { libc::getauxval(libc::AT_RANDOM) }).unwrap_or_default()
}

macro_rules! identity {
    ($($(#[$doc:meta])* $name:ident: $number:ident -> $type:ty;)*) => {
        $(
            $(#[$doc])*
            pub fn $name() -> $type {
                // SAFETY: the call takes nothing, changes nothing and cannot fail.
                let number = unsafe { system_call!($number) };
                <$type>::try_from(number).unwrap_or_default()
            }
        )*
    };
}

identity! {
    /// Process id, as this process's own namespace numbers it.
    process: SYS_getpid -> i32;
    /// The parent's process id.
    parent: SYS_getppid -> i32;
    /// Thread id.
    thread: SYS_gettid -> i32;
    /// Real user id.
    user: SYS_getuid -> u32;
    /// Effective user id.
    effective_user: SYS_geteuid -> u32;
    /// Effective group id.
    effective_group: SYS_getegid -> u32;
}

/// The supplementary groups, as many as fit.
pub fn groups(buffer: &mut [u32]) -> &[u32] {
    let room = c_int::try_from(buffer.len()).unwrap_or_default();
    // SAFETY: the pointer and count are those of one slice.
    let count = unsafe { system_call!(SYS_getgroups, room, buffer.as_mut_ptr()) };
    buffer.get(..usize::try_from(count).unwrap_or_default()).unwrap_or_default()
}

/// Seconds and nanoseconds of the calendar clock.
pub fn now() -> (u64, u64) {
    clock(libc::CLOCK_REALTIME)
}

/// Microseconds of the clock that is never set.
pub fn ticks() -> u64 {
    let (seconds, nanos) = clock(libc::CLOCK_MONOTONIC);
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000)
}

/// Microseconds since the machine started, sleep included: the clock of /proc/pid/stat.
pub fn since_boot() -> u64 {
    let (seconds, nanos) = clock(libc::CLOCK_BOOTTIME);
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000)
}

fn clock(id: libc::clockid_t) -> (u64, u64) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` has room for one timespec.
    unsafe { system_call!(SYS_clock_gettime, id, &raw mut time) };
    (u64::try_from(time.tv_sec).unwrap_or_default(), u64::try_from(time.tv_nsec).unwrap_or_default())
}

/// Waits for a signal.
pub fn pause() {
    // SAFETY: pause takes nothing and only waits.
    unsafe { system_call!(SYS_pause) };
}

/// The most bytes a file of this process may have; none where there is no limit.
pub fn file_size_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` has room for one struct rlimit.
    let result = unsafe { system_call!(SYS_getrlimit, libc::RLIMIT_FSIZE, &raw mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Calls `function` when the process exits in the ordinary way.
pub fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function is code of this library, which a preloaded library never leaves.
    unsafe { libc::atexit(function) };
}

/// The bytes of a C string that outlives the call; empty for NULL.
pub fn c_text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: callers pass strings of the loader, the environment or the program that end with NUL and stay while in use.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}
