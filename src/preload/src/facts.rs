//! Who this process is, read when asked.

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use cuvisor_policy::buffer::Text;
use cuvisor_policy::rule::Facts;

use crate::environ;
use crate::sys::{self, Buffer, File, Window};

/// The facts that rules ask for; each is read at its first use.
pub struct Process<'s> {
    texts: &'s mut Texts,
    variable: Variable,
}

/// The variable that was asked for last: rules that stand one behind another often ask for the same one.
struct Variable {
    /// Empty before the first.
    name: Text<64>,
    value: Option<&'static [u8]>,
}

/// The larger facts. The readers stand apart, each with its buffers: a frame of several pages costs a page fault each,
/// whether it is used or not.
pub struct Texts {
    exe: Fact<1024>,
    command_line: Fact<4096>,
    cgroup: Fact<2048>,
}

/// A text that may not have been read yet.
struct Fact<const N: usize> {
    known: bool,
    text: Text<N>,
}

impl<const N: usize> Fact<N> {
    fn get(&mut self, read: impl FnOnce(&mut Text<N>)) -> &[u8] {
        if !core::mem::replace(&mut self.known, true) {
            read(&mut self.text);
        }
        self.text.as_bytes()
    }
}

impl Texts {
    /// Nothing read yet.
    pub const UNKNOWN: Self = Self {
        exe: Fact { known: false, text: Text::new() },
        command_line: Fact { known: false, text: Text::new() },
        cgroup: Fact { known: false, text: Text::new() },
    };
}

impl<'s> Process<'s> {
    /// This process, with room for what is read of it.
    pub fn new(texts: &'s mut Texts) -> Self {
        Self { texts, variable: Variable { name: Text::new(), value: None } }
    }
}

/// The most bytes of a line that are looked at.
const LINE_LIMIT: usize = 4096;

/// The most bytes of the arguments that are kept.
const ARGUMENTS_LIMIT: usize = 4096;

/// The arguments as at exec time, each with its NUL, in memory of their own; whether some did not fit.
#[derive(Clone, Copy)]
pub struct Arguments {
    text: Option<&'static [u8]>,
    /// Whether some are missing.
    pub is_cut: bool,
}

impl Arguments {
    /// None.
    pub const NONE: Self = Self { text: None, is_cut: false };

    /// Copies them.
    pub fn copy() -> Self {
        let whole: usize = initial_arguments().map(|argument| argument.len().saturating_add(1)).fold(0, usize::saturating_add);
        let Some(room) = environ::room(whole.min(ARGUMENTS_LIMIT)) else { return Self { text: None, is_cut: true } };
        let bytes = initial_arguments().flat_map(|argument| argument.iter().chain(b"\0"));
        let len = room.iter_mut().zip(bytes).map(|(place, byte)| place.write(*byte)).count();
        // SAFETY: the first `len` bytes of the room have just been written, and the room is never given back.
        let text = unsafe { core::slice::from_raw_parts(room.as_ptr().cast(), len) };
        Self { text: Some(text), is_cut: whole > ARGUMENTS_LIMIT }
    }

    /// The bytes.
    pub fn text(&self) -> &'static [u8] {
        self.text.unwrap_or_default()
    }
}

/// The arguments on the initial stack: `argc`, the arguments, NULL, the environment, NULL (System V
/// ABI for x86-64, "Initial Stack and Register State"). A title that the program sets later
/// overwrites them, so they are copied early (D04). None where the environment has moved away from
/// the stack already.
fn initial_arguments<'a>() -> impl Iterator<Item = &'a [u8]> {
    let environment = environ::start();
    let here = 0u8;
    let on_stack = (&raw const here).addr() < environment.addr() && environment.addr() < sys::stack_top();
    // The array's own NULL stands before the environment; then the arguments, the last one first.
    let last = environment.wrapping_sub(2);
    let count = if on_stack { (0..1usize << 20).find(|count| word(last.wrapping_sub(*count)) == *count) } else { None };
    let first = last.wrapping_sub(count.unwrap_or_default()).wrapping_add(1);
    (0..count.unwrap_or_default()).map(move |at| {
        // SAFETY: `at` is below argc, so this is an argument's pointer; the word before the first one held argc.
        sys::c_text(unsafe { first.wrapping_add(at).read() })
    })
}

/// A word of the initial stack as a number.
fn word(place: *const *const c_char) -> usize {
    // SAFETY: the caller goes down from the environment to argc, at which it stops: argc lies below
    // the arguments on the initial stack, and no argument's address is as small as their count.
    unsafe { place.read() }.addr()
}

