//! The command line.

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Decides which NVIDIA GPUs a process may use, before any of its code runs, and records which it touched.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start a program with its GPUs fixed
    Run(Run),
}

/// `cuvisor run`
#[derive(clap::Args, Debug)]
pub struct Run {
    /// The GPUs it may use: indices as nvidia-smi numbers them, GPU- UUIDs or their beginnings, MIG- UUIDs, "all" or "none"
    #[arg(short, long, value_name = "LIST")]
    pub devices: Option<String>,
    /// enforce (hold it to these GPUs), audit (only log), off
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Append events to this file; {uid} and {pid} are replaced
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// Policy file to use instead of /etc/cuvisor/policy.toml
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
