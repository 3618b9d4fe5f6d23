//! Values as typed. A value is a part of the file's text, and knows its place by that: see [`offset_in`].

use super::cursor::Cursor;
use super::error::Fault;

/// Where a part of a text begins in it, in bytes.
pub fn offset_in(text: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr().saturating_sub(text.as_ptr().addr()).min(text.len())
}

/// Something wrong with a part of the text.
#[derive(Clone, Copy, Debug)]
pub struct Mistake<'a> {
    /// The part.
    pub text: &'a [u8],
    /// What is wrong with it.
    pub fault: Fault,
}

/// A value.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A string, without its quotes.
    Quoted(&'a [u8]),
    /// Anything without quotes: a number, `true`, or a mistake.
    Bare(&'a [u8]),
    /// An array.
    Array(Array<'a>),
}

impl<'a> Value<'a> {
    /// The text of a scalar, or of the whole array.
    pub fn text(&self) -> &'a [u8] {
        match self {
            Self::Quoted(text) | Self::Bare(text) => text,
            Self::Array(array) => array.inner,
        }
    }
}

/// An array of scalars whose syntax has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a> {
    inner: &'a [u8],
    /// The first element, kept from the check: most arrays have no other, and are asked for it several times.
    first: Option<&'a [u8]>,
    is_quoted: bool,
    /// What follows it.
    rest: &'a [u8],
}

impl<'a> Array<'a> {
    /// What stands between the brackets, its first element, and what follows that.
    #[inline(always)]
    pub(super) fn new(inner: &'a [u8], first: Option<Value<'a>>, rest: &'a [u8]) -> Self {
        let is_quoted = matches!(first, Some(Value::Quoted(_)));
        let first = match first {
            Some(Value::Quoted(text) | Value::Bare(text)) => Some(text),
            Some(Value::Array(_)) | None => None,
        };
        Self { inner, first, is_quoted, rest }
    }

    /// The elements, scalars all.
    pub fn elements(&self) -> impl Iterator<Item = Value<'a>> + Clone + use<'a> {
        let Self { mut first, is_quoted, rest, .. } = *self;
        let mut cursor = Cursor::at_start_of(rest);
        core::iter::from_fn(move || match first.take() {
            Some(text) if is_quoted => Some(Value::Quoted(text)),
            Some(text) => Some(Value::Bare(text)),
            None if rest.is_empty() => None,
            None => next(&mut cursor),
        })
    }
}

/// The element behind the next comma.
fn next<'a>(cursor: &mut Cursor<'a>) -> Option<Value<'a>> {
    cursor.skip_blank_lines();
    cursor.skip(b',');
    cursor.skip_blank_lines();
    cursor.peek()?;
    cursor.scalar()
}
