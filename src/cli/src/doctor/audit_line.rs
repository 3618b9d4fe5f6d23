//! What the audit file says of a process that runs.

use crate::audit::event::{Event, Seal};
use crate::audit::files;
use crate::inside;
use crate::process::Running;
use crate::verdict::Verdict;
use std::borrow::Cow;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The last `init` of a process.
pub struct Logged {
    pub request: Option<String>,
    pub effective: Option<String>,
    pub seal: Option<Seal>,
    /// The Python lines that it came from, where they were logged.
    pub origin: String,
}

/// What the audit files tell.
pub enum Log {
    /// No audit file could be read.
    Unread,
    /// None has a `cuInit` of this process.
    Silent,
    Init(Box<Logged>),
}

impl Log {
    /// The line, if there is one.
    pub fn init(&self) -> Option<&Logged> {
        if let Self::Init(logged) = self { Some(logged) } else { None }
    }
}

/// Looks for the process in the audit files that can be read: those that it writes itself, else those of this command's
/// policy.
pub fn find(running: &Running, verdict: &Verdict) -> Log {
    let inside = &running.inside;
    let (root, paths) = match &verdict.audit {
        Some(pattern) => {
            let path = pattern.replace("{uid}", &inside.uid.to_string()).replace("{pid}", &inside.pid.to_string());
            (&*inside.root, files::expand(&inside::below(&inside.root, Path::new(&path))))
        }
        None => (Path::new("/"), files::choose(&[]).unwrap_or_default()),
    };
    let mut log = Log::Unread;
    for path in paths {
        let Ok(file) = files::open_in(root, &path) else { continue };
        if matches!(log, Log::Unread) {
            log = Log::Silent;
        }
        for line in BufReader::new(file).lines().map_while(Result::ok).filter(|line| line.contains("\"init\"")) {
            let Ok(event) = Event::parse(&line) else { continue };
            if event.event == "init" && event.pid == i64::from(inside.pid) && event.start_time == running.start_time {
                let own = |text: &Option<Cow<'_, str>>| text.as_deref().map(str::to_owned);
                let (request, effective) = (own(&event.request), own(&event.effective));
                log = Log::Init(Box::new(Logged { request, effective, seal: event.seal.clone(), origin: event.origin() }));
            }
        }
    }
    log
}
