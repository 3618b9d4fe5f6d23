//! Reports for programs: one array of objects.

use super::{Row, Users};
use serde_json::{Value, json};

/// The rows with the same facts as the table, times in RFC 3339.
pub fn report(rows: &[Row<'_>], users: &Users) -> String {
    let stamp = |t: Option<i64>| t.and_then(|t| jiff::Timestamp::from_microsecond(t).ok()).map(|t| t.to_string());
    let object = |row: &Row<'_>| {
        let (key, group) = (row.key, row.group);
        let mut object = serde_json::Map::new();
        object.insert("gpu".into(), json!(key.gpu));
        let optional = [
            ("program", key.program.map(|p| json!(p))),
            ("uid", key.uid.map(|uid| json!(uid))),
            ("user", key.uid.map(|uid| json!(users.name(uid)))),
            ("container", key.container.map(|id| if id.is_empty() { Value::Null } else { json!(id) })),
            ("pid", key.process.map(|(pid, _, _)| json!(pid))),
            ("start_time", key.process.map(|(_, start, _)| json!(start))),
        ];
        object.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        let numbers = json!({
            "processes": group.processes, "first": stamp(group.first), "last": stamp(group.last), "gpu_seconds": group.used as f64 / 1e6,
            "denied": group.denied, "late_changes": group.late, "no_exit_seen": group.unended,
        });
        if let Value::Object(numbers) = numbers {
            object.extend(numbers);
        }
        Value::Object(object)
    };
    let rows: Vec<_> = rows.iter().map(object).collect();
    serde_json::to_string_pretty(&rows).unwrap_or_default() + "\n"
}
