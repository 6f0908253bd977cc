//! The driver's calls on modules and functions that `cudarc`'s safe layer does not have: logs of
//! its compiler, cubins, and launches with attributes.
#![allow(unsafe_code, reason = "FFI")]

use super::remarks::remarks;
use crate::cuda::{Device, DriverError, Stream, error};
use crate::error::{CUDA, Error, NO_KERNEL, Result};
use crate::simulated;
use cudarc::driver::result;
use cudarc::driver::sys::{
    self, CUfunction_attribute as Attribute, CUjit_option as Jit, CUlaunchAttributeID as Id,
};
use std::ffi::{CString, c_void};
use std::ptr::{null_mut, without_provenance_mut as word};
use std::sync::{Arc, OnceLock};
use weft_abi::{Remark, RoleInfo};

/// The largest number of threads of any CTA (CUDA C Programming Guide, Technical Specifications).
const MAX_THREADS: u32 = 1024;

/// The largest part of a log that is kept, in bytes.
const LOG_BYTES: usize = 16 << 10;

/// A module on a device, which is unloaded on drop.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub device: Device,
    /// The messages of the driver's compiler about the code.
    pub remarks: Vec<Remark>,
    code: Code,
}

#[derive(Debug)]
enum Code {
    /// A module in a device's context.
    Gpu(sys::CUmodule),
    Simulated(weft_sim::Module),
}

// SAFETY: a handle, which the driver locks itself.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// A function of a module that is still loaded.
#[derive(Clone, Debug)]
pub(crate) enum Function {
    Gpu(sys::CUfunction),
    Simulated(Box<Simulated>),
}

/// A kernel for simulated PEs, and the multiprocessors of one.
#[derive(Clone, Debug)]
pub(crate) struct Simulated {
    module: weft_sim::Module,
    kernel: weft_sim::Kernel,
    sms: u32,
    /// The names of threads for reports.
    names: Arc<[weft_sim::Named]>,
}

// SAFETY: a handle, which the driver locks itself.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// The error of the driver's compiler, with its log.
pub(crate) struct Refused {
    pub error: DriverError,
    pub log: String,
}

/// The reason why a module is not loaded.
pub(crate) enum NotLoaded {
    Refused(Refused),
    /// An error of the simulator, which is already formatted.
    Simulated(Error),
}

/// The reason why a launch did not take place.
pub(crate) enum NotLaunched {
    Driver(DriverError),
    /// An error that is already formatted.
    Other(Error),
}

/// Options that make the driver's compiler write logs, and the logs.
struct Logs {
    info: Vec<u8>,
    error: Vec<u8>,
}

impl Logs {
    fn new() -> Logs {
        Logs { info: vec![0; LOG_BYTES], error: vec![0; LOG_BYTES] }
    }

    /// Options and their values; valid while `self` is.
    fn options(&mut self) -> ([Jit; 6], [*mut c_void; 6]) {
        let size = word(LOG_BYTES);
        let options = [
            Jit::CU_JIT_INFO_LOG_BUFFER,
            Jit::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            Jit::CU_JIT_ERROR_LOG_BUFFER,
            Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            Jit::CU_JIT_GENERATE_LINE_INFO,
            // Without it, the compiler does not report spills.
            Jit::CU_JIT_LOG_VERBOSE,
        ];
        let values =
            [self.info.as_mut_ptr().cast(), size, self.error.as_mut_ptr().cast(), size, word(1), word(1)];
        (options, values)
    }

