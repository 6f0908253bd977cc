//! Kernels that are compiled from text and launched.

use super::cache::{Cache, Entry, Key};
use crate::compile::{CompileError, KernelFile, Lowering, Nvshmem, Options};
use crate::nvshmem::{Caller, Library, LinkError, Objects};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use weft_ir::diag::Diagnostic;
use weft_isa::Target;
use weft_lang::elaborate::Define;
use weft_runtime::cuda::{self, Device, Stream};
use weft_runtime::launch::{
    self, Argument, Arguments, Grid, KernelInfo, LaunchOptions, Module, ModuleInfo, Prepared,
    is_whole_program, multicast, to_image,
};
use weft_runtime::{World, error, machine};

/// The reason why a kernel cannot be compiled or launched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// The text does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// No launch can pass the kernel's parameters.
    #[error("{}", .0.message)]
    Describe(Diagnostic),
    /// NVSHMEM's functions cannot be linked with the kernel.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// An error of the driver, of NVSHMEM, or of the arguments.
    #[error(transparent)]
    Runtime(#[from] weft_runtime::Error),
}

/// The place where a kernel runs: a GPU of this process, or the GPU of a PE, where it can also reach the
/// other PEs by NVSHMEM's device functions.
#[derive(Clone)]
pub struct On {
    device: Device,
    world: Option<World>,
}

impl On {
    /// The GPU that runs the kernel.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl From<&Device> for On {
    fn from(device: &Device) -> On {
        On { device: device.clone(), world: None }
    }
}

impl From<&World> for On {
    fn from(world: &World) -> On {
        On { device: world.device().clone(), world: Some(world.clone()) }
    }
}

/// The target to compile for on a device: its own architecture, or the newest known one that runs there.
///
/// # Errors
/// Fails if the CUDA driver refuses a call (R0103), or for a device older than all known targets (R0501).
pub fn target(device: &Device) -> Result<Target, weft_runtime::Error> {
    target_of(device.compute_capability()?)
}

/// The target to compile for, like [`target`], by compute capability.
///
/// # Errors
/// Fails for a device older than all known targets (R0501).
pub fn target_of(capability: (u32, u32)) -> Result<Target, weft_runtime::Error> {
    let arch = cuda::arch(capability);
    if let Ok(target) = arch.parse() {
        return Ok(target);
    }
    let runs = Target::all().filter(|t| launch::runs_on(t.name(), capability));
    runs.max_by_key(|t| t.number()).ok_or_else(|| {
        let message = format!("the GPU is {arch}, which none of the known targets supports");
        weft_runtime::Error::new(error::PTX, message)
    })
}

/// A kernel compiled at run time for the device it is on.
///
/// With [`Lowering::Auto`] it uses the switch if the team of the launch has a multicast address,
/// and otherwise the address of each PE. The code for the second case is compiled at the first
/// launch that needs it, or before by [`prepare`](Kernel::prepare).
pub struct Kernel {
    on: On,
    file: Arc<KernelFile>,
    options: Options,
    /// The lowering that is compiled first.
    first: launch::Lowering,
    multimem: OnceLock<launch::Kernel>,
    unicast: OnceLock<launch::Kernel>,
}

impl Kernel {
    /// Compiles a text's one kernel, with these values of its compile-time parameters.
    ///
    /// # Errors
    /// Fails if the text has errors, or if the device rejects the code (R01xx, R05xx).
    pub fn compile(on: impl Into<On>, source: &str, defines: &[(&str, Define)]) -> Result<Kernel, GpuError> {
        let on = on.into();
        let mut options = Options::new(target(&on.device)?);
        options.defines = defines.iter().map(|(n, d)| ((*n).to_owned(), *d)).collect();
        Kernel::with(on, KernelFile::parse("kernel.weft", source)?, options)
    }

