//! How the driver reads a value of `CUDA_VISIBLE_DEVICES`, in words.

use cuvisor_policy::visible::{self, Element, End, Reading};
use serde::Serialize;

/// An element of the list.
#[derive(Serialize)]
pub struct Token {
    /// As typed.
    pub text: String,
    /// What the driver makes of it.
    pub reading: String,
}

/// Each element with the driver's reading of it.
pub fn tokens(value: &[u8]) -> Vec<Token> {
    visible::elements(value).map(|element| Token { text: lossy(element.text), reading: words(&element) }).collect()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn words(element: &Element<'_>) -> String {
    let ignored = if element.ignored.is_empty() { String::new() } else { format!(" and ignores `{}`", lossy(element.ignored)) };
    match element.reading {
        Reading::Index(index) => format!("the driver reads {index}{ignored}"),
        Reading::Uuid(prefix) if prefix.digits().is_empty() => "the driver reads the beginning of every UUID".to_owned(),
        Reading::Uuid(prefix) if !prefix.is_whole() => format!("the driver reads the beginning {} of a UUID", lossy(prefix.digits())),
        Reading::Uuid(prefix) => format!("the driver reads the UUID {}{ignored}", lossy(prefix.digits())),
        Reading::Mig(_) => "the driver reads a MIG device".to_owned(),
        Reading::End(End::Negative) => "the list ends here: the number is below zero".to_owned(),
        Reading::End(End::NotAUuid) => "the list ends here: this does not begin a UUID".to_owned(),
        Reading::End(End::NotADevice) => "the list ends here: this is no device".to_owned(),
    }
}
