//! Compiled kernels that are kept: in this process, and in the user's cache folder for the next.
//!
//! What was compiled once is found by all that its code depends on: every source text, the options, the compiler.
//! `WEFT_CACHE=off` keeps nothing on disk; `WEFT_CACHE=FOLDER` keeps it there. The folder is bounded in size, what was
//! not used for longest goes first, and what is damaged there is as if it were absent.

use crate::compile::{KernelFile, Options};
use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;
use weft_runtime::find;
use weft_runtime::launch::ModuleInfo;

/// Most bytes of the folder.
const FOLDER_BYTES: u64 = 512 << 20;

/// How an entry's file begins; another number is another form.
const MAGIC: &[u8; 16] = b"warpweft cache 1";

const HASH: usize = blake3::OUT_LEN;

/// What an entry is found by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key([u8; HASH]);

/// Compiled code with its description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What a launch needs to know of it.
    pub info: ModuleInfo,
    /// PTX text, or a cubin.
    pub image: Vec<u8>,
}

/// Where an entry was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// In this process.
    Memory,
    /// In the folder.
    Disk,
    /// Nowhere: it was made.
    Made,
}

impl Key {
    /// Of the PTX of a file, compiled with these options by this compiler.
    pub fn of(file: &KernelFile, options: &Options) -> Key {
        // All fields: a new one must be thought about here. Those that only keep stages change no code.
        let Options {
            target,
            ptx_version,
            lowering,
            transport,
            simulated,
            kernel,
            defines,
            opt,
            lines,
            debug_waits,
            keep_ir: _,
            keep_after: _,
            keep_llvm: _,
        } = options;
        let mut parts = Parts::default();
        parts.add(&[env!("CARGO_PKG_VERSION"), env!("WEFT_COMPILER")]);
        parts.add(&[&format!("{:?}", crate::llvm_version())]);
        parts.add(&[&format!("{target} {ptx_version:?} {lowering:?} {transport:?} {simulated} {kernel:?}")]);
        parts.add(&[&format!("{opt:?} {lines} {debug_waits:?}")]);
        for (name, value) in defines {
            parts.add(&[name, &format!("{value:?}")]);
        }
        let sources = file.sources();
        for i in 0..u32::try_from(sources.len()).unwrap_or(u32::MAX) {
            parts.add(&[sources.name(i).unwrap_or_default(), sources.text(i).unwrap_or_default()]);
        }
        parts.key()
    }

    /// Of something made of what this key finds: by whom, for what.
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

/// Texts, hashed so that their borders count.
#[derive(Default)]
struct Parts(blake3::Hasher);

impl Parts {
    fn add(&mut self, texts: &[&str]) {
        self.0.update(&(texts.len() as u64).to_le_bytes());
        for text in texts {
            self.0.update(&(text.len() as u64).to_le_bytes());
            self.0.update(text.as_bytes());
        }
    }

    fn key(&self) -> Key {
        Key(*self.0.finalize().as_bytes())
    }
}

/// Kept entries.
#[derive(Debug)]
pub struct Cache {
    folder: Option<PathBuf>,
    most_bytes: u64,
    memory: Mutex<HashMap<Key, Arc<Entry>>>,
}

impl Cache {
    /// The one of this process and user: `warpweft/kernels` in the user's cache folder, unless `WEFT_CACHE` says
    /// otherwise.
    pub fn user() -> &'static Cache {
        static CACHE: OnceLock<Cache> = OnceLock::new();
        CACHE.get_or_init(|| match std::env::var_os("WEFT_CACHE") {
            Some(off) if off == "off" || off == "0" => Cache::in_memory(),
            Some(folder) if !folder.is_empty() => Cache::at(folder),
            _ => find::cache_folder().map_or_else(Cache::in_memory, |f| Cache::at(f.join("kernels"))),
        })
    }

