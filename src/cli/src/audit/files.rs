//! Which files to read, and how.

use crate::subject::Subject;
use crate::{guarded, verdict};
use anyhow::{Context, Result};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The files that were named, else the audit file of this shell's policy with those that were rotated from it, oldest first.
///
/// # Errors
/// No file was named and the policy names none that exists.
pub fn choose(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    let audit = verdict::of(&mut Subject::here(), None)?.audit;
    let pattern = audit.map(PathBuf::from).context("no file was named, and the policy names no audit file: name one")?;
    let found = expand(&pattern);
    anyhow::ensure!(
        !found.is_empty(),
        "there is no audit file {} yet; name another, or wait for a process that uses CUDA",
        pattern.display()
    );
    Ok(found)
}

/// The files whose names fit the pattern, `{uid}` and `{pid}` standing for digits, and what was rotated from
/// them (a suffix that begins with a dot or a dash). The oldest change comes first.
pub fn expand(pattern: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (pattern.parent(), pattern.file_name().map(|n| n.to_string_lossy().into_owned())) else {
        return Vec::new();
    };
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| fits(&name, &entry.file_name().to_string_lossy()))
        .filter_map(|entry| Some((entry.metadata().ok().filter(std::fs::Metadata::is_file)?.modified().ok()?, entry.path())))
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn fits(pattern: &str, name: &str) -> bool {
    let holes = ["{uid}", "{pid}"];
    match holes.iter().filter_map(|hole| pattern.find(hole)).min() {
        None => name.strip_prefix(pattern).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-'])),
        Some(at) => {
            let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).count();
            let rest = name.strip_prefix(&pattern[..at]).filter(|rest| digits(rest) > 0);
            rest.is_some_and(|rest| fits(&pattern[at + 5..], &rest[digits(rest)..]))
        }
    }
}

/// Opens a file; one that ends in `.gz` is unpacked on the way, and `-` is the standard input.
///
/// # Errors
/// Names the file and what the system said.
pub fn open(path: &Path) -> Result<Box<dyn Read + Send>> {
    if path == Path::new("-") {
        return Ok(Box::new(std::io::stdin()));
    }
    let file = File::open(path).with_context(|| format!("{}", path.display()))?;
    Ok(unpacked(file, path))
}

/// The same for a file below a process's `/` that the process may have made what it likes.
///
/// # Errors
/// Says what the system said.
pub fn open_in(root: &Path, path: &Path) -> Result<Box<dyn Read + Send>> {
    let inner = path.strip_prefix(root).map_or_else(|_| path.to_owned(), |inner| Path::new("/").join(inner));
    Ok(unpacked(guarded::open_regular(root, &inner)?, path))
}

fn unpacked(file: File, path: &Path) -> Box<dyn Read + Send> {
    if path.extension().is_some_and(|e| e == "gz") { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn rotated_files_and_placeholders_fit() {
        for name in ["a.jsonl", "a.jsonl.1", "a.jsonl.2.gz", "a.jsonl-20261201"] {
            assert!(fits("a.jsonl", name), "{name}");
        }
        assert!(!fits("a.jsonl", "b.jsonl") && !fits("a.jsonl", "a.jsonlx"));
        assert!(fits("{uid}.jsonl", "1000.jsonl") && fits("{uid}-{pid}.j", "0-77.j.1"));
        assert!(!fits("{uid}.jsonl", "x.jsonl") && !fits("{uid}.jsonl", ".jsonl"));
    }
}