    /// Compiles the kernel that `options` name, or the only kernel of the file.
    ///
    /// # Errors
    /// Fails where [`compile`](Kernel::compile) fails, or if the file has several kernels and
    /// `options` name none (R0504).
    pub fn with(
        on: impl Into<On>,
        file: impl Into<Arc<KernelFile>>,
        mut options: Options,
    ) -> Result<Kernel, GpuError> {
        let (on, file) = (on.into(), file.into());
        options.kernel = Some(name(&file, options.kernel.take())?);
        options.watch |= weft_runtime::watch::mode(&on.device)? != weft_runtime::watch::Mode::Off;
        let direct = on.world.as_ref().is_some_and(|world| world.nvshmem_version().is_none());
        if direct {
            options.transport = options.transport.without_nvshmem();
        }
        let first = options.lowering.decide(!direct && likely_multicast(&on.device));
        let (multimem, unicast) = (OnceLock::new(), OnceLock::new());
        let kernel = Kernel { on, file, options, first, multimem, unicast };
        kernel.loaded(first)?;
        Ok(kernel)
    }

    /// Compiles and loads the code of a lowering, so that no launch waits for it.
    /// [`Lowering::Auto`] prepares both lowerings.
    ///
    /// # Errors
    /// Fails where [`compile`](Kernel::compile) fails.
    pub fn prepare(&self, lowering: Lowering) -> Result<(), GpuError> {
        if lowering != Lowering::Unicast {
            self.lowered(Lowering::Multimem)?;
        }
        if lowering != Lowering::Multimem {
            self.lowered(Lowering::Unicast)?;
        }
        Ok(())
    }

    /// The loaded code of a lowering. For [`Lowering::Auto`] it is the code that was compiled
    /// first.
    ///
    /// # Errors
    /// Fails where [`compile`](Kernel::compile) fails.
    pub fn lowered(&self, lowering: Lowering) -> Result<&launch::Kernel, GpuError> {
        self.loaded(lowering.decide(self.first == launch::Lowering::Multimem))
    }

    /// The loaded code of a lowering, which the first call compiles.
    fn loaded(&self, lowering: launch::Lowering) -> Result<&launch::Kernel, GpuError> {
        let slot = match lowering {
            launch::Lowering::Multimem => &self.multimem,
            launch::Lowering::Unicast => &self.unicast,
        };
        if let Some(kernel) = slot.get() {
            return Ok(kernel);
        }
        let options = self.options.clone().lowering(lowering.into());
        let kernel = load(&self.on, &self.file, &options)?;
        Ok(slot.get_or_init(|| kernel))
    }

    /// The parameters, threads and roles of the compiled kernel.
    ///
    /// # Errors
    /// Fails where [`compile`](Kernel::compile) fails.
    pub fn info(&self) -> Result<&KernelInfo, GpuError> {
        self.lowered(Lowering::Auto).map(launch::Kernel::info)
    }

    /// The number of its CTAs that the device holds at once, which [`Grid::fill`] launches.
    ///
    /// # Errors
    /// Fails where [`launch::Kernel::max_ctas`] fails.
    pub fn max_ctas(&self) -> Result<u32, GpuError> {
        Ok(self.lowered(Lowering::Auto)?.max_ctas(&LaunchOptions::default())?)
    }

    /// Checks the arguments and launches the kernel, as [`launch::Kernel::launch`] does.
    ///
    /// # Errors
    /// Fails for arguments or a grid that do not fit, where [`launch::Kernel::launch`] fails, and
    /// where [`compile`](Kernel::compile) fails if the lowering is not compiled yet.
    pub fn launch(&self, stream: &Stream, grid: Grid, arguments: impl Arguments) -> Result<(), GpuError> {
        self.launch_with(stream, grid, &LaunchOptions::default(), arguments)
    }

