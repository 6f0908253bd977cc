//! Programs that are run. A program in the current folder is never used, since the folder may be a
//! foreign repository.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The absolute folders that a variable such as `PATH` lists.
pub(super) fn absolute(list: &OsStr) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(list).filter(|folder| folder.is_absolute())
}

/// The program of that name in a folder that `PATH` lists. Relative folders are skipped. A path is
/// returned unchanged.
pub fn program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let runs =
        |file: &Path| file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let list = std::env::var_os("PATH")?;
    absolute(&list).map(|folder| folder.join(name)).find(|file| runs(file))
}

/// Python, isolated: it imports nothing from the current folder, from `PYTHONPATH`, or from the user's packages. It runs
/// in `/`, so that no version manager chooses by the current folder.
pub(super) fn isolated_python() -> Option<Command> {
    let mut python = Command::new(program("python3").or_else(|| program("python"))?);
    python.arg("-I").current_dir("/").stdin(Stdio::null());
    Some(python)
}

/// The output of a program; none if it is missing or fails.
pub(super) fn output(mut command: Command) -> Option<String> {
    let out = command.stdin(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}
