//! System functions that the standard library does not have.
#![allow(unsafe_code, reason = "_exit, code between fork and exec, and inherited descriptors")]

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::socket::{SockType, getsockopt, sockopt};
use socket2::Socket;

/// Ends the process now, without exit handlers, which may wait for a GPU or for NVSHMEM.
pub(super) fn exit_now(code: u8) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Configures a command so that its process gets SIGKILL when the thread that started it ends, and
/// inherits a socket under the same number, which is open until then.
pub(super) fn is_child_of_this(command: &mut Command, socket: &Socket) {
    let parent = nix::unistd::getpid();
    let number = socket.as_raw_fd();
    let hook = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have ended before the line above.
        if nix::unistd::getppid() != parent {
            return Err(nix::errno::Errno::ESRCH.into());
        }
        // SAFETY: the hook runs while the parent waits for `exec`, and the parent's `Supervisor` keeps the socket open.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        fcntl(socket, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(())
    };
    // SAFETY: the hook makes three system calls and allocates nothing.
    unsafe { command.pre_exec(hook) };
}

/// Takes the sequential-packet socket of this user that this process was started with, by its
/// number. Processes that this one starts do not inherit it.
pub(super) fn inherited_socket(number: RawFd) -> Option<Socket> {
    if number <= 2 {
        return None;
    }
    std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).ok()?;
    // SAFETY: the number is open, as the line above shows, and stays open, since nothing in this
    // process owns or closes it.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    let user = nix::unistd::geteuid().as_raw();
    let packets = getsockopt(&socket, sockopt::SockType).ok()? == SockType::SeqPacket;
    let own = getsockopt(&socket, sockopt::PeerCredentials).ok()?.uid() == user;
    if !packets || !own {
        return None;
    }
    fcntl(socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
    socket.try_clone_to_owned().ok().map(Socket::from)
}
