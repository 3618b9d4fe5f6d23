//! Where events go.

mod file;

use crate::state::State;

/// Whether anybody wants events.
pub fn is_wanted(state: &State) -> bool {
    state.active && !state.audit.is_empty()
}

/// Appends a line; whether it was taken. The program does not notice if not.
pub fn append(state: &State, line: &[u8]) -> bool {
    file::append(state.audit.as_bytes(), line)
}
