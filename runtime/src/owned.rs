//! Files and folders that only this user can have written: caches, fetched tools, kept answers.
//!
//! A folder or file is trusted if the process's user owns it, no other user can write it, and it is
//! not a link. Other files are ignored and count as missing; [`refusals`] gives the reasons.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::ops::Not;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

/// The users who are trusted to have written a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// The user of this process alone.
    Owner,
    /// Everybody who can write the folder, since the user has chosen to share it.
    Anybody,
}

static REFUSALS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns the reasons why folders and files were not used so far in this process, each once.
pub fn refusals() -> Vec<String> {
    REFUSALS.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

fn refuse(why: String) -> io::Error {
    let error = io::Error::new(io::ErrorKind::PermissionDenied, why.clone());
    REFUSALS.lock().unwrap_or_else(PoisonError::into_inner).insert(why);
    error
}

/// The reason why another user could write the file, according to the owner and mode in `meta`.
fn flaw(path: &Path, meta: &fs::Metadata) -> Option<String> {
    let (shown, user) = (path.display(), nix::unistd::geteuid().as_raw());
    if meta.file_type().is_symlink() {
        return Some(format!("{shown} is a link, so it is not used; help: remove it"));
    }
    if meta.uid() != user {
        let owner = meta.uid();
        return Some(format!(
            "{shown} belongs to user {owner}, not to user {user}, and is not used; help: remove it, or set \
             XDG_CACHE_HOME and WEFT_CACHE to folders of your own"
        ));
    }
    if meta.mode() & 0o022 != 0 {
        return Some(format!(
            "other users can write {shown}, so it is not used; help: chmod -R go-w {shown}"
        ));
    }
    None
}

/// Creates a folder that only this user can enter, with its parents, or checks an existing one.
///
/// # Errors
/// Fails if the folder cannot be created, or, with [`Trust::Owner`], if another user can write it.
pub fn make_folder(path: &Path, trust: Trust) -> io::Result<()> {
    let mode = if trust == Trust::Owner { 0o700 } else { 0o777 };
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    folder(path, trust)
}

/// Checks that a folder exists and can be trusted.
///
/// # Errors
/// Fails if there is no such folder, or, with [`Trust::Owner`], if another user can write it.
pub fn folder(path: &Path, trust: Trust) -> io::Result<()> {
    let meta = match trust {
        Trust::Owner => fs::symlink_metadata(path)?,
        Trust::Anybody => {
            return if path.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) };
        }
    };
    if !meta.is_dir() && !meta.is_symlink() {
        return Err(refuse(format!("{} is not a folder, so it is not used", path.display())));
    }
    flaw(path, &meta).map_or(Ok(()), |why| Err(refuse(why)))
}

/// Checks a file, and all folders from `base` (included) to it.
///
/// # Errors
/// Fails if one of the folders is missing, or if another user can write it.
pub fn below(base: &Path, file: &Path) -> io::Result<()> {
    let Ok(inside) = file.strip_prefix(base) else {
        return Err(refuse(format!("{} is not inside {}", file.display(), base.display())));
    };
    let mut path = base.to_owned();
    folder(&path, Trust::Owner)?;
    for part in inside.components() {
        path.push(part);
        if let Some(why) = flaw(&path, &fs::symlink_metadata(&path)?) {
            return Err(refuse(why));
        }
    }
    Ok(())
}

/// Whether the group or other users can read a file, or its mode is unknown.
pub fn is_readable_by_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o044 == 0).not()
}

/// Opens a regular file of any owner for reading. Links are followed.
///
/// # Errors
/// Fails if the file cannot be opened, or if it is a pipe, which could block forever, a device or a
/// folder.
pub fn open_regular(path: &Path) -> io::Result<File> {
    regular(path, OpenOptions::new().read(true), 0)
}

