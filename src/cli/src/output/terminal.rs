//! What is written to people's terminals.

use crate::exit::Exit;
use anyhow::Result;
use std::io::Write;

/// Prints to stdout; a reader that has gone away is no error.
///
/// # Errors
/// What the system says otherwise.
pub fn print(text: &str) -> Result<Exit> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(Exit::Success),
    }
}

/// The same for people, line by line without what [`harmless`] takes away.
///
/// # Errors
/// As above.
pub fn show(text: &str) -> Result<Exit> {
    print(&text.split('\n').map(harmless).collect::<Vec<_>>().join("\n"))
}

/// A text that others have chosen, such as another user's command line: `?` stands for what could move the cursor, begin
/// a line of its own, or turn the direction of writing around, as in the library's trace.
pub fn harmless(text: &str) -> String {
    let is_harmful = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if is_harmful(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn nothing_is_left_that_moves_the_cursor() {
        assert_eq!(harmless("a\u{1b}[2J\r\n\t\u{7f}\u{9b}1m\u{202e}z é \u{f7ff}"), "a?[2J?????1m?z é \u{f7ff}");
    }
}
