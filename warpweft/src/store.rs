//! Caches of compiled results: in this process, and in a folder of the user for later processes.
//!
//! A result is found by a [`Key`] of everything that it depends on. `WEFT_CACHE=off` caches nothing
//! on disk; `WEFT_CACHE=FOLDER` uses another folder. The size of a folder is limited: the entries
//! that were not used for the longest time are removed first. A damaged entry counts as absent.
//! Processes share the folder, and a file appears either complete or not at all.
//!
//! A folder or an entry that other users may have written is not used ([`owned`]), unless the user
//! shares the folder with everybody who can write it: `WEFT_CACHE=shared:FOLDER`.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use weft_runtime::find;
use weft_runtime::owned::{self, NEW, Trust};

/// The first bytes of an entry's file. Each format of entries has its own number.
const MAGIC: &[u8; 16] = b"warpweft cache 1";

const HASH: usize = blake3::OUT_LEN;

/// The prefix of a value of `WEFT_CACHE` that names a folder shared with others.
const SHARED: &str = "shared:";

/// A value that a store keeps.
pub trait StoredValue: Sized {
    /// The extension of the files' names.
    const EXTENSION: &'static str;

    /// The bytes of the value in a file.
    ///
    /// # Errors
    /// Fails if the value cannot be written.
    fn encode(&self) -> io::Result<Vec<u8>>;

    /// Decodes what [`encode`](StoredValue::encode) wrote. Returns `None` for other bytes, such as those
    /// of another version.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// The key that an entry is found by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key([u8; HASH]);

/// The place where an entry was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The entry was in the memory of this process.
    Memory,
    /// The entry was in the folder.
    Disk,
    /// The entry was not found, so it was made.
    Made,
}

