//! The policy file: [`raw`] is what was typed, [`policy`] what it can mean, [`reader`] makes one of the other,
//! [`error`] is what is wrong with it, and [`refusal`] why it is not even read.
//!
//! The format is the part of TOML 1.0 that a policy needs: comments, `[table]`, `[[table]]`, and
//! `key = value` with strings, whole numbers, booleans and arrays of these. What is accepted here
//! means the same to any TOML parser (a property test holds it against the `toml` crate); the rest
//! of TOML is refused with what to write instead. It is read in one pass without a copy, since the
//! library does so at the start of every process: whole, or in pieces where it is large.

mod cursor;
mod devices;
pub mod error;
mod explain;
mod keys;
pub mod policy;
pub mod raw;
pub mod reader;
pub mod refusal;
mod text;
mod values;
