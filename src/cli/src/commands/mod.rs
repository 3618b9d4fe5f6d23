//! One file a command.

pub mod ask_driver;
pub mod check;
pub mod expect;
pub mod explain;
pub mod manual;
pub mod ps;
pub mod report;
pub mod run;
pub mod tail;