    fn text(&self) -> String {
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
        };
        [text(&self.error), text(&self.info)]
            .iter()
            .filter(|t| !t.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The messages about code that was accepted.
    fn remarks(&self, image: &[u8]) -> Vec<Remark> {
        let ptx = std::str::from_utf8(image).unwrap_or_default();
        remarks(&self.text(), ptx.trim_end_matches('\0'))
    }

    fn refused(&self, error: DriverError) -> Refused {
        Refused { error, log: self.text() }
    }
}

impl Loaded {
    /// Loads PTX or a cubin, with a terminating 0. A simulated PE accepts only PTX. The device's
    /// context must be current.
    pub fn new(device: &Device, image: &[u8]) -> std::result::Result<Loaded, NotLoaded> {
        if let Some(pe) = device.pe() {
            let text = image.strip_suffix(&[0]).unwrap_or(image);
            let code = pe.load(text).map(Code::Simulated).map_err(NotLoaded::Simulated)?;
            return Ok(Loaded { device: device.clone(), code, remarks: Vec::new() });
        }
        let mut logs = Logs::new();
        let (mut options, mut values) = logs.options();
        let mut module = null_mut();
        // SAFETY: the driver is given no length. `image::check` has verified that the image is
        // text, which ends in 0 here, or a cubin whose tables, sections and segments lie in it; the
        // options point into `logs`, which outlives the call.
        let answer = unsafe {
            sys::cuModuleLoadDataEx(
                &mut module,
                image.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        match answer.result() {
            Ok(()) => {
                let remarks = logs.remarks(image);
                Ok(Loaded { device: device.clone(), code: Code::Gpu(module), remarks })
            }
            Err(e) => Err(NotLoaded::Refused(logs.refused(e))),
        }
    }

    /// The driver's handle, for libraries that initialise modules.
    pub fn handle(&self) -> sys::CUmodule {
        match &self.code {
            Code::Gpu(module) => *module,
            Code::Simulated(_) => null_mut(),
        }
    }

    pub fn function(&self, name: &str) -> Result<Function> {
        let module = match &self.code {
            Code::Gpu(module) => *module,
            Code::Simulated(module) => return self.simulated_function(module, name),
        };
        self.device.bind()?;
        let none = || DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND);
        let found = CString::new(name).map_err(|_| none()).and_then(|name| {
            // SAFETY: the module is loaded.
            unsafe { result::module::get_function(module, name) }
        });
        found.map(Function::Gpu).map_err(|e| error("cuModuleGetFunction", e))
    }

    fn simulated_function(&self, module: &weft_sim::Module, name: &str) -> Result<Function> {
        let none = || Error::new(NO_KERNEL, format!("the PTX has no kernel `{name}`"));
        let kernel = module.kernel(name).ok_or_else(none)?.clone();
        let sms = self.device.sm_count()?;
        Ok(Function::Simulated(Box::new(Simulated {
            module: module.clone(),
            kernel,
            sms,
            names: Arc::new([]),
        })))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // A launch may still be running; one that does not end keeps its code.
        if self.device.wait().and_then(|()| self.device.bind()).is_err() {
            return;
        }
        if let (Code::Gpu(module), Ok(context)) = (&self.code, self.device.context()) {
            // SAFETY: loaded by `new`, and unloaded once, when none of its kernels runs.
            context.record_err(unsafe { result::module::unload(*module) });
        }
    }
}

/// Assembles PTX (with its terminating 0) for the device of this thread's context.
pub(super) fn cubin(ptx: &[u8]) -> std::result::Result<(Vec<u8>, Vec<Remark>), Refused> {
    struct Linker(sys::CUlinkState);
    impl Drop for Linker {
        fn drop(&mut self) {
            // SAFETY: created, destroyed once; an error would only say that it was not.
            let _ = unsafe { sys::cuLinkDestroy(self.0) };
        }
    }
    let mut logs = Logs::new();
    let (mut options, mut values) = logs.options();
    let mut state = null_mut();
    // SAFETY: the options point into `logs`, which outlives the linker.
    let created = unsafe {
        sys::cuLinkCreate_v2(options.len() as u32, options.as_mut_ptr(), values.as_mut_ptr(), &mut state)
    };
    created.result().map_err(|e| logs.refused(e))?;
    let linker = Linker(state);
    let kind = sys::CUjitInputType::CU_JIT_INPUT_PTX;
    // SAFETY: the driver reads the text, which ends in 0, and copies it.
    let added = unsafe {
        sys::cuLinkAddData_v2(
            linker.0,
            kind,
            ptx.as_ptr().cast_mut().cast(),
            ptx.len(),
            c"kernel.ptx".as_ptr(),
            0,
            null_mut(),
            null_mut(),
        )
    };
    added.result().map_err(|e| logs.refused(e))?;
    let (mut image, mut bytes) = (null_mut(), 0);
    // SAFETY: the pointers are to locals.
    unsafe { sys::cuLinkComplete(linker.0, &mut image, &mut bytes) }.result().map_err(|e| logs.refused(e))?;
    if image.is_null() || bytes == 0 {
        return Err(logs.refused(DriverError(sys::CUresult::CUDA_ERROR_INVALID_IMAGE)));
    }
    // SAFETY: the linker owns the image of that many bytes, at an address that is not null, until it is destroyed, after
    // this copy.
    let image = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) }.to_vec();
    Ok((image, logs.remarks(ptx)))
}

