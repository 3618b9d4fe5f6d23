//! What the command's exit codes mean.

use std::process::ExitCode;

/// An exit code of this command. `cuvisor run` replaces itself by the program, whose own code follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// 0: all is well.
    Success,
    /// 1: `check` found errors; `explain` found a broken policy; `ps` marked a process; `doctor` warns.
    Found,
    /// 2: `check` cannot read the file; `doctor` found a failure.
    CannotRead,
    /// 3: `run --expect-no-cuda`: something called `cuInit`.
    CudaUsed,
    /// `run --expect-no-cuda`: nothing did; the program's own code, 128 and the number where a signal ended it.
    Program(u8),
    /// 125: `run`: Cuvisor itself failed, as env(1) has it. Other commands: something unforeseen.
    Failure,
    /// 126: `run`: the program was found but could not be started.
    CannotStart,
    /// 127: `run`: there is no such program.
    NotFound,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Found => 1,
            Exit::CannotRead => 2,
            Exit::CudaUsed => 3,
            Exit::Program(code) => code,
            Exit::Failure => 125,
            Exit::CannotStart => 126,
            Exit::NotFound => 127,
        })
    }
}
