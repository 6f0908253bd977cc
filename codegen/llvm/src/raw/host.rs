//! What LLVM says to its host: diagnostics and fatal errors.

use crate::codes;
use inkwell::context::Context;
use inkwell::llvm_sys::prelude::LLVMDiagnosticInfoRef;
use inkwell::llvm_sys::{LLVMDiagnosticSeverity, core, error_handling, support};
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

/// Collects the errors LLVM reports through a context, which would else be printed, or end the process.
pub(crate) struct Diagnostics<'c> {
    context: &'c Context,
    /// Boxed: LLVM keeps its address.
    errors: Box<RefCell<Vec<String>>>,
}

extern "C" fn collect(info: LLVMDiagnosticInfoRef, errors: *mut c_void) {
    unsafe {
        if core::LLVMGetDiagInfoSeverity(info) != LLVMDiagnosticSeverity::LLVMDSError {
            return;
        }
        let text = core::LLVMGetDiagInfoDescription(info);
        let message = CStr::from_ptr(text).to_string_lossy().into_owned();
        core::LLVMDisposeMessage(text);
        if let Ok(mut errors) = (*errors.cast::<RefCell<Vec<String>>>()).try_borrow_mut() {
            errors.push(message);
        }
    }
}

impl<'c> Diagnostics<'c> {
    pub fn collect(context: &'c Context) -> Diagnostics<'c> {
        let errors = Box::new(RefCell::new(Vec::new()));
        let at = std::ptr::from_ref(&*errors).cast_mut().cast();
        unsafe { core::LLVMContextSetDiagnosticHandler(context.raw(), Some(collect), at) };
        Diagnostics { context, errors }
    }

    /// What was reported since the last call.
    pub fn take(&self) -> Vec<String> {
        self.errors.take()
    }
}

impl Drop for Diagnostics<'_> {
    fn drop(&mut self) {
        unsafe {
            core::LLVMContextSetDiagnosticHandler(self.context.raw(), None, std::ptr::null_mut());
        }
    }
}

/// Gives LLVM options of its command line, the program's name first. Once a process: LLVM ends it on the second.
pub(crate) fn set_flags(flags: &[&CStr]) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let flags: Vec<_> = flags.iter().map(|f| f.as_ptr()).collect();
        let n = i32::try_from(flags.len()).unwrap_or(0);
        unsafe { support::LLVMParseCommandLineOptions(n, flags.as_ptr(), std::ptr::null()) };
    });
}

/// The file that LLVM reads, while it does: then it is that file, and no mistake of ours, that it cannot go on with.
static READING: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Reads a file with LLVM. LLVM reports what it checks; a damaged file may also make it ask for memory that cannot be
/// had, which ends the process, with a word on the file.
pub(crate) fn reading<T>(path: &Path, read: impl FnOnce() -> T) -> T {
    let set = |to| *READING.lock().unwrap_or_else(PoisonError::into_inner) = to;
    set(Some(path.to_owned()));
    let out = read();
    set(None);
    out
}

extern "C" fn fatal(reason: *const c_char) {
    let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy();
    // Not waited for: whoever has the lock may be what failed.
    if let Some(path) = READING.try_lock().ok().and_then(|path| path.clone()) {
        eprintln!(
            "error[{}]: {}: not device bitcode, or damaged: {reason}\n  help: {}",
            codes::BAD_LIBRARY,
            path.display(),
            crate::nvshmem::FETCH_ANEW
        );
        std::process::exit(1);
    }
    eprintln!(
        "weft: LLVM cannot go on: {reason}\nThis is a bug in warpweft, not in the kernel: please report it with the kernel's text."
    );
}

/// LLVM ends the process on an error of its own making: then at least say what to do.
pub(crate) fn on_fatal_error() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| unsafe { error_handling::LLVMInstallFatalErrorHandler(Some(fatal)) });
}
