//! Who this process is for the audit: what does not change while it lives, read at its first event.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, Ordering};
use cuvisor_policy::buffer::Text;
use cuvisor_policy::container;
use cuvisor_policy::record::Line;

use crate::environ;
use crate::event::signed;
use crate::facts::{self, Stat};
use crate::lent::Lent;
use crate::sys;

/// The inode of the first pid namespace, in which a pid is the machine's own (the kernel's PROC_PID_INIT_INO).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// The inode of the first cgroup namespace (PROC_CGROUP_INIT_INO).
const FIRST_CGROUP_NAMESPACE: u64 = 0xEFFF_FFFB;

/// What does not change while a process lives.
#[repr(C)] // a page holds it, and what is written of it stands in few lines of the processor's cache
pub struct Identity {
    process: i32,
    start_time: Option<u64>,
    login_uid: Option<u64>,
    pid_namespace: Option<u64>,
    /// The pids in the namespaces that /proc can show, outermost first, separated by blanks.
    ns_pids: Text<64>,
    pod: Option<Text<36>>,
    slurm_job: Option<Text<32>>,
    container: Option<Text<64>>,
    cgroup: Text<512>,
    exe: Text<1024>,
    cwd: Text<1024>,
}

static KNOWN: AtomicPtr<Identity> = AtomicPtr::new(core::ptr::null_mut());

/// This process's identity; a forked child's is in memory of its own.
static ROOM: Lent<Identity> = Lent::new(Identity::unknown());

/// Calls `use_it` with this process's identity. It is read once a process: a forked child's is its own.
pub fn with<T>(use_it: impl FnOnce(&Identity) -> T) -> T {
    let known = KNOWN.load(Ordering::Acquire);
    // SAFETY: the pointer is null or that of an identity in memory that is never given back or changed.
    if let Some(identity) = unsafe { known.as_ref() }.filter(|identity| identity.process == sys::process()) {
        return use_it(identity);
    }
    match ROOM.keep().or_else(|| sys::mapped(Identity::unknown())) {
        Some(identity) => {
            identity.read();
            let identity: &'static Identity = identity;
            KNOWN.store(core::ptr::from_ref(identity).cast_mut(), Ordering::Release);
            use_it(identity)
        }
        None => use_it(&Identity::unknown()),
    }
}

impl Identity {
    /// Nothing known yet: nothing but zeros, so that it takes no room in the library's file. A constant would: its copies
    /// are made from one in the file.
    const fn unknown() -> Self {
        Self {
            process: 0,
            start_time: None,
            login_uid: None,
            pid_namespace: None,
            ns_pids: Text::new(),
            pod: None,
            slurm_job: None,
            container: None,
            cgroup: Text::new(),
            exe: Text::new(),
            cwd: Text::new(),
        }
    }

    /// Reads it. Each file of /proc costs its making, 5 to 10 us, as nobody has asked for it before; a rare fact's is asked
    /// for only where another one says that there is something to find.
    fn read(&mut self) {
        let mut room = [MaybeUninit::uninit(); 2048];
        self.process = sys::process();
        let stat = Stat::read(&mut room);
        self.start_time = stat.as_ref().and_then(|stat| stat.start_time);
        self.login_uid = sys::read_file(c"/proc/self/loginuid", &mut room).and_then(number);
        sys::read_link_into(c"/proc/self/exe", &mut self.exe);
        sys::working_folder(&mut self.cwd);
        if self.cwd.is_empty() {
            // A folder that was removed, or a path that is too long.
            sys::read_link_into(c"/proc/self/cwd", &mut self.cwd);
        }
        self.pid_namespace = namespace(c"/proc/self/ns/pid", b"pid:[");
        let cgroup = sys::read_file(c"/proc/self/cgroup", &mut room).unwrap_or_default();
        self.container = container::from_cgroup(cgroup).map(Text::of);
        self.pod = container::pod(cgroup).map(|uid| Text::of(&uid));
        self.cgroup.set(cgroup_path(cgroup));
        if (self.container.is_none() || self.pod.is_none()) && !self.is_in_the_first_namespaces() {
            self.read_mounts();
        }
        // Where /proc numbers the process as it does itself, its namespace is the one that /proc shows, and there is no other pid.
        if stat.is_some_and(|stat| stat.process != self.process) {
            self.read_pids();
        }
        if let Some(job) = environ::get("SLURM_JOB_ID") {
            self.slurm_job = Some(Text::of(job));
        }
    }

