//! Where events go.

mod file;
mod socket;

use crate::state::State;

/// Whether anybody wants events.
pub fn is_wanted(state: &State) -> bool {
    state.active && state.has_sink()
}

/// Gives a line to every sink; whether one took it. The program does not notice if none did.
pub fn append(state: &State, event: &str, line: &[u8]) -> bool {
    let root = state.root.as_bytes();
    let mut taken = !state.audit.is_empty() && file::append(state.audit.as_bytes(), line);
    taken |= state.journald && socket::journal(root, event, line);
    taken |= state.syslog && socket::syslog(root, line);
    taken
}
