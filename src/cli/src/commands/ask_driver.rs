//! The hidden `cuvisor ask-driver`: what doctor starts to ask the driver.

use crate::exit::Exit;
use crate::system;
use anyhow::Result;

/// Asks the driver, and prints its answer as JSON.
///
/// # Errors
/// None but that of writing to stdout.
pub fn run() -> Result<Exit> {
    println!("{}", serde_json::to_string(&system::ask_driver())?);
    Ok(Exit::Success)
}
