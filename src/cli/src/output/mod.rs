//! Forms of output: one file each.

pub mod csv;
pub mod html;
pub mod json;
pub mod table;
pub mod terminal;

use crate::audit::groups::{Group, Key};
use std::collections::HashMap;

/// A row of a report, in words.
pub struct Row<'a> {
    /// What the row's processes have in common.
    pub key: &'a Key,
    /// What they did.
    pub group: &'a Group,
}

/// Login names by uid.
pub struct Users(HashMap<u32, String>);

impl Users {
    /// Those of `/etc/passwd`.
    pub fn load() -> Self {
        Self(crate::machine::users().into_iter().map(|user| (user.uid, user.name)).collect())
    }

    /// The name of a uid, else its number.
    pub fn name(&self, uid: u32) -> String {
        self.0.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

/// RFC 3339 in UTC, to the second.
pub fn time(micros: Option<i64>) -> String {
    let stamp = micros.and_then(|t| jiff::Timestamp::from_microsecond(t).ok());
    stamp.map_or_else(String::new, |t| t.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// Seconds with one decimal.
pub fn seconds(micros: i64) -> String {
    format!("{}.{}", micros / 1_000_000, micros % 1_000_000 / 100_000)
}
