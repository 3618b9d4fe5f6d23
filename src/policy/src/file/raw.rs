//! The file as typed: tables, keys and values, each with its place.

use super::error::{Error, Fault};

/// A piece of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot<'a> {
    /// The bytes.
    pub text: &'a [u8],
    /// Where they begin in the file.
    pub offset: usize,
}

impl<'a> Spot<'a> {
    /// An error about this piece.
    pub fn error(self, fault: Fault) -> Error<'a> {
        Error { offset: self.offset, text: self.text, fault }
    }
}

/// A value.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A string, without its quotes.
    Quoted(Spot<'a>),
    /// Anything without quotes: a number, `true`, or a mistake.
    Bare(Spot<'a>),
    /// An array.
    Array(Array<'a>),
}

impl<'a> Value<'a> {
    /// The text of a scalar, or the whole array.
    pub fn spot(&self) -> Spot<'a> {
        match self {
            Self::Quoted(spot) | Self::Bare(spot) => *spot,
            Self::Array(array) => array.inner,
        }
    }
}

/// One thing that the file says.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// `[name]`.
    Table(Spot<'a>),
    /// `[[name]]`.
    TableArray(Spot<'a>),
    /// `key = value`.
    Entry {
        /// The key.
        key: Spot<'a>,
        /// Its value.
        value: Value<'a>,
    },
}

/// An array of scalars whose syntax has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a> {
    inner: Spot<'a>,
    first: Option<First<'a>>,
}

/// An array's first element, kept from the check: most arrays have no other, and are asked for it several times.
#[derive(Clone, Copy, Debug)]
struct First<'a> {
    spot: Spot<'a>,
    is_quoted: bool,
    /// Where it ends in the array's text.
    end: usize,
}

impl<'a> First<'a> {
    fn value(self) -> Value<'a> {
        if self.is_quoted { Value::Quoted(self.spot) } else { Value::Bare(self.spot) }
    }
}

impl<'a> Array<'a> {
    /// The elements, scalars all.
    pub fn elements(&self) -> impl Iterator<Item = Value<'a>> + Clone + use<'a> {
        let end = self.first.map_or(self.inner.text.len(), |first| first.end);
        let mut cursor = Cursor::at_start_of(self.inner);
        cursor.bump(end);
        self.first.map(First::value).into_iter().chain(core::iter::from_fn(move || {
            cursor.skip_blank_lines();
            if cursor.peek() == Some(b',') {
                cursor.bump(1);
                cursor.skip_blank_lines();
            }
            cursor.peek()?;
            cursor.scalar().ok()
        }))
    }
}

/// Reads the items of a file in order. After an error it goes on behind the faulty line or array.
pub struct Items<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Items<'a> {
    /// The items of a text.
    pub fn of(text: &'a [u8]) -> Self {
        let mut cursor = Cursor::at_start_of(Spot { text, offset: 0 });
        if text.starts_with(b"\xef\xbb\xbf") {
            cursor.bump(3);
        }
        Self { cursor }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, Error<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.skip_blank_lines();
        let first = self.cursor.peek()?;
        let item = if first == b'[' { self.cursor.table() } else { self.cursor.entry() };
        Some(item.and_then(|item| self.cursor.end_of_line().map(|()| item)).inspect_err(|_| self.cursor.skip_line()))
    }
}

/// Characters of a bare key.
const KEY: u8 = 1;
/// Blank and tab.
const BLANK: u8 = 2;
/// These and line ends.
const SPACE: u8 = 4;
/// What ends a value without quotes.
const WORD_END: u8 = 8;

/// Characters of a variable's name.
const NAME: u8 = 16;

/// Whether a character can stand in the name of an environment variable.
pub fn is_name(c: u8) -> bool {
    is(c, NAME)
}

/// The classes of each byte: one look-up instead of a comparison for each member, and a start reads every byte of the file.
#[allow(clippy::indexing_slicing)] // by the compiler, which would refuse an index beyond the end
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut c = 0u8;
    loop {
        let key = if c.is_ascii_alphanumeric() || c == b'_' || c == b'-' { KEY } else { 0 };
        let blank = if matches!(c, b' ' | b'\t') { BLANK } else { 0 };
        let space = if matches!(c, b' ' | b'\t' | b'\n' | b'\r') { SPACE } else { 0 };
        let word_end = if matches!(c, b' ' | b'\t' | b'\n' | b'\r' | b',' | b']' | b'#' | b'[') { WORD_END } else { 0 };
        let name = if c.is_ascii_alphanumeric() || c == b'_' { NAME } else { 0 };
        classes[c as usize] = key | blank | space | word_end | name;
        if c == u8::MAX {
            break classes;
        }
        c += 1;
    }
};

