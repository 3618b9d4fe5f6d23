//! One event as one line of JSON in a fixed buffer.
//!
//! A line is valid UTF-8 and valid JSON whatever the bytes. Control characters (C1 and DEL too) and
//! the line separators U+2028 and U+2029 are escaped. A byte that is not UTF-8 becomes the character
//! U+F700 + byte, and the line then says `"raw_bytes":true`; the characters U+F780 to U+F7FF of a
//! text are treated as such bytes, so the writing can be undone. What does not fit is left out, never in the middle of an escape, and
//! the line then says `"truncated":true`.

use crate::buffer::{Digits, Text, digit};

/// The longest line, its line feed included.
pub const LINE_LIMIT: usize = 8192;
/// Room that is kept for closing brackets and the flags at the end.
const RESERVE: usize = 96;
/// The schema that the lines follow.
pub const SCHEMA: &str = "cuvisor.audit/1";

/// A line that is being written: an object, with objects and arrays inside.
#[repr(C)] // the text last: a short line touches one page
pub struct Line {
    comma: bool,
    raw_bytes: bool,
    truncated: bool,
    /// The closing brackets still owed, innermost last.
    open: Text<8>,
    text: Text<LINE_LIMIT>,
}

impl Line {
    /// Room for a line, of nothing but zeros: [`Line::begin_anew`] comes first. No constant, whose copies would be made from
    /// one in the library's file.
    pub const fn room() -> Self {
        Self { text: Text::new(), open: Text::new(), comma: false, raw_bytes: false, truncated: false }
    }

    /// An object without members.
    pub fn new() -> Self {
        let mut line = Self::room();
        line.begin_anew();
        line
    }

    /// Forgets what was written and begins an object without members.
    pub fn begin_anew(&mut self) {
        self.text.truncate(0);
        self.open.truncate(0);
        (self.raw_bytes, self.truncated) = (false, false);
        self.begin(b"{", b"}");
    }

    /// A string member; bytes need not be UTF-8.
    pub fn string(&mut self, key: &str, value: &[u8]) {
        if self.start(key, value.len().min(16)) {
            self.quoted(value);
        }
    }

    /// A string member, or null.
    pub fn string_or_null(&mut self, key: &str, value: Option<&[u8]>) {
        match value {
            Some(value) => self.string(key, value),
            None => self.null(key),
        }
    }

    /// A number member.
    pub fn number(&mut self, key: &str, value: i64) {
        if self.start(key, 21) {
            self.integer(value);
        }
    }

    /// A number of seconds with six decimals, from microseconds.
    pub fn seconds(&mut self, key: &str, micros: u64) {
        if self.start(key, 28) {
            self.text.push_number(micros / 1_000_000);
            self.text.push(b".");
            self.text.push(&padded::<6>(micros % 1_000_000));
        }
    }

    /// A boolean member.
    pub fn boolean(&mut self, key: &str, value: bool) {
        if self.start(key, 5) {
            self.text.push(if value { b"true" } else { b"false" });
        }
    }

    /// A null member.
    pub fn null(&mut self, key: &str) {
        if self.start(key, 4) {
            self.text.push(b"null");
        }
    }

