//! Who used which GPU: processes while they live, and the groups that they end in.

use super::event::Event;
use std::collections::{BTreeMap, HashMap};

/// What tells one process from every other: its pid, when it started, and its pid namespace.
pub type ProcessKey = (i64, Option<u64>, Option<u64>);

/// What a report may be grouped by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum By {
    /// GPU, program and user.
    All,
    /// GPU.
    Gpu,
    /// User.
    User,
    /// Program.
    Exe,
    /// Container.
    Container,
    /// Each process on each GPU.
    Process,
}

/// A process that has not ended yet, as far as the lines tell.
struct Process {
    program: String,
    uid: u32,
    container: Option<String>,
    first: i64,
    last: i64,
    late: u64,
    dropped: u64,
    gpus: Vec<Use>,
    /// Denied calls that name no device.
    denied: u64,
}

/// A process's use of one GPU.
struct Use {
    gpu: String,
    first: i64,
    context: Option<i64>,
    touched: bool,
    denied: u64,
}

/// What a group has in common: only the parts that the report is grouped by are filled.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Key {
    /// UUID; none for processes that touched no GPU.
    pub gpu: Option<String>,
    /// Program.
    pub program: Option<String>,
    /// User id.
    pub uid: Option<u32>,
    /// Container.
    pub container: Option<String>,
    /// Process.
    pub process: Option<ProcessKey>,
}

/// What a group's processes did.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// How many processes.
    pub processes: u64,
    /// Their first use, in microseconds since 1970.
    pub first: Option<i64>,
    /// The last line about them.
    pub last: Option<i64>,
    /// Microseconds from the first context to the end, added up.
    pub used: i64,
    /// Calls denied.
    pub denied: u64,
    /// Changes of the variable that came too late.
    pub late: u64,
    /// Processes of which no exit was seen.
    pub unended: u64,
}

/// One process on one GPU, for a timeline.
pub struct Bar {
    /// UUID; none where it touched no GPU.
    pub gpu: Option<String>,
    /// Process.
    pub process: ProcessKey,
    /// User id.
    pub uid: u32,
    /// Program.
    pub program: String,
    /// Container.
    pub container: Option<String>,
    /// When it first asked for the GPU.
    pub first: i64,
    /// When it ended, or was last heard of.
    pub last: i64,
    /// Whether it made a context.
    pub used: bool,
    /// Calls denied.
    pub denied: u64,
    /// Late changes.
    pub late: u64,
    /// Whether its exit was seen.
    pub ended: bool,
}

/// Which events and processes count.
#[derive(Default)]
pub struct Filter {
    /// Not before, in microseconds since 1970.
    pub since: Option<i64>,
    /// Not after.
    pub until: Option<i64>,
    /// Beginning of a GPU's UUID or PCI bus id.
    pub gpu: Option<String>,
    /// User id.
    pub uid: Option<u32>,
    /// Only groups in which something was denied.
    pub denied: bool,
}

/// The report while it is being made. Memory grows with the groups and with the processes whose end has not been seen.
pub struct Report<B> {
    by: By,
    filter: Filter,
    living: HashMap<ProcessKey, Process>,
    groups: BTreeMap<Key, Group>,
    each: B,
    /// Events that the library could not write, by its own count.
    pub dropped: u64,
}

impl<B: FnMut(Bar)> Report<B> {
    /// An empty report; `each` gets every process on every GPU as it ends.
    pub fn new(by: By, filter: Filter, each: B) -> Self {
        Self { by, filter, living: HashMap::new(), groups: BTreeMap::new(), each, dropped: 0 }
    }

