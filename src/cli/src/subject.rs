//! The facts about a process that rules ask for.

use crate::args::Explain;
use crate::inside;
use crate::machine;
use crate::process::Running;
use crate::source::{self, Unread};
use anyhow::{Context, Result, bail};
use cuvisor_policy::names;
use cuvisor_policy::rule::Facts;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A process that is asked about: one that would be started, or one that runs.
pub struct Subject {
    uid: u32,
    user: String,
    gids: Vec<u32>,
    exe: Vec<u8>,
    command_line: Vec<u8>,
    environment: BTreeMap<Vec<u8>, Vec<u8>>,
    cgroup: Vec<u8>,
    place: Place,
}

/// Where a process finds its files.
struct Place {
    /// The folder that is `/` for it, as this command reaches it.
    root: PathBuf,
    /// Whether that is another one than this command's.
    is_elsewhere: bool,
    /// Its working directory, from which a path goes that does not begin at `/`.
    folder: PathBuf,
}

impl Place {
    /// This command's own.
    fn here() -> Self {
        Self { root: "/".into(), is_elsewhere: false, folder: std::env::current_dir().unwrap_or_default() }
    }
}

impl Subject {
    /// The process that a command would become.
    ///
    /// # Errors
    /// An option makes no sense.
    pub fn starting(args: &Explain) -> Result<Self> {
        let Some(program) = args.command.first() else { bail!("no command was given") };
        let mut environment: BTreeMap<_, _> = std::env::vars_os().map(|(k, v)| (k.into_vec(), v.into_vec())).collect();
        for pair in &args.env {
            let Some((name, value)) = pair.split_once('=') else { bail!("--env {pair}: write NAME=VALUE") };
            environment.insert(name.into(), value.into());
        }
        for name in &args.unset {
            environment.remove(name.as_bytes());
        }
        let users = machine::users();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let numbers = |key: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().split_whitespace().filter_map(|n| n.parse().ok()).collect()
        };
        let (uid, gids) = match &args.user {
            None => (numbers("Uid:").first().copied().unwrap_or_default(), [numbers("Gid:"), numbers("Groups:")].concat()),
            Some(name) => {
                let user = users.iter().find(|u| u.name == *name || u.uid.to_string() == *name);
                let user = user.with_context(|| format!("--as {name}: no such user in /etc/passwd"))?;
                let groups = machine::groups().into_iter().filter(|g| g.members.contains(&user.name)).map(|g| g.gid);
                (user.uid, std::iter::once(user.gid).chain(groups).collect())
            }
        };
        let user = users.into_iter().find(|u| u.uid == uid).map(|u| u.name).unwrap_or_default();
        let exe = resolve(program);
        let command_line = args.command.iter().map(|a| a.as_bytes()).collect::<Vec<_>>().join(&b' ');
        let cgroup = std::fs::read("/proc/self/cgroup").unwrap_or_default();
        Ok(Self { uid, user, gids, exe, command_line, environment, cgroup, place: Place::here() })
    }

    /// A program of this shell's, whichever: what rules ask of the user, the environment and the cgroup is this
    /// process's, executable and arguments are the shell's.
    pub fn here() -> Self {
        let own = Running::read(Path::new("/"), std::process::id());
        let shell = Running::read(Path::new("/"), std::os::unix::process::parent_id());
        let environment = std::env::vars_os().map(|(k, v)| (k.into_vec(), v.into_vec())).collect();
        let user = |uid| machine::users().into_iter().find(|u| u.uid == uid).map(|u| u.name).unwrap_or_default();
        let uid = own.as_ref().map(|own| own.uid).unwrap_or_default();
        Self {
            uid,
            user: user(uid),
            gids: own.as_ref().map(|own| own.gids.clone()).unwrap_or_default(),
            exe: shell.as_ref().map(|shell| shell.exe.clone()).unwrap_or_default(),
            command_line: shell.map(|shell| shell.command).unwrap_or_default(),
            environment,
            cgroup: own.map(|own| own.cgroup).unwrap_or_default(),
            place: Place::here(),
        }
    }

    /// A process that runs, as the library in it sees it. What may not be read counts as empty; [`Running`] says what that was.
    pub fn running(running: &Running) -> Self {
        let inside = &running.inside;
        let place = Place { root: inside.root.clone(), is_elsewhere: inside.is_elsewhere, folder: inside.folder.clone() };
        Self::seen(running, inside.uid, &inside.gids, place)
    }

    /// A process that runs, as the machine sees it.
    pub fn from_outside(running: &Running) -> Self {
        Self::seen(running, running.uid, &running.gids, Place::here())
    }

    fn seen(running: &Running, uid: u32, gids: &[u32], place: Place) -> Self {
        let user = machine::users_of(&place.root).into_iter().find(|u| u.uid == uid).map(|u| u.name).unwrap_or_default();
        Self {
            uid,
            user,
            gids: gids.to_vec(),
            exe: running.exe.clone(),
            command_line: running.command.clone(),
            environment: running.environment.clone().unwrap_or_default(),
            cgroup: running.cgroup.clone(),
            place,
        }
    }

    /// Reads a policy as the library in it would; `is_system` where it is the machine's own.
    ///
    /// # Errors
    /// It is not there, or the library refuses it.
    pub fn policy(&self, path: &Path, is_system: bool) -> Result<Vec<u8>, Unread> {
        source::policy(&self.place.root, &self.place.folder.join(path), &self.shown(path), is_system)
    }

    /// A path of its files as this command names it.
    pub fn shown(&self, path: &Path) -> PathBuf {
        let place = &self.place;
        if place.is_elsewhere { inside::below(&place.root, &place.folder.join(path)) } else { path.to_owned() }
    }

    /// The folder that stands for `/` where GPUs are looked for.
    pub fn root(&mut self) -> PathBuf {
        self.variable(names::PROC_ROOT.as_bytes()).map_or_else(|| PathBuf::from("/"), |root| PathBuf::from(OsStr::from_bytes(root)))
    }
}

