//! The Python stack of the calling thread, through what the running interpreter exports: which import, on
//! which line, came to call the driver. It is asked for only in a trace, never otherwise.
//!
//! Python 3.8, 3.11 and 3.12 export `_Py_DumpTraceback`, which needs no lock and makes no object. It is
//! private, and the others keep it to themselves: there the public functions are used, under the
//! interpreter's lock, which a call from ctypes or Cython may have to wait for.

use core::ffi::{CStr, c_char, c_int, c_void};
use cuvisor_policy::buffer::Text;

use crate::loader;
use crate::sys::{self, File, Memory, c_text};

/// Frames as lines of `file:line`, innermost first.
pub struct Frames {
    text: Text<6144>,
    /// The folder that the program works in: paths below it are shown from there.
    here: Text<512>,
}

/// What is known of the calling thread's Python stack.
#[allow(clippy::large_enum_variant)] // it lives on the stack of a traced call alone, and there is no heap
pub enum Stack {
    /// The program is not Python's, as far as the loader's global scope tells.
    None,
    /// The frames.
    Known(Frames),
    /// It cannot be had, and why.
    Unknown(&'static str),
}

/// Room for what `_Py_DumpTraceback` writes: at most 100 frames, each of two texts that it cuts at 500 characters.
const DUMP_LIMIT: usize = 128 << 10;

/// A Python object, or a thread's state: only ever handed back to Python.
type Object = *mut c_void;

/// A function of the running interpreter under its name, with its type from Python's headers; none where
/// it is not exported.
macro_rules! exported {
    ($name:literal, $type:ty) => {{
        let found = loader::lookup(libc::RTLD_DEFAULT, $name);
        // SAFETY: Python's C API gives the function of this name this type, in every version that has it.
        (!found.is_null()).then(|| unsafe { core::mem::transmute::<*mut c_void, $type>(found) })
    }};
}

/// Reads the stack of the calling thread.
pub fn stack() -> Stack {
    let stack = read();
    // A look-up that failed leaves its text for the program's next dlerror; one that succeeds takes it away.
    loader::lookup(libc::RTLD_DEFAULT, c"cuvisor_marker");
    stack
}

fn read() -> Stack {
    let Some(initialised) = exported!(c"Py_IsInitialized", unsafe extern "C" fn() -> c_int) else { return Stack::None };
    let Some(thread) = exported!(c"PyGILState_GetThisThreadState", unsafe extern "C" fn() -> Object) else { return Stack::None };
    // SAFETY: the function reads one flag, and may be called at any time.
    if unsafe { initialised() } == 0 || is_ending() {
        return Stack::Unknown("Python has not begun or is ending");
    }
    // SAFETY: the interpreter is initialised; the function reads this thread's own state.
    let thread = unsafe { thread() };
    if thread.is_null() {
        return Stack::Unknown("this thread runs no Python");
    }
    let frames = match exported!(c"_Py_DumpTraceback", unsafe extern "C" fn(c_int, Object)) {
        Some(dump) => dumped(dump, thread),
        None => walked(),
    };
    frames.map_or(Stack::Unknown("this Python does not tell its stack"), Stack::Known)
}

/// Whether the interpreter is shutting down: then asking for its lock would end this thread.
fn is_ending() -> bool {
    type Ending = unsafe extern "C" fn() -> c_int;
    let ending = exported!(c"Py_IsFinalizing", Ending).or_else(|| exported!(c"_Py_IsFinalizing", Ending));
    // SAFETY: both names are of one function, which reads one flag.
    ending.is_some_and(|ending| unsafe { ending() } != 0)
}

/// Has Python write the stack into memory of the kernel's, which unlike a pipe never makes it wait.
fn dumped(dump: unsafe extern "C" fn(c_int, Object), thread: Object) -> Option<Frames> {
    let file = File::in_memory(c"cuvisor")?;
    // SAFETY: the descriptor is open, and the state is that of this thread, which is inside this call and so changes nothing.
    file.lent(|fd| unsafe { dump(fd, thread) });
    let mut memory = Memory::map(DUMP_LIMIT)?;
    let frames = file.read_from_start(memory.bytes()).map(|text| {
        let mut frames = Frames::new();
        text.split(|c| *c == b'\n').filter_map(parse).for_each(|(file, line)| frames.push(file, line));
        frames
    });
    memory.release();
    frames
}

/// File and line of `  File "x.py", line 3 in f`.
fn parse(text: &[u8]) -> Option<(&[u8], &[u8])> {
    const MIDDLE: &[u8] = b"\", line ";
    let text = text.strip_prefix(b"  File \"")?;
    let at = text.windows(MIDDLE.len()).rposition(|window| window == MIDDLE)?;
    let rest = text.get(at.checked_add(MIDDLE.len())?..)?;
    let digits = rest.iter().take_while(|c| c.is_ascii_digit()).count();
    Some((text.get(..at)?, rest.get(..digits)?))
}

impl Frames {
    fn new() -> Self {
        Self { text: Text::new(), here: sys::read_link(c"/proc/self/cwd").unwrap_or_default() }
    }

    /// The frames, innermost first.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
        self.text.as_bytes().split(|c| *c == b'\n').filter(|frame| !frame.is_empty())
    }

