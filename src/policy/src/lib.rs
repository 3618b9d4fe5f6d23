//! What Cuvisor knows without asking anybody: the policy file, the driver's reading of a device
//! list, the decision that follows from both, and the form of an audit line.
//!
//! Bytes go in and values come out. There is no clock, no environment, no file and no allocation
//! here, and nothing that can panic: the preload library calls this code inside every process of a
//! machine, and the command calls the same code to explain what the library will do.
//!
//! The data goes through the modules in this order: [`mod@file`] and [`visible`] read what people and
//! programs typed, [`rule`] finds what holds for one process, [`decide`] makes the list that the
//! driver gets, [`guard`] compares what the driver then shows, [`record`] writes it down.
#![no_std]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::arithmetic_side_effects)
)]

#[cfg(test)]
extern crate std;

pub mod buffer;
pub mod container;
pub mod decide;
pub mod device;
pub mod element;
pub mod file;
pub mod guard;
pub mod hash;
pub mod inventory;
pub mod names;
pub mod record;
pub mod rule;
mod scan;
pub mod sealed;
pub mod share;
pub mod visible;
