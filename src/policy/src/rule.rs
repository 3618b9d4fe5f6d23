//! Whether a rule matches a process, and if not, which condition failed.

use crate::file::policy::{Rule, id};
use crate::file::raw::{Array, Value};
use crate::scan;

/// What rules may ask about a process. Each fact is asked for only when a rule needs it.
pub trait Facts {
    /// Real user id.
    fn uid(&mut self) -> u32;
    /// Whether this is a login name of the real user (`/etc/passwd`).
    fn is_user(&mut self, name: &[u8]) -> bool;
    /// Whether the process is in this group, supplementary groups included.
    fn in_group(&mut self, gid: u32) -> bool;
    /// The same for a group's name (`/etc/group`).
    fn in_group_named(&mut self, name: &[u8]) -> bool;
    /// The resolved path of the executable; empty where it is not known, as in a chroot without /proc.
    fn exe(&mut self) -> &[u8];
    /// The command line as at exec time, arguments joined by one blank.
    fn command_line(&mut self) -> &[u8];
    /// The value of an environment variable.
    fn variable(&mut self, name: &[u8]) -> Option<&[u8]>;
    /// The text of `/proc/self/cgroup`; empty where it cannot be read.
    fn cgroup(&mut self) -> &[u8];
}

/// A condition of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// `user`.
    User,
    /// `group`.
    Group,
    /// `exe`.
    Exe,
    /// `argv`.
    Argv,
    /// `env`.
    Env,
    /// `cgroup`.
    Cgroup,
}

impl Condition {
    /// The key in the file.
    pub fn key(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Exe => "exe",
            Self::Argv => "argv",
            Self::Env => "env",
            Self::Cgroup => "cgroup",
        }
    }
}

/// The first condition of the rule that does not hold; none where the rule matches.
pub fn mismatch(rule: &Rule<'_>, facts: &mut impl Facts) -> Option<Condition> {
    let held = |list: Option<Array<'_>>, holds: &mut dyn FnMut(Value<'_>) -> bool| list.is_none_or(|l| l.elements().any(holds));
    let mut is_user = |v: Value<'_>| match id(&v) {
        Some(uid) => facts.uid() == uid,
        None => facts.is_user(v.text()),
    };
    if !held(rule.user, &mut is_user) {
        return Some(Condition::User);
    }
    let mut in_group = |v: Value<'_>| match id(&v) {
        Some(gid) => facts.in_group(gid),
        None => facts.in_group_named(v.text()),
    };
    if !held(rule.group, &mut in_group) {
        return Some(Condition::Group);
    }
    // What is not known matches no pattern, as a variable that is not set does not.
    if !held(rule.exe, &mut |v| Some(facts.exe()).is_some_and(|exe| !exe.is_empty() && glob(v.text(), exe))) {
        return Some(Condition::Exe);
    }
    if !held(rule.argv, &mut |v| glob(v.text(), facts.command_line())) {
        return Some(Condition::Argv);
    }
    if !held(rule.env, &mut |v| variable_holds(v.text(), facts)) {
        return Some(Condition::Env);
    }
    if !held(rule.cgroup, &mut |v| cgroup_paths(facts.cgroup()).any(|path| glob(v.text(), path))) {
        return Some(Condition::Cgroup);
    }
    None
}

fn variable_holds(condition: &[u8], facts: &mut impl Facts) -> bool {
    let (name, pattern) = condition.split_at(scan::position(condition, *b"="));
    match (facts.variable(name), pattern) {
        (Some(value), [_, pattern @ ..]) => glob(pattern, value),
        (value, []) => value.is_some(),
        (None, _) => false,
    }
}

/// The paths in the text of `/proc/<pid>/cgroup`: what follows the second colon of each line.
pub fn cgroup_paths(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|c| *c == b'\n').filter_map(|line| line.splitn(3, |c| *c == b':').nth(2))
}

/// Whether a text matches a pattern in which `*` stands for any bytes, `/` included, and `?` for one.
/// The time is at most the product of the two lengths.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0usize, 0usize);
    // Where the last star was, and how far the text had been given to it.
    let mut star: Option<(usize, usize)> = None;
    loop {
        match (pattern.get(p), text.get(t)) {
            (Some(b'*'), _) => {
                star = Some((p, t));
                p = p.saturating_add(1);
            }
            (Some(b'?'), Some(_)) => {
                p = p.saturating_add(1);
                t = t.saturating_add(1);
            }
            (Some(a), Some(b)) if a == b => {
                p = p.saturating_add(1);
                t = t.saturating_add(1);
            }
            (None, None) => return true,
            (_, _) => match star {
                Some((at, given)) if given < text.len() => {
                    star = Some((at, given.saturating_add(1)));
                    p = at.saturating_add(1);
                    t = given.saturating_add(1);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_a_shell_would_but_for_slashes() {
        for (pattern, text) in
            [("*", ""), ("*", "a/b"), ("/usr/bin/python3*", "/usr/bin/python3.11"), ("*a*b*", "xxaxxbxx"), ("?b", "ab"), ("", "")]
        {
            assert!(glob(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("?", ""), ("*a", "ab"), ("a*b", "a"), ("abc", "ab")] {
            assert!(!glob(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }
}
