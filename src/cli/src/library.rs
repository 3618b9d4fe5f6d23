//! Where libcuvisor.so is, and how it comes into a program.

use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The library's file name.
pub const FILE_NAME: &str = "libcuvisor.so";
/// The name of the empty 32-bit library beside it in a package.
pub const STUB_NAME: &str = "libcuvisor32.so";
/// Where a package puts it.
const SYSTEM_PATHS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/cuvisor/libcuvisor.so",
    "/usr/lib64/cuvisor/libcuvisor.so",
    "/usr/lib/cuvisor/libcuvisor.so",
    "/usr/local/lib/cuvisor/libcuvisor.so",
];
/// Names another place, for packages that keep their files elsewhere.
pub const VARIABLE: &str = "CUVISOR_LIBRARY";

/// The places to look, best first: beside the command, in the tarball's and the wheel's `lib` beside its `bin`, where
/// packages put it.
fn places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(bin) = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned())) {
        places.push(bin.join(FILE_NAME));
        places.push(bin.with_file_name("lib").join(FILE_NAME));
        places.extend(wheels(&bin.with_file_name("lib")));
    }
    places.extend(SYSTEM_PATHS.map(PathBuf::from));
    places
}

/// The copies that wheels of any Python have put below a `lib` folder.
fn wheels(lib: &Path) -> Vec<PathBuf> {
    let mut versions: Vec<_> = std::fs::read_dir(lib).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    versions.retain(|folder| folder.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python3")));
    versions.sort();
    let packages = |version: PathBuf| ["site-packages", "dist-packages"].map(|folder| version.join(folder).join("cuvisor").join(FILE_NAME));
    versions.into_iter().flat_map(packages).collect()
}

/// Finds the library: the variable's, else the first in the known places.
///
/// # Errors
/// Lists the places that were looked at, or says why the loader could not take the path.
pub fn find() -> Result<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let places: Vec<PathBuf> = named.map_or_else(places, |path| vec![path]);
    let Some(found) = places.iter().find(|path| path.is_file()) else {
        let list: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
        bail!("{FILE_NAME} is not there: looked at {}; set {VARIABLE} to its path", list.join(", "));
    };
    let path = found.canonicalize().with_context(|| format!("{}", found.display()))?;
    check_path(&path)?;
    Ok(path)
}

/// Every copy in a known place, and in the virtual environment that is active.
pub fn all() -> Vec<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let environment = std::env::var_os("VIRTUAL_ENV").map(|folder| wheels(&PathBuf::from(folder).join("lib")));
    let places = named.into_iter().chain(places()).chain(environment.into_iter().flatten());
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
