//! libcuvisor.so: the part of Cuvisor that the dynamic loader puts into a process.
//!
//! The way of one request: [`constructor`] or a hook in [`hooks`] asks [`state`] for this process's
//! decision; [`environ`] reads what the program asks for and writes what it gets; the real driver
//! ([`driver`]) is called; [`ops`] compares what it shows with the policy; [`event`] describes it
//! and [`sink`] appends it to the log.
//!
//! What is exported is the table in [`table`], nothing else; a test holds the two against each other.
//! The library is in every process of a machine. It therefore has no std, no threads, no
//! thread-locals and no locks, never prints in a process that does not call `cuInit`, and no path
//! through it panics.
#![no_std]

mod apply;
mod arch;
mod constructor;
mod decided;
mod driver;
mod environ;
mod event;
mod exports;
mod facts;
mod hooks;
mod hot;
mod identity;
mod inventory;
mod lent;
mod life;
mod loader;
mod lookup;
mod nest;
mod ops;
mod python;
mod reading;
mod runtime;
mod seal;
mod sink;
mod state;
mod sys;
mod table;
mod trace;
mod weak;
