//! Tables for people.

use super::terminal::harmless;
use super::{Row, Users, seconds, time};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A table without frames, its columns aligned; the given columns hold numbers.
pub fn plain(header: &[&str], numbers: &[usize], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| harmless(cell)));
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if numbers.contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The report's table. Columns that the report is not grouped by are left out.
pub fn report(rows: &[Row<'_>], users: &Users) -> String {
    let has = |part: fn(&super::Key) -> bool| rows.iter().any(|row| part(row.key));
    let mut header = Vec::new();
    let columns = [
        ("GPU", has(|k| k.gpu.is_some())),
        ("program", has(|k| k.program.is_some())),
        ("user", has(|k| k.uid.is_some())),
        ("container", has(|k| k.container.is_some())),
        ("pid", has(|k| k.process.is_some())),
    ];
    header.extend(columns.iter().filter(|(_, shown)| *shown).map(|(name, _)| *name));
    let words = header.len();
    header.extend(["processes", "first use", "last use", "GPU-seconds", "denied", "late changes", "no exit seen"]);
    let cells = |row: &Row<'_>| {
        let (key, group) = (row.key, row.group);
        let values = [
            key.gpu.unwrap_or("-").to_owned(),
            key.program.unwrap_or_default().to_owned(),
            key.uid.map(|uid| users.name(uid)).unwrap_or_default(),
            key.container.map_or(String::new(), |id| if id.is_empty() { "-".into() } else { id.chars().take(12).collect() }),
            key.process.map(|(pid, _, _)| pid.to_string()).unwrap_or_default(),
        ];
        let mut cells: Vec<String> = values.into_iter().zip(columns).filter(|(_, (_, shown))| *shown).map(|(value, _)| value).collect();
        cells.extend([group.processes.to_string(), time(group.first), time(group.last), seconds(group.used)]);
        cells.extend([group.denied, group.late, group.unended].map(|n| n.to_string()));
        cells
    };
    plain(&header, &[words, words + 3, words + 4, words + 5, words + 6], rows.iter().map(cells).collect())
}
