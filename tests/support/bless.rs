//! Files with expected output, which `WEFT_BLESS=1` writes.

use std::fs;
use std::path::Path;

/// Compares `actual` with the file, or writes the file with `WEFT_BLESS=1`.
pub fn check(path: &Path, actual: &str) -> Result<(), String> {
    if std::env::var_os("WEFT_BLESS").is_some_and(|v| v == "1") {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        return fs::write(path, actual).map_err(|e| format!("{}: {e}", path.display()));
    }
    let shown = path.display();
    let expected =
        fs::read_to_string(path).map_err(|e| format!("{shown}: {e} (WEFT_BLESS=1 writes it)\n{actual}"))?;
    if expected == actual {
        return Ok(());
    }
    Err(format!(
        "{shown} is not what came out (WEFT_BLESS=1 writes it anew):\n{}",
        first_difference(&expected, actual)
    ))
}

/// The first line that differs, with a few lines around it.
fn first_difference(expected: &str, actual: &str) -> String {
    const AROUND: usize = 3;
    let (old, new): (Vec<_>, Vec<_>) = (expected.lines().collect(), actual.lines().collect());
    let at = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let from = at.saturating_sub(AROUND);
    let mut out = format!("line {}:\n", at + 1);
    old[from..at].iter().for_each(|line| out += &format!("  {line}\n"));
    old[at..].iter().take(AROUND).for_each(|line| out += &format!("- {line}\n"));
    new[at..].iter().take(AROUND).for_each(|line| out += &format!("+ {line}\n"));
    out
}
