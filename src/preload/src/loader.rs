//! The dynamic loader: look-ups past our own `dlsym`, and which library an address lies in.

use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use cuvisor_policy::buffer::Text;
use libloading::os::unix::Library;

use crate::hot::hot;
use crate::sys::c_text;
use crate::weak;

/// The library that an address lies in.
pub struct Module {
    /// Where it is mapped.
    pub base: usize,
    /// The name under which it was loaded.
    pub name: Text<512>,
}

impl Module {
    /// Finds the library of an address. Leaves dlerror alone.
    pub fn of(address: *const c_void) -> Option<Self> {
        if !weak::has_loader() {
            return None;
        }
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: the function is there; it takes any address, and `info` has room for what it writes.
        let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
        if found == 0 {
            return None;
        }
        // SAFETY: the struct was zeroed, which is valid for pointers, and dladdr has filled it.
        let info = unsafe { info.assume_init() };
        Some(Self { base: info.dli_fbase.addr(), name: Text::of(c_text(info.dli_fname)) })
    }

    /// The library opened once more, for look-ups in it; closed when dropped. None for the program
    /// itself, and for a library in another namespace of the loader.
    pub fn open(&self) -> Option<Opened> {
        let mut name = self.name;
        name.push(b"\0").then(|| Opened::loaded(name.as_str()))?
    }

    /// The name without its folders.
    pub fn file_name(&self) -> &[u8] {
        self.name.as_bytes().rsplit(|c| *c == b'/').next().unwrap_or_default()
    }
}

/// `dlsym` of the C library itself, past this library's own and every other preload's.
pub fn real_dlsym() -> Option<Lookup> {
    let known = &hot().real_dlsym;
    let mut found = known.load(Ordering::Acquire);
    if found.is_null() {
        // Every x86-64 glibc has this version of the name: since 2.34 in libc, before in libdl. Other preloads' carry no version.
        if !weak::has_loader() {
            return None;
        }
        // SAFETY: the function is there, and both arguments are C strings.
        found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), crate::arch::DLSYM_VERSION.as_ptr()) };
        known.store(found, Ordering::Release);
    }
    if found.is_null() {
        return None;
    }
    // SAFETY: the pointer is the C library's dlsym, which has this type.
    Some(unsafe { core::mem::transmute::<*mut c_void, Lookup>(found) })
}

/// The type of dlsym.
pub type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// A loaded library, opened once more for look-ups in it and closed when dropped.
pub struct Opened(*mut c_void);

impl Opened {
    /// Opens a library that is loaded; `name` ends with NUL.
    pub fn loaded(name: &str) -> Option<Self> {
        if !weak::has_loader() {
            return None;
        }
        // SAFETY: the loader's functions are there; RTLD_NOLOAD opens only what is loaded already, so no initialiser runs.
        let library = unsafe { Library::open(Some(name), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        library.ok().map(|library| Self(library.into_raw()))
    }

    /// Looks a name up in the library and those that it needs, past our own `dlsym`.
    pub fn lookup(&self, name: &CStr) -> *mut c_void {
        lookup(self.0, name)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the handle came from `Library::into_raw` and is not used after this.
        drop(unsafe { Library::from_raw(self.0) });
    }
}

/// Looks a name up as if this library had asked.
pub fn lookup(handle: *mut c_void, name: &CStr) -> *mut c_void {
    match real_dlsym() {
        // SAFETY: the handle comes from the loader or from a program that asks with it itself, and `name` is a C string.
        Some(dlsym) => unsafe { dlsym(handle, name.as_ptr()) },
        None => core::ptr::null_mut(),
    }
}