    /// Writes a member that is an object, by what `fill` puts into it.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        self.nest(key, b"{", b"}", fill);
    }

    /// Writes a member that is an array; `fill` calls [`Line::element`] or [`Line::item`].
    pub fn array(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        self.nest(key, b"[", b"]", fill);
    }

    /// Writes an object into an array.
    pub fn item(&mut self, fill: impl FnOnce(&mut Self)) {
        if self.has_room(2) {
            self.separate();
            self.begin(b"{", b"}");
            fill(self);
            self.end();
        }
    }

    /// Writes a string into an array; an empty key stands for none.
    pub fn element(&mut self, value: &[u8]) {
        if self.has_room(value.len().min(16)) {
            self.separate();
            self.quoted(value);
            self.comma = true;
        }
    }

    /// Writes a number into an array.
    pub fn numeral(&mut self, value: i64) {
        if self.has_room(21) {
            self.separate();
            self.integer(value);
        }
    }

    /// The finished line, with its line feed.
    pub fn finish(&mut self) -> &[u8] {
        while self.open.len() > 1 {
            self.end();
        }
        for (flag, text) in [(self.raw_bytes, &b",\"raw_bytes\":true"[..]), (self.truncated, b",\"truncated\":true")] {
            if flag {
                self.text.push(text);
            }
        }
        self.end();
        self.text.push(b"\n");
        self.text.as_bytes()
    }

    fn nest(&mut self, key: &str, opening: &[u8], closing: &[u8], fill: impl FnOnce(&mut Self)) {
        if self.start(key, 2) {
            self.begin(opening, closing);
            fill(self);
            self.end();
        }
    }

    fn begin(&mut self, opening: &[u8], closing: &[u8]) {
        self.text.push(opening);
        self.open.push(closing);
        self.comma = false;
    }

    fn end(&mut self) {
        let rest = self.open.len().saturating_sub(1);
        let closing = Text::<1>::of(self.open.as_bytes().get(rest..).unwrap_or_default());
        self.open.truncate(rest);
        self.text.push(closing.as_bytes());
        self.comma = true;
    }

    /// Writes the key if it and `len` more bytes fit; says whether it did.
    fn start(&mut self, key: &str, len: usize) -> bool {
        if !self.has_room(len.saturating_add(key.len())) {
            return false;
        }
        self.separate();
        self.text.push(b"\"");
        self.text.push(key.as_bytes());
        self.text.push(b"\":");
        self.comma = true;
        true
    }

    fn separate(&mut self) {
        if self.comma {
            self.text.push(b",");
        }
    }

    /// Whether so many bytes and some punctuation fit; else the line is marked truncated.
    fn has_room(&mut self, len: usize) -> bool {
        let fits = self.text.len().saturating_add(len).saturating_add(8) < LINE_LIMIT.saturating_sub(RESERVE);
        self.truncated |= !fits;
        fits
    }

    fn integer(&mut self, value: i64) {
        if value < 0 {
            self.text.push(b"-");
        }
        self.text.push(Digits::of(value.unsigned_abs()).as_bytes());
        self.comma = true;
    }

    fn quoted(&mut self, value: &[u8]) {
        self.text.push(b"\"");
        let mut rest = value;
        while !rest.is_empty() {
            // Nearly all of nearly every value needs no thought: it is appended in one piece.
            let plain = rest.iter().take_while(|c| is_plain(**c)).count();
            let (head, tail) = rest.split_at(plain);
            self.put_plain(head);
            let odd = tail.iter().take_while(|c| !is_plain(**c)).count();
            let (head, tail) = tail.split_at(odd);
            self.put_odd(head);
            rest = tail;
        }
        self.text.push(b"\"");
    }

    /// Appends printable ASCII, as much as fits.
    fn put_plain(&mut self, text: &[u8]) {
        let room = LINE_LIMIT.saturating_sub(RESERVE).saturating_sub(self.text.len());
        let fitting = if self.truncated { 0 } else { text.len().min(room) };
        self.text.push(text.get(..fitting).unwrap_or_default());
        self.truncated |= fitting < text.len();
    }

    /// Appends characters that need an escape, are not ASCII, or are no characters.
    fn put_odd(&mut self, value: &[u8]) {
        for chunk in value.utf8_chunks() {
            for c in chunk.valid().chars() {
                if matches!(u32::from(c), 0xf780..=0xf7ff) {
                    let mut bytes = [0; 4];
                    c.encode_utf8(&mut bytes);
                    bytes.iter().take(c.len_utf8()).for_each(|byte| self.raw(*byte));
                } else {
                    self.character(c);
                }
            }
            chunk.invalid().iter().for_each(|byte| self.raw(*byte));
        }
    }

    fn raw(&mut self, byte: u8) {
        self.raw_bytes = true;
        if let Some(c) = char::from_u32(0xf700 | u32::from(byte)) {
            self.put(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    fn character(&mut self, c: char) {
        match c {
            '"' => self.put(b"\\\""),
            '\\' => self.put(b"\\\\"),
            '\n' => self.put(b"\\n"),
            '\t' => self.put(b"\\t"),
            '\r' => self.put(b"\\r"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                let code = u64::from(u32::from(c));
                self.put(&[b'\\', b'u', digit(code >> 12), digit(code >> 8), digit(code >> 4), digit(code)]);
            }
            c => self.put(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }

    /// Appends one character or escape to a string, whole or not at all.
    fn put(&mut self, bytes: &[u8]) {
        if self.text.len().saturating_add(bytes.len()) < LINE_LIMIT.saturating_sub(RESERVE) && !self.truncated {
            self.text.push(bytes);
        } else {
            self.truncated = true;
        }
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

/// Printable ASCII that stands for itself in JSON.
fn is_plain(c: u8) -> bool {
    matches!(c, b' '..=b'~') && c != b'"' && c != b'\\'
}

/// The last `N` decimal digits of a number, with leading zeros.
fn padded<const N: usize>(number: u64) -> [u8; N] {
    let mut out = [b'0'; N];
    let mut rest = number;
    for place in out.iter_mut().rev() {
        *place = digit(rest % 10);
        rest /= 10;
    }
    out
}

/// RFC 3339 in UTC with microseconds, from seconds and nanoseconds since 1970.
pub fn utc(seconds: u64, nanos: u64) -> Text<27> {
    let (year, month, day) = civil(seconds / 86_400);
    let rest = seconds % 86_400;
    let mut text = Text::new();
    text.push(&padded::<4>(year));
    for (mark, number) in [(b"-", month), (b"-", day), (b"T", rest / 3600), (b":", rest / 60 % 60), (b":", rest % 60)] {
        text.push(mark);
        text.push(&padded::<2>(number));
    }
    text.push(b".");
    text.push(&padded::<6>(nanos / 1000));
    text.push(b"Z");
    text
}

/// Year, month and day of a day counted from 1970-01-01. Years begin in March here, so that the leap
/// day is the last of its year, and 400 of them have 146,097 days.
#[allow(clippy::arithmetic_side_effects)] // u64 days of a clock that counts seconds: far from any overflow
fn civil(days: u64) -> (u64, u64, u64) {
    let day = days % 1_000_000_000 + 719_468;
    let era = day / 146_097;
    let of_era = day % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

/// The name of a driver result; none where this list lacks it.
pub fn result_name(code: i32) -> Option<&'static str> {
    Some(match code {
        0 => "CUDA_SUCCESS",
        1 => "CUDA_ERROR_INVALID_VALUE",
        2 => "CUDA_ERROR_OUT_OF_MEMORY",
        3 => "CUDA_ERROR_NOT_INITIALIZED",
        4 => "CUDA_ERROR_DEINITIALIZED",
        34 => "CUDA_ERROR_STUB_LIBRARY",
        46 => "CUDA_ERROR_DEVICE_UNAVAILABLE",
        100 => "CUDA_ERROR_NO_DEVICE",
        101 => "CUDA_ERROR_INVALID_DEVICE",
        102 => "CUDA_ERROR_DEVICE_NOT_LICENSED",
        201 => "CUDA_ERROR_INVALID_CONTEXT",
        216 => "CUDA_ERROR_CONTEXT_ALREADY_IN_USE",
        304 => "CUDA_ERROR_OPERATING_SYSTEM",
        709 => "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        719 => "CUDA_ERROR_LAUNCH_FAILED",
        800 => "CUDA_ERROR_NOT_PERMITTED",
        801 => "CUDA_ERROR_NOT_SUPPORTED",
        802 => "CUDA_ERROR_SYSTEM_NOT_READY",
        803 => "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        804 => "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        805 => "CUDA_ERROR_MPS_CONNECTION_FAILED",
        806 => "CUDA_ERROR_MPS_RPC_FAILURE",
        807 => "CUDA_ERROR_MPS_SERVER_NOT_READY",
        808 => "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
        809 => "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
        999 => "CUDA_ERROR_UNKNOWN",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn line(fill: impl FnOnce(&mut Line)) -> String {
        let mut line = Line::new();
        fill(&mut line);
        String::from_utf8(line.finish().to_vec()).unwrap()
    }

    #[test]
    fn members_of_every_kind_are_written() {
        let text = line(|l| {
            l.string("s", "a\"\\\n\u{7f}\u{85}\u{2028}é".as_bytes());
            l.number("n", -5);
            l.null("z");
            l.array("l", |l| {
                l.element(b"x");
                l.item(|l| l.boolean("b", true));
            });
            l.seconds("t", 1_000_042);
        });
        let expected = "{\"s\":\"a\\\"\\\\\\n\\u007f\\u0085\\u2028é\",\"n\":-5,\"z\":null,\"l\":[\"x\",{\"b\":true}],\"t\":1.000042}\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn bytes_that_are_no_text_are_kept_and_flagged() {
        assert_eq!(line(|l| l.string("s", b"a\xffb")), "{\"s\":\"a\u{f7ff}b\",\"raw_bytes\":true}\n");
        assert_eq!(line(|l| l.string("s", "\u{f7ff}".as_bytes())), "{\"s\":\"\u{f7ef}\u{f79f}\u{f7bf}\",\"raw_bytes\":true}\n");
    }

    #[test]
    fn a_long_line_is_cut_and_says_so() {
        let text = line(|l| {
            l.array("argv", |l| (0..100).for_each(|_| l.element(&[0xff; 300])));
            l.string("after", b"x");
        });
        assert!(text.len() <= LINE_LIMIT && text.ends_with(",\"raw_bytes\":true,\"truncated\":true}\n"), "{}", text.len());
        assert!(line(|l| l.string("s", &[7; 9000])).ends_with("\\u0007\",\"truncated\":true}\n"));
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0, 0).as_str(), "1970-01-01T00:00:00.000000Z");
        assert_eq!(utc(951_782_400, 1_999).as_str(), "2000-02-29T00:00:00.000001Z");
        assert_eq!(utc(1_796_083_323, 456_789_000).as_str(), "2026-12-01T00:02:03.456789Z");
    }
}
