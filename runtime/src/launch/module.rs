//! Code that is loaded into a device.

use super::driver::{self, Loaded, NotLoaded, Refused};
use super::image;
use super::kernel::Kernel;
use super::remarks::{STRICT, strict};
use super::target::runs_on;
use super::{KernelInfo, ModuleInfo};
use crate::cuda::{self, Device};
use crate::error::{Error, NO_KERNEL, NVSHMEM_VERSION, PTX, Result};
use crate::nvshmem::Version;
use crate::world::{Inner, World};
use cudarc::driver::sys::CUresult;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};
use weft_abi::Remark;

/// A variable of every module that NVSHMEM's device code is linked to (nvshmem_device.bc).
const NVSHMEM_SYMBOL: &[u8] = b"nvshmemi_device_state_d";

/// Compiled code on a device, which is unloaded when its last kernel is dropped. This must be after
/// its launches are done. (A captured graph keeps it alive itself.)
pub struct Module {
    /// The world whose NVSHMEM has initialised it, if needed.
    world: Option<Weak<Inner>>,
    info: ModuleInfo,
    pub(super) loaded: Loaded,
}

impl Module {
    /// Loads PTX or a cubin, with its description.
    ///
    /// # Errors
    /// Fails if the driver rejects the image, with the message of its compiler, or if the image contains
    /// NVSHMEM's device code (R0501). [`load_in`](Module::load_in) loads such an image.
    pub fn load(device: &Device, image: &[u8], info: ModuleInfo) -> Result<Arc<Module>> {
        complete(&info)?;
        if needs_nvshmem(image) {
            return Err(Error::new(
                PTX,
                format!("{} has NVSHMEM's device code, but NVSHMEM has not been started", kernels(&info)),
            )
            .help("load it with Module::load_in, which registers it with NVSHMEM"));
        }
        Module::new(device, image, info).map(Arc::new)
    }

    /// Loads PTX or a cubin into the GPU of this PE, and registers it with NVSHMEM if it has
    /// NVSHMEM's device code. It is not collective.
    ///
    /// # Errors
    /// Fails if the driver rejects it, with the message of its compiler, or if NVSHMEM functions
    /// are missing (R0501), if its NVSHMEM functions are of another version than the running
    /// NVSHMEM (R0105), if an NVSHMEM call fails (R0106), or after the world has ended (R0305).
    pub fn load_in(world: &World, image: &[u8], info: ModuleInfo) -> Result<Arc<Module>> {
        let inner = world.0.enter()?;
        if inner.device.is_simulated() {
            // Its calls of NVSHMEM functions go to those that are built into the simulator.
            let mut module = Module::new(&inner.device, image, info)?;
            module.world = Some(Arc::downgrade(&world.0));
            return Ok(Arc::new(module));
        }
        complete(&info)?;
        if let Some(version) = inner.library.version() {
            same_nvshmem(&info, version, inner.library.path())?;
        }
        let mut module = Module::new(&inner.device, image, info)?;
        if needs_nvshmem(image) {
            inner.library.module_init(module.loaded.handle().cast())?;
            module.world = Some(Arc::downgrade(&world.0));
        }
        Ok(Arc::new(module))
    }

    /// The world whose NVSHMEM has initialised it, if it has.
    pub(super) fn world(&self) -> Option<Arc<Inner>> {
        self.world.as_ref().and_then(Weak::upgrade)
    }

    fn new(device: &Device, image: &[u8], info: ModuleInfo) -> Result<Module> {
        fits(device, &info)?;
        image::check(image).map_err(|why| not_code(&info, why))?;
        device.bind()?;
        let loaded = Loaded::new(device, &terminated(image)).map_err(|e| match e {
            NotLoaded::Refused(e) => refused(device, &info, &e),
            NotLoaded::Simulated(e) => Error::new(e.code, format!("{}: {}", kernels(&info), e.message)),
        })?;
        let module = Module { world: None, info, loaded };
        accepted(&module.info, module.remarks())?;
        Ok(module)
    }

    /// Returns the assembler's warnings about the code, from an earlier assembly or from loading.
    pub fn remarks(&self) -> impl Iterator<Item = &Remark> {
        self.info.remarks.iter().chain(&self.loaded.remarks)
    }

    /// Returns the description of the code.
    pub fn info(&self) -> &ModuleInfo {
        &self.info
    }

