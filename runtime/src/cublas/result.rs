//! The calls of cuBLASLt with a `Result`, and its objects, which are destroyed when they are
//! dropped.
#![allow(unsafe_code, reason = "calls of a C library")]

use super::sys::{self, Algo, Functions, Handle, HeuristicResult, Stream};
use crate::error::{CUBLAS, Error, NO_CUBLAS, Result};
use std::ffi::{CStr, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr::null_mut;

/// The library that was opened. It stays loaded, because it has threads.
pub struct Library {
    functions: Functions,
    /// The value of `CUBLAS_VERSION`: 130100 is 13.1.0.
    pub version: usize,
    _library: ManuallyDrop<libloading::Library>,
}

/// An object of the library.
pub struct Object<'l> {
    handle: Handle,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    library: &'l Library,
}

/// The device addresses that a product reads and writes.
#[derive(Clone, Copy)]
pub struct Addresses {
    pub a: u64,
    pub b: u64,
    pub d: u64,
    pub workspace: (u64, usize),
}

/// Descriptions of a product: the operation, and the layouts of A, B and D.
pub struct Described<'l> {
    pub operation: Object<'l>,
    pub a: Object<'l>,
    pub b: Object<'l>,
    pub d: Object<'l>,
}

impl Library {
    pub fn open(path: &Path) -> Result<Library> {
        let fails = |why: String| Error::new(NO_CUBLAS, format!("{}: {why}", path.display()));
        // SAFETY: loading runs the initialisers of a library that the user names or the system has, which set up
        // tables.
        let library = unsafe { libloading::Library::new(path) }.map_err(|e| fails(e.to_string()))?;
        let library = ManuallyDrop::new(library);
        // SAFETY: `ManuallyDrop` keeps it loaded for the life of the process; in a library that is
        // not cuBLASLt, the first function is missing.
        let functions = unsafe { Functions::load(&library) };
        let functions = functions.map_err(|name| fails(format!("the library has no function {name}")))?;
        // SAFETY: the function has no parameters and returns a number.
        let version = unsafe { (functions.cublasLtGetVersion)() };
        Ok(Library { functions, version, _library: library })
    }

