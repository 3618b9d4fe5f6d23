//! The command line.

use crate::audit::groups::By;
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
    /// Say who used which GPU, from audit files
    Report(Report),
    /// Print events as readable lines
    Tail(Tail),
    /// Say which processes have a GPU open now
    Ps(Ps),
    /// Check variables, driver, GPUs, library and policy of this shell, or of a running process
    Doctor(Doctor),
    /// Put the library into every program of this machine, or make a notebook kernel under it
    Install(Install),
    /// Take the library out of every program again
    Uninstall(Uninstall),
    /// Write the manual page and the shell completions into a folder, for packages
    #[command(hide = true)]
    Manual {
        /// The folder
        folder: PathBuf,
    },
    /// Ask the driver for its devices; doctor starts this in a process of its own
    #[command(name = crate::doctor::ASK, hide = true)]
    AskDriver,
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
    /// Have the kernel deny the other GPUs' device nodes, for good and to all that the program starts; "require": no GPU where it cannot
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub seal: Option<String>,
    /// Tell on stderr who initialises CUDA and when, with the Python line, and each change of CUDA_VISIBLE_DEVICES
    #[arg(long)]
    pub trace: bool,
    /// Run it without GPUs, wait, and exit with 3 and the line that did it if it or a child calls cuInit
    #[arg(long, conflicts_with_all = ["devices", "mode", "audit", "policy", "seal", "trace"])]
    pub expect_no_cuda: bool,
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

/// `cuvisor report`
#[derive(clap::Args, Debug)]
pub struct Report {
    /// Audit files, rotated and .gz ones too, - for the standard input; else the policy's
    pub files: Vec<PathBuf>,
    /// What a row is
    #[arg(long, value_enum, default_value = "all")]
    pub by: By,
    /// Only events since then: 2h, 7d, 2026-12-01, 2026-12-01T08:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only events until then
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Only this GPU: the beginning of its UUID or PCI bus id
    #[arg(long, value_name = "GPU")]
    pub gpu: Option<String>,
    /// Only this user: login name or uid
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Only rows in which something was denied
    #[arg(long)]
    pub denied: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV
    #[arg(long)]
    pub csv: bool,
    /// Write a page with a timeline instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv"])]
    pub html: Option<PathBuf>,
}

/// `cuvisor tail`
#[derive(clap::Args, Debug)]
pub struct Tail {
    /// Wait for more
    #[arg(short, long)]
    pub follow: bool,
    /// How many events to begin with
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    pub lines: usize,
    /// Audit file; else the policy's
    pub file: Option<PathBuf>,
}

/// `cuvisor ps`
#[derive(clap::Args, Debug)]
pub struct Ps {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `cuvisor doctor`
#[derive(clap::Args, Debug)]
pub struct Doctor {
    /// Ask about this running process instead of this shell
    #[arg(long, value_name = "N")]
    pub pid: Option<u32>,
    /// How long the driver may take to answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, conflicts_with = "pid")]
    pub limit: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `cuvisor install`
#[derive(clap::Args, Debug)]
pub struct Install {
    /// The library, a policy where there is none, and the line in /etc/ld.so.preload
    #[arg(long, conflicts_with = "jupyter")]
    pub system: bool,
    /// Install into the system in this folder, such as an image that is being made
    #[arg(long, value_name = "DIR", requires = "system")]
    pub root: Option<PathBuf>,
    /// The policy to install where there is none yet
    #[arg(long, value_name = "FILE", requires = "system")]
    pub policy: Option<PathBuf>,
    /// A notebook kernel of this name instead
    #[arg(long, value_name = "NAME")]
    pub jupyter: Option<String>,
    /// The GPUs of the kernel
    #[arg(long, value_name = "LIST", requires = "jupyter")]
    pub devices: Option<String>,
    /// The Python of the kernel
    #[arg(long, value_name = "FILE", requires = "jupyter")]
    pub python: Option<PathBuf>,
}

/// `cuvisor uninstall`
#[derive(clap::Args, Debug)]
pub struct Uninstall {
    /// Uninstall from the system in this folder
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Remove the policy and the audit files as well
    #[arg(long, conflicts_with = "keep_library")]
    pub purge: bool,
    /// Remove only the line in /etc/ld.so.preload: the library belongs to a package
    #[arg(long)]
    pub keep_library: bool,
}
