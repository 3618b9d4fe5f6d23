//! The audit file as the command reads it.

pub mod brief;
pub mod event;
pub mod files;
pub mod groups;
pub mod lines;
