//! A place in the file that moves on over keys, strings, words and lists.
//!
//! A start reads every byte of the policy, so this is the part that must be quick: what is sound is taken, for what is
//! not there is only a none, and [`super::explain`] finds out why.

use super::raw::{Array, Value};
use crate::scan;

/// Characters of a bare key.
const KEY: u8 = 1;
/// Blanks and line ends.
const SPACE: u8 = 2;
/// What ends a value without quotes.
const WORD_END: u8 = 4;
/// Characters of a variable's name.
const NAME: u8 = 8;
/// What begins a comment.
const COMMENT: u8 = 16;

/// The classes of each byte: one look-up instead of a comparison for each member.
#[allow(clippy::indexing_slicing)] // by the compiler, which would refuse an index beyond the end
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut c = 0u8;
    loop {
        let key = if c.is_ascii_alphanumeric() || c == b'_' || c == b'-' { KEY } else { 0 };
        let space = if matches!(c, b' ' | b'\t' | b'\n' | b'\r') { SPACE } else { 0 };
        let word_end = if matches!(c, b' ' | b'\t' | b'\n' | b'\r' | b',' | b']' | b'#' | b'[') { WORD_END } else { 0 };
        let name = if c.is_ascii_alphanumeric() || c == b'_' { NAME } else { 0 };
        let comment = if c == b'#' { COMMENT } else { 0 };
        classes[c as usize] = key | space | word_end | name | comment;
        if c == u8::MAX {
            break classes;
        }
        c += 1;
    }
};

#[inline(always)]
fn is(c: u8, class: u8) -> bool {
    CLASSES.get(usize::from(c)).is_some_and(|classes| classes & class != 0)
}

/// Whether a character can stand in the name of an environment variable.
pub fn is_name(c: u8) -> bool {
    is(c, NAME)
}

/// Whether a character can stand in a key.
pub(super) fn is_key(c: u8) -> bool {
    is(c, KEY)
}

