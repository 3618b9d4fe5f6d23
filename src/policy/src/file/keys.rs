//! The keys of a policy's tables.

use super::error::Place;

/// A key. What has one name in two tables is one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// `mode`, of the file or of a rule.
    Mode,
    /// `locked`.
    Locked,
    /// `file`.
    File,
    /// `calls`.
    Calls,
    /// `journald`.
    Journald,
    /// `syslog`.
    Syslog,
    /// `redact`.
    Redact,
    /// `stack`.
    Stack,
    /// `devices`.
    Devices,
    /// `request`.
    Request,
    /// `emit`.
    Emit,
    /// `seal`.
    Seal,
    /// `name`.
    Name,
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

impl Key {
    /// The key of this name; none where the table has none.
    pub fn of(place: Place, name: &[u8]) -> Option<Self> {
        let key = match name {
            b"devices" => Self::Devices,
            b"name" => Self::Name,
            b"user" => Self::User,
            b"group" => Self::Group,
            b"exe" => Self::Exe,
            b"argv" => Self::Argv,
            b"env" => Self::Env,
            b"cgroup" => Self::Cgroup,
            b"request" => Self::Request,
            b"emit" => Self::Emit,
            b"seal" => Self::Seal,
            b"mode" => Self::Mode,
            b"locked" => Self::Locked,
            b"file" => Self::File,
            b"calls" => Self::Calls,
            b"journald" => Self::Journald,
            b"syslog" => Self::Syslog,
            b"redact" => Self::Redact,
            b"stack" => Self::Stack,
            _ => return None,
        };
        key.stands_in(place).then_some(key)
    }

    fn stands_in(self, place: Place) -> bool {
        match self {
            Self::Mode => matches!(place, Place::Top | Place::Rule),
            Self::Locked => place == Place::Top,
            Self::File | Self::Calls | Self::Journald | Self::Syslog | Self::Redact | Self::Stack => place == Place::Audit,
            Self::Devices | Self::Request | Self::Emit | Self::Seal => matches!(place, Place::Default | Place::Rule),
            Self::Name | Self::User | Self::Group | Self::Exe | Self::Argv | Self::Env | Self::Cgroup => place == Place::Rule,
        }
    }

    /// A bit for each key.
    pub fn bit(self) -> u32 {
        1 << self as u32
    }
}