    /// Launches the kernel like [`launch`](Kernel::launch), cooperative or not, in clusters, with dynamic
    /// shared memory.
    ///
    /// # Errors
    /// Fails where [`launch`](Kernel::launch) fails.
    pub fn launch_with(
        &self,
        stream: &Stream,
        grid: Grid,
        options: &LaunchOptions,
        arguments: impl Arguments,
    ) -> Result<(), GpuError> {
        let arguments = arguments.arguments(stream);
        Ok(self.for_arguments(&arguments)?.launch_arguments(stream, grid, options, arguments)?)
    }

    /// Prepares launches like [`launch::Kernel::prepare`].
    ///
    /// # Errors
    /// Fails where [`launch`](Kernel::launch) fails.
    pub fn prepared(
        &self,
        stream: &Stream,
        grid: Grid,
        arguments: impl Arguments,
    ) -> Result<Prepared, GpuError> {
        let arguments = arguments.arguments(stream);
        let kernel = self.for_arguments(&arguments)?;
        Ok(kernel.prepare(stream, grid, &LaunchOptions::default(), &arguments)?)
    }

    /// The loaded code for these arguments.
    fn for_arguments(&self, arguments: &[Argument<'_>]) -> Result<&launch::Kernel, GpuError> {
        let decide = |multicast| self.options.lowering.decide(multicast);
        self.loaded(multicast(arguments).map_or(self.first, decide))
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.options.kernel.as_deref().unwrap_or_default();
        write!(f, "Kernel({name} for {} on {:?})", self.options.target, self.on.device)
    }
}

/// The name of the requested kernel, or of the only one.
fn name(file: &KernelFile, requested: Option<String>) -> Result<String, weft_runtime::Error> {
    let heads = file.heads();
    let names: Vec<_> = heads.iter().map(|h| format!("`{}`", h.name)).collect();
    let no_kernel = |message: String| {
        Err(weft_runtime::Error::new(error::NO_KERNEL, message).help(if names.is_empty() {
            "the text has no kernels".into()
        } else {
            format!("the text has {}", names.join(", "))
        }))
    };
    match (requested, &heads[..]) {
        (Some(requested), _) if heads.iter().any(|h| *h.name == *requested) => Ok(requested),
        (Some(requested), _) => no_kernel(format!("there is no kernel `{requested}`")),
        (None, [one]) => Ok(one.name.to_string()),
        (None, _) => no_kernel("the kernel must be named, since the text does not have exactly one".into()),
    }
}

/// Guesses whether launches have multicast. NVSHMEM reports it only for allocations, so the first
/// launch corrects the guess.
fn likely_multicast(device: &Device) -> bool {
    !machine::nvls_disabled() && device.supports_multicast().unwrap_or(false)
}

/// Loaded modules, by the key of their code and their device.
type Loaded = Mutex<HashMap<(Key, i64, bool), Weak<Module>>>;

/// Loads the kernel from this process, from the cache, or by compiling it.
fn load(on: &On, file: &KernelFile, options: &Options) -> Result<launch::Kernel, GpuError> {
    static LOADED: OnceLock<Loaded> = OnceLock::new();
    let lock = || LOADED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let key = Key::of(file, options);
    let place = (key, on.device.number(), on.world.is_some());
    let loaded = lock().get(&place).and_then(Weak::upgrade);
    let module = match loaded {
        Some(module) => module,
        None => {
            let entry = assembled(&on.device, &key, file, options)?;
            let module = match &on.world {
                Some(world) => Module::load_in(world, &entry.image, entry.info.clone())?,
                None => Module::load(&on.device, &entry.image, entry.info.clone())?,
            };
            lock().insert(place, Arc::downgrade(&module));
            module
        }
    };
    let name = module.info().kernels.first().map_or("", |k| &k.name);
    Ok(module.kernel(name)?)
}

/// The image for the device, which is PTX for a simulated PE. It comes from the cache, or from
/// cached PTX, or from the text.
fn assembled(
    device: &Device,
    key: &Key,
    file: &KernelFile,
    options: &Options,
) -> Result<Arc<Entry>, GpuError> {
    let cache = Cache::user();
    if device.is_simulated() {
        return Ok(cache.get_or_make(key, || Entry::compile(file, options))?.0);
    }
    let (major, minor) = cuda::driver_version()?;
    // Assemblers differ by driver version, and code by the architecture of the device.
    let assembled = key.with(&["cubin", &format!("CUDA {major}.{minor}"), &device.arch()?]);
    if let Some((entry, _)) = cache.get(&assembled) {
        return Ok(entry);
    }
    let (ptx, _) = cache.get_or_make(key, || Entry::compile(file, options))?;
    if ptx.info.external.is_empty() {
        let text = String::from_utf8_lossy(&ptx.image);
        let (image, remarks) = to_image(device, &text, &ptx.info)?;
        let info = ModuleInfo { remarks, ..ptx.info.clone() };
        return Ok(cache.put(&assembled, Entry { info, image }));
    }
    let library = Library::find(options.target.number().into()).map_err(LinkError::from)?;
    let joined = assembled.with(&["nvshmem", library.hash()]);
    let (entry, _) = cache.get_or_make(&joined, || join(device, &ptx, &library, file, options))?;
    Ok(entry)
}

impl Entry {
    /// Compiles a file to PTX with its description. The cache keeps this result.
    ///
    /// # Errors
    /// Fails if the text does not compile, or if no launch can pass a kernel's parameters.
    pub fn compile(file: &KernelFile, options: &Options) -> Result<Entry, GpuError> {
        let compiled = file.compile(options)?;
        let info = compiled.describe().map_err(GpuError::Describe)?;
        Ok(Entry { info, image: compiled.ptx.into_bytes() })
    }

