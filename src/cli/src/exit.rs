//! What the command's exit codes mean.

use std::process::ExitCode;

/// An exit code of this command. `cuvisor run` replaces itself by the program, whose own code follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// All is well.
    Success = 0,
    /// `check` found errors; `explain` found a broken policy; `ps` marked a process; `doctor` warns.
    Found = 1,
    /// `check` cannot read the file; `doctor` found a failure.
    CannotRead = 2,
    /// `run`: Cuvisor itself failed, as env(1) has it. Other commands: something unforeseen.
    Failure = 125,
    /// `run`: the program was found but could not be started.
    CannotStart = 126,
    /// `run`: there is no such program.
    NotFound = 127,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
