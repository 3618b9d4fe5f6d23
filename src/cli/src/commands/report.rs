//! `cuvisor report`: who used which GPU, and for how long.

use crate::args::Report as Args;
use crate::audit::groups::{Bar, Filter, Report};
use crate::audit::{files, lines};
use crate::exit::Exit;
use crate::machine;
use crate::output::terminal::{harmless, print};
use crate::output::{Row, Users, csv, html, json, table};
use anyhow::{Context, Result, anyhow};
use jiff::civil::DateTime;
use jiff::{SignedDuration, Span, Timestamp, ZonedDateTime};

/// Prints the report.
///
/// # Errors
/// A file cannot be read, or an option makes no sense.
pub fn run(args: &Args) -> Result<Exit> {
    let filter = Filter {
        since: args.since.as_deref().map(|text| moment("--since", text)).transpose()?,
        until: args.until.as_deref().map(|text| moment("--until", text)).transpose()?,
        gpu: args.gpu.clone(),
        uid: args.user.as_deref().map(uid).transpose()?,
        denied: args.denied,
    };
    let paths = files::choose(&args.files)?;
    let mut bars: Vec<Bar> = Vec::new();
    let mut left_out = 0usize;
    let keep = args.html.is_some();
    let mut report = Report::new(args.by, filter, |bar| match (keep, bars.len() < html::MOST_BARS) {
        (true, true) => bars.push(bar),
        (true, false) => left_out += 1,
        (false, _) => {}
    });
    let faults = lines::each(&paths, |fact| report.add(fact))?;
    let (groups, dropped) = report.finish();
    if faults.count > 0 {
        let first = faults.first.unwrap_or_default();
        eprintln!("cuvisor: {} lines are no events and were left out; the first: {}", faults.count, harmless(&first));
    }
    if dropped > 0 {
        eprintln!("cuvisor: {dropped} events could not be written when they happened, by the library's own count");
    }
    let users = Users::load();
    if let Some(path) = &args.html {
        std::fs::write(path, html::page(&bars, left_out, &users)).with_context(|| format!("{}", path.display()))?;
        return Ok(Exit::Success);
    }
    let rows: Vec<Row<'_>> = groups.iter().map(|(key, group)| Row { key, group }).collect();
    let text = match (args.json, args.csv) {
        (true, _) => json::report(&rows, &users),
        (_, true) => csv::report(&rows, &users)?,
        _ if rows.is_empty() => "no event fits\n".to_owned(),
        _ => table::report(&rows, &users),
    };
    print(&text)
}

/// Microseconds since 1970 of `2h` (ago), a date, a local time, or RFC 3339.
fn moment(option: &str, text: &str) -> Result<i64> {
    if let Ok(stamp) = text.parse::<Timestamp>() {
        return Ok(stamp.as_microsecond());
    }
    if let Ok(local) = text.parse::<DateTime>() {
        return Ok(jiff::tz::TimeZone::system().to_timestamp(local)?.as_microsecond());
    }
    let ago = text.parse::<SignedDuration>().ok().map(|d| Timestamp::now().checked_sub(d));
    let ago = ago.or_else(|| text.parse::<Span>().ok().map(|span| ZonedDateTime::now().checked_sub(span).map(|z| z.timestamp())));
    match ago {
        Some(Ok(stamp)) => Ok(stamp.as_microsecond()),
        _ => Err(anyhow!("{option} {text}: write 2h, 7d, 2026-12-01, 2026-12-01T08:00 or 2026-12-01T08:00:00Z")),
    }
}

fn uid(name: &str) -> Result<u32> {
    let known = machine::users().into_iter().find(|user| user.name == name).map(|user| user.uid);
    known.or_else(|| name.parse().ok()).with_context(|| format!("--user {name}: no such user in /etc/passwd; write the uid"))
}
