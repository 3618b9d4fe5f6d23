//! What an executable says of itself: whether the loader would put a library into it.

use object::Endianness;
use object::elf::{FileHeader32, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};

/// Why the library cannot be in a program, from the program's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// It has no loader.
    Static,
    /// Its loader is musl's, which cannot load a library for glibc.
    Musl,
    /// It is a 32-bit program.
    ThirtyTwoBit,
}

impl Obstacle {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Static => "it is a static program: nothing can be preloaded into it",
            Self::Musl => "its C library is musl: a library for glibc cannot be loaded into it",
            Self::ThirtyTwoBit => "it is a 32-bit program: a 64-bit library cannot be loaded into it",
        }
    }
}

/// The obstacle in an executable's bytes; none where there is none, or it is no ELF file.
pub fn obstacle(bytes: &[u8]) -> Option<Obstacle> {
    if FileHeader32::<Endianness>::parse(bytes).is_ok() {
        return Some(Obstacle::ThirtyTwoBit);
    }
    let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let programs = header.program_headers(endian, bytes).ok()?;
    match programs.iter().find(|program| program.p_type(endian) == PT_INTERP) {
        None => Some(Obstacle::Static),
        Some(program) => {
            let name = program.data(endian, bytes).unwrap_or_default();
            name.windows(7).any(|part| part == b"ld-musl").then_some(Obstacle::Musl)
        }
    }
}