/// The signature of `cuFuncGetParamInfo`: function, number of the parameter, its offset, its size.
type ParamInfo = unsafe extern "C" fn(sys::CUfunction, usize, *mut usize, *mut usize) -> sys::CUresult;

/// The driver's function, which exists since CUDA 12.4.
fn param_info() -> Option<ParamInfo> {
    static FOUND: OnceLock<Option<ParamInfo>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the library is the driver's, which is loaded and stays so; a function of that name has that type
        // (cuda.h of CUDA 12.4).
        unsafe { sys::culib().get::<ParamInfo>(b"cuFuncGetParamInfo\0") }.ok().map(|found| *found)
    })
}

impl Function {
    /// Names the threads in the reports of a simulated PE.
    pub fn named(mut self, roles: &[RoleInfo]) -> Function {
        if let Function::Simulated(f) = &mut self {
            let name = |r: &RoleInfo| weft_sim::Named {
                first: r.first,
                threads: r.threads,
                name: r.name.as_str().into(),
            };
            f.names = roles.iter().map(name).collect();
        }
        self
    }

    /// Allows the function more dynamic shared memory than the default of 48 KiB.
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        // A simulated CTA has as much as the device states.
        let Function::Gpu(function) = self else { return Ok(()) };
        let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function's module is loaded.
        unsafe {
            result::function::set_function_attribute(*function, which, bytes.try_into().unwrap_or(i32::MAX))
        }
        .map_err(|e| error("cuFuncSetAttribute", e))
    }

    /// The largest number of threads of a CTA of this function.
    pub fn max_threads(&self) -> Result<u32> {
        match self {
            Function::Gpu(function) => {
                attribute(*function, Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
            }
            Function::Simulated(f) => {
                let max = f.kernel.maxntid.map(|m| m.iter().fold(1, |n: u32, m| n.saturating_mul(*m)));
                Ok(max.unwrap_or(MAX_THREADS).min(MAX_THREADS))
            }
        }
    }

    /// Returns the offset and the size of each parameter in the code's parameter block. A simulated
    /// kernel returns none, since its launch checks the parameters.
    ///
    /// # Errors
    /// Fails if the driver is too old to tell (R0103).
    pub fn params(&self) -> Result<Option<Vec<(usize, usize)>>> {
        let Function::Gpu(function) = self else { return Ok(None) };
        let Some(param_info) = param_info() else {
            return Err(Error::new(CUDA, "the CUDA driver cannot say what parameters a kernel has")
                .help("install a driver for CUDA 12.4 or later"));
        };
        let mut params = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function's module is loaded; the pointers are to locals. An index past the last parameter is an
            // error, not undefined (CUDA driver API, cuFuncGetParamInfo).
            match unsafe { param_info(*function, params.len(), &mut offset, &mut size) } {
                sys::CUresult::CUDA_SUCCESS => params.push((offset, size)),
                sys::CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(Some(params)),
                other => return Err(error("cuFuncGetParamInfo", DriverError(other))),
            }
        }
    }

    /// Returns the size of static shared memory in bytes.
    pub fn shared_bytes(&self) -> Result<u32> {
        match self {
            Function::Gpu(function) => attribute(*function, Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
            Function::Simulated(f) => Ok(f.kernel.shared_bytes),
        }
    }

    /// Returns the number of CTAs that a multiprocessor can hold at once.
    pub fn ctas_per_sm(&self, threads: u32, shared: u32) -> Result<u32> {
        let function = match self {
            Function::Gpu(function) => *function,
            Function::Simulated(f) => return Ok(f.kernel.ctas_per_sm(threads, shared)),
        };
        let threads = threads.try_into().unwrap_or(i32::MAX);
        // SAFETY: the function's module is loaded.
        unsafe { result::occupancy::max_active_block_per_multiprocessor(function, threads, shared as usize) }
            .map(|n| u32::try_from(n).unwrap_or(0))
            .map_err(|e| error("cuOccupancyMaxActiveBlocksPerMultiprocessor", e))
    }

    /// Returns the number of clusters that the device can hold at once.
    pub fn clusters(&self, shape: &Shape) -> Result<u32> {
        let function = match self {
            Function::Gpu(function) => *function,
            Function::Simulated(f) => {
                let product = |dims: [u32; 3]| dims.iter().product::<u32>().max(1);
                let ctas = f.kernel.ctas_per_sm(product(shape.block), shape.shared).saturating_mul(f.sms);
                return Ok(ctas / product(shape.cluster.unwrap_or([1; 3])));
            }
        };
        let mut n = 0;
        let mut attributes = shape.attributes();
        let config = shape.config(null_mut(), &mut attributes);
        // SAFETY: the function's module is loaded; the configuration points to locals.
        unsafe { sys::cuOccupancyMaxActiveClusters(&mut n, function, &config) }
            .result()
            .map_err(|e| error("cuOccupancyMaxActiveClusters", e))?;
        Ok(u32::try_from(n).unwrap_or(0))
    }

    /// Launches the function. `block` is its whole parameter block, and `offsets` are the offsets
    /// of the parameters in it.
    ///
    /// (The driver also accepts the whole block, as `extra`, but not for a cooperative kernel in a
    /// capture.)
    pub fn launch(
        &self,
        stream: &Stream,
        shape: &Shape,
        block: &mut [u8],
        offsets: &[usize],
    ) -> std::result::Result<(), NotLaunched> {
        let (function, stream) = match (self, stream) {
            (Function::Gpu(function), Stream::Gpu(stream)) => (*function, stream),
            (Function::Simulated(f), Stream::Simulated(stream)) => {
                let dims = (shape.grid, shape.block, shape.cluster);
                let launched = stream.launch_kernel(
                    &f.module,
                    &f.kernel.name,
                    dims,
                    shape.shared,
                    block,
                    (f.names.clone(), shape.dependent),
                );
                return launched.map_err(NotLaunched::Other);
            }
            _ => return Err(NotLaunched::Other(simulated::not_simulated("GPU's kernel or stream"))),
        };
        let parts = offsets.iter().map(|at| block.get_mut(*at..).map(|part| part.as_mut_ptr().cast()));
        let invalid = DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE);
        let mut params: Vec<*mut c_void> =
            parts.collect::<Option<_>>().ok_or(NotLaunched::Driver(invalid))?;
        let mut attributes = shape.attributes();
        let config = shape.config(stream.cu_stream(), &mut attributes);
        // SAFETY: the function's module is loaded; the driver copies the parameters before it
        // returns. Their number, offsets and sizes are those of the code, since `Kernel::new`
        // compares them with the driver's information. All pointers are to locals.
        unsafe { sys::cuLaunchKernelEx(&config, function, params.as_mut_ptr(), null_mut()) }
            .result()
            .map_err(NotLaunched::Driver)
    }
}

