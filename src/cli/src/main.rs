//! cuvisor: starts programs with their GPUs fixed, and explains what the library does.

mod args;
mod audit;
mod commands;
mod elf;
mod exit;
mod library;
mod machine;
mod output;
mod process;
mod source;
mod subject;
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
        Command::Doctor(doctor) => commands::doctor::run(&doctor),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("cuvisor: {error:#}");
            Exit::Failure.into()
        }
    }
}