    /// Returns the device that it is loaded into.
    pub fn device(&self) -> &Device {
        &self.loaded.device
    }

    /// Returns the entry point of that name.
    ///
    /// # Errors
    /// Fails if the module has no such kernel (R0504). The message lists the kernels.
    pub fn kernel(self: &Arc<Module>, name: &str) -> Result<Kernel> {
        Kernel::new(self, entry_point(&self.info, name)?)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let Some(inner) = self.world.as_ref().and_then(Weak::upgrade) else { return };
        if inner.device.is_simulated() {
            return;
        }
        if let Ok(inner) = inner.enter()
            && let Err(e) = inner.library.module_finalize(self.loaded.handle().cast())
        {
            eprintln!("PE {}: {} is not ended: {e}", inner.control.rank(), kernels(&self.info));
        }
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({} for {} on {:?})", kernels(&self.info), self.info.target, self.device())
    }
}

/// Finds the entry point of that name, or makes an error with the existing names.
fn entry_point<'i>(info: &'i ModuleInfo, name: &str) -> Result<&'i KernelInfo> {
    info.kernel(name).ok_or_else(|| {
        let names: Vec<_> = info.kernels.iter().map(|k| format!("`{}`", k.name)).collect();
        Error::new(NO_KERNEL, format!("the module has no kernel `{name}`"))
            .help(format!("it has {}", if names.is_empty() { "none".into() } else { names.join(", ") }))
    })
}

/// Checks that the code defines the functions that it calls.
fn complete(info: &ModuleInfo) -> Result<()> {
    match &info.external[..] {
        [] => Ok(()),
        missing => {
            let message =
                format!("{} calls {}, which the module does not define", kernels(info), missing.join(", "));
            Err(Error::new(PTX, message).help(
                "link NVSHMEM into the module (as `weft compile` does), or link it with an object that defines these functions",
            ))
        }
    }
}

/// Checks that the code's NVSHMEM and the host's, which share structures, have the same version.
fn same_nvshmem(info: &ModuleInfo, host: Version, path: &Path) -> Result<()> {
    match info.nvshmem {
        Some(device) if device != host => {
            let message = format!(
                "{} has the device functions of NVSHMEM {device}, but {} is NVSHMEM {host}",
                kernels(info),
                path.display()
            );
            Err(Error::new(NVSHMEM_VERSION, message).help(
                "compile it with the device bitcode of the host library's NVSHMEM: NVSHMEM_HOME sets both",
            ))
        }
        _ => Ok(()),
    }
}

/// Whether code has variables that NVSHMEM must initialise before a launch.
pub fn needs_nvshmem(image: &[u8]) -> bool {
    image.windows(NVSHMEM_SYMBOL.len()).any(|w| w == NVSHMEM_SYMBOL)
}

/// Returns the image to load into a device for PTX, and the messages of the driver's compiler. The
/// image is a cubin, which loads without that compiler, or the PTX itself if it must be [assembled
/// as a whole program](is_whole_program).
///
/// # Errors
/// Fails if the PTX does not compile, with the message of the compiler (R0501).
pub fn to_image(device: &Device, ptx: &str, info: &ModuleInfo) -> Result<(Vec<u8>, Vec<Remark>)> {
    fits(device, info)?;
    if is_whole_program(ptx) {
        return Ok((ptx.into(), Vec::new()));
    }
    device.context()?;
    device.bind()?;
    let made = driver::cubin(&terminated(ptx.as_bytes())).map_err(|e| refused(device, info, &e))?;
    accepted(info, made.1.iter())?;
    Ok(made)
}

/// Whether PTX must be assembled as a whole program. The driver's linker, which returns cubins, and
/// nvJitLink assemble it as an object to be linked. In objects, ptxas omits `setmaxnreg` (C7504)
/// and executes wgmma instructions one by one (C7509).
pub fn is_whole_program(ptx: &str) -> bool {
    ["setmaxnreg.", "wgmma."].iter().any(|instruction| ptx.contains(instruction))
}

/// Checks that there are no warnings if they are treated as errors.
fn accepted<'a>(info: &ModuleInfo, remarks: impl Iterator<Item = &'a Remark>) -> Result<()> {
    let all: Vec<_> = remarks.filter(|_| strict()).map(|r| format!("\n{r}")).collect();
    if all.is_empty() {
        return Ok(());
    }
    let message =
        format!("{}: the assembler's warnings are treated as errors:{}", kernels(info), all.concat());
    Err(Error::new(PTX, message).help(format!("unset {STRICT} to make them warnings")))
}

