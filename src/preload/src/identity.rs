//! Who this process is for the audit: what does not change while it lives, read at its first event.

use core::sync::atomic::{AtomicPtr, Ordering};
use cuvisor_policy::buffer::Text;
use cuvisor_policy::container;
use cuvisor_policy::record::Line;

use crate::environ;
use crate::event::signed;
use crate::facts;
use crate::sys::{self, Memory};

/// The inode of the first pid namespace, in which a pid is the machine's own (the kernel's PROC_PID_INIT_INO).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// What does not change while a process lives.
pub struct Identity {
    process: i32,
    start_time: Option<u64>,
    login_uid: Option<u64>,
    exe: Text<1024>,
    cwd: Text<1024>,
    /// The pids in the namespaces that /proc can show, outermost first, separated by blanks.
    ns_pids: Text<64>,
    pid_namespace: Option<u64>,
    container: Option<Text<64>>,
    cgroup: Text<512>,
    pod: Option<Text<36>>,
    slurm_job: Option<Text<32>>,
}

static KNOWN: AtomicPtr<Identity> = AtomicPtr::new(core::ptr::null_mut());

/// Calls `use_it` with this process's identity. It is read once a process: a forked child's is its own.
pub fn with<T>(use_it: impl FnOnce(&Identity) -> T) -> T {
    let known = KNOWN.load(Ordering::Acquire);
    // SAFETY: the pointer is null or that of an identity in memory that is never given back or changed.
    if let Some(identity) = unsafe { known.as_ref() }.filter(|identity| identity.process == sys::process()) {
        return use_it(identity);
    }
    let identity = Identity::read();
    let result = use_it(&identity);
    if let Some(memory) = Memory::map(size_of::<Identity>()) {
        let place = memory.start().cast::<Identity>();
        // SAFETY: the mapping is large enough, page-aligned and ours; two threads that come here at once each fill their own.
        unsafe { place.write(identity) };
        KNOWN.store(place, Ordering::Release);
    }
    result
}

impl Identity {
    fn read() -> Self {
        let cgroup = sys::read_file::<2048>(c"/proc/self/cgroup").unwrap_or_default();
        let (mut container, mut pod) = (container::from_cgroup(cgroup.as_bytes()).map(Text::of), container::pod(cgroup.as_bytes()));
        if container.is_none() || pod.is_none() {
            let mut mounted = None;
            facts::any_line(c"/proc/self/mountinfo", |line| {
                mounted = mounted.or_else(|| container::from_mount(line).map(Text::of));
                pod = pod.or_else(|| container::pod_from_mount(line));
                false
            });
            // In a pod these files are the sandbox's.
            container = container.or(mounted.filter(|_| pod.is_none()));
        }
        Self {
            process: sys::process(),
            start_time: facts::start_time(),
            login_uid: sys::read_file::<16>(c"/proc/self/loginuid").and_then(|text| number(text.as_bytes())),
            exe: facts::executable(),
            cwd: sys::read_link(c"/proc/self/cwd").unwrap_or_default(),
            ns_pids: ns_pids(),
            pid_namespace: sys::read_link::<32>(c"/proc/self/ns/pid").and_then(|link| namespace(link.as_bytes())),
            container,
            cgroup: cgroup_path(cgroup.as_bytes()),
            pod: pod.map(|uid| Text::of(&uid)),
            slurm_job: environ::get("SLURM_JOB_ID").map(Text::of),
        }
    }

    /// Writes the members that tell which process it is.
    pub fn write(&self, line: &mut Line, redacted: impl FnOnce(&mut Line)) {
        number_or_null(line, "start_time", self.start_time);
        line.number("uid", i64::from(sys::user()));
        line.number("euid", i64::from(sys::effective_user()));
        // The kernel's word for "nobody has logged in" is the largest number.
        number_or_null(line, "login_uid", self.login_uid.filter(|uid| *uid != u64::from(u32::MAX)));
        line.string("exe", self.exe.as_bytes());
        redacted(line);
        line.string("cwd", self.cwd.as_bytes());
        line.string_or_null("container", self.container.as_ref().map(|id| id.as_bytes()));
        line.string("cgroup", self.cgroup.as_bytes());
        for (key, value) in [("pod", self.pod.as_ref().map(|t| t.as_bytes())), ("slurm_job", self.slurm_job.as_ref().map(|t| t.as_bytes()))]
        {
            if value.is_some() {
                line.string_or_null(key, value);
            }
        }
        let pids = || self.ns_pids.as_bytes().split(|c| *c == b' ').filter_map(number);
        if pids().count() > 1 {
            line.array("ns_pids", |line| pids().for_each(|pid| line.numeral(signed(pid))));
        }
        if let Some(inode) = self.pid_namespace.filter(|inode| *inode != FIRST_PID_NAMESPACE) {
            line.number("pid_namespace", signed(inode));
        }
    }
}

/// The path of the unified hierarchy, else the first one that is not `/`.
fn cgroup_path(text: &[u8]) -> Text<512> {
    let unified = text.split(|c| *c == b'\n').find_map(|line| line.strip_prefix(b"0::"));
    let other = cuvisor_policy::rule::cgroup_paths(text).find(|path| *path != b"/");
    Text::of(unified.filter(|path| *path != b"/").or(other).unwrap_or(b"/"))
}

/// The line `NSpid` of `/proc/self/status` (proc_pid_status(5)).
fn ns_pids() -> Text<64> {
    let mut pids = Text::new();
    facts::any_line(c"/proc/self/status", |line| {
        let Some(rest) = line.strip_prefix(b"NSpid:") else { return false };
        for pid in rest.split(|c| *c == b'\t').filter(|pid| !pid.is_empty()) {
            if !pids.is_empty() {
                pids.push(b" ");
            }
            pids.push(pid);
        }
        true
    });
    pids
}

/// The number in `pid:[4026531836]`.
fn namespace(link: &[u8]) -> Option<u64> {
    number(link.strip_prefix(b"pid:[")?.strip_suffix(b"]")?)
}

fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

fn number_or_null(line: &mut Line, key: &str, value: Option<u64>) {
    match value {
        Some(value) => line.number(key, signed(value)),
        None => line.null(key),
    }
}
