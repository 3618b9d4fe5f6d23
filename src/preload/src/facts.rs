//! Who this process is, read when asked.

use core::ffi::c_char;
use cuvisor_policy::buffer::Text;
use cuvisor_policy::rule::Facts;

use crate::environ;
use crate::sys::{self, File};

/// The facts that rules ask for; each is read at its first use.
pub struct Process {
    exe: Option<Text<1024>>,
    command_line: Option<Text<4096>>,
    cgroup: Option<Text<2048>>,
}

impl Process {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self { exe: None, command_line: None, cgroup: None }
    }
}

/// Copies the arguments as at exec time, each with its NUL, as far as there is room.
pub fn copy_arguments(text: &mut Text<4096>) {
    for argument in initial_arguments() {
        text.push_some(argument);
        text.push_some(b"\0");
        if text.is_cut() {
            return;
        }
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

impl Facts for Process {
    fn uid(&mut self) -> u32 {
        sys::user()
    }

    fn is_user(&mut self, name: &[u8]) -> bool {
        let uid = sys::user();
        any_line(c"/etc/passwd", |line| field(line, 0) == Some(name) && number(line, 2) == Some(uid))
    }

    fn in_group(&mut self, gid: u32) -> bool {
        let mut buffer = [0u32; 512];
        sys::effective_group() == gid || sys::groups(&mut buffer).contains(&gid)
    }

    fn in_group_named(&mut self, name: &[u8]) -> bool {
        let mut buffer = [0u32; 512];
        let groups = sys::groups(&mut buffer);
        let own = sys::effective_group();
        let is_ours = |gid: u32| gid == own || groups.contains(&gid);
        any_line(c"/etc/group", |line| field(line, 0) == Some(name) && number(line, 2).is_some_and(is_ours))
    }

    fn exe(&mut self) -> &[u8] {
        self.exe.get_or_insert_with(executable).as_bytes()
    }

    fn command_line(&mut self) -> &[u8] {
        let joined = self.command_line.get_or_insert_with(|| {
            let mut text = Text::new();
            copy_arguments(&mut text);
            text.truncate(text.len().saturating_sub(1));
            text.room().iter_mut().filter(|c| **c == 0).for_each(|c| *c = b' ');
            text
        });
        joined.as_bytes()
    }

    fn variable(&mut self, name: &[u8]) -> Option<&[u8]> {
        environ::get(core::str::from_utf8(name).ok()?)
    }

    fn cgroup(&mut self) -> &[u8] {
        self.cgroup.get_or_insert_with(|| sys::read_file(c"/proc/self/cgroup").unwrap_or_default()).as_bytes()
    }
}

/// The executable's path with links resolved.
pub fn executable() -> Text<1024> {
    sys::read_link(c"/proc/self/exe").unwrap_or_default()
}

/// When the process started, in clock ticks since the machine did: field 22 of `/proc/self/stat`. With
/// the process id it tells one process from a later one of the same number.
pub fn start_time() -> Option<u64> {
    let stat = sys::read_file::<1024>(c"/proc/self/stat")?;
    // The command's name in parentheses is the second field; it may hold blanks and parentheses itself.
    let after_name = stat.as_bytes().rsplit(|c| *c == b')').next()?;
    let field = after_name.split(|c| *c == b' ').nth(20)?;
    core::str::from_utf8(field).ok()?.parse().ok()
}

fn field(line: &[u8], at: usize) -> Option<&[u8]> {
    line.split(|c| *c == b':').nth(at)
}

fn number(line: &[u8], at: usize) -> Option<u32> {
    core::str::from_utf8(field(line, at)?).ok()?.parse().ok()
}

/// Whether a line of a file satisfies `wanted`. The file is read in pieces; a line longer than 4 KiB is
/// judged by its beginning, where name and number stand.
pub fn any_line(path: &core::ffi::CStr, mut wanted: impl FnMut(&[u8]) -> bool) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let mut buffer = [0u8; 4096];
    let mut line = Text::<4096>::new();
    loop {
        let count = file.read(&mut buffer).unwrap_or_default();
        if count == 0 {
            return wanted(line.as_bytes());
        }
        let mut pieces = buffer.get(..count).unwrap_or_default().split(|c| *c == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            line.push_some(piece);
            if pieces.peek().is_some() {
                if wanted(line.as_bytes()) {
                    return true;
                }
                line = Text::new();
            }
        }
    }
}
