//! Reports for spreadsheets.

use super::{Row, Users, seconds, time};
use anyhow::Result;

/// The rows as RFC 4180, all columns always.
///
/// # Errors
/// None that can happen when writing to memory.
pub fn report(rows: &[Row<'_>], users: &Users) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "gpu",
        "program",
        "user",
        "container",
        "pid",
        "processes",
        "first",
        "last",
        "gpu_seconds",
        "denied",
        "late_changes",
        "no_exit_seen",
    ])?;
    for Row { key, group } in rows {
        writer.write_record([
            key.gpu.unwrap_or_default().to_owned(),
            key.program.unwrap_or_default().to_owned(),
            key.uid.map(|uid| users.name(uid)).unwrap_or_default(),
            key.container.unwrap_or_default().to_owned(),
            key.process.map(|(pid, _, _)| pid.to_string()).unwrap_or_default(),
            group.processes.to_string(),
            time(group.first),
            time(group.last),
            seconds(group.used),
            group.denied.to_string(),
            group.late.to_string(),
            group.unended.to_string(),
        ])?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}
