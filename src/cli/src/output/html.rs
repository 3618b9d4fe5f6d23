//! A report as one page that needs no network: a lane a GPU, a bar a process.

use super::Users;
use crate::audit::groups::Bar;
use serde_json::json;

/// How many bars a page holds; a browser becomes slow beyond.
pub const MOST_BARS: usize = 20_000;

const PAGE: &str = include_str!("page.html");

/// The page for these bars; `left_out` says how many more there were.
pub fn page(bars: &[Bar], left_out: usize, users: &Users) -> String {
    let data: Vec<_> = bars
        .iter()
        .map(|bar| {
            json!({
                "gpu": bar.gpu.unwrap_or("no GPU"), "pid": bar.process.0, "user": users.name(bar.uid), "program": bar.program,
                "container": bar.container, "first": bar.first as f64 / 1e3, "last": bar.last as f64 / 1e3, "used": bar.used,
                "denied": bar.denied, "late": bar.late, "ended": bar.ended,
            })
        })
        .collect();
    // A text in the data must not end the script that holds it.
    let data = serde_json::to_string(&data).unwrap_or_default().replace('<', "\\u003c");
    PAGE.replace("/*DATA*/[]", &data).replace("/*LEFT_OUT*/0", &left_out.to_string())
}
