//! An event in the life of a process, and the line that tells it.

mod members;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use cuvisor_policy::buffer::Text;
use cuvisor_policy::file::policy::Mode;
use cuvisor_policy::guard::Seen;
use cuvisor_policy::record::{self, Line};

use crate::apply::Outcome;
use crate::driver::{Code, Slot};
use crate::identity;
use crate::lent::Lent;
use crate::life;
use crate::sink;
use crate::state::State;
use crate::sys;
use crate::table::Hook;
use crate::trace::{self, Origin, Trace};

/// A `cuInit`.
pub struct Init<'a> {
    /// The copy that was called.
    pub slot: &'a Slot,
    /// Who called.
    pub caller: *const c_void,
    /// Request and list.
    pub outcome: &'a Outcome<'a>,
    /// What the program was answered.
    pub result: Code,
    /// A bit for each visible device outside the policy.
    pub outside: u64,
}

/// What a call was about.
#[derive(Clone, Copy)]
pub enum Subject {
    /// A device that the driver has shown.
    Device(Seen),
    /// An ordinal or handle that it has not shown.
    Ordinal(c_int),
    /// Nothing that has a number.
    None,
}

impl Subject {
    /// The ordinal; one that no device has where there is none.
    pub fn ordinal(&self) -> c_int {
        match self {
            Self::Device(seen) => seen.ordinal,
            Self::Ordinal(ordinal) => *ordinal,
            Self::None => -1,
        }
    }
}

/// A call about one device.
pub struct Touch<'a> {
    /// Which device.
    pub subject: Subject,
    /// What the program was answered.
    pub result: Code,
    /// The function.
    pub call: Hook,
    /// Who called.
    pub caller: *const c_void,
    /// The copy that was called.
    pub slot: &'a Slot,
}

/// A change of the variable that comes too late.
pub struct LateChange<'a> {
    /// The value that the driver read.
    pub old: Option<&'a [u8]>,
    /// The value now.
    pub new: Option<&'a [u8]>,
}

/// The events.
#[derive(Clone, Copy)]
pub enum Kind<'a> {
    /// `cuInit`.
    Init(&'a Init<'a>),
    /// The first `cuDeviceGet` of a device.
    Device(&'a Touch<'a>),
    /// The first context on a device.
    Context(&'a Touch<'a>),
    /// A call that the policy does not allow.
    Denied(&'a Touch<'a>),
    /// CUDA was used under a broken policy.
    PolicyError,
    /// `CUDA_VISIBLE_DEVICES` was changed after the driver had read it.
    LateChange(&'a LateChange<'a>),
    /// The end of a process that used CUDA.
    Exit,
}

impl Kind<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Init(_) => "init",
            Self::Device(_) => "device",
            Self::Context(_) => "context",
            Self::Denied(_) => "denied",
            Self::PolicyError => "policy_error",
            Self::LateChange(_) => "late_change",
            Self::Exit => "exit",
        }
    }
}

/// Events that no sink took since the last one that one did.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Describes an event and hands it to the sinks; in a trace, tells it on stderr as well.
pub fn write(state: &State, kind: Kind<'_>) {
    if state.trace != Trace::Off && !matches!(kind, Kind::Exit) {
        write_traced(state, kind);
    } else if sink::is_wanted(state) {
        log(state, kind, None);
    }
}

/// It stands apart, as [`log`] does: their frames take pages, which a process without a trace or a log never touches.
#[cold]
#[inline(never)]
fn write_traced(state: &State, kind: Kind<'_>) {
    let origin = Origin::read();
    trace::show_new(state, &kind, &origin);
    if sink::is_wanted(state) {
        log(state, kind, Some(&origin));
    }
}

#[inline(never)]
fn log(state: &State, kind: Kind<'_>, origin: Option<&Origin>) {
    static LINE: Lent<Line> = Lent::new(Line::room());
    LINE.lend(|line| match line {
        Some(line) => describe(line, state, kind, origin),
        None => log_beside(state, kind, origin),
    });
}

