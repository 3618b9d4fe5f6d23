//! The system calls that the library makes, each a safe function.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;

/// Makes a system call with libc's `syscall`. Every name that this library imports is looked up at the start
/// of every process, which costs about as much as a system call: so the plain calls share one name.
macro_rules! system_call {
    ($number:ident $(, $argument:expr)*) => {
        libc::syscall(libc::$number $(, $argument)*)
    };
}

mod file;
mod folder;
pub mod landlock;
mod window;

pub use file::{File, Socket, exists, read_file, read_link, read_link_into, working_folder};
pub use folder::{Directory, EntryKind};
pub use window::Window;

/// Room that need not have been filled with anything.
pub type Buffer = [MaybeUninit<u8>];

/// The first bytes of a room; none where it is not so long.
///
/// # Safety
/// They have been written.
unsafe fn written(room: &Buffer, count: usize) -> Option<&[u8]> {
    let text = room.get(..count)?;
    // SAFETY: the caller says that each of these bytes has been written.
    Some(unsafe { core::slice::from_raw_parts(text.as_ptr().cast(), text.len()) })
}

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

/// Writes to stderr.
pub fn complain(bytes: &[u8]) {
    // SAFETY: the pointer and length are those of one slice; a closed descriptor 2 is an error that does not matter.
    unsafe { system_call!(SYS_write, 2, bytes.as_ptr(), bytes.len()) };
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

/// A value in memory of its own that is never given back.
pub fn mapped<T>(value: T) -> Option<&'static mut T> {
    let memory = Memory::map(size_of::<T>())?;
    // SAFETY: the mapping is at least as large as the value, page-aligned, ours, and never given back.
    let place = unsafe { &mut *memory.start().cast::<MaybeUninit<T>>() };
    Some(place.write(value))
}

/// How many threads the process has: `/proc/self/task` has a folder for each, and a folder's links are its `.`, its name
/// and one for each folder in it. 1 where there is no /proc.
pub fn threads() -> u64 {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path is a C string, and `stat` has room for one struct stat.
    let result = unsafe { system_call!(SYS_newfstatat, libc::AT_FDCWD, c"/proc/self/task".as_ptr(), stat.as_mut_ptr(), 0) };
    if result != 0 {
        return 1;
    }
    // SAFETY: the call returned 0, so it has filled the struct.
    let stat = unsafe { stat.assume_init() };
    stat.st_nlink.saturating_sub(2)
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
pub fn at_exit(function: extern "C" fn(*mut c_void)) {
    unsafe extern "C" {
        fn __cxa_atexit(function: extern "C" fn(*mut c_void), argument: *mut c_void, library: *const c_void) -> c_int;
    }
    // SAFETY: the function is code of this library, which is never unloaded; it is called at exit alone, as no library is
    // named. That is what atexit(3) comes to, which the C library has no name for: each library brings code of its own.
    unsafe { __cxa_atexit(function, core::ptr::null_mut(), core::ptr::null()) };
}

/// The bytes of a C string that outlives the call; empty for NULL.
pub fn c_text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: callers pass strings of the loader, the environment or the program that end with NUL and stay while in use.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}
