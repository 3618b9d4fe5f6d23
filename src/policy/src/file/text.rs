//! Bytes that no policy may hold.

use super::error::{Error, Fault};

/// The first of them; `offset` is where the piece begins in the file.
pub fn error(text: &[u8], offset: usize) -> Option<Error<'_>> {
    // One pass without a branch for each byte; only a piece that has something odd is looked at closely.
    let odd = |c: u8| u8::from(!matches!(c, b' '..=b'~')) & u8::from(c != b'\t') & u8::from(c != b'\n');
    if text.iter().fold(0, |any, c| any | odd(*c)) == 0 { None } else { odd_error(text, offset) }
}

#[inline(never)]
fn odd_error(text: &[u8], offset: usize) -> Option<Error<'_>> {
    if let Err(error) = core::str::from_utf8(text) {
        let at = error.valid_up_to();
        let text = text.get(at..).and_then(|t| t.get(..1)).unwrap_or_default();
        return Some(Error { offset: offset.saturating_add(at), text, fault: Fault::NotUtf8 });
    }
    let control = |c: u8| (c < b' ' && !matches!(c, b'\t' | b'\n')) || c == 0x7f;
    let is_line_end = |at: usize| text.get(at..).is_some_and(|rest| rest.starts_with(b"\r\n"));
    let (at, _) = text.iter().enumerate().filter(|(_, c)| control(**c)).find(|(at, _)| !is_line_end(*at))?;
    Some(Error { offset: offset.saturating_add(at), text: b"", fault: Fault::ControlCharacter })
}
