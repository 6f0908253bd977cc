//! Where `use` finds files: the built-in library, and the file system.

use std::io::Read;
use std::path::Path;
use weft_lang::elaborate::Loader;

/// The built-in library: ordinary `.weft` files, `use weft::NAME;`.
pub const LIBRARY: &[(&str, &str)] = &[
    ("all_gather", include_str!("library/all_gather.weft")),
    ("all_to_all", include_str!("library/all_to_all.weft")),
    ("allreduce", include_str!("library/allreduce.weft")),
    ("broadcast", include_str!("library/broadcast.weft")),
    ("collectives", include_str!("library/collectives.weft")),
    ("grid", include_str!("library/grid.weft")),
    ("ll", include_str!("library/ll.weft")),
    ("net", include_str!("library/net.weft")),
    ("reduce_scatter", include_str!("library/reduce_scatter.weft")),
    ("rotate", include_str!("library/rotate.weft")),
    ("staged", include_str!("library/staged.weft")),
    ("tile", include_str!("library/tile.weft")),
];

/// Files relative to the one that uses them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

/// The text of a part of the built-in library.
pub fn part(name: &str) -> Option<&'static str> {
    LIBRARY.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

impl Loader for Files {
    fn file(&self, from: &str, path: &str) -> Result<(String, String), String> {
        let at = Path::new(from).parent().unwrap_or(Path::new("")).join(path);
        let text = read_text(&at)?;
        Ok((name_of(&at), text))
    }

    fn builtin(&self, path: &str) -> Option<&str> {
        part(path)
    }
}

/// The name of a file, one however it is spelled: relative to the working directory where it lies below that.
pub fn name_of(path: &Path) -> String {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let here = std::env::current_dir().unwrap_or_default();
    real.strip_prefix(here).unwrap_or(&real).display().to_string()
}

/// Largest file that is taken for a kernel's text.
const MAX_BYTES: u64 = weft_lang::source::MAX_FILE_BYTES as u64;

/// Reads a text file, refusing what can be no `.weft`: too large, or no UTF-8.
pub fn read_text(path: &Path) -> Result<String, String> {
    read_text_of(path, MAX_BYTES, ".weft")
}

/// Reads a text file of at most so many bytes.
pub(crate) fn read_text_of(path: &Path, most: u64, kind: &str) -> Result<String, String> {
    let shown = path.display();
    let bad = |e: std::io::Error| format!("cannot read {shown}: {e}");
    let mut bytes = Vec::new();
    // A device has no size to ask for.
    std::fs::File::open(path).map_err(bad)?.take(most + 1).read_to_end(&mut bytes).map_err(bad)?;
    if bytes.len() as u64 > most {
        return Err(format!("{shown} is larger than {most} bytes, the most that a {kind} file has"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let line = e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        format!("{shown} is no text: line {line} is not UTF-8")
    })
}
