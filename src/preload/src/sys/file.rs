//! Files, folders and sockets.

use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use cuvisor_policy::buffer::Text;
use cuvisor_policy::file::refusal::Status;

use super::{Buffer, errno, written};

/// An open file, closed when dropped.
pub struct File(pub(super) c_int);

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
        Self::open_from(libc::AT_FDCWD, path, flags, mode)
    }

    /// The same from an open folder on, or `AT_FDCWD`.
    pub(super) fn open_from(folder: c_int, path: &CStr, flags: c_int, mode: u32) -> Result<Self, c_int> {
        // SAFETY: `path` is a C string; open has no other requirement.
        let fd = unsafe { system_call!(SYS_openat, folder, path.as_ptr(), flags | libc::O_CLOEXEC | libc::O_NOCTTY, mode) };
        Self::lifted(fd)
    }

    /// Takes a descriptor that was just opened, moved above the standard ones.
    pub(super) fn lifted(fd: libc::c_long) -> Result<Self, c_int> {
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

    /// One read, into room that need not be filled with zeros before.
    pub fn read_once<'b>(&self, room: &'b mut Buffer) -> Option<&'b [u8]> {
        // SAFETY: the descriptor is open; the kernel writes at most as many bytes as the room has.
        let count = unsafe { system_call!(SYS_read, self.0, room.as_mut_ptr(), room.len()) };
        // SAFETY: the kernel has written so many bytes, or says an error.
        unsafe { written(room, usize::try_from(count).ok()?) }
    }

    /// Reads until the room is full or the file ends. The room need not be filled with zeros before.
    pub fn read_into<'b>(&self, room: &'b mut Buffer) -> Option<&'b [u8]> {
        let mut filled = 0usize;
        while let Some(rest) = room.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            // SAFETY: the descriptor is open; the kernel writes at most as many bytes as the slice has.
            let count = unsafe { system_call!(SYS_read, self.0, rest.as_mut_ptr(), rest.len()) };
            match usize::try_from(count).ok()? {
                0 => break,
                count => filled = filled.saturating_add(count),
            }
        }
        // SAFETY: the kernel has written the first `filled` bytes.
        unsafe { written(room, filled) }
    }

    /// The same from the file's beginning.
    pub fn read_from_start<'b>(&self, room: &'b mut Buffer) -> Option<&'b [u8]> {
        // SAFETY: the descriptor is open; the rest are numbers.
        let at = unsafe { system_call!(SYS_lseek, self.0, 0, libc::SEEK_SET) };
        if at == 0 { self.read_into(room) } else { None }
    }

    /// One read from a place of its own; the number of bytes, 0 at the end.
    pub fn read_at(&self, offset: usize, buffer: &mut [u8]) -> Option<usize> {
        // SAFETY: the descriptor is open and the pointer and length are those of one slice.
        let count = unsafe { system_call!(SYS_pread64, self.0, buffer.as_mut_ptr(), buffer.len(), offset) };
        usize::try_from(count).ok()
    }

    /// One write; whether all of it was taken.
    pub fn write(&self, bytes: &[u8]) -> bool {
        // SAFETY: the descriptor is open and the pointer and length are those of one slice.
        let count = unsafe { system_call!(SYS_write, self.0, bytes.as_ptr(), bytes.len()) };
        usize::try_from(count) == Ok(bytes.len())
    }

    /// Whether a device takes commands: false where they are denied, none where that cannot be seen. The command is the one that
    /// asks a terminal for its settings, which others answer with ENOTTY.
    pub fn takes_commands(&self) -> Option<bool> {
        let mut settings = MaybeUninit::<[u8; 256]>::uninit();
        // SAFETY: the descriptor is open; the kernel writes a struct termios, of 36 bytes, or nothing.
        let result = unsafe { system_call!(SYS_ioctl, self.0, libc::TCGETS, settings.as_mut_ptr()) };
        match if result == 0 { libc::ENOTTY } else { errno() } {
            libc::EACCES => Some(false),
            libc::ENOTTY => Some(true),
            _ => None,
        }
    }

    /// Sets the permission bits, whatever the umask.
    pub fn set_mode(&self, mode: u32) {
        // SAFETY: the descriptor is open.
        unsafe { system_call!(SYS_fchmod, self.0, mode) };
    }
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

/// What a small file of the kernel says, as much as there is room for, in the one read that such a file needs: those of /proc
/// that are about one thing give all of it at once.
pub fn read_file<'b>(path: &CStr, room: &'b mut Buffer) -> Option<&'b [u8]> {
    File::open(path).ok()?.read_once(room)
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

/// The working folder (getcwd(2)), into a text that is there already; empty where it has no path or one that does not fit.
pub fn working_folder<const N: usize>(text: &mut Text<N>) {
    // SAFETY: the pointer and length are those of one array.
    let len = unsafe { system_call!(SYS_getcwd, text.room().as_mut_ptr(), N) };
    // The length counts the NUL.
    text.set_len(usize::try_from(len).unwrap_or_default().saturating_sub(1));
}
