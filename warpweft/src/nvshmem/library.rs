//! NVSHMEM's device functions for kernels that call them: assembled to relocatable objects, cached,
//! and linked with kernels.
//!
//! Assembling them takes a second or more, and the set of functions that a kernel calls rarely
//! changes. So an object is cached for each set of functions, library and target, and linking it
//! takes milliseconds.

use super::{NvshmemError, device_version};
use crate::store::{Found, Key, Parts, Store, StoredValue, stamp};
use crate::tools::{self, Assembled, Tool, ToolError};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use weft_ir::diag::Diagnostic;
use weft_isa::Target;
use weft_runtime::find;
use weft_runtime::jitlink::{Input, JitLink};
use weft_runtime::launch::remarks::remarks;
use weft_runtime::nvshmem::version::Version;

/// NVSHMEM's device bitcode, with the data that identifies it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Library {
    /// The file of the library.
    pub found: find::Found,
    /// The version that the bitcode states.
    pub version: Version,
    hash: String,
}

/// The reason why code cannot be linked with NVSHMEM's functions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The library is not found or cannot be used.
    #[error(transparent)]
    Nvshmem(#[from] NvshmemError),
    /// The library lacks a function.
    #[error("error[{}]: {}{}", .0.code, .0.message, super::help(.0))]
    Function(Diagnostic),
    /// The linker, or the program that replaces it, rejected the code.
    #[error(transparent)]
    JitLink(weft_runtime::Error),
    /// The assembler rejected the code.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

impl LinkError {
    /// Whether no linker was found: neither nvJitLink nor ptxas and nvlink.
    pub fn is_absence(&self) -> bool {
        match self {
            LinkError::Tool(e) => matches!(e, ToolError::NotFound { .. }),
            LinkError::JitLink(e) => e.code == weft_runtime::error::NO_JITLINK,
            _ => false,
        }
    }
}

/// A relocatable object (a cubin).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object(pub Vec<u8>);

/// The identifying data of a file of bitcode.
struct Identity {
    version: [u32; 3],
    hash: [u8; blake3::OUT_LEN],
}

impl StoredValue for Object {
    const EXTENSION: &'static str = "object";

    fn encode(&self) -> io::Result<Vec<u8>> {
        Ok(self.0.clone())
    }

    fn decode(bytes: &[u8]) -> Option<Object> {
        Some(Object(bytes.to_vec()))
    }
}

impl StoredValue for Identity {
    const EXTENSION: &'static str = "library";

    /// Encodes the three numbers of the version, and the hash.
    fn encode(&self) -> io::Result<Vec<u8>> {
        let numbers = self.version.iter().flat_map(|n| n.to_le_bytes());
        Ok(numbers.chain(self.hash).collect())
    }

    fn decode(bytes: &[u8]) -> Option<Identity> {
        let (numbers, hash) = bytes.split_at_checked(12)?;
        let mut version = [0; 3];
        for (n, bytes) in version.iter_mut().zip(numbers.chunks_exact(4)) {
            *n = u32::from_le_bytes(bytes.try_into().ok()?);
        }
        Some(Identity { version, hash: hash.try_into().ok()? })
    }
}

/// The cache of compiled objects.
pub type Objects = Store<Object>;

impl Objects {
    /// The objects of this process and user: `warpweft/objects` in the user's cache folder, unless `WEFT_CACHE` says
    /// otherwise.
    pub fn user() -> &'static Objects {
        static OBJECTS: OnceLock<Objects> = OnceLock::new();
        OBJECTS.get_or_init(|| Objects::shared("objects"))
    }
}

