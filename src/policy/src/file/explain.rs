//! What is wrong with a line that could not be read. Nothing here is in a hurry.

use super::cursor::{Cursor, is_key};
use super::error::{Expected, Fault};
use super::keys::Key;
use super::policy::check_audit_file;
use super::raw::{Array, Mistake, Value};
use super::values::{is_id, is_text, is_variable};
use crate::scan;

/// What is wrong with the line of a table's name; the cursor stands at its bracket.
#[cold]
pub fn table(cursor: Cursor<'_>) -> Mistake<'_> {
    let mut ahead = cursor;
    match ahead.table() {
        None => about_line(cursor, Fault::NotAnEntry),
        Some(_) => trailing(ahead),
    }
}

/// What is wrong with the writing of a line `key = value`; none where it is written well. The cursor moves behind it,
/// and behind a faulty list, or else each of its further lines would be a fault of its own.
#[cold]
pub fn writing<'a>(cursor: &mut Cursor<'a>) -> Result<Value<'a>, Mistake<'a>> {
    let start = *cursor;
    let key = cursor.take_while(is_key);
    cursor.skip_blanks();
    match cursor.peek() {
        Some(b'=') if !key.is_empty() => cursor.bump(1),
        Some(b'.' | b'"' | b'\'') => return Err(about_line(start, Fault::FancyKey)),
        _ => return Err(about_line(start, Fault::NotAnEntry)),
    }
    cursor.skip_blanks();
    let value = match cursor.peek() {
        Some(b'[') => Value::Array(array(cursor)?),
        None | Some(b'\n' | b'\r' | b'#') => return Err(Mistake { text: key, fault: Fault::NoValue }),
        Some(_) => scalar(cursor)?,
    };
    if cursor.end_of_line() { Ok(value) } else { Err(trailing(*cursor)) }
}

/// What is wrong with a value that is written well.
#[cold]
pub fn value(key: Key, value: Value<'_>) -> Mistake<'_> {
    let expected = |expected| Mistake { text: value.text(), fault: Fault::Expected(expected) };
    match key {
        Key::Mode => expected(Expected::Mode),
        Key::Locked | Key::Journald | Key::Syslog | Key::Stack => expected(Expected::Boolean),
        Key::Calls => expected(Expected::Calls),
        Key::Devices => expected(Expected::Devices),
        Key::Request => expected(Expected::Request),
        Key::Emit => expected(Expected::Emit),
        Key::Seal => expected(Expected::Seal),
        Key::Name => expected(Expected::Text),
        Key::File => match check_audit_file(value.text()) {
            Err(fault) if is_text(value) => Mistake { text: value.text(), fault },
            _ => expected(Expected::Text),
        },
        Key::Redact | Key::Exe | Key::Argv | Key::Cgroup => list(value, Expected::Texts, is_text),
        Key::User | Key::Group => list(value, Expected::Ids, is_id),
        Key::Env => list(value, Expected::Variable, is_variable),
    }
}

/// The first element that is not sound, or the whole list.
fn list<'a>(value: Value<'a>, expected: Expected, sound: impl Fn(Value<'a>) -> bool) -> Mistake<'a> {
    let unsound = match value {
        Value::Array(array) => array.elements().find(|element| !sound(*element)),
        Value::Quoted(_) | Value::Bare(_) => None,
    };
    Mistake { text: unsound.unwrap_or(value).text(), fault: Fault::Expected(expected) }
}

/// The rest of the line without its comment.
fn about_line(mut cursor: Cursor<'_>, fault: Fault) -> Mistake<'_> {
    Mistake { text: cursor.take_until(*b"\n#").trim_ascii_end(), fault }
}

fn trailing(mut cursor: Cursor<'_>) -> Mistake<'_> {
    cursor.skip_blanks();
    Mistake { text: cursor.take_until(*b"\n").trim_ascii_end(), fault: Fault::TrailingText }
}

fn scalar<'a>(cursor: &mut Cursor<'a>) -> Result<Value<'a>, Mistake<'a>> {
    let start = *cursor;
    if let Some(value) = cursor.scalar() {
        return Ok(value);
    }
    *cursor = start;
    Err(match cursor.peek() {
        Some(quote @ (b'"' | b'\'')) => string(cursor, quote),
        Some(b'[') => Mistake { text: cursor.take(1), fault: Fault::NestedArray },
        Some(b'{') => {
            let body = scan::position(cursor.rest, *b"\n}");
            let closing = usize::from(cursor.rest.get(body) == Some(&b'}'));
            Mistake { text: cursor.take(body.saturating_add(closing)), fault: Fault::InlineTable }
        }
        _ => Mistake { text: cursor.take(1), fault: Fault::Comma },
    })
}

/// What is wrong with a string: it begins with three quotes, does not end, or holds an escape.
fn string<'a>(cursor: &mut Cursor<'a>, quote: u8) -> Mistake<'a> {
    if cursor.rest.starts_with(&[quote; 3]) {
        return Mistake { text: cursor.take(3), fault: Fault::LongString };
    }
    let mut start = *cursor;
    cursor.bump(1);
    let text = cursor.take_until([quote, b'\n']);
    if cursor.skip(quote) {
        return Mistake { text, fault: Fault::Escape };
    }
    Mistake { text: start.take_until(*b"\n").trim_ascii_end(), fault: Fault::OpenString }
}

fn array<'a>(cursor: &mut Cursor<'a>) -> Result<Array<'a>, Mistake<'a>> {
    let mut ahead = *cursor;
    if let Some(array) = ahead.list(0, |_| true) {
        *cursor = ahead;
        return Ok(array);
    }
    let opening = cursor.take(1);
    let start = *cursor;
    let mistake = unclosed(cursor).unwrap_or(Mistake { text: opening, fault: Fault::OpenArray });
    *cursor = start;
    cursor.take_until(*b"]=");
    if cursor.peek() != Some(b']') {
        *cursor = start;
    }
    Err(mistake)
}

/// What is wrong in a list; none where its closing bracket is missing.
fn unclosed<'a>(cursor: &mut Cursor<'a>) -> Option<Mistake<'a>> {
    loop {
        cursor.skip_blank_lines();
        if matches!(cursor.peek(), None | Some(b'=' | b']')) {
            return None;
        }
        if let Err(mistake) = scalar(cursor) {
            return Some(mistake);
        }
        cursor.skip_blank_lines();
        match cursor.peek() {
            None | Some(b'=' | b']') => return None,
            Some(b',') => cursor.bump(1),
            Some(_) => return no_comma(*cursor),
        }
    }
}

/// Two values without a comma between them; `key =` or a table means that the list was not closed.
fn no_comma(mut cursor: Cursor<'_>) -> Option<Mistake<'_>> {
    let mut ahead = cursor;
    let key = ahead.take_while(is_key);
    ahead.skip_blanks();
    let is_open = ahead.peek() == Some(b'[') || (!key.is_empty() && ahead.peek() == Some(b'='));
    (!is_open).then(|| Mistake { text: cursor.take_until(*b" \n,]"), fault: Fault::Comma })
}
