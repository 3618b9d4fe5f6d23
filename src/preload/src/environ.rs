//! The process's environment as the driver will see it.
//!
//! Values are read from libc's `environ` directly. Before `main`, when nobody else writes it, it is written directly
//! as well: the new text takes the place of the old one, or a longer array that of the old array. That is what
//! setenv does, without the heap that a small program would otherwise never set up and without a look-up. Later
//! libc's own `setenv` does it under its lock, found behind this library: bash exports functions of that name, and a
//! plain call would be lost there (B04).

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use cuvisor_policy::buffer::Text;

use crate::sys::Memory;

unsafe extern "C" {
    static mut environ: *mut *const c_char;
}

/// The present value of a variable. It stays until the program changes the variable; copy it if a
/// foreign function is called meanwhile.
pub fn get<'a>(name: &str) -> Option<&'a [u8]> {
    entries().find_map(|(_, entry)| value_of(name, entry))
}

fn value_of<'a>(name: &str, entry: &'a [u8]) -> Option<&'a [u8]> {
    entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// Each place of the array with its text.
fn entries<'a>() -> impl Iterator<Item = (*mut *const c_char, &'a [u8])> {
    let mut next = start();
    core::iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        // SAFETY: `environ` is an array that ends with NULL, and the loop stops there. As with getenv,
        // a program that changes its environment meanwhile in another thread breaks this.
        let entry = unsafe { next.read() };
        if entry.is_null() {
            return None;
        }
        let place = next;
        next = next.wrapping_add(1);
        Some((place, crate::sys::c_text(entry)))
    })
}

/// The array of the environment's strings.
pub fn start() -> *mut *const c_char {
    // SAFETY: libc has set the variable before the first constructor runs; reading a pointer is one load.
    unsafe { environ }
}

static BEFORE_MAIN: AtomicBool = AtomicBool::new(false);

/// Runs this library's constructor: nobody else writes the environment meanwhile.
pub fn before_main(work: impl FnOnce()) {
    BEFORE_MAIN.store(true, Ordering::Relaxed);
    work();
    BEFORE_MAIN.store(false, Ordering::Relaxed);
}

/// Sets a variable unless it has the value already; says whether it has it now. A value that is in
/// place is never written again: other threads may be reading the environment (C22).
pub fn set(name: &str, value: &[u8]) -> bool {
    if get(name) == Some(value) {
        return true;
    }
    if BEFORE_MAIN.load(Ordering::Relaxed) {
        return put(name, value).is_some() && get(name) == Some(value);
    }
    let (mut c_name, mut c_value) = (Text::<32>::of(name.as_bytes()), Text::<4100>::of(value));
    if !c_name.push(b"\0") || !c_value.push(b"\0") {
        return false;
    }
    let Some(setenv) = libc_setenv() else { return false };
    // SAFETY: both arguments end with the NUL just pushed, and setenv copies them.
    let result = unsafe { setenv(c_name.as_bytes().as_ptr().cast(), c_value.as_bytes().as_ptr().cast(), 1) };
    result == 0 && get(name) == Some(value)
}

/// Writes a variable before `main`.
fn put(name: &str, value: &[u8]) -> Option<()> {
    let text = room(name.len().checked_add(value.len())?.checked_add(2)?)?;
    let mut bytes = name.bytes().chain([b'=']).chain(value.iter().copied()).chain([0]);
    for place in text.iter_mut() {
        place.write(bytes.next()?);
    }
    let text: *const c_char = text.as_ptr().cast();
    match entries().find(|(_, entry)| value_of(name, entry).is_some()) {
        // SAFETY: the place is one of the array's, which glibc's own setenv writes likewise.
        Some((place, _)) => unsafe { place.write(text) },
        None => append(text)?,
    }
    Some(())
}

/// Makes an array that is longer by one text the environment. The old one stays as it is, so who reads it still can.
fn append(text: *const c_char) -> Option<()> {
    let count = entries().count();
    let len = count.checked_add(2)?;
    let bytes = room(len.checked_mul(size_of::<*const c_char>())?)?;
    let array: *mut *const c_char = bytes.as_mut_ptr().cast();
    let old = start();
    for at in 0..count {
        // SAFETY: the old array has `count` texts.
        let entry = unsafe { old.wrapping_add(at).read() };
        // SAFETY: the new one has room for two more, and is aligned for pointers.
        unsafe { array.wrapping_add(at).write(entry) };
    }
    // SAFETY: as above.
    unsafe { array.wrapping_add(count).write(text) };
    // SAFETY: as above.
    unsafe { array.wrapping_add(count.saturating_add(1)).write(core::ptr::null()) };
    // SAFETY: before `main` this library's constructor is the only writer; the new array is complete.
    unsafe { environ = array };
    Some(())
}

/// What is written before `main` lies here, in one page, as far as it fits.
#[repr(C, align(4096))]
struct Page(UnsafeCell<[MaybeUninit<u8>; 4096]>);

// SAFETY: the page is lent out in pieces by `room`, each once, and `room` is called before `main` only.
unsafe impl Sync for Page {}

static PAGE: Page = Page(UnsafeCell::new([MaybeUninit::uninit(); 4096]));
static LENT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);

/// Memory that is never given back, aligned for pointers.
fn room(len: usize) -> Option<&'static mut [MaybeUninit<u8>]> {
    let whole = len.checked_next_multiple_of(align_of::<*const c_char>())?;
    let from = LENT.fetch_add(whole, Ordering::Relaxed);
    if from.checked_add(whole)? <= 4096 {
        let start: *mut MaybeUninit<u8> = PAGE.0.get().cast();
        // SAFETY: the piece lies within the page and is lent out this once, since the number only grows.
        return Some(unsafe { core::slice::from_raw_parts_mut(start.wrapping_add(from), len) });
    }
    let memory = Memory::map(len)?;
    // SAFETY: the mapping is `len` long, and is never given back.
    Some(unsafe { core::slice::from_raw_parts_mut(memory.start().cast(), len) })
}

type Setenv = unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> c_int;

fn libc_setenv() -> Option<Setenv> {
    let found = crate::loader::lookup(libc::RTLD_NEXT, c"setenv");
    if found.is_null() {
        return None;
    }
    // SAFETY: the next `setenv` behind this library is libc's, which has this type.
    Some(unsafe { core::mem::transmute::<*mut c_void, Setenv>(found) })
}
