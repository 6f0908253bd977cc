//! Messages from LLVM to its host: diagnostics and fatal errors.

use crate::codes;
use inkwell::context::Context;
use inkwell::llvm_sys::prelude::LLVMDiagnosticInfoRef;
use inkwell::llvm_sys::{LLVMDiagnosticSeverity, core, error_handling, support};
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Mutex, Once, PoisonError};

/// Collects the errors that LLVM reports through a context. Otherwise LLVM would print them or end
/// the process.
pub(crate) struct Diagnostics<'c> {
    context: &'c Context,
    /// The list of errors. This type owns it, and LLVM keeps its address.
    errors: NonNull<RefCell<Vec<String>>>,
}

extern "C" fn collect(info: LLVMDiagnosticInfoRef, errors: *mut c_void) {
    // SAFETY: LLVM passes a diagnostic that lives during the call, and the address that `Diagnostics::collect` gave
    // it, which is valid until `Drop` takes the handler away. This code disposes the text.
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
        let errors: NonNull<RefCell<Vec<String>>> = NonNull::from(Box::leak(Box::default()));
        let at = errors.as_ptr().cast();
        // SAFETY: the context is alive, and the address stays valid until `Drop` has taken the handler away.
        unsafe { core::LLVMContextSetDiagnosticHandler(context.raw(), Some(collect), at) };
        Diagnostics { context, errors }
    }

    /// The errors that were reported since the last call.
    pub fn take(&self) -> Vec<String> {
        // SAFETY: the list lives until `Drop`, and is borrowed only for this call or for one of `collect`.
        unsafe { self.errors.as_ref() }.take()
    }
}

impl Drop for Diagnostics<'_> {
    fn drop(&mut self) {
        // SAFETY: the context outlives `self`. No handler has the address after this, so the list can be freed: it
        // came from `Box::leak`, and this is its only end.
        unsafe {
            core::LLVMContextSetDiagnosticHandler(self.context.raw(), None, std::ptr::null_mut());
            drop(Box::from_raw(self.errors.as_ptr()));
        }
    }
}

/// Passes options of LLVM's command line, with the program's name first. LLVM ends the process if
/// this happens twice.
pub(crate) fn set_flags(flags: &[&CStr]) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let flags: Vec<_> = flags.iter().map(|f| f.as_ptr()).collect();
        let n = i32::try_from(flags.len()).unwrap_or(0);
        // SAFETY: `flags` has `n` texts that end in NUL, and LLVM copies what it keeps.
        unsafe { support::LLVMParseCommandLineOptions(n, flags.as_ptr(), std::ptr::null()) };
    });
}

/// The file that LLVM is reading. If LLVM cannot continue meanwhile, the file is the cause and not
/// this crate.
static READING: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Reads a file with LLVM. LLVM reports the faults that it checks for. A damaged file can also make
/// it request more memory than there is, which ends the process with a message about the file.
pub(crate) fn reading<T>(path: &Path, read: impl FnOnce() -> T) -> T {
    let set = |to| *READING.lock().unwrap_or_else(PoisonError::into_inner) = to;
    set(Some(path.to_owned()));
    let out = read();
    set(None);
    out
}

extern "C" fn fatal(reason: *const c_char) {
    // SAFETY: LLVM passes a text that ends in NUL and lives during the call.
    let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy();
    // The lock is not awaited, because the thread that holds it may be the one that failed.
    if let Some(path) = READING.try_lock().ok().and_then(|path| path.clone()) {
        super::say(&format!(
            "error[{}]: {}: not device bitcode, or damaged: {reason}\n  help: {}",
            codes::BAD_LIBRARY,
            path.display(),
            crate::nvshmem::FETCH_ANEW
        ));
        std::process::exit(1);
    }
    super::say(&format!(
        "weft: LLVM cannot continue: {reason}\nThis is a bug in warpweft, not in the kernel: please \
         report it with the kernel's text."
    ));
}

/// Installs a handler that prints advice before LLVM ends the process after an internal error.
pub(crate) fn on_fatal_error() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler is a function, which stays for as long as the process.
    ONCE.call_once(|| unsafe { error_handling::LLVMInstallFatalErrorHandler(Some(fatal)) });
}