    /// Appends a frame, but for those of the import machinery itself.
    fn push(&mut self, file: &[u8], line: &[u8]) {
        if file.starts_with(b"<frozen ") || self.text.is_cut() {
            return;
        }
        let mut frame = Text::<640>::of(self.shortened(file));
        if frame.push(b":") && frame.push(line) && frame.push(b"\n") {
            self.text.push(frame.as_bytes());
        }
    }

    /// A path from where packages begin (`torch/cuda/__init__.py`), or from the folder that the program works in.
    fn shortened<'f>(&self, file: &'f [u8]) -> &'f [u8] {
        for folder in [&b"/site-packages/"[..], b"/dist-packages/"] {
            if let Some(at) = file.windows(folder.len()).rposition(|window| window == folder) {
                return file.get(at.saturating_add(folder.len())..).unwrap_or(file);
            }
        }
        let below = file.strip_prefix(self.here.as_bytes()).filter(|_| !self.here.is_empty());
        below.and_then(|rest| rest.strip_prefix(b"/")).unwrap_or(file)
    }
}

/// The functions of the public way.
struct Walk {
    back: unsafe extern "C" fn(Object) -> Object,
    code: unsafe extern "C" fn(Object) -> Object,
    line: unsafe extern "C" fn(Object) -> c_int,
    attribute: unsafe extern "C" fn(Object, *const c_char) -> Object,
    text: unsafe extern "C" fn(Object) -> *const c_char,
    forget: unsafe extern "C" fn(Object),
    clear: unsafe extern "C" fn(),
}

fn walked() -> Option<Frames> {
    let take = exported!(c"PyGILState_Ensure", unsafe extern "C" fn() -> c_int)?;
    let give = exported!(c"PyGILState_Release", unsafe extern "C" fn(c_int))?;
    let current = exported!(c"PyEval_GetFrame", unsafe extern "C" fn() -> Object)?;
    let keep = exported!(c"Py_IncRef", unsafe extern "C" fn(Object))?;
    let pending = exported!(c"PyErr_Occurred", unsafe extern "C" fn() -> Object)?;
    let walk = Walk {
        back: exported!(c"PyFrame_GetBack", unsafe extern "C" fn(Object) -> Object)?,
        code: exported!(c"PyFrame_GetCode", unsafe extern "C" fn(Object) -> Object)?,
        line: exported!(c"PyFrame_GetLineNumber", unsafe extern "C" fn(Object) -> c_int)?,
        attribute: exported!(c"PyObject_GetAttrString", unsafe extern "C" fn(Object, *const c_char) -> Object)?,
        text: exported!(c"PyUnicode_AsUTF8", unsafe extern "C" fn(Object) -> *const c_char)?,
        forget: exported!(c"Py_DecRef", unsafe extern "C" fn(Object))?,
        clear: exported!(c"PyErr_Clear", unsafe extern "C" fn())?,
    };
    // SAFETY: this thread has a state and Python is not ending, so the lock is had sooner or later.
    let taken = unsafe { take() };
    // SAFETY: the lock is held from here to `give`.
    let frames = if unsafe { pending() }.is_null() {
        // SAFETY: as above; the reference is borrowed and NULL where no Python code runs.
        let frame = unsafe { current() };
        // SAFETY: as above; Py_IncRef takes NULL as well.
        unsafe { keep(frame) };
        Some(walk.all(frame))
    } else {
        None
    };
    // SAFETY: the lock is held, and `taken` is what taking it gave.
    unsafe { give(taken) };
    frames
}

impl Walk {
    /// All frames from this one, of which a reference is owned. The interpreter's lock is held.
    fn all(&self, first: Object) -> Frames {
        let mut frames = Frames::new();
        let mut frame = first;
        while !frame.is_null() {
            self.one(&mut frames, frame);
            // SAFETY: `frame` is a frame of which a reference is owned; what comes back is NULL or one more.
            let next = unsafe { (self.back)(frame) };
            // SAFETY: the reference is owned, and `frame` is not used after this.
            unsafe { (self.forget)(frame) };
            frame = next;
        }
        frames
    }

    fn one(&self, frames: &mut Frames, frame: Object) {
        // SAFETY: `frame` is a frame; every frame has a code object, of which this is a reference.
        let code = unsafe { (self.code)(frame) };
        const NAME: &CStr = c"co_filename";
        // SAFETY: `code` is an object, and the name is a C string.
        let name = unsafe { (self.attribute)(code, NAME.as_ptr()) };
        if !name.is_null() {
            // SAFETY: the attribute of a code object is a str; its text lives as long as the reference to it.
            let file = unsafe { (self.text)(name) };
            // SAFETY: `frame` is a frame.
            let line = unsafe { (self.line)(frame) };
            let mut digits = Text::<10>::new();
            digits.push_number(u64::try_from(line).unwrap_or_default());
            frames.push(c_text(file), digits.as_bytes());
            // SAFETY: the reference is owned, and neither it nor its text is used after this.
            unsafe { (self.forget)(name) };
        }
        // SAFETY: no error was pending before the walk, so one that is now (a name with surrogates) is ours.
        unsafe { (self.clear)() };
        // SAFETY: the reference is owned, and `code` is not used after this.
        unsafe { (self.forget)(code) };
    }
}
