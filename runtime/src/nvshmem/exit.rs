//! A process that ends without finalizing NVSHMEM: by an error, or because another PE died.
//!
//! NVSHMEM's own exit handlers then wait for PEs that never come, or crash on state that is gone, and either hides the
//! status that the process ends with. Handlers run last in, first out; so one that comes after NVSHMEM's goes first,
//! and leaves at once.
#![allow(unsafe_code, reason = "C library functions")]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Between init and finalize.
static RUNNING: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// As `atexit`, with the status (glibc, on_exit(3)).
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

/// Makes the process exit without NVSHMEM's handlers from now on, until [`release`].
pub fn guard() {
    static ONCE: Once = Once::new();
    RUNNING.store(true, Ordering::SeqCst);
    ONCE.call_once(|| {
        // SAFETY: the handler is a function of this program, which stays. Without room for it nothing changes.
        let _ = unsafe { on_exit(leave, null_mut()) };
    });
}

/// Whether a start was tried, and no end came after it.
pub fn begun() -> bool {
    RUNNING.load(Ordering::SeqCst)
}

/// NVSHMEM has ended in order.
pub fn release() {
    RUNNING.store(false, Ordering::SeqCst);
}