impl Library {
    /// The device bitcode for a GPU of compute capability `sm` (90 for 9.0). It is searched only
    /// once in a process.
    ///
    /// # Errors
    ///
    /// Fails if there is none (R0104), or if it cannot be read (E0608).
    pub fn find(sm: u32) -> Result<Library, NvshmemError> {
        static KNOWN: OnceLock<Mutex<HashMap<u32, find::Found>>> = OnceLock::new();
        let lock = || KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&sm).cloned();
        let found = match known {
            Some(found) => found,
            None => {
                let found = find::nvshmem_device(sm)?;
                lock().insert(sm, found.clone());
                found
            }
        };
        Library::at(found)
    }

    /// Opens bitcode that was found. Its contents are read only if no process of this user has read
    /// them before: the results are cached until the file's size or time changes.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read or is not NVSHMEM's (E0608).
    pub fn at(found: find::Found) -> Result<Library, NvshmemError> {
        static KNOWN: OnceLock<Store<Identity>> = OnceLock::new();
        let store = KNOWN.get_or_init(|| Store::shared("objects"));
        let identify = || {
            let version = device_version(&found.path)?;
            let hash = hash(&found.path).map_err(|e| super::unreadable(&found.path, &e))?;
            Ok::<_, NvshmemError>(Identity { version: [version.major, version.minor, version.patch], hash })
        };
        let identity = match stamp(&found.path) {
            Ok(stamp) => {
                let mut parts = Parts::default();
                parts.add(&["library", &stamp]);
                store.get_or_make(&parts.key(), identify)?.0
            }
            Err(_) => Arc::new(identify()?),
        };
        let [major, minor, patch] = identity.version;
        let hash = blake3::Hash::from_bytes(identity.hash).to_hex().to_string();
        Ok(Library { found, version: Version::new(major, minor, patch), hash })
    }

    /// A hash of the file, which distinguishes its code from that of other libraries.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// A relocatable object with the called functions, from the cache or made with ptxas.
    ///
    /// # Errors
    /// Fails if the library lacks one of them, or if ptxas is not found.
    pub fn object(&self, caller: &Caller<'_>, objects: &Objects) -> Result<(Arc<Object>, Found), LinkError> {
        objects.get_or_make(&self.object_key(caller)?, || {
            let ptx = self.ptx(caller)?;
            Ok(Object(tools::assemble_object(&ptx, caller.target, caller.registers())?))
        })
    }

    fn object_key(&self, caller: &Caller<'_>) -> Result<Key, ToolError> {
        let mut functions = caller.functions.clone();
        functions.sort_unstable();
        let mut parts = Parts::default();
        let ptxas = Tool::Ptxas.find()?;
        // A tool without a stamp cannot be run either.
        parts.add(&["object", &stamp(&ptxas).unwrap_or_default()]);
        parts.add(&[
            env!("CARGO_PKG_VERSION"),
            env!("WEFT_COMPILER"),
            &format!("{:?}", weft_llvm::version().ok()),
        ]);
        parts.add(&[&self.hash, caller.target.name(), &format!("{:?}", caller.registers())]);
        parts.add(&functions);
        Ok(parts.key())
    }

    fn ptx(&self, caller: &Caller<'_>) -> Result<String, LinkError> {
        let options = weft_llvm::Options::new(caller.target);
        let out = weft_llvm::object(&self.found.path, &caller.functions, &options);
        out.map(|out| out.ptx).map_err(LinkError::Function)
    }

    /// Links PTX with the functions that it calls to a cubin that loads. It uses nvJitLink, or
    /// ptxas and nvlink if nvJitLink is absent or fails.
    ///
    /// # Errors
    /// Fails where [`object`](Library::object) fails, if nvJitLink is not found (R0107), or if the code
    /// cannot be linked (R0108).
    pub fn join(&self, caller: &Caller<'_>, objects: &Objects) -> Result<Assembled, LinkError> {
        let (linker, target) = (JitLink::get(), caller.target.name());
        let kernel = Input::Ptx("kernel.ptx", caller.ptx);
        let read = |(cubin, log): (Vec<u8>, String)| Assembled { cubin, remarks: remarks(&log, caller.ptx) };
        let object = match (self.object(caller, objects), &linker) {
            (Ok((object, _)), _) => object,
            // Without ptxas, the linker assembles the whole library each time.
            (Err(LinkError::Tool(ToolError::NotFound { .. })), Ok(linker)) => {
                let functions = self.ptx(caller)?;
                let inputs = [kernel, Input::Ptx("nvshmem.ptx", &functions)];
                let linked = linker.link_with_log(target, caller.registers(), &inputs);
                return linked.map(read).map_err(LinkError::JitLink);
            }
            (Err(e), _) => return Err(e),
        };
        let inputs = [kernel, Input::Object("nvshmem.cubin", &object.0)];
        linker.and_then(|linker| linker.link_with_log(target, None, &inputs)).map(read).or_else(|refused| {
            tools::link_object(caller.ptx, &object.0, caller.target).map_err(|e| match e {
                ToolError::NotFound { .. } => LinkError::JitLink(refused),
                other => LinkError::Tool(other),
            })
        })
    }
}

/// Kernels that call functions of NVSHMEM.
#[derive(Clone, Debug)]
pub struct Caller<'a> {
    /// The PTX, which declares the functions.
    pub ptx: &'a str,
    /// The functions that the kernels call.
    pub functions: Vec<&'a str>,
    /// The target of the PTX.
    pub target: Target,
    /// The number of threads of the largest CTA.
    pub threads: u32,
}

impl Caller<'_> {
    /// The most registers of a thread in the functions, if there is a limit. A CTA has 65536
    /// registers for all its threads, and functions that are assembled separately do not know how
    /// many threads it has. There are few values, so that kernels share objects.
    fn registers(&self) -> Option<u32> {
        [(256, None), (512, Some(128))]
            .iter()
            .find(|(max, _)| self.threads <= *max)
            .map_or(Some(64), |(_, n)| *n)
    }
}

fn hash(path: &Path) -> io::Result<[u8; blake3::OUT_LEN]> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(*hasher.finalize().as_bytes())
}
