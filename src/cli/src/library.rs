//! Where libcuvisor.so is, and how it comes into a program.

use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The library's file name.
pub const FILE_NAME: &str = "libcuvisor.so";
/// Where a package puts it.
const SYSTEM_PATHS: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/cuvisor/libcuvisor.so", "/usr/local/lib/cuvisor/libcuvisor.so"];
/// Names another place, for packages that keep their files elsewhere.
pub const VARIABLE: &str = "CUVISOR_LIBRARY";

/// Finds the library: the variable's, else beside the command, else where packages put it.
///
/// # Errors
/// Lists the places that were looked at, or says why the loader could not take the path.
pub fn find() -> Result<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(FILE_NAME)));
    let places: Vec<PathBuf> = match named {
        Some(path) => vec![path],
        None => beside.into_iter().chain(SYSTEM_PATHS.map(PathBuf::from)).collect(),
    };
    let Some(found) = places.iter().find(|path| path.is_file()) else {
        let list: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
        bail!("{FILE_NAME} is not there: looked at {}; set {VARIABLE} to its path", list.join(", "));
    };
    let path = found.canonicalize().with_context(|| format!("{}", found.display()))?;
    check_path(&path)?;
    Ok(path)
}

/// Every copy in a known place: beside the command, where packages put it, in the virtual environment that is active.
pub fn all() -> Vec<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(FILE_NAME)));
    let environment = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let versions = environment.and_then(|folder| std::fs::read_dir(folder.join("lib")).ok()).into_iter().flatten().flatten();
    let wheels = versions.map(|version| version.path().join("site-packages/cuvisor").join(FILE_NAME));
    let places = named.into_iter().chain(beside).chain(SYSTEM_PATHS.map(PathBuf::from)).chain(wheels);
    let mut found: Vec<_> = places.filter_map(|place| place.canonicalize().ok()).collect();
    found.sort();
    found.dedup();
    found
}

/// The loader splits LD_PRELOAD at blanks and colons and has no way to quote them (ld.so(8)).
fn check_path(path: &Path) -> Result<()> {
    if path.as_os_str().as_bytes().iter().any(|c| matches!(c, b' ' | b'\t' | b'\n' | b':')) {
        bail!("{}: the loader cannot take a path with a blank or a colon; put the library elsewhere and set {VARIABLE}", path.display());
    }
    Ok(())
}

/// The value of LD_PRELOAD with the library in front, once. A sanitizer's runtime stays first, where it
/// insists on being (B18); what else was there keeps its order.
pub fn preload(library: &Path, present: Option<&OsStr>) -> OsString {
    let own = library.as_os_str().as_bytes();
    let separators = |c: &u8| matches!(c, b' ' | b':');
    let entries = present.map(OsStrExt::as_bytes).unwrap_or_default().split(separators).filter(|e| !e.is_empty() && *e != own);
    let (mut parts, rest): (Vec<&[u8]>, Vec<&[u8]>) = entries.partition(|entry| is_sanitizer(entry));
    parts.push(own);
    parts.extend(rest);
    OsString::from_vec(parts.join(&b':'))
}

fn is_sanitizer(entry: &[u8]) -> bool {
    let name = entry.rsplit(|c| *c == b'/').next().unwrap_or_default();
    ["libasan.so", "libtsan.so", "libclang_rt.asan", "libclang_rt.tsan"].iter().any(|known| name.starts_with(known.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(present: &str) -> String {
        preload(Path::new("/l/libcuvisor.so"), Some(OsStr::new(present))).into_string().unwrap()
    }

    #[test]
    fn c20_what_was_preloaded_stays_and_the_library_comes_once() {
        assert_eq!(joined(""), "/l/libcuvisor.so");
        assert_eq!(joined("/a.so /b.so"), "/l/libcuvisor.so:/a.so:/b.so");
        assert_eq!(joined("/a.so:/l/libcuvisor.so"), "/l/libcuvisor.so:/a.so");
    }

    #[test]
    fn b18_a_sanitizer_stays_first() {
        assert_eq!(joined("/x.so:/usr/lib/libasan.so.8"), "/usr/lib/libasan.so.8:/l/libcuvisor.so:/x.so");
    }

    #[test]
    fn a_path_that_the_loader_cannot_take_is_refused() {
        for path in ["/a b/libcuvisor.so", "/a:b/libcuvisor.so"] {
            assert!(check_path(Path::new(path)).unwrap_err().to_string().contains("blank or a colon"), "{path}");
        }
    }
}