fn attribute(function: sys::CUfunction, which: Attribute) -> Result<u32> {
    // SAFETY: the function's module is loaded.
    let value = unsafe { result::function::get_function_attribute(function, which) };
    value.map(|n| u32::try_from(n).unwrap_or(0)).map_err(|e| error("cuFuncGetAttribute", e))
}

/// The shape and the options of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: Option<[u32; 3]>,
    pub cooperative: bool,
    /// Whether it can begin when the launch before it allows this. The kernel itself waits for that
    /// launch's end.
    pub dependent: bool,
    pub shared: u32,
}

impl Shape {
    fn attributes(&self) -> Vec<sys::CUlaunchAttribute> {
        // SAFETY: a union of plain numbers and pointers, of which zero bytes are a value.
        let zero = || unsafe { std::mem::zeroed::<sys::CUlaunchAttributeValue>() };
        let mut out = Vec::new();
        let mut add = |id, value| out.push(sys::CUlaunchAttribute { id, pad: [0; 4], value });
        if let Some([x, y, z]) = self.cluster {
            let mut value = zero();
            value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            add(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value);
        }
        if self.cooperative {
            let mut value = zero();
            value.cooperative = 1;
            add(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value);
        }
        if self.dependent {
            let mut value = zero();
            value.programmaticStreamSerializationAllowed = 1;
            add(Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value);
        }
        out
    }

    fn config(
        &self,
        stream: sys::CUstream,
        attributes: &mut [sys::CUlaunchAttribute],
    ) -> sys::CUlaunchConfig {
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        sys::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: self.shared,
            hStream: stream,
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        }
    }
}