/// The same while another thread writes an event.
#[cold]
#[inline(never)]
fn log_beside(state: &State, kind: Kind<'_>, origin: Option<&Origin>) {
    describe(&mut Line::new(), state, kind, origin);
}

fn describe(line: &mut Line, state: &State, kind: Kind<'_>, origin: Option<&Origin>) {
    line.begin_anew();
    head(line, state, &kind);
    match kind {
        Kind::Init(init) => members::init_members(line, state, init),
        Kind::Device(touch) | Kind::Context(touch) => members::touch_members(line, touch, None),
        Kind::Denied(touch) => members::touch_members(line, touch, Some(state)),
        Kind::PolicyError => line.string("reason", state.broken.as_bytes()),
        Kind::LateChange(change) => {
            line.string_or_null("old", change.old);
            line.string_or_null("new", change.new);
            line.seconds("seconds", life::since_begin());
            line.string("reason", b"the driver read the variable at cuInit and does not look again");
        }
        Kind::Exit => members::exit_members(line),
    }
    if let Some(origin) = origin {
        origin.write(line);
    }
    let dropped = DROPPED.swap(0, Ordering::Relaxed);
    if dropped != 0 {
        line.number("dropped", signed(dropped));
    }
    if !sink::append(state, kind.name(), line.finish()) {
        DROPPED.fetch_add(dropped.saturating_add(1), Ordering::Relaxed);
    }
}

fn head(line: &mut Line, state: &State, kind: &Kind<'_>) {
    let (seconds, nanos) = sys::now();
    line.string("schema", record::SCHEMA.as_bytes());
    line.string("time", record::utc(seconds, nanos).as_bytes());
    line.string("event", kind.name().as_bytes());
    line.string("outcome", outcome(state, kind).as_bytes());
    line.number("pid", i64::from(sys::process()));
    line.number("ppid", i64::from(sys::parent()));
    identity::with(|identity| identity.write(line, |line| arguments(line, state)));
    line.string("policy", state.policy.as_bytes());
    line.string_or_null("rule", state.rule.as_ref().map(|name| name.as_bytes()));
    if !state.ignored.is_empty() && matches!(kind, Kind::Init(_) | Kind::PolicyError) {
        line.array("ignored", |line| state.ignored.as_bytes().split(|c| *c == b',').for_each(|name| line.element(name)));
    }
    if life::is_forked() {
        line.boolean("forked_after_init", true);
    }
}

/// The arguments as at exec time, without the values of the options that the policy redacts. Where that
/// list did not fit, none is written: rather too little than a password.
fn arguments(line: &mut Line, state: &State) {
    let whole = state.argv.text();
    let options = || state.redact.as_bytes().split(|c| *c == 0).filter(|option| !option.is_empty());
    line.array("argv", |line| {
        let mut secret = false;
        for argument in whole.strip_suffix(b"\0").unwrap_or(whole).split(|c| *c == 0) {
            if whole.is_empty() || state.redact.is_cut() {
                return;
            }
            let value_of = |option: &[u8]| argument.strip_prefix(option).is_some_and(|rest| rest.starts_with(b"="));
            match options().find(|option| value_of(option)) {
                _ if core::mem::take(&mut secret) => line.element(b"***"),
                Some(option) => {
                    let mut text = Text::<128>::of(option);
                    text.push_some(b"=***");
                    line.element(text.as_bytes());
                }
                None => line.element(argument),
            }
            secret = options().any(|option| option == argument);
        }
    });
    if state.argv.is_cut {
        line.boolean("argv_cut", true);
    }
}

fn outcome(state: &State, kind: &Kind<'_>) -> &'static str {
    match (state.mode, kind) {
        (Mode::Audit, _) => "audited",
        (_, Kind::Init(init)) if !init.outcome.in_force => "failed(the environment cannot be written)",
        (_, Kind::Init(init)) if init.outside != 0 => "denied",
        (_, Kind::Denied(_) | Kind::PolicyError) => "denied",
        _ => "enforced",
    }
}

/// A number as JSON lines hold it.
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
