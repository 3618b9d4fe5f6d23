//! The trace: who initialised CUDA, and when, as readable lines on stderr, and the same facts for the log.
//!
//! `0.84 s cuInit -> 0 (4 GPUs) by libcudart.so.12 from flash_attn/__init__.py:3 from train.py:2`

use core::ffi::c_void;
use core::mem::MaybeUninit;
use cuvisor_policy::buffer::Text;
use cuvisor_policy::record::{Line, result_name};

use crate::driver::Code;
use crate::event::{Init, Kind, LateChange, Subject, Touch};
use crate::facts::Stat;
use crate::life;
use crate::loader::Module;
use crate::python::{self, Stack};
use crate::state::State;
use crate::sys;

/// How much is traced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// Nothing: no cost.
    Off,
    /// Stack and seconds go into the log.
    Log,
    /// The same, and a line goes to stderr.
    Stderr,
}

impl Trace {
    /// Reads the value of `CUVISOR_TRACE`; a word that it does not know is off.
    pub fn parse(word: &[u8]) -> Self {
        match word {
            b"1" => Self::Stderr,
            b"log" => Self::Log,
            _ => Self::Off,
        }
    }
}

/// Frames that are shown: so many of the innermost, and of the outermost.
const INNERMOST: usize = 12;
const OUTERMOST: usize = 6;

const ROW_LIMIT: usize = 2048;
/// One line on stderr.
type Row = Text<ROW_LIMIT>;

/// Where a call came from, and when.
pub struct Origin {
    /// Hundredths of a second since the process started; none where /proc does not tell.
    age: Option<u64>,
    stack: Stack,
}

impl Origin {
    /// Reads it.
    pub fn read() -> Self {
        Self { age: age(), stack: python::stack() }
    }

    /// Writes it into an event, the innermost frame last.
    pub fn write(&self, line: &mut Line) {
        match self.age {
            Some(age) => line.seconds("process_seconds", age.saturating_mul(10_000)),
            None => line.null("process_seconds"),
        }
        match &self.stack {
            Stack::None => {}
            Stack::Known(frames) => line.array("stack", |line| {
                let count = frames.lines().count();
                for (at, frame) in frames.lines().rev().enumerate() {
                    if at == OUTERMOST && count > INNERMOST.saturating_add(OUTERMOST) {
                        line.element(b"...");
                    }
                    if is_shown(count.saturating_sub(at).saturating_sub(1), count) {
                        line.element(frame);
                    }
                }
            }),
            Stack::Unknown(reason) => line.string("stack_unknown", reason.as_bytes()),
        }
    }

    fn show(&self, row: &mut Row) {
        match &self.stack {
            Stack::None => {}
            Stack::Known(frames) if frames.lines().next().is_none() => push(row, &[b" (no Python frame)"]),
            Stack::Known(frames) => {
                let count = frames.lines().count();
                for (at, frame) in frames.lines().enumerate() {
                    if is_shown(at, count) {
                        push(row, &[b" from ", frame]);
                    } else if at == INNERMOST {
                        push(row, &[b" from ..."]);
                    }
                }
            }
            Stack::Unknown(reason) => push(row, &[b" (no Python stack: ", reason.as_bytes(), b")"]),
        }
    }
}

/// Whether the frame at this place, counted from the innermost, is among those that are shown.
fn is_shown(at: usize, count: usize) -> bool {
    at < INNERMOST || at.saturating_add(OUTERMOST) >= count || count <= INNERMOST.saturating_add(OUTERMOST)
}

/// Hundredths of a second since the process started (field 22 of /proc/pid/stat, in ticks of 10 ms since boot).
fn age() -> Option<u64> {
    let start = Stat::read(&mut [MaybeUninit::uninit(); 1024])?.start_time?;
    Some((sys::since_boot() / 10_000).saturating_sub(start))
}

/// Tells an event that is new on stderr, if it is of those that a trace tells.
pub fn show_new(state: &State, kind: &Kind<'_>, origin: &Origin) {
    if state.trace == Trace::Stderr
        && let Kind::Init(init) = kind
    {
        show_change(state, init, origin);
    }
    show(state, kind, origin);
}