/// Adds the final 0 that the driver needs after PTX. A cubin contains its length.
fn terminated(image: &[u8]) -> Vec<u8> {
    let mut out = image.to_vec();
    out.push(0);
    out
}

fn not_code(info: &ModuleInfo, why: String) -> Error {
    Error::new(PTX, format!("{}: the image {why}", kernels(info)))
        .help("load the PTX or the cubin that was compiled with this description")
}

/// Checks that the code is for this device.
fn fits(device: &Device, info: &ModuleInfo) -> Result<()> {
    let capability = device.compute_capability()?;
    if runs_on(&info.target, capability) {
        return Ok(());
    }
    let (kernels, target, (major, minor)) = (kernels(info), &info.target, capability);
    let (gpu, name, arch) = (device.ordinal(), device.name()?, device.arch()?);
    let message = format!(
        "{kernels} is compiled for {target}, but GPU {gpu} is an {name} of compute capability {major}.{minor}"
    );
    Err(Error::new(PTX, message).help(format!("compile for {arch}")))
}

fn refused(device: &Device, info: &ModuleInfo, refused: &Refused) -> Error {
    let name = cuda::error("cuModuleLoadDataEx", refused.error).message;
    let what = Refusal {
        kernels: kernels(info),
        ptx: &info.ptx_version,
        code: refused.error.0,
        driver: cuda::driver_version().unwrap_or_default(),
        gpu: device.ordinal(),
    };
    what.error(&name, &refused.log)
}

/// The image that the driver rejected, and its properties.
struct Refusal<'a> {
    kernels: String,
    ptx: &'a str,
    code: CUresult,
    driver: (u32, u32),
    gpu: u32,
}

impl Refusal<'_> {
    fn error(&self, name: &str, log: &str) -> Error {
        let Refusal { kernels, ptx, driver: (major, minor), gpu, .. } = self;
        let log = if log.is_empty() { String::new() } else { format!("\n{log}") };
        if self.code == CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION {
            let takes = newest_ptx(self.driver)
                .map_or(String::new(), |(a, b)| format!(", which supports PTX up to {a}.{b}"));
            let message =
                format!("{kernels} is PTX {ptx}, but the driver is of CUDA {major}.{minor}{takes}{log}");
            let older = match newest_ptx(self.driver) {
                Some((a, b)) => format!("compile with --ptx-version {a}.{b}"),
                None => "compile with an older --ptx-version".into(),
            };
            return Error::new(PTX, message).help(format!("{older}, or install a newer driver"));
        }
        let message = format!("the driver cannot load {kernels} (PTX {ptx}) on GPU {gpu}: {name}{log}");
        let error = Error::new(PTX, message);
        match HELP.iter().find(|(code, _)| *code == self.code) {
            Some((_, help)) => error.help(*help),
            None => error,
        }
    }
}

const HELP: &[(CUresult, &str)] = &[
    (CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, "compile for this device: the code is for another architecture"),
    (
        CUresult::CUDA_ERROR_INVALID_PTX,
        "assemble the same text with `weft compile --emit cubin`; if warpweft generated the text, please report this",
    ),
    (CUresult::CUDA_ERROR_INVALID_IMAGE, "load PTX or a cubin: this image is neither"),
    (
        CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
        "compile to a cubin, or make the driver's compiler, libnvidia-ptxjitcompiler.so.1, available in the container",
    ),
];

/// The newest PTX version that the driver of a CUDA version supports (PTX ISA, Release Notes); none
/// if it is not known.
fn newest_ptx(cuda: (u32, u32)) -> Option<(u32, u32)> {
    match cuda {
        (12, n @ 0..=5) => Some((8, n)),
        (12, 6) => Some((8, 5)),
        (12, n @ 7..=9) => Some((8, n - 1)),
        (13, n @ 0..=1) => Some((9, n)),
        _ => None,
    }
}

