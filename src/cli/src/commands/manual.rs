//! The hidden `cuvisor manual`: what packages put beside the command, made from the command line itself.

use crate::args::Args;
use crate::exit::Exit;
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use std::path::Path;

/// Writes a manual page for the command and each of its subcommands, and completions for bash, zsh and fish.
///
/// # Errors
/// The folder cannot be written.
pub fn run(folder: &Path) -> Result<Exit> {
    let shown = || folder.display().to_string();
    std::fs::create_dir_all(folder).with_context(shown)?;
    clap_mangen::generate_to(Args::command(), folder).with_context(shown)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut Args::command(), "cuvisor", folder).with_context(shown)?;
    }
    Ok(Exit::Success)
}
