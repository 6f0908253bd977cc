//! The cache of compiled kernels. Its keys cover every source text, the options, and the compiler.

use crate::compile::{KernelFile, Nvshmem, Options};
use crate::nvshmem::Library;
use crate::store::Parts;
use std::io;
use std::sync::OnceLock;
use weft_isa::Target;
use weft_runtime::find;
use weft_runtime::launch::ModuleInfo;

pub use crate::store::{Found, Key, Store, StoredValue};

/// The cache of compiled kernels.
pub type Cache = Store<Entry>;

/// Compiled code with its description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What a launch needs to know about the code.
    pub info: ModuleInfo,
    /// The image, which is PTX text or a cubin.
    pub image: Vec<u8>,
}

impl Key {
    /// The key of the PTX of a file, compiled with these options by this compiler.
    pub fn of(file: &KernelFile, options: &Options) -> Key {
        // All fields are listed, so that each new one is considered here. Fields that only keep
        // stages do not change code.
        let Options {
            target,
            ptx_version,
            lowering,
            transport,
            nvshmem,
            kernel,
            defines,
            opt,
            lines,
            debug_waits,
            watch,
            asserts,
            keep_ir: _,
            keep_after: _,
            keep_llvm: _,
        } = options;
        let mut parts = Parts::default();
        parts.add(&[env!("CARGO_PKG_VERSION"), env!("WEFT_COMPILER")]);
        parts.add(&[&format!("{:?}", weft_llvm::version().ok())]);
        parts.add(&[&format!("{target} {ptx_version:?} {lowering:?} {transport:?} {kernel:?}")]);
        parts.add(&[&library(nvshmem, *target)]);
        parts.add(&[&format!("{opt:?} {lines} {debug_waits:?} {watch} {asserts}")]);
        let sources = file.sources();
        // The counts separate defines from sources.
        parts.add(&[&format!("{} {}", defines.len(), sources.len())]);
        for (name, value) in defines {
            parts.add(&[name, &format!("{value:?}")]);
        }
        for i in 0..u32::try_from(sources.len()).unwrap_or(u32::MAX) {
            parts.add(&[sources.name(i).unwrap_or_default(), sources.text(i).unwrap_or_default()]);
        }
        parts.key()
    }
}

/// Identifies the bitcode that may be linked in. Without bitcode, no cached code depends on it.
fn library(from: &Nvshmem, target: Target) -> String {
    let library = match from {
        Nvshmem::External => return "external".into(),
        Nvshmem::Found => Library::find(target.number().into()),
        Nvshmem::At(path) => Library::at(find::Found { path: path.clone(), by: String::new() }),
    };
    library.map(|library| library.hash().to_owned()).unwrap_or_default()
}

impl Cache {
    /// The cache of this process and user: `warpweft/kernels` in the user's cache folder, unless
    /// `WEFT_CACHE` names another folder.
    pub fn user() -> &'static Cache {
        static CACHE: OnceLock<Cache> = OnceLock::new();
        CACHE.get_or_init(|| Cache::shared("kernels"))
    }
}

impl StoredValue for Entry {
    const EXTENSION: &'static str = "kernel";

    /// Encodes the length of the description as `u64`, the description as JSON, and the image.
    fn encode(&self) -> io::Result<Vec<u8>> {
        let info = serde_json::to_vec(&self.info)?;
        Ok([&(info.len() as u64).to_le_bytes(), info.as_slice(), self.image.as_slice()].concat())
    }

    fn decode(bytes: &[u8]) -> Option<Entry> {
        let (n, rest) = bytes.split_first_chunk()?;
        let (info, image) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*n)).ok()?)?;
        Some(Entry { info: serde_json::from_slice(info).ok()?, image: image.to_vec() })
    }
}
