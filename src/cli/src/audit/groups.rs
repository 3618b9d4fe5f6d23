//! Who used which GPU: processes while they live, and the groups that they end in.

use super::brief::{Fact, Kind, Name, ProcessKey};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

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
    program: Name,
    uid: u32,
    container: Option<Name>,
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
    gpu: Option<Name>,
    first: i64,
    context: Option<i64>,
    denied: u64,
}

/// What a group has in common: only the parts that the report is grouped by are filled.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Key {
    /// UUID; none for processes that touched no GPU.
    pub gpu: Option<Name>,
    /// Program.
    pub program: Option<Name>,
    /// User id.
    pub uid: Option<u32>,
    /// Container; empty for none.
    pub container: Option<Name>,
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
    pub gpu: Option<Name>,
    /// Process.
    pub process: ProcessKey,
    /// User id.
    pub uid: u32,
    /// Program.
    pub program: Name,
    /// Container.
    pub container: Option<Name>,
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
    living: FxHashMap<ProcessKey, Process>,
    groups: FxHashMap<Key, Group>,
    each: B,
    /// Events that the library could not write, by its own count.
    pub dropped: u64,
}

impl<B: FnMut(Bar)> Report<B> {
    /// An empty report; `each` gets every process on every GPU as it ends.
    pub fn new(by: By, filter: Filter, each: B) -> Self {
        Self { by, filter, living: FxHashMap::default(), groups: FxHashMap::default(), each, dropped: 0 }
    }

    /// Takes an event in.
    pub fn add(&mut self, fact: Fact) {
        let now = fact.micros;
        let filter = &self.filter;
        if filter.since.is_some_and(|t| now < t) || filter.until.is_some_and(|t| now > t) || filter.uid.is_some_and(|uid| uid != fact.uid) {
            return;
        }
        let process = self.living.entry(fact.process).or_insert_with(|| Process {
            program: fact.program,
            uid: fact.uid,
            container: fact.container,
            first: now,
            last: now,
            late: 0,
            dropped: 0,
            gpus: Vec::new(),
            denied: 0,
        });
        process.last = process.last.max(now);
        process.dropped += fact.dropped;
        match (fact.kind, fact.gpu) {
            (Kind::LateChange, _) => process.late += 1,
            (Kind::Denied, None) => process.denied += 1,
            (kind @ (Kind::Device | Kind::Context | Kind::Denied), Some(gpu)) => {
                let one = process.on(gpu, now);
                one.denied += u64::from(kind == Kind::Denied);
                if kind == Kind::Context && fact.succeeded {
                    one.context.get_or_insert(now);
                }
            }
            (Kind::Exit, _) => {
                if let Some(process) = self.living.remove(&fact.process) {
                    self.end(fact.process, process, true);
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, process_key: ProcessKey, process: Process, ended: bool) {
        self.dropped += process.dropped;
        let nothing = Use { gpu: None, first: process.first, context: None, denied: 0 };
        let mut uses = process.gpus;
        if uses.is_empty() {
            uses.push(nothing);
        }
        let begins = |one: &Use, gpu: &str| one.gpu.is_some_and(|name| name.starts_with(gpu));
        let wanted = |one: &Use| self.filter.gpu.as_ref().is_none_or(|gpu| begins(one, gpu));
        for (at, one) in uses.iter().filter(|one| wanted(one)).enumerate() {
            // What concerns no single GPU is counted once.
            let (own_denied, late) = if at == 0 { (process.denied, process.late) } else { (0, 0) };
            let bar = Bar {
                gpu: one.gpu,
                process: process_key,
                uid: process.uid,
                program: process.program,
                container: process.container,
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
        let groups: BTreeMap<Key, Group> = self.groups.into_iter().filter(|(_, group)| !only_denied || group.denied > 0).collect();
        (groups.into_iter().collect(), self.dropped)
    }
}

impl Process {
    fn on(&mut self, gpu: Name, now: i64) -> &mut Use {
        let known = self.gpus.iter().position(|one| one.gpu == Some(gpu));
        let at = known.unwrap_or_else(|| {
            self.gpus.push(Use { gpu: Some(gpu), first: now, context: None, denied: 0 });
            self.gpus.len() - 1
        });
        &mut self.gpus[at]
    }
}

fn key_of(by: By, bar: &Bar) -> Key {
    let mut key = Key::default();
    if matches!(by, By::All | By::Gpu | By::Process) {
        key.gpu = bar.gpu;
    }
    if matches!(by, By::All | By::Exe | By::Process) {
        key.program = Some(bar.program);
    }
    if matches!(by, By::All | By::User | By::Process) {
        key.uid = Some(bar.uid);
    }
    if by == By::Container {
        key.container = Some(bar.container.unwrap_or_default());
    }
    if by == By::Process {
        key.process = Some(bar.process);
    }
    key
}
