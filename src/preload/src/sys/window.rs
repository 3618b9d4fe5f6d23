//! A file read piece by piece through a little memory.

use super::{Buffer, File, written};

/// Room of which the beginning holds bytes of a file.
pub struct Window<'r> {
    room: &'r mut Buffer,
    filled: usize,
}

impl<'r> Window<'r> {
    /// Nothing in it yet.
    pub fn new(room: &'r mut Buffer) -> Self {
        Self { room, filled: 0 }
    }

    /// Reads up to `most` further bytes, as many as there is room for; how many there were. None where they cannot be read.
    pub fn fill(&mut self, file: &File, most: usize) -> Option<usize> {
        let end = self.filled.saturating_add(most).min(self.room.len());
        let count = file.read_into(self.room.get_mut(self.filled..end)?)?.len();
        self.filled = self.filled.saturating_add(count);
        Some(count)
    }

    /// What it holds.
    pub fn text(&self) -> &[u8] {
        // SAFETY: `fill` and `put` have written the first `filled` bytes, and `forget` moves only such.
        unsafe { written(self.room, self.filled) }.unwrap_or_default()
    }

    /// Forgets its first bytes; the others move to the beginning.
    pub fn forget(&mut self, count: usize) {
        let count = count.min(self.filled);
        self.room.copy_within(count..self.filled, 0);
        self.filled = self.filled.saturating_sub(count);
    }

    /// Puts what another one holds behind what this one does, as much as there is room for.
    pub fn put(&mut self, other: &Window<'_>) {
        let places = self.room.get_mut(self.filled..).unwrap_or_default();
        let count = places.iter_mut().zip(other.text()).map(|(place, byte)| place.write(*byte)).count();
        self.filled = self.filled.saturating_add(count);
    }
}
