//! Where Python keeps its packages, which it has to be asked.
//!
//! Starting it takes 20 to 150 ms, longer than a kernel takes to compile: its answer is kept in the user's cache folder,
//! for as long as the interpreter and all that leads to its answer are the same. `WEFT_CACHE=off` keeps nothing.

use super::{cache_folder, output};
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
    output("python3", &["-c", SCRIPT])
}

/// The file that the answer of the interpreter that would be asked is kept in.
fn place() -> Option<PathBuf> {
    if std::env::var_os("WEFT_CACHE").is_some_and(|v| v == "off" || v == "0") {
        return None;
    }
    let mut key = DefaultHasher::new();
    let path = std::env::var_os("PATH")?;
    let program = std::env::split_paths(&path).map(|dir| dir.join("python3")).find(|file| file.is_file())?;
    let changed = |file: &Path| fs::metadata(file).and_then(|m| m.modified()).ok();
    (&program, changed(&program), fs::canonicalize(&program).ok()).hash(&mut key);
    VARS.map(std::env::var_os).hash(&mut key);
    // A version manager picks by these.
    let here = std::env::current_dir().ok()?;
    here.ancestors().find_map(|dir| fs::read(dir.join(".python-version")).ok()).hash(&mut key);
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    root.and_then(|root| fs::read(root.join("version")).ok()).hash(&mut key);
    Some(cache_folder()?.join("python").join(format!("{:016x}", key.finish())))
}

/// A kept answer whose first folder is still there.
fn read(file: &Path) -> Option<String> {
    let answer = fs::read_to_string(file).ok()?;
    let first = answer.lines().next()?;
    Path::new(first).is_dir().then_some(answer)
}

/// Whole or not at all, whoever else writes it.
fn write(file: &Path, answer: &str) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)?;
    let new = file.with_extension(std::process::id().to_string());
    fs::write(&new, answer)?;
    fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_while_it_leads_somewhere() {
        let folder = std::env::temp_dir().join(format!("weft-python-{}", std::process::id()));
        let file = folder.join("kept").join("0");
        let answer = format!("{}\n/nowhere\n", folder.display());
        assert_eq!(read(&file), None);
        write(&file, &answer).unwrap();
        assert_eq!(read(&file), Some(answer));
        write(&file, "/nowhere/at/all\n").unwrap();
        assert_eq!(read(&file), None);
        fs::write(&file, [0xff]).unwrap();
        assert_eq!(read(&file), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