/// The executable as /proc/self/exe will show it: found on the PATH, links resolved, a script's interpreter instead of the script.
fn resolve(program: &OsStr) -> Vec<u8> {
    let path = if program.as_bytes().contains(&b'/') {
        Some(PathBuf::from(program))
    } else {
        let places = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&places).map(|place| place.join(program)).find(|path| path.is_file())
    };
    let Some(path) = path.and_then(|path| path.canonicalize().ok()) else { return program.as_bytes().to_vec() };
    let beginning = std::fs::read(&path).unwrap_or_default();
    let interpreter = beginning.strip_prefix(b"#!").and_then(|rest| rest.split(|c| *c == b'\n').next()).map(<[u8]>::trim_ascii);
    let words = |line: &[u8]| line.split(|c| *c == b' ').map(<[u8]>::to_vec).filter(|w| !w.is_empty()).collect::<Vec<_>>();
    match interpreter.map(words).as_deref() {
        Some([env, name, ..]) if env.ends_with(b"/env") => resolve(OsStr::from_bytes(name)),
        Some([name, ..]) => resolve(OsStr::from_bytes(name)),
        _ => path.into_os_string().into_vec(),
    }
}

impl Facts for Subject {
    fn uid(&mut self) -> u32 {
        self.uid
    }

    fn is_user(&mut self, name: &[u8]) -> bool {
        self.user.as_bytes() == name
    }

    fn in_group(&mut self, gid: u32) -> bool {
        self.gids.contains(&gid)
    }

    fn in_group_named(&mut self, name: &[u8]) -> bool {
        machine::groups_of(&self.place.root).iter().any(|g| g.name.as_bytes() == name && self.gids.contains(&g.gid))
    }

    fn exe(&mut self) -> &[u8] {
        &self.exe
    }

    fn command_line(&mut self) -> &[u8] {
        &self.command_line
    }

    fn variable(&mut self, name: &[u8]) -> Option<&[u8]> {
        self.environment.get(name).map(Vec::as_slice)
    }

    fn cgroup(&mut self) -> &[u8] {
        &self.cgroup
    }
}
