//! The command line.

use clap::builder::TypedValueParser;
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
    /// Check a policy file: errors with their places, and warnings
    Check(Check),
    /// Say which rule a program meets and which GPUs it will see, without running it
    Explain(Explain),
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

/// `cuvisor check`
#[derive(clap::Args, Debug)]
pub struct Check {
    /// The policy file; else $CUVISOR_POLICY, else /etc/cuvisor/policy.toml
    pub file: Option<PathBuf>,
}

/// `cuvisor explain`
#[derive(clap::Args, Debug)]
pub struct Explain {
    /// Explain it for this login name or uid
    #[arg(long = "as", value_name = "USER")]
    pub user: Option<String>,
    /// Explain it with this environment variable
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Explain it without this environment variable
    #[arg(long, value_name = "NAME")]
    pub unset: Vec<String>,
    /// Explain it for a machine of so many equal GPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=64).map(usize::from))]
    pub gpus: Option<usize>,
    /// Policy file to use, before all others
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Print the same facts as JSON
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
