//! Where `use` finds files: the built-in library, and the file system.

use std::path::{Component, Path, PathBuf};
use weft_lang::elaborate::Loader;

/// The built-in library: ordinary `.weft` files, `use weft::NAME;`.
pub const LIBRARY: &[(&str, &str)] = &[("collectives", include_str!("library/collectives.weft"))];

/// Files relative to the one that uses them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

/// The text of a part of the built-in library.
pub fn part(name: &str) -> Option<&'static str> {
    LIBRARY.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

impl Loader for Files {
    fn file(&self, from: &str, path: &str) -> Result<(String, String), String> {
        let at = plain(&Path::new(from).parent().unwrap_or(Path::new("")).join(path));
        let name = at.display().to_string();
        read_text(&at).map(|text| (name, text))
    }

    fn builtin(&self, path: &str) -> Option<&str> {
        part(path)
    }
}

/// Without `.` and, where a folder precedes it, `..`: a file has one name however it is reached, so that files which
/// use each other are read once.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// Largest file that is taken for a kernel's text.
const MAX_BYTES: u64 = weft_lang::source::MAX_FILE_BYTES as u64;

/// Reads a text file, refusing what can be no `.weft`: too large, or no UTF-8.
pub fn read_text(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let size = std::fs::metadata(path).map_err(|e| format!("cannot read {shown}: {e}"))?.len();
    if size > MAX_BYTES {
        return Err(format!("{shown} has {size} bytes; a .weft file has at most {MAX_BYTES}"));
    }
    let bytes = std::fs::read(path).map_err(|e| format!("cannot read {shown}: {e}"))?;
    String::from_utf8(bytes).map_err(|e| {
        let line = e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        format!("{shown} is no text: line {line} is not UTF-8")
    })
}
