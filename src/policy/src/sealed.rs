//! The variable by which a process tells its children what it is sealed off from: the nodes, and a mark of the devices that
//! they were found for. Under the same devices a child need not find them again, which may take the kernel's driver long.

use crate::device::Devices;
use crate::hash;

/// The mark: a sharp and 16 hexadecimal digits.
pub type Mark = [u8; 17];

/// The mark of these devices (a hash of their text).
pub fn mark(devices: &Devices) -> Mark {
    let hash = hash::add(hash::START, devices.text());
    let mut mark = [b'#'; 17];
    for (place, shift) in mark.iter_mut().skip(1).zip((0..16u32).rev()) {
        *place = crate::buffer::digit(hash.checked_shr(shift.saturating_mul(4)).unwrap_or_default() & 15);
    }
    mark
}

/// The nodes in the variable's value, and its mark; none where it is not of this form.
pub fn split(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = value.len().checked_sub(size_of::<Mark>())?;
    let (nodes, mark) = value.split_at_checked(at)?;
    Some((nodes.strip_suffix(b" ")?, mark)).filter(|_| mark.starts_with(b"#"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_split_into_nodes_and_mark() {
        let devices = Devices::parse(b"1,3").unwrap();
        let mark = mark(&devices);
        assert!(mark[1..].iter().all(u8::is_ascii_hexdigit));
        assert_ne!(mark, super::mark(&Devices::None));
        let value = [b"/dev/nvidia0 /dev/nvidia2 ", &mark[..]].concat();
        assert_eq!(split(&value), Some((&b"/dev/nvidia0 /dev/nvidia2"[..], &mark[..])));
        assert_eq!(split(b"/dev/nvidia0 /dev/nvidia2"), None);
        assert_eq!(split(b""), None);
    }
}
