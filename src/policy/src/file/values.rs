//! Values as what they can mean, each for its key.

use super::cursor::is_name;
use super::policy::{Calls, Emit, Request, Seal, id};
use super::raw::Value;

/// The word of `calls`.
pub fn calls(word: &[u8]) -> Option<Calls> {
    match word {
        b"first" => Some(Calls::First),
        b"all" => Some(Calls::All),
        _ => None,
    }
}

/// The word of `request`.
pub fn request(word: &[u8]) -> Option<Request> {
    match word {
        b"fixed" => Some(Request::Fixed),
        b"narrow" => Some(Request::Narrow),
        _ => None,
    }
}

/// The word of `emit`.
pub fn emit(word: &[u8]) -> Option<Emit> {
    match word {
        b"as-written" => Some(Emit::AsWritten),
        b"uuid" => Some(Emit::Uuid),
        b"index" => Some(Emit::Index),
        _ => None,
    }
}

/// The value of `seal`.
pub fn seal(value: Value<'_>) -> Option<Seal> {
    match value {
        Value::Bare(b"true") => Some(Seal::Yes),
        Value::Bare(b"false") => Some(Seal::No),
        Value::Quoted(b"require") => Some(Seal::Require),
        _ => None,
    }
}

/// `true` or `false`.
pub fn boolean(word: &[u8]) -> Option<bool> {
    match word {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// Whether it is a string that is not empty.
#[inline]
pub fn is_text(value: Value<'_>) -> bool {
    matches!(value, Value::Quoted(text) if !text.is_empty())
}

/// Whether it is a name, or a number as ids are.
#[inline]
pub fn is_id(value: Value<'_>) -> bool {
    is_text(value) || id(&value).is_some()
}

/// Whether it is `NAME` or `NAME=pattern`.
#[inline]
pub fn is_variable(value: Value<'_>) -> bool {
    let Value::Quoted(text) = value else { return false };
    let name = text.iter().take_while(|c| is_name(**c)).count();
    name > 0 && matches!(text.get(name), None | Some(b'='))
}
