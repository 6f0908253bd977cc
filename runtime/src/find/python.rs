//! The folders of Python's packages, which only Python itself knows.
//!
//! Starting Python takes 20 to 150 ms, which is longer than compiling a kernel. So its answer is
//! kept in the user's cache folder, as long as the interpreter and everything that influences its
//! answer are unchanged. `WEFT_CACHE=off` keeps nothing.

use super::cache_folder;
use super::programs::{isolated_python, output, program};
use crate::owned::{self, Trust};
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// The variables that change the answer.
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

/// The first line of a kept answer. Answers without it were requested in the current folder, whose
/// files could influence them, so they are ignored.
const FORM: &str = "warpweft python 2";

/// The largest size of a kept answer in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The package folders, one on each line; none without Python.
pub(super) fn folders() -> Option<String> {
    let kept = place();
    if let Some(answer) = kept.as_deref().and_then(read) {
        return Some(answer);
    }
    let answer = ask()?;
    // A failure to keep it is harmless.
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

/// The file with the kept answer of the interpreter that would be asked.
fn place() -> Option<PathBuf> {
    if std::env::var_os("WEFT_CACHE").is_some_and(|v| v == "off" || v == "0") {
        return None;
    }
    let mut key = DefaultHasher::new();
    let program = program("python3")?;
    let changed = |file: &Path| fs::metadata(file).and_then(|m| m.modified()).ok();
    (&program, changed(&program), fs::canonicalize(&program).ok()).hash(&mut key);
    VARS.map(std::env::var_os).hash(&mut key);
    // A version manager depends on this variable.
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    root.and_then(|root| fs::read(root.join("version")).ok()).hash(&mut key);
    Some(cache_folder()?.join("python").join(format!("{:016x}", key.finish())))
}

/// Reads a kept answer whose first folder still exists.
fn read(file: &Path) -> Option<String> {
    let folder = file.parent()?;
    owned::below(folder.parent()?, file).ok()?;
    let answer = String::from_utf8(owned::read(file, MAX_BYTES, Trust::Owner).ok()?).ok()?;
    let answer = answer.strip_prefix(FORM)?.strip_prefix('\n')?;
    let first = answer.lines().next()?;
    Path::new(first).is_dir().then(|| answer.to_owned())
}

/// Writes the answer atomically, in case other processes write it too.
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
        // This is an answer of an earlier version.
        owned::write(&file, &[answer.as_bytes()], Trust::Owner).unwrap();
        assert_eq!(read(&file), None);
        owned::write(&file, &[&[0xff]], Trust::Owner).unwrap();
        assert_eq!(read(&file), None);
    }
}
