//! Where Python keeps its packages, which it has to be asked.
//!
//! Starting it takes 20 to 150 ms, longer than a kernel takes to compile: its answer is kept in the user's cache folder,
//! for as long as the interpreter and all that leads to its answer are the same. `WEFT_CACHE=off` keeps nothing.

use super::cache_folder;
use super::programs::{isolated_python, output, program};
use crate::owned::{self, Trust};
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// Variables that change the answer.
const VARS: [&str; 8] = [
    "PATH",
    "HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONHOME",
    "PYTHONUSERBASE",
    "PYENV_VERSION",
    "PYENV_ROOT",
];

/// The first line of a kept answer. Answers without it were asked for in the current folder, whose files could give
/// them: they do not count.
const FORM: &str = "warpweft python 2";

/// Most bytes of a kept answer.
const MOST_BYTES: u64 = 1 << 20;

/// Package folders, one a line; none where there is no Python.
pub(super) fn folders() -> Option<String> {
    let kept = place();
    if let Some(answer) = kept.as_deref().and_then(read) {
        return Some(answer);
    }
    let answer = ask()?;
    // That it cannot be kept does no harm.
    if let Some(file) = kept {
        let _ = write(&file, &answer);
    }
    Some(answer)
}

fn ask() -> Option<String> {
    const SCRIPT: &str = "import site, sysconfig; \
        print('\\n'.join([sysconfig.get_path('purelib'), *site.getsitepackages(), site.getusersitepackages()]))";
    let mut python = isolated_python()?;
    python.args(["-c", SCRIPT]);
    let answer = output(python)?;
    Some(
        answer.lines().filter(|line| Path::new(line).is_absolute()).map(|line| format!("{line}\n")).collect(),
    )
}

/// The file that the answer of the interpreter that would be asked is kept in.
fn place() -> Option<PathBuf> {
    if std::env::var_os("WEFT_CACHE").is_some_and(|v| v == "off" || v == "0") {
        return None;
    }
    let mut key = DefaultHasher::new();
    let program = program("python3")?;
    let changed = |file: &Path| fs::metadata(file).and_then(|m| m.modified()).ok();
    (&program, changed(&program), fs::canonicalize(&program).ok()).hash(&mut key);
    VARS.map(std::env::var_os).hash(&mut key);
    // A version manager picks by this.
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    root.and_then(|root| fs::read(root.join("version")).ok()).hash(&mut key);
    Some(cache_folder()?.join("python").join(format!("{:016x}", key.finish())))
}

/// A kept answer whose first folder is still there.
fn read(file: &Path) -> Option<String> {
    let folder = file.parent()?;
    owned::below(folder.parent()?, file).ok()?;
    let answer = String::from_utf8(owned::read(file, MOST_BYTES, Trust::Owner).ok()?).ok()?;
    let answer = answer.strip_prefix(FORM)?.strip_prefix('\n')?;
    let first = answer.lines().next()?;
    Path::new(first).is_dir().then(|| answer.to_owned())
}

/// Whole or not at all, whoever else writes it.
fn write(file: &Path, answer: &str) -> std::io::Result<()> {
    if let Some(ours) = file.parent().and_then(Path::parent) {
        owned::make_folder(ours, Trust::Owner)?;
    }
    owned::write(file, &[FORM.as_bytes(), b"\n", answer.as_bytes()], Trust::Owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_while_it_leads_somewhere() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kept").join("0");
        let answer = format!("{}\n/nowhere\n", folder.path().display());
        assert_eq!(read(&file), None);
        write(&file, &answer).unwrap();
        assert_eq!(read(&file), Some(answer.clone()));
        write(&file, "/nowhere/at/all\n").unwrap();
        assert_eq!(read(&file), None);
        // An answer of an earlier version.
        owned::write(&file, &[answer.as_bytes()], Trust::Owner).unwrap();
        assert_eq!(read(&file), None);
        owned::write(&file, &[&[0xff]], Trust::Owner).unwrap();
        assert_eq!(read(&file), None);
    }
}