/// A place in the file: what is left from there on.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// At the beginning of a text.
    pub fn at_start_of(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    /// The next byte.
    #[inline(always)]
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Goes on by so many bytes.
    #[inline(always)]
    pub fn bump(&mut self, by: usize) {
        self.rest = self.rest.get(by..).unwrap_or_default();
    }

    #[inline(always)]
    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (text, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        text
    }

    /// The longest run of bytes for which `wanted` holds.
    #[inline(always)]
    pub(super) fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        self.take(self.rest.iter().take_while(|c| wanted(**c)).count())
    }

    /// All up to the first of these bytes.
    #[inline(always)]
    pub(super) fn take_until<const N: usize>(&mut self, ends: [u8; N]) -> &'a [u8] {
        self.take(scan::position(self.rest, ends))
    }

    /// Goes over this byte, if it is the next.
    #[inline(always)]
    pub(super) fn skip(&mut self, wanted: u8) -> bool {
        self.skip_all([wanted])
    }

    /// Goes over these bytes, if they are the next.
    #[inline(always)]
    fn skip_all<const N: usize>(&mut self, wanted: [u8; N]) -> bool {
        match self.rest.split_first_chunk() {
            Some((next, rest)) if *next == wanted => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    #[inline(always)]
    pub(super) fn skip_blanks(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Goes to the end of the line.
    pub fn skip_line(&mut self) {
        self.take_until(*b"\n");
    }

    /// Blanks, comments and line ends.
    #[inline(always)]
    pub fn skip_blank_lines(&mut self) {
        while let [first, rest @ ..] = self.rest
            && is(*first, SPACE | COMMENT)
        {
            self.rest = rest;
            if *first == b'#' {
                self.take_until(*b"\n");
            }
        }
    }

    /// Goes over the end of the line; false, and nowhere, where more stands on it than a comment.
    #[inline(always)]
    pub fn end_of_line(&mut self) -> bool {
        self.skip(b'\n') || self.comment()
    }

    #[inline(never)]
    fn comment(&mut self) -> bool {
        let is_comment = matches!({ *self }.take_until(*b"\n").trim_ascii(), [] | [b'#', ..]);
        if is_comment {
            self.skip_line();
        }
        is_comment
    }

    /// `[name]` or `[[name]]`: the name, and whether there were two brackets.
    #[inline(always)]
    pub fn table(&mut self) -> Option<(&'a [u8], bool)> {
        // Nearly all of a large policy's tables are written like this.
        let start = self.rest;
        if self.skip_all(*b"[[rule]]") && self.peek() != Some(b']') {
            return start.get(2..6).map(|name| (name, true));
        }
        self.rest = start;
        self.bump(1);
        let is_array = self.skip(b'[');
        self.skip_blanks();
        let name = self.take_while(is_key);
        self.skip_blanks();
        let is_closed = self.skip(b']') && (!is_array || self.skip(b']')) && self.peek() != Some(b']');
        (is_closed && !name.is_empty()).then_some((name, is_array))
    }

    /// What stands before `=`, and goes over what is blank behind that. It need not be a key's name.
    #[inline(always)]
    pub fn key(&mut self) -> Option<&'a [u8]> {
        let key = self.take_until(*b"= \t\n");
        // Nearly all are written like this.
        if self.skip_all(*b" = ") {
            self.skip_blanks();
            return Some(key);
        }
        self.skip_blanks();
        if !self.skip(b'=') {
            return None;
        }
        self.skip_blanks();
        Some(key)
    }

    /// A string, without its quotes.
    #[inline(always)]
    pub fn string(&mut self) -> Option<&'a [u8]> {
        match self.peek() {
            Some(b'"') => self.string_in(b'"', b'\\'),
            Some(b'\'') => self.string_in(b'\'', b'\''),
            _ => None,
        }
    }

    #[inline(always)]
    fn string_in(&mut self, quote: u8, escape: u8) -> Option<&'a [u8]> {
        self.bump(1);
        let text = self.take_until([quote, b'\n', escape]);
        // Three quotes begin a string over several lines.
        let is_closed = self.skip(quote) && !(text.is_empty() && self.peek() == Some(quote));
        is_closed.then_some(text)
    }

    /// A word without quotes.
    #[inline(always)]
    pub fn word(&mut self) -> Option<&'a [u8]> {
        let word = self.take_while(|c| !is(c, WORD_END));
        (!matches!(word, [] | [b'{', ..])).then_some(word)
    }

    /// A string or a word.
    #[inline(always)]
    pub fn scalar(&mut self) -> Option<Value<'a>> {
        match self.peek() {
            Some(b'"' | b'\'') => self.string().map(Value::Quoted),
            _ => self.word().map(Value::Bare),
        }
    }

    /// A scalar or a list.
    #[inline(always)]
    pub fn value(&mut self) -> Option<Value<'a>> {
        if self.peek() == Some(b'[') { self.list(0, |_| true).map(Value::Array) } else { self.scalar() }
    }

    /// A list of scalars, so many at least, that are all `sound`.
    #[inline(always)]
    pub fn list(&mut self, least: usize, sound: impl Fn(Value<'a>) -> bool) -> Option<Array<'a>> {
        if !self.skip(b'[') {
            return None;
        }
        let start = self.rest;
        let (mut first, mut behind_first) = (None, start);
        let mut count = 0usize;
        loop {
            self.skip_blank_lines();
            match self.peek() {
                Some(b']') => break,
                // The list was not closed, and this belongs to the next key.
                Some(b'=') => return None,
                _ => {}
            }
            let value = self.scalar()?;
            if !sound(value) {
                return None;
            }
            if count == 0 {
                (first, behind_first) = (Some(value), self.rest);
            }
            count = count.saturating_add(1);
            if self.peek() == Some(b']') {
                break;
            }
            self.skip_blank_lines();
            if !self.skip(b',') && self.peek() != Some(b']') {
                return None;
            }
        }
        let up_to_here = |text: &'a [u8]| text.get(..text.len().saturating_sub(self.rest.len())).unwrap_or_default();
        let array = Array::new(up_to_here(start), first, up_to_here(behind_first));
        self.skip(b']');
        (count >= least).then_some(array)
    }
}
