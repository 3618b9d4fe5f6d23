//! What an ELF file says of itself: whether the loader would put a library into it, and what it needs and defines.

use object::elf::{DT_NEEDED, EM_X86_64, FileHeader32, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};

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

/// Whether a file is an ELF file for 64-bit x86.
pub fn is_for_this_machine(bytes: &[u8]) -> bool {
    let machine = FileHeader64::<Endianness>::parse(bytes).ok().and_then(|header| Some(header.e_machine(header.endian().ok()?)));
    machine == Some(EM_X86_64)
}

/// The highest version of glibc that a file's symbols name; none where it names none.
pub fn glibc(bytes: &[u8]) -> Option<(u32, u32)> {
    const MARK: &[u8] = b"GLIBC_";
    let version = |at: usize| {
        let text = bytes[at + MARK.len()..].split(|c| *c == 0).next()?;
        let mut parts = std::str::from_utf8(text).ok()?.split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    };
    memchr::memmem::find_iter(bytes, MARK).filter_map(version).max()
}

/// Which of these names a library defines for others.
pub fn defined<'n>(bytes: &[u8], names: &[&'n str]) -> Vec<&'n str> {
    let Ok(file) = ElfFile64::<Endianness>::parse(bytes) else { return Vec::new() };
    let exported: Vec<_> = file.dynamic_symbols().filter(|s| s.is_definition()).filter_map(|s| s.name().ok()).collect();
    names.iter().copied().filter(|name| exported.contains(name)).collect()
}

/// Whether a library was linked to another of this name (`DT_NEEDED`).
pub fn needs(bytes: &[u8], name: &str) -> bool {
    let look = || {
        let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, bytes).ok()?;
        let (entries, strings) = sections.dynamic(endian, bytes).ok()??;
        let strings = sections.strings(endian, bytes, strings).ok()?;
        let mut needed = entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED);
        Some(needed.any(|entry| entry.string(endian, strings).is_ok_and(|text| text == name.as_bytes())))
    };
    look().unwrap_or(false)
}
