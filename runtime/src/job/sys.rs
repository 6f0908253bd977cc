//! What the system offers and the standard library does not.
#![allow(unsafe_code, reason = "_exit, and code between fork and exec")]

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;
use nix::sys::signal::Signal;

/// Ends the process now: no exit handlers, which may wait for a GPU or for NVSHMEM.
pub(super) fn exit_now(code: u8) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(i32::from(code)) }
}

/// A process of this command gets SIGKILL when the thread that started it ends.
pub(super) fn dies_with_parent(command: &mut Command) {
    let parent = nix::unistd::getpid();
    let hook = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have ended before the line above.
        match nix::unistd::getppid() == parent {
            true => Ok(()),
            false => Err(nix::errno::Errno::ESRCH.into()),
        }
    };
    // SAFETY: the hook makes two system calls and allocates nothing.
    unsafe { command.pre_exec(hook) };
}