impl Facts for Process<'_> {
    fn uid(&mut self) -> u32 {
        sys::user()
    }

    #[inline(never)]
    fn is_user(&mut self, name: &[u8]) -> bool {
        let uid = sys::user();
        any_line(c"/etc/passwd", |line| field(line, 0) == Some(name) && number(line, 2) == Some(uid))
    }

    #[inline(never)]
    fn in_group(&mut self, gid: u32) -> bool {
        let mut buffer = [0u32; 512];
        sys::effective_group() == gid || sys::groups(&mut buffer).contains(&gid)
    }

    #[inline(never)]
    fn in_group_named(&mut self, name: &[u8]) -> bool {
        let mut buffer = [0u32; 512];
        let groups = sys::groups(&mut buffer);
        let own = sys::effective_group();
        let is_ours = |gid: u32| gid == own || groups.contains(&gid);
        any_line(c"/etc/group", |line| field(line, 0) == Some(name) && number(line, 2).is_some_and(is_ours))
    }

    fn exe(&mut self) -> &[u8] {
        self.texts.exe.get(|text| sys::read_link_into(c"/proc/self/exe", text))
    }

    fn command_line(&mut self) -> &[u8] {
        self.texts.command_line.get(|text| {
            for argument in initial_arguments() {
                if !text.is_empty() {
                    text.push_some(b" ");
                }
                text.push_some(argument);
            }
        })
    }

    fn variable(&mut self, name: &[u8]) -> Option<&[u8]> {
        let known = &mut self.variable;
        if known.name.as_bytes() != name {
            // Nobody writes the environment while rules are compared with it.
            known.value = environ::get_named(name);
            known.name.set(name);
            if known.name.is_cut() {
                known.name = Text::new();
            }
        }
        known.value
    }

    fn cgroup(&mut self) -> &[u8] {
        self.texts.cgroup.get(|text| text.set(sys::read_file(c"/proc/self/cgroup", &mut [MaybeUninit::uninit(); 2048]).unwrap_or_default()))
    }
}

/// What `/proc/self/stat` tells (proc_pid_stat(5)).
pub struct Stat {
    /// Field 1: the process id, as the namespace numbers it that /proc shows.
    pub process: i32,
    /// Field 22: when the process started, in clock ticks since the machine did. With the process id it tells one process
    /// from a later one of the same number.
    pub start_time: Option<u64>,
}

impl Stat {
    /// Reads it; none where there is no /proc.
    pub fn read(room: &mut Buffer) -> Option<Self> {
        let stat = sys::read_file(c"/proc/self/stat", room)?;
        // The command's name in parentheses is the second field; it may hold blanks and parentheses itself.
        let after_name = stat.rsplit(|c| *c == b')').next()?;
        Some(Self { process: nth_word(stat, 0)?.parse().ok()?, start_time: nth_word(after_name, 20).and_then(|ticks| ticks.parse().ok()) })
    }
}

/// A word of a text with blanks between them.
fn nth_word(text: &[u8], at: usize) -> Option<&str> {
    core::str::from_utf8(text.split(|c| *c == b' ').nth(at)?).ok()
}

fn field(line: &[u8], at: usize) -> Option<&[u8]> {
    line.split(|c| *c == b':').nth(at)
}

fn number(line: &[u8], at: usize) -> Option<u32> {
    core::str::from_utf8(field(line, at)?).ok()?.parse().ok()
}

/// Whether a line of a file satisfies `wanted`. A line longer than 4 KiB is judged by its beginning, where name and
/// number stand.
pub fn any_line(path: &CStr, mut wanted: impl FnMut(&[u8]) -> bool) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let mut room = [MaybeUninit::uninit(); LINE_LIMIT];
    let mut window = Window::new(&mut room);
    let mut is_rest_of_long_line = false;
    loop {
        let at_end = window.fill(&file, LINE_LIMIT).unwrap_or_default() == 0;
        let mut lines = window.text().split(|c| *c == b'\n').peekable();
        let mut used = 0usize;
        while let Some(line) = lines.next() {
            let is_whole = lines.peek().is_some() || at_end || line.len() == LINE_LIMIT;
            if is_whole && !core::mem::take(&mut is_rest_of_long_line) && wanted(line) {
                return true;
            }
            is_rest_of_long_line |= line.len() == LINE_LIMIT;
            used = used.saturating_add(if is_whole { line.len().saturating_add(1) } else { 0 });
        }
        if at_end {
            return false;
        }
        window.forget(used);
    }
}