fn is(c: u8, class: u8) -> bool {
    CLASSES.get(usize::from(c)).is_some_and(|classes| classes & class != 0)
}

/// A place in the file: what is left from there on, and where that ends.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    rest: &'a [u8],
    /// Offset in the file of the end of `rest`.
    end: usize,
}

impl<'a> Cursor<'a> {
    fn at_start_of(spot: Spot<'a>) -> Self {
        Self { rest: spot.text, end: spot.offset.saturating_add(spot.text.len()) }
    }

    fn offset(&self) -> usize {
        self.end.saturating_sub(self.rest.len())
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn bump(&mut self, by: usize) {
        self.rest = self.rest.get(by..).unwrap_or_default();
    }

    fn take(&mut self, len: usize) -> Spot<'a> {
        let (text, rest) = self.rest.split_at(len.min(self.rest.len()));
        let spot = Spot { text, offset: self.offset() };
        self.rest = rest;
        spot
    }

    /// The longest run of bytes for which `wanted` holds.
    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> Spot<'a> {
        self.take(self.rest.iter().take_while(|c| wanted(**c)).count())
    }

    /// Goes over them.
    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        while let [first, rest @ ..] = self.rest
            && wanted(*first)
        {
            self.rest = rest;
        }
    }

    /// What lies between an earlier place and this one.
    fn since(&self, start: &Self) -> Spot<'a> {
        let len = start.rest.len().saturating_sub(self.rest.len());
        Spot { text: start.rest.get(..len).unwrap_or_default(), offset: start.offset() }
    }

    fn skip_blanks(&mut self) {
        self.skip_while(|c| is(c, BLANK));
    }

    fn skip_line(&mut self) {
        self.skip_while(|c| c != b'\n');
    }

    /// Blanks, comments and line ends.
    fn skip_blank_lines(&mut self) {
        loop {
            self.skip_while(|c| is(c, SPACE));
            if self.peek() != Some(b'#') {
                return;
            }
            self.skip_line();
        }
    }

    fn end_of_line(&mut self) -> Result<(), Error<'a>> {
        self.skip_blanks();
        if matches!(self.peek(), None | Some(b'\n')) {
            return Ok(());
        }
        let rest = { *self }.take_while(|c| c != b'\n');
        match rest.text.trim_ascii_end() {
            [] | [b'#', ..] => {
                self.skip_line();
                Ok(())
            }
            text => Err(Spot { text, ..rest }.error(Fault::TrailingText)),
        }
    }

    /// The rest of the line without its comment, for an error about it.
    #[cold]
    fn whole_line(&self) -> Spot<'a> {
        let line = { *self }.take_while(|c| c != b'\n' && c != b'#');
        Spot { text: line.text.trim_ascii_end(), ..line }
    }

    fn table(&mut self) -> Result<Item<'a>, Error<'a>> {
        let start = *self;
        let array = self.rest.starts_with(b"[[");
        let brackets = if array { 2 } else { 1 };
        self.bump(brackets);
        self.skip_blanks();
        let name = self.take_while(is_key);
        self.skip_blanks();
        let closing = self.take_while(|c| c == b']');
        if name.text.is_empty() || closing.text.len() != brackets {
            return Err(start.whole_line().error(Fault::NotAnEntry));
        }
        Ok(if array { Item::TableArray(name) } else { Item::Table(name) })
    }

    fn entry(&mut self) -> Result<Item<'a>, Error<'a>> {
        let start = *self;
        let key = self.take_while(is_key);
        self.skip_blanks();
        match self.peek() {
            Some(b'=') if !key.text.is_empty() => self.bump(1),
            Some(b'.' | b'"' | b'\'') => return Err(start.whole_line().error(Fault::FancyKey)),
            _ => return Err(start.whole_line().error(Fault::NotAnEntry)),
        }
        self.skip_blanks();
        let value = match self.peek() {
            Some(b'[') => Value::Array(self.array()?),
            None | Some(b'\n' | b'\r' | b'#') => return Err(key.error(Fault::NoValue)),
            Some(_) => self.scalar()?,
        };
        Ok(Item::Entry { key, value })
    }

    fn scalar(&mut self) -> Result<Value<'a>, Error<'a>> {
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.string(quote).map(Value::Quoted),
            Some(b'{') => {
                let body = { *self }.take_while(|c| !matches!(c, b'\n' | b'}'));
                let closing = usize::from(self.rest.get(body.text.len()) == Some(&b'}'));
                Err(self.take(body.text.len().saturating_add(closing)).error(Fault::InlineTable))
            }
            Some(b'[') => Err(self.take(1).error(Fault::NestedArray)),
            _ => {
                let word = self.take_while(|c| !is(c, WORD_END));
                if word.text.is_empty() { Err(self.take(1).error(Fault::Comma)) } else { Ok(Value::Bare(word)) }
            }
        }
    }

    fn string(&mut self, quote: u8) -> Result<Spot<'a>, Error<'a>> {
        if self.rest.starts_with(&[quote, quote, quote]) {
            return Err(self.take(3).error(Fault::LongString));
        }
        let start = *self;
        self.bump(1);
        let escape = if quote == b'"' { b'\\' } else { quote };
        let text = self.take_while(|c| c != quote && c != b'\n' && c != escape);
        if self.peek() != Some(quote) {
            return Err(self.bad_string(&start, quote));
        }
        self.bump(1);
        Ok(text)
    }

    /// What is wrong with a string that begins at `start`: it does not end, or holds an escape.
    #[cold]
    fn bad_string(&mut self, start: &Self, quote: u8) -> Error<'a> {
        *self = *start;
        self.bump(1);
        let text = self.take_while(|c| c != quote && c != b'\n');
        if self.peek() != Some(quote) {
            let line = { *start }.take_while(|c| c != b'\n');
            return Spot { text: line.text.trim_ascii_end(), ..line }.error(Fault::OpenString);
        }
        self.bump(1);
        text.error(Fault::Escape)
    }

    fn array(&mut self) -> Result<Array<'a>, Error<'a>> {
        let opening = self.take(1);
        let start = *self;
        let result = self.array_body(opening);
        if result.is_err() {
            // Go on behind the array, or else each of its further lines would be a fault of its own.
            *self = start;
            self.skip_while(|c| !matches!(c, b']' | b'='));
            if self.peek() != Some(b']') {
                *self = start;
            }
        }
        result
    }

    fn array_body(&mut self, opening: Spot<'a>) -> Result<Array<'a>, Error<'a>> {
        let start = *self;
        let mut after_value = false;
        let mut first = None;
        loop {
            self.skip_blank_lines();
            match self.peek() {
                None => return Err(opening.error(Fault::OpenArray)),
                Some(b']') => {
                    let inner = self.since(&start);
                    self.bump(1);
                    return Ok(Array { inner, first });
                }
                Some(b'=') => return Err(opening.error(Fault::OpenArray)),
                Some(b',') if after_value => {
                    self.bump(1);
                    after_value = false;
                }
                Some(_) if after_value => {
                    let next = { *self }.take_while(|c| !matches!(c, b' ' | b'\n' | b',' | b']'));
                    let fault = if self.looks_like_entry() { opening.error(Fault::OpenArray) } else { next.error(Fault::Comma) };
                    return Err(fault);
                }
                Some(_) => {
                    let value = self.scalar()?;
                    let end = start.rest.len().saturating_sub(self.rest.len());
                    first.get_or_insert(First { spot: value.spot(), is_quoted: matches!(value, Value::Quoted(_)), end });
                    after_value = true;
                }
            }
        }
    }

    /// Whether the next thing is `key =` or a table: then the array before it was not closed.
    fn looks_like_entry(&self) -> bool {
        let mut ahead = *self;
        let key = ahead.take_while(is_key);
        ahead.skip_blanks();
        ahead.peek() == Some(b'[') || (!key.text.is_empty() && ahead.peek() == Some(b'='))
    }
}

fn is_key(c: u8) -> bool {
    is(c, KEY)
}