    /// One that keeps entries in a folder too, which is made when the first comes.
    pub fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: Some(folder.into()), ..Cache::in_memory() }
    }

    /// One that ends with the process.
    pub fn in_memory() -> Cache {
        Cache { folder: None, most_bytes: FOLDER_BYTES, memory: Mutex::default() }
    }

    /// It, with another bound of the folder's size.
    #[must_use]
    pub fn most_bytes(self, most_bytes: u64) -> Cache {
        Cache { most_bytes, ..self }
    }

    /// Where it keeps entries.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The entry of that key, if there is one that is whole.
    pub fn get(&self, key: &Key) -> Option<(Arc<Entry>, Found)> {
        if let Some(entry) = self.lock().get(key) {
            return Some((entry.clone(), Found::Memory));
        }
        let path = self.path(key)?;
        let entry = Arc::new(decode(&fs::read(&path).ok()?)?);
        // Used now: the last to go. A folder that cannot be written is still read.
        let _ = File::options().append(true).open(&path).and_then(|f| f.set_modified(SystemTime::now()));
        self.lock().insert(*key, entry.clone());
        Some((entry, Found::Disk))
    }

    /// Keeps an entry. A folder that cannot be written, or a full disk, keeps it in this process alone.
    pub fn put(&self, key: &Key, entry: Entry) -> Arc<Entry> {
        let entry = Arc::new(entry);
        self.lock().insert(*key, entry.clone());
        if let (Some(path), Some(folder)) = (self.path(key), &self.folder) {
            let _ = write(folder, &path, &entry).and_then(|()| self.bound(folder, &path));
        }
        entry
    }

    /// The entry of that key, made if there is none.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_make<E>(
        &self,
        key: &Key,
        make: impl FnOnce() -> Result<Entry, E>,
    ) -> Result<(Arc<Entry>, Found), E> {
        match self.get(key) {
            Some(found) => Ok(found),
            None => Ok((self.put(key, make()?), Found::Made)),
        }
    }

    fn path(&self, key: &Key) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{key}.kernel")))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<Entry>>> {
        // A panic elsewhere leaves the map as it is, which is still a map.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what was not used for longest until the folder is small enough, but not `newest`.
    fn bound(&self, folder: &Path, newest: &Path) -> io::Result<()> {
        let mut files = Vec::new();
        for file in fs::read_dir(folder)?.flatten() {
            let (path, meta) = (file.path(), file.metadata()?);
            if path.extension().is_some_and(|e| e == "kernel") {
                files.push((meta.modified()?, meta.len(), path));
            }
        }
        let mut bytes: u64 = files.iter().map(|f| f.1).sum();
        files.sort();
        for (_, size, path) in files {
            if bytes <= self.most_bytes {
                break;
            }
            if path != newest && fs::remove_file(&path).is_ok() {
                bytes -= size;
            }
        }
        Ok(())
    }
}

/// All at once: a reader sees the old file, the new one, or none.
fn write(folder: &Path, path: &Path, entry: &Entry) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(".new").tempfile_in(folder)?;
    file.write_all(&encode(entry)?)?;
    file.persist(path)?;
    Ok(())
}

/// Magic, hash of the rest, bytes of the description as `u64`, description as JSON, image.
fn encode(entry: &Entry) -> io::Result<Vec<u8>> {
    let info = serde_json::to_vec(&entry.info)?;
    let mut rest = (info.len() as u64).to_le_bytes().to_vec();
    rest.extend_from_slice(&info);
    rest.extend_from_slice(&entry.image);
    Ok([MAGIC, blake3::hash(&rest).as_bytes().as_slice(), &rest].concat())
}

/// None of what is not whole.
fn decode(bytes: &[u8]) -> Option<Entry> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (hash, rest) = rest.split_at_checked(HASH)?;
    if blake3::hash(rest).as_bytes() != hash {
        return None;
    }
    let (n, rest) = rest.split_first_chunk()?;
    let (info, image) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*n)).ok()?)?;
    Some(Entry { info: serde_json::from_slice(info).ok()?, image: image.to_vec() })
}
