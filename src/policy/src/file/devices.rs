//! The value of `devices`.

use super::error::{Expected, Fault};
use super::policy::DeviceSpec;
use super::raw::{Array, Mistake, Value};
use crate::device::{Selector, check_list};
use crate::element::ElementFault;
use core::cell::Cell;

/// What the value names; none, and `report` is told why, where it is faulty. `translated` is true where the list is not
/// written to the driver as it stands.
pub fn spec<'a>(value: &Value<'a>, translated: bool, report: &mut impl FnMut(Mistake<'a>)) -> Option<DeviceSpec<'a>> {
    let is_number = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    let fault = match *value {
        Value::Quoted(b"all") => return Some(DeviceSpec::All),
        Value::Quoted(b"none") => return Some(DeviceSpec::None),
        Value::Array(ref array) => return list(array, translated, report),
        Value::Quoted(text) if text.contains(&b',') || Selector::parse(text).is_ok() => Fault::ListInString,
        Value::Bare(text) if is_number(text) => Fault::ListInString,
        Value::Quoted(text) if !text.is_empty() => match Selector::parse(text).err() {
            None | Some(ElementFault::Unknown) => Fault::Expected(Expected::Devices),
            Some(fault) => Fault::Element(fault),
        },
        Value::Quoted(_) | Value::Bare(_) => Fault::Expected(Expected::Devices),
    };
    report(Mistake { text: value.text(), fault });
    None
}

fn list<'a>(array: &Array<'a>, translated: bool, report: &mut impl FnMut(Mistake<'a>)) -> Option<DeviceSpec<'a>> {
    // TOML wants quotes around everything but a number.
    let (bare_word, is_empty) = (Cell::new(None), Cell::new(true));
    let texts = array.elements().map(|element| {
        is_empty.set(false);
        if matches!(element, Value::Bare(word) if !word.iter().all(u8::is_ascii_digit)) && bare_word.get().is_none() {
            bare_word.set(Some(element.text()));
        }
        element.text()
    });
    let mut sound = true;
    check_list(texts, translated, |at, fault| {
        sound = false;
        if let Some(element) = array.elements().nth(at) {
            report(Mistake { text: element.text(), fault: Fault::Element(fault) });
        }
    });
    let mistake = match bare_word.get() {
        Some(text) if sound => Some(Mistake { text, fault: Fault::BareWord }),
        _ if is_empty.get() => Some(Mistake { text: Value::Array(*array).text(), fault: Fault::EmptyList }),
        _ => None,
    };
    if let Some(mistake) = mistake {
        report(mistake);
        return None;
    }
    sound.then_some(DeviceSpec::List(*array))
}