    /// Whether its pids and its cgroup are the machine's own: its cgroup is then told whole, with the container in it. It is
    /// worth asking: the list of mounts takes 42 us where 20 lines long, and machines have hundreds.
    fn is_in_the_first_namespaces(&self) -> bool {
        self.pid_namespace == Some(FIRST_PID_NAMESPACE) && namespace(c"/proc/self/ns/cgroup", b"cgroup:[") == Some(FIRST_CGROUP_NAMESPACE)
    }

    #[cold]
    #[inline(never)]
    fn read_mounts(&mut self) {
        let (mut container, mut pod) = (None, None);
        facts::any_line(c"/proc/self/mountinfo", |line| {
            container = container.or_else(|| container::from_mount(line).map(Text::of));
            pod = pod.or_else(|| container::pod_from_mount(line).map(|uid| Text::of(&uid)));
            false
        });
        self.pod = self.pod.or(pod);
        // In a pod these files are the sandbox's.
        self.container = self.container.or(container.filter(|_| self.pod.is_none()));
    }

    /// The line `NSpid` of `/proc/self/status` (proc_pid_status(5)).
    #[cold]
    #[inline(never)]
    fn read_pids(&mut self) {
        facts::any_line(c"/proc/self/status", |line| {
            let Some(rest) = line.strip_prefix(b"NSpid:") else { return false };
            for pid in rest.split(|c| *c == b'\t').filter(|pid| !pid.is_empty()) {
                if !self.ns_pids.is_empty() {
                    self.ns_pids.push(b" ");
                }
                self.ns_pids.push(pid);
            }
            true
        });
    }

    /// Writes the members that tell which process it is.
    pub fn write(&self, line: &mut Line, redacted: impl FnOnce(&mut Line)) {
        number_or_null(line, "start_time", self.start_time);
        line.number("uid", i64::from(sys::user()));
        line.number("euid", i64::from(sys::effective_user()));
        // The kernel's word for "nobody has logged in" is the largest number.
        number_or_null(line, "login_uid", self.login_uid.filter(|uid| *uid != u64::from(u32::MAX)));
        text_or_null(line, "exe", &self.exe);
        redacted(line);
        text_or_null(line, "cwd", &self.cwd);
        line.string_or_null("container", self.container.as_ref().map(|id| id.as_bytes()));
        text_or_null(line, "cgroup", &self.cgroup);
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

/// The path of the unified hierarchy, else the first one that is not `/`; none where the file could not be read.
fn cgroup_path(text: &[u8]) -> &[u8] {
    if text.is_empty() {
        return text;
    }
    let unified = text.split(|c| *c == b'\n').find_map(|line| line.strip_prefix(b"0::"));
    let other = cuvisor_policy::rule::cgroup_paths(text).find(|path| *path != b"/");
    unified.filter(|path| *path != b"/").or(other).unwrap_or(b"/")
}

/// The number in a link like `pid:[4026531836]`.
fn namespace(link: &CStr, kind: &[u8]) -> Option<u64> {
    let text: Text<32> = sys::read_link(link)?;
    number(text.as_bytes().strip_prefix(kind)?.strip_suffix(b"]")?)
}

fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// What is not known, as in a chroot without /proc, is null and not empty.
fn text_or_null<const N: usize>(line: &mut Line, key: &str, text: &Text<N>) {
    line.string_or_null(key, Some(text.as_bytes()).filter(|text| !text.is_empty()));
}

fn number_or_null(line: &mut Line, key: &str, value: Option<u64>) {
    match value {
        Some(value) => line.number(key, signed(value)),
        None => line.null(key),
    }
}
