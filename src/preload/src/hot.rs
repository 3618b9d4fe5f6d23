//! What every process touches, side by side at the start of one page, with the state behind it.
//!
//! A start is made of page faults, not of instructions: one costs as much as thousands of these. So what is written in
//! every process lies together, and what is written under a policy begins in the same page.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
use once_cell::race::OnceRef;

use crate::driver::SLOTS;
use crate::reading::Scratch;
use crate::state::State;

/// The small things.
pub struct Hot {
    /// This process's state, once it is decided.
    pub chosen: OnceRef<'static, State>,
    /// Whether somebody decides, or has, in the state of this page.
    pub claimed: AtomicBool,
    /// Whether this library's constructor runs.
    pub before_main: AtomicBool,
    /// Bytes of the texts that are in use.
    pub lent: AtomicUsize,
    /// The C library's dlsym once it has been found; the assembly in [`crate::arch`] jumps through it.
    pub real_dlsym: AtomicPtr<c_void>,
    /// For each slot a bit for each ordinal whose `cuDeviceGet` needs no more thought: allowed, and logged.
    pub settled: [AtomicU64; SLOTS],
}

/// A state that one caller may change: the one that wins `claimed`.
pub struct Room(UnsafeCell<State>);

// SAFETY: the cell is changed only by the one caller that wins `claimed`, before it shares it.
unsafe impl Sync for Room {}

impl Room {
    /// Where the state is.
    pub fn place(&self) -> *mut State {
        self.0.get()
    }
}

/// The page.
#[repr(C, align(4096))]
pub struct Page {
    /// The small things.
    pub hot: Hot,
    room: Room,
}

/// The one page of this process; for the assembly, others call [`hot`] and [`room`].
pub static PAGE: Page = Page {
    hot: Hot {
        chosen: OnceRef::new(),
        claimed: AtomicBool::new(false),
        before_main: AtomicBool::new(false),
        lent: AtomicUsize::new(0),
        real_dlsym: AtomicPtr::new(core::ptr::null_mut()),
        settled: [const { AtomicU64::new(0) }; SLOTS],
    },
    room: Room(UnsafeCell::new(State::idle())),
};

/// An idle state that is never changed: what others are copied from.
static IDLE: Room = Room(UnsafeCell::new(State::idle()));

/// Bytes for the texts that a start writes.
pub const TEXTS: usize = 2048;

/// What is written at a start under a policy: the environment's new texts and the copy of the arguments, and behind
/// them what a decision needs.
#[repr(C, align(4096))]
struct Written {
    texts: UnsafeCell<[MaybeUninit<u8>; TEXTS]>,
    scratch: UnsafeCell<Scratch>,
}

// SAFETY: the texts are lent out in pieces, each once (`environ::room`); the scratch belongs to whoever wins `claimed`.
unsafe impl Sync for Written {}

static WRITTEN: Written =
    Written { texts: UnsafeCell::new([const { MaybeUninit::uninit() }; TEXTS]), scratch: UnsafeCell::new(Scratch::EMPTY) };

/// Where the texts begin.
pub fn texts() -> *mut MaybeUninit<u8> {
    WRITTEN.texts.get().cast()
}

/// Where the scratch is.
pub fn scratch() -> *mut Scratch {
    WRITTEN.scratch.get()
}

/// The small things of this process.
#[inline]
pub fn hot() -> &'static Hot {
    &PAGE.hot
}

/// The state of the page.
pub fn room() -> &'static Room {
    &PAGE.room
}

/// The state of a process that has no policy.
pub fn idle() -> &'static State {
    // SAFETY: nobody changes this one.
    unsafe { &*IDLE.place() }
}