fn kernels(info: &ModuleInfo) -> String {
    match &info.kernels[..] {
        [] => "the module".into(),
        [one] => format!("`{}`", one.name),
        [first, rest @ ..] => format!("`{}` (and {} more)", first.name, rest.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_with_roles_or_matrix_instructions_is_a_whole_program() {
        for ptx in ["setmaxnreg.inc.sync.aligned.u32 232;", "wgmma.fence.sync.aligned;"] {
            assert!(is_whole_program(ptx), "{ptx}");
        }
        assert!(!is_whole_program("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"));
    }

    fn refusal(code: CUresult) -> Refusal<'static> {
        Refusal { kernels: "`k`".into(), ptx: "9.1", code, driver: (13, 0), gpu: 0 }
    }

    #[test]
    fn ptx_newer_than_the_driver_says_both_versions_and_what_to_do() {
        let e = refusal(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
            .error("", "line 1: Unsupported .version 9.1");
        assert_eq!(e.code, PTX);
        assert_eq!(
            e.message,
            "`k` is PTX 9.1, but the driver is of CUDA 13.0, which supports PTX up to 9.0\nline 1: Unsupported .version 9.1"
        );
        assert!(e.help.contains("--ptx-version 9.0") && e.help.contains("newer driver"), "{e}");
    }

    #[test]
    fn other_refusals_have_the_log() {
        let e = refusal(CUresult::CUDA_ERROR_INVALID_PTX)
            .error("cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX", "line 7: no");
        assert!(e.message.contains("CUDA_ERROR_INVALID_PTX") && e.message.ends_with("line 7: no"), "{e}");
        assert!(e.help.contains("--emit cubin"), "{e}");
    }

    #[test]
    fn versions_of_ptx_that_drivers_take() {
        let newest =
            [(11, 8), (12, 0), (12, 5), (12, 6), (12, 8), (12, 9), (13, 0), (13, 1), (13, 9)].map(newest_ptx);
        let versions = [(8, 0), (8, 5), (8, 5), (8, 7), (8, 8), (9, 0), (9, 1)].map(Some);
        assert_eq!((newest[0], newest[8]), (None, None));
        assert_eq!(newest[1..8], versions);
    }

    fn module() -> ModuleInfo {
        ModuleInfo {
            target: "sm_90a".into(),
            ptx_version: "8.3".into(),
            lowering: crate::launch::Lowering::Multimem,
            external: vec!["nvshmem_quiet".into()],
            nvshmem: Some(Version::new(3, 4, 5)),
            remarks: Vec::new(),
            kernels: Vec::new(),
        }
    }

    #[test]
    fn code_and_host_have_one_nvshmem() {
        let mut info = module();
        let e = complete(&info).unwrap_err();
        assert!(e.code == PTX && e.message.contains("nvshmem_quiet"), "{e}");
        info.external.clear();
        assert!(complete(&info).is_ok());
        let path = Path::new("/lib/libnvshmem_host.so.3");
        assert!(same_nvshmem(&info, Version::new(3, 4, 5), path).is_ok());
        let e = same_nvshmem(&info, Version::new(3, 8, 0), path).unwrap_err();
        assert_eq!(e.code, NVSHMEM_VERSION);
        assert!(["3.4.5", "3.8.0", "/lib/"].iter().all(|part| e.message.contains(part)), "{e}");
        info.nvshmem = None;
        assert!(same_nvshmem(&info, Version::new(3, 8, 0), path).is_ok());
    }

    #[test]
    fn a_kernel_that_is_not_there_is_an_error_with_those_that_are() {
        let kernel = |name: &str| KernelInfo {
            shared: 0,
            name: name.into(),
            block: [1; 3],
            cluster: None,
            grid: None,
            planes: false,
            dependent: false,
            roles: Vec::new(),
            waits: Vec::new(),
            params: Vec::new(),
        };
        let mut info = module();
        let help = |info: &ModuleInfo| {
            let e = entry_point(info, "q").unwrap_err();
            assert_eq!((e.code, e.message.as_str()), (NO_KERNEL, "the module has no kernel `q`"));
            e.help
        };
        assert_eq!(help(&info), "it has none");
        info.kernels = vec![kernel("k"), kernel("l")];
        assert_eq!(help(&info), "it has `k`, `l`");
        assert_eq!(entry_point(&info, "l"), Ok(&info.kernels[1]));
    }

    #[test]
    fn nvshmem_is_asked_only_for_modules_that_have_its_code() {
        assert!(!needs_nvshmem(b".version 8.1\n.visible .entry k()"));
        assert!(needs_nvshmem(b".visible .const .align 8 .b8 nvshmemi_device_state_d[1024];"));
        assert!(!needs_nvshmem(b""));
    }
}
