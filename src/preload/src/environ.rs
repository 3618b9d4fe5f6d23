//! The process's environment as the driver will see it.
//!
//! Values are read from libc's `environ` directly. Before `main`, when nobody else writes it, it is written directly
//! as well: the new text takes the place of the old one, or a longer array that of the old array. That is what
//! setenv does, without the heap that a small program would otherwise never set up and without a look-up. Later
//! libc's own `setenv` does it under its lock, found behind this library: bash exports functions of that name, and a
//! plain call would be lost there (B04).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use cuvisor_policy::buffer::Text;

use crate::hot::{self, TEXTS, hot};
use crate::sys::Memory;

unsafe extern "C" {
    static mut environ: *mut *const c_char;
}

/// The present value of a variable. It stays until the program changes the variable; copy it if a
/// foreign function is called meanwhile.
pub fn get<'a>(name: &str) -> Option<&'a [u8]> {
    get_named(name.as_bytes())
}

/// The same for a name that need not be UTF-8.
pub fn get_named<'a>(name: &[u8]) -> Option<&'a [u8]> {
    find(name).map(CStr::to_bytes)
}

/// The same as a C string.
pub fn get_c<'a>(name: &str) -> Option<&'a CStr> {
    find(name.as_bytes())
}

fn find<'a>(name: &[u8]) -> Option<&'a CStr> {
    let value = entries().find_map(|place| value_at(place, name))?;
    // SAFETY: the value is the end of one of the environment's C strings, so its NUL follows.
    Some(unsafe { CStr::from_ptr(value) })
}

/// The value in an entry, if it is of this variable. The entry is read no further than it agrees with the name:
/// each rule of a policy may ask for a variable, and most entries differ in the first letters.
fn value_at(place: *mut *const c_char, name: &[u8]) -> Option<*const c_char> {
    // SAFETY: the place is one of the array's, which `entries` has found not to be the end.
    let mut next: *const u8 = unsafe { place.read() }.cast();
    for byte in name.iter().chain(b"=") {
        // SAFETY: all bytes before were of the name and so not the NUL that ends the text.
        if unsafe { next.read() } != *byte {
            return None;
        }
        next = next.wrapping_add(1);
    }
    Some(next.cast())
}

/// Each place of the array.
fn entries() -> impl Iterator<Item = *mut *const c_char> {
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
        Some(place)
    })
}

/// The array of the environment's strings.
pub fn start() -> *mut *const c_char {
    // SAFETY: libc has set the variable before the first constructor runs; reading a pointer is one load.
    unsafe { environ }
}

/// Runs this library's constructor: nobody else writes the environment meanwhile.
pub fn before_main(work: impl FnOnce()) {
    hot().before_main.store(true, Ordering::Relaxed);
    work();
    hot().before_main.store(false, Ordering::Relaxed);
}

/// Sets a variable unless it has the value already; says whether it has it now. A value that is in
/// place is never written again: other threads may be reading the environment (C22).
pub fn set(name: &str, value: &[u8]) -> bool {
    set_parts(name, &[value])
}

/// The same for a value in parts.
pub fn set_parts(name: &str, parts: &[&[u8]]) -> bool {
    is_set(name, parts)
        || (if hot().before_main.load(Ordering::Relaxed) { put(name, parts).is_some() } else { set_later(name, parts) })
            && is_set(name, parts)
}

fn is_set(name: &str, parts: &[&[u8]]) -> bool {
    let Some(mut rest) = get(name) else { return false };
    let follows = |part: &&[u8]| rest.strip_prefix(*part).map(|after| rest = after).is_some();
    parts.iter().all(follows) && rest.is_empty()
}

/// Writes a variable when the program may have threads: by libc's setenv, under its lock.
#[inline(never)]
fn set_later(name: &str, parts: &[&[u8]]) -> bool {
    let (mut c_name, mut c_value) = (Text::<32>::of(name.as_bytes()), Text::<4100>::new());
    let whole = parts.iter().all(|part| c_value.push(part));
    if !whole || !c_name.push(b"\0") || !c_value.push(b"\0") {
        return false;
    }
    let Some(setenv) = libc_setenv() else { return false };
    // SAFETY: both arguments end with the NUL just pushed, and setenv copies them.
    unsafe { setenv(c_name.as_bytes().as_ptr().cast(), c_value.as_bytes().as_ptr().cast(), 1) == 0 }
}

/// Writes a variable before `main`.
fn put(name: &str, parts: &[&[u8]]) -> Option<()> {
    let len = parts.iter().try_fold(name.len().checked_add(2)?, |len, part| len.checked_add(part.len()))?;
    let text = room(len)?;
    let (head, end) = ([name.as_bytes(), b"="], [&b"\0"[..]]);
    let mut bytes = head.iter().chain(parts).chain(&end).flat_map(|part| part.iter());
    for place in text.iter_mut() {
        place.write(*bytes.next()?);
    }
    let text: *const c_char = text.as_ptr().cast();
    match entries().find(|place| value_at(*place, name.as_bytes()).is_some()) {
        // SAFETY: the place is one of the array's, which glibc's own setenv writes likewise.
        Some(place) => unsafe { place.write(text) },
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

/// Memory that is never given back, aligned for pointers.
pub fn room(len: usize) -> Option<&'static mut [MaybeUninit<u8>]> {
    let whole = len.checked_next_multiple_of(align_of::<*const c_char>())?;
    let from = hot().lent.fetch_add(whole, Ordering::Relaxed);
    if from.checked_add(whole)? <= TEXTS {
        // SAFETY: the piece lies within the texts and is lent out this once, since the number only grows.
        return Some(unsafe { core::slice::from_raw_parts_mut(hot::texts().wrapping_add(from), len) });
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