fn regular(path: &Path, options: &OpenOptions, flags: i32) -> io::Result<File> {
    let file = options.clone().custom_flags(O_NONBLOCK | flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Opens a regular file with this trust. A link is not followed.
fn open(path: &Path, options: &OpenOptions, trust: Trust) -> io::Result<File> {
    let file = regular(path, options, O_NOFOLLOW).map_err(|e| match e.kind() {
        io::ErrorKind::InvalidInput => {
            refuse(format!("{} is not a regular file, so it is not used", path.display()))
        }
        _ => e,
    })?;
    match flaw(path, &file.metadata()?).filter(|_| trust == Trust::Owner) {
        Some(why) => Err(refuse(why)),
        None => Ok(file),
    }
}

/// Reads a regular file of at most `max` bytes.
///
/// # Errors
/// Fails if the file cannot be read, is larger, or, with [`Trust::Owner`], if another user can
/// write it.
pub fn read(path: &Path, max: u64, trust: Trust) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, OpenOptions::new().read(true), trust)?.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {max} bytes"))),
        false => Ok(bytes),
    }
}

/// Marks a file as used now by updating its modification time.
///
/// # Errors
/// Fails where [`read`] fails.
pub fn touch(path: &Path, trust: Trust) -> io::Result<()> {
    open(path, OpenOptions::new().append(true), trust)?.set_modified(std::time::SystemTime::now())
}

/// The beginning of the names of files that are being written.
pub const NEW: &str = ".new";

/// Writes a file atomically in its folder, which is created if needed. A reader sees the old file,
/// the new one, or none.
///
/// # Errors
/// Fails if [`make_folder`] rejects the folder, or if the file cannot be written.
pub fn write(path: &Path, parts: &[&[u8]], trust: Trust) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    make_folder(folder, trust)?;
    let mut file = tempfile::Builder::new().prefix(NEW).tempfile_in(folder)?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    if trust == Trust::Anybody {
        // Other users must be able to read a shared folder.
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
    }
    file.persist(path)?;
    Ok(())
}

/// Removes the write permission of the group and of other users, for a folder and everything in it.
///
/// # Errors
/// Fails if a file cannot be changed.
pub fn close_to_others(path: &Path) -> io::Result<()> {
    let mut left: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path)?;
        if meta.file_type().is_symlink() {
            continue;
        }
        if meta.mode() & 0o022 != 0 {
            fs::set_permissions(&path, Permissions::from_mode(meta.mode() & 0o7755))?;
        }
        if meta.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_others_may_write_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder_path = root.path().join("a/b");
        let file = folder_path.join("x");
        write(&file, &[b"one ", b"two"], Trust::Owner).unwrap();
        assert_eq!(fs::metadata(&folder_path).unwrap().mode() & 0o777, 0o700);
        assert_eq!(read(&file, 7, Trust::Owner).unwrap(), b"one two");
        assert_eq!(read(&file, 6, Trust::Owner).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        below(root.path(), &file).unwrap();

        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        assert!(read(&file, 7, Trust::Owner).is_err() && below(root.path(), &file).is_err());
        assert_eq!(read(&file, 7, Trust::Anybody).unwrap(), b"one two");
        close_to_others(root.path()).unwrap();
        read(&file, 7, Trust::Owner).unwrap();

        fs::set_permissions(&folder_path, Permissions::from_mode(0o777)).unwrap();
        assert!(folder(&folder_path, Trust::Owner).is_err() && below(root.path(), &file).is_err());
        assert!(write(&file, &[b"three"], Trust::Owner).is_err());
        assert!(refusals().iter().any(|why| why.contains("chmod -R go-w")));
    }

    #[test]
    fn links_pipes_and_folders_are_no_files() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("real"), "text").unwrap();
        symlink(at("real"), at("link")).unwrap();
        symlink(root.path(), at("around")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        for name in ["link", "pipe", ".", "absent"] {
            assert!(read(&at(name), 9, Trust::Owner).is_err(), "{name}");
            assert!(read(&at(name), 9, Trust::Anybody).is_err(), "{name}");
        }
        assert!(below(root.path(), &at("around/real")).is_err());
        assert!(below(root.path(), Path::new("/etc/passwd")).is_err());
        assert!(folder(&at("around"), Trust::Owner).is_err());
    }
}