    /// Adds the NVSHMEM functions that this PTX calls. The entry has to be the PTX of `file`, compiled with
    /// `options`. The result is a cubin, or this entry if the code calls no function of NVSHMEM or if the device
    /// is simulated.
    ///
    /// # Errors
    /// Fails where [`Library::find`] or [`Library::join`] fails.
    pub fn complete(self, device: &Device, file: &KernelFile, options: &Options) -> Result<Entry, GpuError> {
        // The simulator implements the functions by name.
        if self.info.external.is_empty() || device.is_simulated() {
            return Ok(self);
        }
        let library = Library::find(options.target.number().into()).map_err(LinkError::from)?;
        join(device, &self, &library, file, options)
    }
}

/// Links PTX with the NVSHMEM functions that it calls. If no linker is found or the code is a whole
/// program, compiles it again with the functions linked in, and the driver assembles it.
fn join(
    device: &Device,
    ptx: &Entry,
    library: &Library,
    file: &KernelFile,
    options: &Options,
) -> Result<Entry, GpuError> {
    let text = String::from_utf8_lossy(&ptx.image);
    let caller = Caller {
        ptx: &text,
        functions: ptx.info.external.iter().map(String::as_str).collect(),
        target: options.target,
        threads: ptx.info.kernels.iter().map(KernelInfo::threads).max().unwrap_or(0),
    };
    let joined = match is_whole_program(&text) {
        true => None,
        false => Some(library.join(&caller, Objects::user())),
    };
    match joined {
        Some(Ok(made)) => {
            let nvshmem = Some(library.version);
            let remarks = made.remarks;
            let info = ModuleInfo { external: Vec::new(), nvshmem, remarks, ..ptx.info.clone() };
            Ok(Entry { info, image: made.cubin })
        }
        Some(Err(e)) if !e.is_absence() => Err(e.into()),
        _ => {
            let nvshmem = Nvshmem::At(library.found.path.clone());
            let whole = Entry::compile(file, &options.clone().nvshmem(nvshmem))?;
            let (image, remarks) = to_image(device, &String::from_utf8_lossy(&whole.image), &whole.info)?;
            Ok(Entry { image, info: ModuleInfo { remarks, ..whole.info } })
        }
    }
}
