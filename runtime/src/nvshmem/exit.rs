//! Handles a process that ends without finalizing NVSHMEM, because of an error or the death of
//! another PE.
//!
//! In such a process, NVSHMEM's own exit handlers wait for PEs that never arrive, or crash on state
//! that is gone, and either hides the exit status. Handlers run in reverse order of registration.
//! So a handler that is registered after NVSHMEM's runs first, and ends the process at once.
#![allow(unsafe_code, reason = "C library functions")]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether NVSHMEM is between init and finalize.
static RUNNING: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// Registers a handler like `atexit`, which also gets the status (glibc, on_exit(3)).
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    fn fflush(stream: *mut c_void) -> c_int;
    fn _exit(status: c_int) -> !;
}

extern "C" fn leave(status: c_int, _: *mut c_void) {
    if RUNNING.load(Ordering::SeqCst) {
        // SAFETY: flushes all of C's streams (Rust has flushed its own), and ends the process.
        unsafe {
            fflush(null_mut());
            _exit(status)
        }
    }
}

/// Makes the process exit without NVSHMEM's handlers, until [`release`].
pub fn guard() {
    static ONCE: Once = Once::new();
    RUNNING.store(true, Ordering::SeqCst);
    ONCE.call_once(|| {
        // SAFETY: the handler is a function of this program. If it cannot be registered, nothing
        // changes.
        let _ = unsafe { on_exit(leave, null_mut()) };
    });
}

/// Whether a start was attempted without a following end.
pub fn begun() -> bool {
    RUNNING.load(Ordering::SeqCst)
}

/// Notes that NVSHMEM has ended in order.
pub fn release() {
    RUNNING.store(false, Ordering::SeqCst);
}
