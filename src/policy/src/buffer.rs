//! A text of bounded length that needs no heap.

/// Up to `N` bytes. What does not fit is left out, and [`Text::is_cut`] tells.
#[derive(Clone, Copy)]
#[repr(C)] // the length beside the first bytes: a short text touches one page, however long N is
pub struct Text<const N: usize> {
    len: usize,
    /// 0, or 1 where something did not fit. No `bool`: an enum around a text would hide its variant in a bool's unused
    /// values, and a value that is nothing but zeros costs a library no room in its file and no copy at its start.
    cut: u8,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// An empty text.
    pub const fn new() -> Self {
        Self { len: 0, cut: 0, bytes: [0; N] }
    }

    /// A text holding as much of `bytes` as fits.
    pub fn of(bytes: &[u8]) -> Self {
        let mut text = Self::new();
        text.push_some(bytes);
        text
    }

    /// Holds as much of `bytes` as fits from now on, instead of what it held.
    pub fn set(&mut self, bytes: &[u8]) {
        (self.len, self.cut) = (0, 0);
        self.push_some(bytes);
    }

    /// Appends all of `bytes`, or nothing where they do not fit; says which.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let end = self.len.saturating_add(bytes.len());
        match self.bytes.get_mut(self.len..end) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len = end;
                true
            }
            None => {
                self.cut = 1;
                false
            }
        }
    }

    /// Appends as many of `bytes` as fit.
    pub fn push_some(&mut self, bytes: &[u8]) {
        let room = N.saturating_sub(self.len);
        let fitting = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.push(fitting);
        self.cut |= u8::from(fitting.len() < bytes.len());
    }

    /// Appends a number in decimal digits.
    pub fn push_number(&mut self, number: u64) -> bool {
        self.push(Digits::of(number).as_bytes())
    }

    /// The bytes so far.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The text so far, where it is UTF-8; else empty.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether something did not fit.
    pub fn is_cut(&self) -> bool {
        self.cut != 0
    }

    /// Shortens it to the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The whole room, for a caller that fills it itself and then calls [`Text::set_len`].
    pub fn room(&mut self) -> &mut [u8; N] {
        &mut self.bytes
    }

    /// Declares the first `len` bytes of [`Text::room`] filled.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(N);
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// A number's decimal digits.
pub struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    /// The digits of `number`, without leading zeros.
    pub fn of(number: u64) -> Self {
        let mut digits = Self { bytes: [b'0'; 20], start: 20 };
        let mut rest = number;
        for (at, slot) in digits.bytes.iter_mut().enumerate().rev() {
            *slot = digit(rest % 10);
            digits.start = at;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        digits
    }

    /// The digits as text.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

/// The character of a value from 0 to 15, in lower-case hexadecimal.
pub(crate) fn digit(value: u64) -> u8 {
    b"0123456789abcdef".get(usize::try_from(value & 15).unwrap_or_default()).copied().unwrap_or(b'?')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_what_fits_and_says_what_did_not() {
        let mut text = Text::<4>::new();
        assert!(text.push(b"ab"));
        assert!(!text.push(b"cde"));
        assert_eq!(text.as_bytes(), b"ab");
        assert!(text.is_cut());
        text.push_some(b"xyz");
        assert_eq!(text.as_bytes(), b"abxy");
    }

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 7, 10, 4_294_967_295, u64::MAX] {
            assert_eq!(Digits::of(number).as_bytes(), std::format!("{number}").as_bytes());
        }
    }
}
