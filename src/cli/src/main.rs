//! cuvisor: starts programs with their GPUs fixed, and explains what the library does.
#![deny(unsafe_code)]

mod args;
mod audit;
mod commands;
mod doctor;
mod elf;
mod exit;
mod guarded;
mod inside;
mod install;
mod library;
mod machine;
mod output;
mod process;
mod reading;
mod source;
mod subject;
mod system;
mod verdict;

use args::{Args, Command};
use clap::Parser;
use exit::Exit;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.command {
        Command::Run(run) => commands::run::run(&run),
        Command::Check(check) => commands::check::run(&check),
        Command::Explain(explain) => commands::explain::run(&explain),
        Command::Report(report) => commands::report::run(&report),
        Command::Tail(tail) => commands::tail::run(&tail),
        Command::Ps(ps) => commands::ps::run(&ps),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Install(args) => install::install(&args),
        Command::Uninstall(args) => install::uninstall(&args),
        Command::Manual { folder } => commands::manual::run(&folder),
        Command::AskDriver => commands::ask_driver::run(),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("cuvisor: {error:#}");
            Exit::Failure.into()
        }
    }
}