    /// Creates a handle for the device of the current CUDA context.
    pub fn create(&self) -> Result<Object<'_>> {
        // SAFETY: the function writes the handle.
        self.object("cublasLtCreate", self.functions.cublasLtDestroy, |handle| unsafe {
            (self.functions.cublasLtCreate)(handle)
        })
    }

    /// Describes a product that is computed in `compute`, with factors of f32.
    pub fn operation(&self, compute: c_int) -> Result<Object<'_>> {
        let destroy = self.functions.cublasLtMatmulDescDestroy;
        // SAFETY: the function writes the descriptor.
        self.object("cublasLtMatmulDescCreate", destroy, |handle| unsafe {
            (self.functions.cublasLtMatmulDescCreate)(handle, compute, sys::R_32F)
        })
    }

    /// Describes the layout of a column-major matrix.
    pub fn layout(&self, dtype: c_int, rows: u64, columns: u64, stride: u64) -> Result<Object<'_>> {
        let stride = i64::try_from(stride).unwrap_or(i64::MAX);
        let destroy = self.functions.cublasLtMatrixLayoutDestroy;
        // SAFETY: the function writes the layout.
        self.object("cublasLtMatrixLayoutCreate", destroy, |handle| unsafe {
            (self.functions.cublasLtMatrixLayoutCreate)(handle, dtype, rows, columns, stride)
        })
    }

    pub fn preference(&self) -> Result<Object<'_>> {
        let destroy = self.functions.cublasLtMatmulPreferenceDestroy;
        // SAFETY: the function writes the preference.
        self.object("cublasLtMatmulPreferenceCreate", destroy, |handle| unsafe {
            (self.functions.cublasLtMatmulPreferenceCreate)(handle)
        })
    }

    /// Returns at most `max` algorithms for a product, with the expected fastest first. The result
    /// is empty if the library has none for such operands.
    pub fn algorithms(
        &self,
        handle: &Object<'_>,
        product: &Described<'_>,
        preference: &Object<'_>,
        max: usize,
    ) -> Result<Vec<HeuristicResult>> {
        let empty = HeuristicResult {
            algo: Algo { data: [0; 8] },
            workspace: 0,
            state: -1,
            waves: 0.0,
            reserved: [0; 4],
        };
        let mut results = vec![empty; max];
        let mut found = 0;
        let Described { operation, a, b, d } = product;
        // SAFETY: all handles are alive, and the list has as many elements as the call states.
        let status = unsafe {
            (self.functions.cublasLtMatmulAlgoGetHeuristic)(
                handle.handle,
                operation.handle,
                a.handle,
                b.handle,
                d.handle,
                d.handle,
                preference.handle,
                c_int::try_from(max).unwrap_or(c_int::MAX),
                results.as_mut_ptr(),
                &mut found,
            )
        };
        if status != sys::NOT_SUPPORTED {
            self.check("cublasLtMatmulAlgoGetHeuristic", status)?;
        }
        results.truncate(usize::try_from(found).unwrap_or(0));
        results.retain(|result| result.state == 0);
        Ok(results)
    }

    /// Enqueues D = A * B on a stream.
    ///
    /// # Safety
    /// The addresses are of memory as large as the layouts, which lives until the stream has done
    /// the work. So is the memory of the scales that the operation names.
    pub unsafe fn matmul(
        &self,
        handle: &Object<'_>,
        product: &Described<'_>,
        algo: &Algo,
        at: Addresses,
        stream: Stream,
    ) -> Result<()> {
        let (one, zero) = (1f32, 0f32);
        let factor = |x: &f32| std::ptr::from_ref(x).cast::<c_void>();
        let pointer = |address: u64| address as usize as *mut c_void;
        let Described { operation, a, b, d } = product;
        // SAFETY: all handles are alive, the factors are read before the call returns, and the
        // caller is responsible for the memory.
        let status = unsafe {
            (self.functions.cublasLtMatmul)(
                handle.handle,
                operation.handle,
                factor(&one),
                pointer(at.a),
                a.handle,
                pointer(at.b),
                b.handle,
                factor(&zero),
                pointer(at.d),
                d.handle,
                pointer(at.d),
                d.handle,
                algo,
                pointer(at.workspace.0),
                at.workspace.1,
                stream,
            )
        };
        self.check("cublasLtMatmul", status)
    }

    fn object<'l>(
        &'l self,
        call: &str,
        destroy: unsafe extern "C" fn(Handle) -> c_int,
        create: impl FnOnce(*mut Handle) -> c_int,
    ) -> Result<Object<'l>> {
        let mut handle = null_mut();
        self.check(call, create(&mut handle))?;
        Ok(Object { handle, destroy, library: self })
    }

    /// Checks a status, where 0 is success.
    fn check(&self, call: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function returns a string that lives as long as the library, or null.
        let meaning = unsafe {
            let text = (self.functions.cublasLtGetStatusString)(status);
            if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy() }
        };
        Err(Error::new(CUBLAS, format!("{call} returned {status} ({meaning})"))
            .help("set CUBLASLT_LOG_LEVEL=2 to make cuBLASLt print more"))
    }
}

impl Object<'_> {
    /// Sets an attribute of an operation.
    pub fn set_operation<T: Copy>(&self, attribute: c_int, value: T) -> Result<()> {
        let call = self.library.functions.cublasLtMatmulDescSetAttribute;
        self.set("cublasLtMatmulDescSetAttribute", call, attribute, value)
    }

    /// Sets an attribute of a preference.
    pub fn set_preference<T: Copy>(&self, attribute: c_int, value: T) -> Result<()> {
        let call = self.library.functions.cublasLtMatmulPreferenceSetAttribute;
        self.set("cublasLtMatmulPreferenceSetAttribute", call, attribute, value)
    }

    fn set<T: Copy>(
        &self,
        name: &str,
        call: unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> c_int,
        attribute: c_int,
        value: T,
    ) -> Result<()> {
        // SAFETY: the handle is alive; the value is copied before the call returns, and its size is
        // passed, which the library compares with that of the attribute.
        let status = unsafe { call(self.handle, attribute, (&raw const value).cast(), size_of::<T>()) };
        self.library.check(name, status)
    }
}

impl Drop for Object<'_> {
    fn drop(&mut self) {
        // SAFETY: created by the matching function, destroyed once; an error would only say that it was not.
        unsafe { (self.destroy)(self.handle) };
    }
}