impl Key {
    /// The key of a result that is made from the value of this key, in the way that `made` names.
    #[must_use]
    pub fn with(&self, made: &[&str]) -> Key {
        let mut parts = Parts::default();
        parts.add(&[&self.to_string()]);
        parts.add(made);
        parts.key()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// A hash of texts in which the borders between texts count.
#[derive(Default)]
pub(crate) struct Parts(blake3::Hasher);

impl Parts {
    pub fn add(&mut self, texts: &[&str]) {
        self.0.update(&(texts.len() as u64).to_le_bytes());
        for text in texts {
            self.0.update(&(text.len() as u64).to_le_bytes());
            self.0.update(text.as_bytes());
        }
    }

    pub fn key(&self) -> Key {
        Key(*self.0.finalize().as_bytes())
    }
}

/// A string that identifies a file without reading it: its path, size, and modification time.
pub(crate) fn stamp(path: &Path) -> io::Result<String> {
    let path = path.canonicalize()?;
    let meta = fs::metadata(&path)?;
    let written = meta.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{} {} {}", path.display(), meta.len(), written.as_nanos()))
}

/// A cache of entries in memory and in a folder.
#[derive(Debug)]
pub struct Store<T> {
    folder: Option<PathBuf>,
    /// The cache folder of warpweft that contains `folder`, or `folder` itself if the user has
    /// named it.
    base: PathBuf,
    trust: Trust,
    max_bytes: u64,
    memory: Mutex<HashMap<Key, Arc<T>>>,
}

impl<T: StoredValue> Store<T> {
    /// The default limit of a folder's size in bytes. [`max_bytes`](Store::max_bytes) changes it.
    const FOLDER_BYTES: u64 = 512 << 20;

    /// A store that the user's processes share: this folder of the user's cache folder, unless
    /// `WEFT_CACHE` names another.
    pub(crate) fn shared(folder: &str) -> Store<T> {
        match std::env::var_os("WEFT_CACHE") {
            Some(off) if off == "off" || off == "0" => Store::in_memory(),
            Some(named) if !named.is_empty() => match named.to_str().and_then(|v| v.strip_prefix(SHARED)) {
                Some(folder) => Store { trust: Trust::Anybody, ..Store::at(folder) },
                None => Store::at(named),
            },
            _ => match find::cache_folder() {
                Some(base) => Store { folder: Some(base.join(folder)), base, ..Store::in_memory() },
                None => Store::in_memory(),
            },
        }
    }

    /// A store that also keeps entries in a folder, which the first entry creates.
    pub fn at(folder: impl Into<PathBuf>) -> Store<T> {
        let base = folder.into();
        Store { folder: Some(base.clone()), base, ..Store::in_memory() }
    }

    /// A store that ends with the process.
    pub fn in_memory() -> Store<T> {
        Store {
            folder: None,
            base: PathBuf::new(),
            trust: Trust::Owner,
            max_bytes: Self::FOLDER_BYTES,
            memory: Mutex::default(),
        }
    }

    /// The store with another limit on the size of its folder.
    #[must_use]
    pub fn max_bytes(self, max_bytes: u64) -> Store<T> {
        Store { max_bytes, ..self }
    }

    /// The folder in which it keeps entries.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The entry of that key, if there is one and it is intact.
    pub fn get(&self, key: &Key) -> Option<(Arc<T>, Found)> {
        if let Some(entry) = self.lock().get(key) {
            return Some((entry.clone(), Found::Memory));
        }
        let path = self.path(key)?;
        self.folders().try_for_each(|folder| owned::folder(folder, self.trust)).ok()?;
        let entry = Arc::new(read::<T>(&owned::read(&path, self.max_bytes, self.trust).ok()?)?);
        // A used entry is removed last. A folder that cannot be written is still read.
        let _ = owned::touch(&path, self.trust);
        self.lock().insert(*key, entry.clone());
        Some((entry, Found::Disk))
    }

    /// Keeps an entry for later calls. If the folder cannot be written, only this process keeps the
    /// entry.
    pub fn put(&self, key: &Key, entry: T) -> Arc<T> {
        let entry = Arc::new(entry);
        self.lock().insert(*key, entry.clone());
        if let (Some(path), Some(folder)) = (self.path(key), &self.folder) {
            let _ = self.write(&path, &*entry).and_then(|()| self.bound(folder, &path));
        }
        entry
    }

    fn folders(&self) -> impl Iterator<Item = &Path> {
        let inside = self.folder.as_deref().filter(|folder| *folder != self.base);
        [&*self.base].into_iter().chain(inside)
    }

    /// Writes the magic number, a hash of the rest, and the rest.
    fn write(&self, path: &Path, entry: &T) -> io::Result<()> {
        self.folders().try_for_each(|folder| owned::make_folder(folder, self.trust))?;
        let rest = entry.encode()?;
        owned::write(path, &[MAGIC, blake3::hash(&rest).as_bytes(), &rest], self.trust)
    }

    /// The entry of a key. If there is none, `make` makes it.
    ///
    /// # Errors
    ///
    /// Fails if `make` fails.
    pub fn get_or_make<E>(
        &self,
        key: &Key,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Arc<T>, Found), E> {
        match self.get(key) {
            Some(found) => Ok(found),
            None => Ok((self.put(key, make()?), Found::Made)),
        }
    }

    fn path(&self, key: &Key) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{key}.{}", T::EXTENSION)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<T>>> {
        // A panic in another thread leaves the map in a valid state.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the entries that were not used for the longest time until the folder is small
    /// enough, but never `newest`.
    fn bound(&self, folder: &Path, newest: &Path) -> io::Result<()> {
        let mut files = Vec::new();
        for file in fs::read_dir(folder)?.flatten() {
            let path = file.path();
            // Another process may have removed it.
            let Ok(meta) = file.metadata() else { continue };
            if path.extension().is_some_and(|e| e == T::EXTENSION) {
                files.push((meta.modified()?, meta.len(), path));
            } else if is_left_over(&file, &meta) {
                let _ = fs::remove_file(&path);
            }
        }
        let mut bytes: u64 = files.iter().map(|f| f.1).sum();
        files.sort();
        for (_, size, path) in files {
            if bytes <= self.max_bytes {
                break;
            }
            if path != newest && fs::remove_file(&path).is_ok() {
                bytes -= size;
            }
        }
        Ok(())
    }
}

/// Whether a file was left incomplete by a process that was killed.
fn is_left_over(file: &fs::DirEntry, meta: &fs::Metadata) -> bool {
    let hour = std::time::Duration::from_secs(3600);
    file.file_name().to_string_lossy().starts_with(NEW)
        && meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > hour))
}

/// The entry in the bytes of a file, or `None` if the file is damaged.
fn read<T: StoredValue>(bytes: &[u8]) -> Option<T> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (hash, rest) = rest.split_at_checked(HASH)?;
    if blake3::hash(rest).as_bytes() == hash { T::decode(rest) } else { None }
}