/// Tells an event on stderr, one that was told before included.
pub fn show(state: &State, kind: &Kind<'_>, origin: &Origin) {
    if state.trace != Trace::Stderr {
        return;
    }
    let mut row = Row::new();
    match kind {
        Kind::Init(init) => {
            begin(&mut row, origin);
            row_init(&mut row, init);
        }
        Kind::Context(touch) => {
            begin(&mut row, origin);
            row_touch(&mut row, touch);
        }
        Kind::Denied(touch) => {
            begin(&mut row, origin);
            push(&mut row, &[b"denied: "]);
            row_touch(&mut row, touch);
        }
        Kind::LateChange(late) => {
            begin(&mut row, origin);
            row_late(&mut row, late);
        }
        Kind::Device(_) | Kind::PolicyError | Kind::Exit => return,
    }
    origin.show(&mut row);
    end(&mut row);
}

fn row_init(row: &mut Row, init: &Init<'_>) {
    push(row, &[b"cuInit"]);
    result(row, init.result);
    if init.result == 0 {
        let count = init.slot.visible().count();
        row.push(b" (");
        row.push_number(u64::try_from(count).unwrap_or_default());
        row.push(if count == 1 { b" GPU)" } else { b" GPUs)" });
    }
    by(row, init.caller);
}

fn row_touch(row: &mut Row, touch: &Touch<'_>) {
    push(row, &[touch.call.name().to_bytes()]);
    match touch.subject {
        Subject::None => {}
        Subject::Ordinal(ordinal) => {
            push(row, &[b" GPU ", if ordinal < 0 { b"-" } else { b"" }]);
            row.push_number(u64::from(ordinal.unsigned_abs()));
        }
        Subject::Device(seen) => {
            push(row, &[b" GPU "]);
            row.push_number(u64::from(seen.ordinal.unsigned_abs()));
            if let Some(uuid) = seen.uuid {
                push(row, &[b" (GPU-", &uuid.text(), b")"]);
            }
        }
    }
    result(row, touch.result);
    by(row, touch.caller);
}

fn row_late(row: &mut Row, late: &LateChange<'_>) {
    push(row, &[b"CUDA_VISIBLE_DEVICES was changed from "]);
    value(row, late.old);
    push(row, &[b" to "]);
    value(row, late.new);
    push(row, &[b" after cuInit, without effect; noticed now"]);
}

/// Tells, before a `cuInit` that is new, that the variable is not what it was, or does not count.
fn show_change(state: &State, init: &Init<'_>, origin: &Origin) {
    let (request, effective) = (init.outcome.request, init.outcome.effective);
    let at_start = state.variable_at_start.as_ref().map(|text| text.as_bytes());
    // After the driver has read another value, the change came too late: that is told in its own words.
    if (request == effective && request == at_start) || !life::is_what_the_driver_read(effective) {
        return;
    }
    let mut row = Row::new();
    begin(&mut row, origin);
    push(&mut row, &[b"CUDA_VISIBLE_DEVICES: at the start "]);
    value(&mut row, at_start);
    push(&mut row, &[b", the program's own now "]);
    value(&mut row, request);
    push(&mut row, &[b", in force "]);
    value(&mut row, effective);
    end(&mut row);
}

fn value(row: &mut Row, value: Option<&[u8]>) {
    match value {
        Some(value) => push(row, &[b"\"", value.get(..value.len().min(200)).unwrap_or_default(), b"\""]),
        None => push(row, &[b"unset"]),
    }
}

fn result(row: &mut Row, code: Code) {
    push(row, &[b" -> ", if code < 0 { b"-" } else { b"" }]);
    row.push_number(u64::from(code.unsigned_abs()));
    if let Some(name) = result_name(code).filter(|_| code != 0) {
        push(row, &[b" ", name.as_bytes()]);
    }
}

fn by(row: &mut Row, caller: *const c_void) {
    match Module::of(caller) {
        Some(module) => push(row, &[b" by ", module.file_name()]),
        None => push(row, &[b" by code outside any library"]),
    }
}

fn begin(row: &mut Row, origin: &Origin) {
    push(row, &[b"cuvisor["]);
    row.push_number(u64::try_from(sys::process()).unwrap_or_default());
    push(row, &[b"] "]);
    if let Some(age) = origin.age {
        row.push_number(age / 100);
        push(row, &[b"."]);
        row.push_number(age / 10 % 10);
        row.push_number(age % 10);
        push(row, &[b" s "]);
    }
}

/// Appends texts; what could move the terminal's cursor, or begin a line of its own, becomes `?`.
fn push(row: &mut Row, parts: &[&[u8]]) {
    for part in parts {
        for c in *part {
            row.push_some(&[if c.is_ascii_control() { b'?' } else { *c }]);
        }
    }
}

fn end(row: &mut Row) {
    row.truncate(ROW_LIMIT - 1);
    row.push(b"\n");
    sys::complain(row.as_bytes());
    row.truncate(0);
}