    /// Takes an event in.
    pub fn add(&mut self, event: &Event<'_>) {
        let Some(now) = event.micros() else { return };
        let filter = &self.filter;
        if filter.since.is_some_and(|t| now < t) || filter.until.is_some_and(|t| now > t) || filter.uid.is_some_and(|uid| uid != event.uid)
        {
            return;
        }
        let key = (event.pid, event.start_time, event.pid_namespace);
        let process = self.living.entry(key).or_insert_with(|| Process {
            program: event.program(),
            uid: event.uid,
            container: event.container.as_deref().map(str::to_owned),
            first: now,
            last: now,
            late: 0,
            dropped: 0,
            gpus: Vec::new(),
            denied: 0,
        });
        process.last = process.last.max(now);
        process.dropped += event.dropped.unwrap_or_default();
        match &*event.event {
            "late_change" => process.late += 1,
            "device" | "context" | "denied" => {
                let denied = event.event == "denied";
                let name = event.device.as_ref().and_then(super::event::Device::name);
                match name {
                    Some(name) => {
                        let one = process.on(name, now);
                        one.denied += u64::from(denied);
                        if !denied && event.result == Some(0) {
                            one.touched = true;
                            if event.event == "context" {
                                one.context.get_or_insert(now);
                            }
                        }
                    }
                    None => process.denied += u64::from(denied),
                }
            }
            "exit" => {
                if let Some(process) = self.living.remove(&key) {
                    self.end(key, process, true);
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, process_key: ProcessKey, process: Process, ended: bool) {
        self.dropped += process.dropped;
        let nothing = Use { gpu: String::new(), first: process.first, context: None, touched: false, denied: 0 };
        let mut uses = process.gpus;
        if uses.is_empty() {
            uses.push(nothing);
        }
        let wanted = |one: &Use| self.filter.gpu.as_ref().is_none_or(|gpu| !one.gpu.is_empty() && one.gpu.starts_with(gpu.as_str()));
        for (at, one) in uses.iter().filter(|one| wanted(one)).enumerate() {
            let gpu = (!one.gpu.is_empty()).then(|| one.gpu.clone());
            // What concerns no single GPU is counted once.
            let (own_denied, late) = if at == 0 { (process.denied, process.late) } else { (0, 0) };
            let bar = Bar {
                gpu: gpu.clone(),
                process: process_key,
                uid: process.uid,
                program: process.program.clone(),
                container: process.container.clone(),
                first: one.first,
                last: process.last,
                used: one.context.is_some(),
                denied: one.denied + own_denied,
                late,
                ended,
            };
            let group = self.groups.entry(key_of(self.by, &bar)).or_default();
            group.processes += 1;
            group.first = Some(group.first.map_or(bar.first, |t| t.min(bar.first)));
            group.last = Some(group.last.map_or(bar.last, |t| t.max(bar.last)));
            group.used += one.context.map_or(0, |start| bar.last - start);
            group.denied += bar.denied;
            group.late += late;
            group.unended += u64::from(!ended);
            (self.each)(bar);
        }
    }

    /// The groups, once every line has been read.
    pub fn finish(mut self) -> (Vec<(Key, Group)>, u64) {
        let mut rest: Vec<_> = std::mem::take(&mut self.living).into_iter().collect();
        rest.sort_by_key(|(key, process)| (process.first, *key));
        for (key, process) in rest {
            self.end(key, process, false);
        }
        let only_denied = self.filter.denied;
        (self.groups.into_iter().filter(|(_, group)| !only_denied || group.denied > 0).collect(), self.dropped)
    }
}

impl Process {
    fn on(&mut self, gpu: &str, now: i64) -> &mut Use {
        let at = self.gpus.iter().position(|one| one.gpu == gpu).unwrap_or_else(|| {
            self.gpus.push(Use { gpu: gpu.to_owned(), first: now, context: None, touched: false, denied: 0 });
            self.gpus.len() - 1
        });
        &mut self.gpus[at]
    }
}

fn key_of(by: By, bar: &Bar) -> Key {
    let mut key = Key::default();
    if matches!(by, By::All | By::Gpu | By::Process) {
        key.gpu.clone_from(&bar.gpu);
    }
    if matches!(by, By::All | By::Exe | By::Process) {
        key.program = Some(bar.program.clone());
    }
    if matches!(by, By::All | By::User | By::Process) {
        key.uid = Some(bar.uid);
    }
    if by == By::Container {
        key.container = Some(bar.container.clone().unwrap_or_default());
    }
    if by == By::Process {
        key.process = Some(bar.process);
    }
    key
}
