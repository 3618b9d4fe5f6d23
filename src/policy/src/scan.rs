//! Finding bytes in a text, eight at a time: a start reads every byte of the policy.

/// A byte's eight-fold.
const fn eightfold(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Where the first byte that is one of `wanted` stands; the text's length where there is none.
pub fn position<const N: usize>(text: &[u8], wanted: [u8; N]) -> usize {
    let mut at = 0usize;
    while let Some(eight) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let eight = u64::from_le_bytes(*eight);
        // A byte that is zero borrows from its own highest bit. One above it may do so wrongly, never one below it,
        // and only the lowest counts.
        let found = wanted.iter().fold(0, |found, byte| {
            let zero = eight ^ eightfold(*byte);
            found | zero.wrapping_sub(eightfold(0x01)) & !zero & eightfold(0x80)
        });
        if found != 0 {
            return at.saturating_add(usize::try_from(found.trailing_zeros() / 8).unwrap_or_default());
        }
        at = at.saturating_add(8);
    }
    let rest = text.get(at..).unwrap_or_default();
    at.saturating_add(rest.iter().position(|c| wanted.contains(c)).unwrap_or(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_is_found_wherever_it_stands() {
        for len in 0..40usize {
            for at in 0..len {
                // What differs from a wanted byte by one bit, or by a borrow, stands all around.
                for around in [b'!', b'#', b' ', 0x00, 0x80, 0xa2, 0xff] {
                    let mut text = [around; 40];
                    text[at] = b'"';
                    text[len - 1] = if at == len - 1 { b'"' } else { b'\\' };
                    assert_eq!(position(&text[..len], *b"\"\\"), at);
                    assert_eq!(position(&text[..len], *b"\n"), len);
                }
            }
        }
    }
}
