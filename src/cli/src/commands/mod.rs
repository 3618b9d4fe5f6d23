//! One file a command.

pub mod check;
pub mod explain;
pub mod run;
