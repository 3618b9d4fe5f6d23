//! `/etc/ld.so.preload`: one line more or one less, the rest as it was.

use super::whole::{self, Waiting};
use crate::library;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn path(root: &Path) -> PathBuf {
    root.join("etc/ld.so.preload")
}

/// The file's text, and its mode; empty where there is none.
fn read(path: &Path) -> Result<(String, u32)> {
    match fs::read(path) {
        Ok(bytes) => {
            let mode = path.metadata().map_or(0o644, |metadata| metadata.permissions().mode() & 0o7777);
            Ok((String::from_utf8(bytes).with_context(|| format!("{} is no text", path.display()))?, mode))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok((String::new(), 0o644)),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Whether a word of the file is the library under any path. A comment's words are none (ld.so(8)).
fn is_ours(word: &str) -> bool {
    word.rsplit('/').next() == Some(library::FILE_NAME)
}

/// The text without the library's entries. A line that held nothing else goes.
fn without(text: &str) -> String {
    let line = |line: &str| {
        let (entries, comment) = line.split_once('#').map_or((line, None), |(entries, comment)| (entries, Some(comment)));
        let words: Vec<_> = entries.split([' ', '\t', ':', '\n']).filter(|word| !word.is_empty()).collect();
        if !words.iter().any(|word| is_ours(word)) {
            return line.to_owned();
        }
        let kept: Vec<_> = words.into_iter().filter(|word| !is_ours(word)).collect();
        match (kept.as_slice(), comment) {
            ([], None) => String::new(),
            (kept, None) => kept.join(" ") + "\n",
            (kept, Some(comment)) => format!("{}#{comment}", kept.iter().map(|word| format!("{word} ")).collect::<String>()),
        }
    };
    text.split_inclusive('\n').map(line).collect()
}

/// Adds the line, once; says what was done.
///
/// # Errors
/// The file cannot be read or written.
pub fn add(root: &Path, entry: &str) -> Result<String> {
    let path = path(root);
    let (text, mode) = read(&path)?;
    let lines = |text: &str| text.lines().any(|line| line.split('#').next().unwrap_or_default().trim() == entry);
    let entries =
        text.lines().flat_map(|line| line.split('#').next().unwrap_or_default().split([' ', '\t', ':'])).filter(|word| is_ours(word));
    if lines(&text) && entries.count() == 1 {
        return Ok(format!("unchanged {}", path.display()));
    }
    let mut new = without(&text);
    if !new.is_empty() && !new.ends_with('\n') {
        new.push('\n');
    }
    new.push_str(entry);
    new.push('\n');
    Waiting::write(&path, new.as_bytes(), mode)?.put()?;
    Ok(format!("added to {}: {entry}", path.display()))
}

/// Removes the library's entries, and the file where nothing is left in it; says what was done.
///
/// # Errors
/// The file cannot be read or written.
pub fn remove(root: &Path) -> Result<String> {
    let path = path(root);
    let (text, mode) = read(&path)?;
    let new = without(&text);
    if new == text {
        return Ok(format!("{} does not name the library", path.display()));
    }
    if new.is_empty() {
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
        whole::sync(path.parent())?;
        return Ok(format!("removed {}: nothing else was in it", path.display()));
    }
    Waiting::write(&path, new.as_bytes(), mode)?.put()?;
    Ok(format!("removed the library from {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_entries_and_comments_stay_as_they_were() {
        let text = "# mine\n/a.so\n/usr/$LIB/cuvisor/libcuvisor.so\n/b.so  /c.so # both\n";
        assert_eq!(without(text), "# mine\n/a.so\n/b.so  /c.so # both\n");
        assert_eq!(without("/a.so:/x/libcuvisor.so /b.so\n"), "/a.so /b.so\n");
        assert_eq!(without("/x/libcuvisor.so # why\n"), "# why\n");
        assert_eq!(without("# /x/libcuvisor.so\n"), "# /x/libcuvisor.so\n");
        assert_eq!(without("/x/libcuvisor.so"), "");
    }
}
