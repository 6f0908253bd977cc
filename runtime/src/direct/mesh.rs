//! Sockets between all PEs of a host, over which they pass each other memory descriptors.
//!
//! Source: unix(7), `SCM_RIGHTS`. The sockets have random names, which only the job's PEs know.
//! Both ends ask the system for the other's user, and the connecting process sends a number that
//! only a PE of this job can have.
#![allow(unsafe_code, reason = "descriptors that the system has opened for this process")]

use crate::error::{self, Error, Result};
use crate::peers::Peers;
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, getsockopt, recvmsg, sendmsg, sockopt::PeerCredentials,
};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The size of a socket's name, and of the number that its owner expects, in bytes.
const BYTES: usize = 16;

/// The connections by PE; none for this PE itself.
pub(super) struct Mesh(Vec<Option<Socket>>);

impl Mesh {
    /// Connects all PEs, which are on one host. This call is *collective*.
    ///
    /// # Errors
    /// Fails if a PE cannot be reached in time (R0202).
    pub fn connect(peers: &Peers, everyone: &[u32]) -> Result<Mesh> {
        let (me, until) = (peers.rank(), Instant::now() + peers.timeout());
        let mut numbers = [0; 2 * BYTES];
        getrandom::fill(&mut numbers).map_err(|e| fails(me, &io::Error::other(e)))?;
        let listener = listen(&numbers[..BYTES]).map_err(|e| fails(me, &e))?;
        let all = peers.exchange(everyone, "init: sockets", &numbers)?;
        let mut sockets: Vec<Option<Socket>> = everyone.iter().map(|_| None).collect();
        for (pe, of) in (0..me).zip(&all) {
            let connected = connect(of, me, until);
            sockets[pe as usize] = Some(connected.map_err(|e| fails(pe, &e))?);
        }
        while let Some(missing) = (me + 1..peers.size()).find(|pe| sockets[*pe as usize].is_none()) {
            let (pe, socket) = accept(&listener, &numbers[BYTES..], until).map_err(|e| fails(missing, &e))?;
            if let Some(slot) = sockets.get_mut(pe as usize).filter(|slot| pe > me && slot.is_none()) {
                *slot = Some(socket);
            }
        }
        for socket in sockets.iter().flatten() {
            let bounded = socket.set_read_timeout(Some(peers.timeout()));
            bounded.and(socket.set_write_timeout(Some(peers.timeout()))).map_err(|e| fails(me, &e))?;
        }
        Ok(Mesh(sockets))
    }

    /// Gives each other PE a descriptor, or none, and takes theirs. Returns them by PE. This call
    /// is *collective*.
    ///
    /// # Errors
    /// Fails if a PE does not answer in time (R0202).
    pub fn exchange(&self, own: Option<&OwnedFd>) -> Result<Vec<Option<OwnedFd>>> {
        let each = || self.0.iter().zip(0..).filter_map(|(socket, pe)| Some((socket.as_ref()?, pe)));
        for (socket, pe) in each() {
            send(socket, own).map_err(|e| fails(pe, &e))?;
        }
        let mut all: Vec<Option<OwnedFd>> = self.0.iter().map(|_| None).collect();
        for (socket, pe) in each() {
            all[pe as usize] = receive(socket).map_err(|e| fails(pe, &e))?;
        }
        Ok(all)
    }
}

fn fails(pe: u32, e: &io::Error) -> Error {
    let help = "start all PEs as processes of one user, on one host, in one network namespace";
    Error::new(error::BOOTSTRAP, format!("cannot open a local socket to PE {pe}: {e}")).help(help)
}

/// An abstract socket name, which is not a file.
fn address(name: &[u8]) -> io::Result<SockAddr> {
    let shown: String = name.iter().map(|b| format!("{b:02x}")).collect();
    SockAddr::unix(format!("\0weft-mesh-{shown}"))
}

fn listen(name: &[u8]) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&address(name)?)?;
    socket.listen(128)?;
    Ok(socket)
}

/// Whether the process at the other end belongs to this user.
fn is_own(socket: &Socket) -> bool {
    getsockopt(socket, PeerCredentials).is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}

/// Connects to the socket of a PE that sent these numbers, as PE `me`.
fn connect(numbers: &[u8], me: u32, until: Instant) -> io::Result<Socket> {
    let (name, number) = numbers.split_at_checked(BYTES).ok_or(io::ErrorKind::InvalidData)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.connect_timeout(&address(name)?, left(until)?)?;
    if !is_own(&socket) {
        return Err(io::Error::other("a process of another user owns the socket"));
    }
    (&socket).write_all(&[&me.to_le_bytes(), number].concat())?;
    Ok(socket)
}

/// Accepts the next connection of a PE that sends the number, and returns the PE. Other connections
/// are dropped.
fn accept(listener: &Socket, number: &[u8], until: Instant) -> io::Result<(u32, Socket)> {
    loop {
        // This sets a limit for `accept` (socket(7), SO_RCVTIMEO).
        listener.set_read_timeout(Some(left(until)?))?;
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if !is_own(&socket) {
            continue;
        }
        socket.set_read_timeout(Some(left(until)?.min(Duration::from_secs(1))))?;
        let mut hello = [0; 4 + BYTES];
        if (&socket).read_exact(&mut hello).is_err() || hello[4..] != *number {
            continue;
        }
        let [a, b, c, d, ..] = hello;
        return Ok((u32::from_le_bytes([a, b, c, d]), socket));
    }
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Sends one byte, which tells whether a descriptor comes with it.
fn send(socket: &Socket, own: Option<&OwnedFd>) -> io::Result<()> {
    let numbers: Vec<RawFd> = own.iter().map(|fd| fd.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let with = if numbers.is_empty() { &rights[..0] } else { &rights };
    let byte = [u8::from(own.is_some())];
    let sent = sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&byte)], with, MsgFlags::MSG_NOSIGNAL, None)?;
    if sent == 1 { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn receive(socket: &Socket) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut room = cmsg_space!(RawFd);
    let mut into = [IoSliceMut::new(&mut byte)];
    let got = recvmsg::<()>(socket.as_raw_fd(), &mut into, Some(&mut room), MsgFlags::MSG_CMSG_CLOEXEC)?;
    if got.bytes != 1 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut taken = None;
    for message in got.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = message {
            for number in numbers {
                // SAFETY: the system has just opened the descriptor for this process, and nothing else owns it.
                taken = Some(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
    }
    match (byte[0], &taken) {
        (0, _) => Ok(None),
        (_, Some(_)) => Ok(taken),
        _ => Err(io::Error::other(
            "the file descriptor did not arrive; the process may have too many open files",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Admission, Control, Hub, Launcher, ProcessRank};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// Runs a body as each of three PEs that have met.
    fn on_three<T: Send>(body: impl Fn(&Peers, &Mesh) -> T + Sync) -> Vec<T> {
        let name = format!("weft-mesh-test-{}-{:?}", std::process::id(), std::thread::current().id());
        let place = |rank| ProcessRank {
            rank,
            size: 3,
            local_rank: None,
            local_size: None,
            launcher: Launcher::Variables,
            hub: Hub::Local(name.clone()),
            job: name.clone(),
            admission: Admission::SameUser,
        };
        std::thread::scope(|scope| {
            let pes: Vec<_> = (0..3)
                .map(|rank| {
                    let (place, body) = (place(rank), &body);
                    scope.spawn(move || {
                        let peers = Peers::Job(Control::connect(&place).unwrap());
                        let mesh = Mesh::connect(&peers, &[0, 1, 2]).unwrap();
                        let out = body(&peers, &mesh);
                        peers.exchange(&[0, 1, 2], "end", &[]).unwrap();
                        peers.goodbye();
                        out
                    })
                })
                .collect();
            pes.into_iter().map(|pe| pe.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_pe_reads_every_other_pes_file() {
        let read = on_three(|peers, mesh| {
            let mut seen = Vec::new();
            for round in 0..3u8 {
                let mut file = tempfile::tempfile().unwrap();
                file.write_all(&[peers.rank() as u8, round]).unwrap();
                // In round 1, PE 2 sends no descriptor.
                let own = (peers.rank() != 2 || round != 1).then(|| OwnedFd::from(file));
                for (pe, theirs) in mesh.exchange(own.as_ref()).unwrap().into_iter().enumerate() {
                    let Some(theirs) = theirs else { continue };
                    // The position of a file is shared by all processes with its descriptor.
                    let mut text = [0; 4];
                    let n = File::from(theirs).read_at(&mut text, 0).unwrap();
                    assert_eq!(text[..n], [pe as u8, round]);
                    seen.push((pe, round));
                }
                peers.exchange(&[0, 1, 2], "read", &[]).unwrap();
            }
            seen
        });
        assert_eq!(read[0], [(1, 0), (2, 0), (1, 1), (1, 2), (2, 2)]);
        assert_eq!(read[2], [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]);
    }

    #[test]
    fn who_does_not_know_the_number_is_dropped() {
        let (name, number) = ([7; BYTES], [8; BYTES]);
        let listener = listen(&name).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let wrong = connect(&[name, [9; BYTES]].concat(), 1, until).unwrap();
                assert_eq!((&wrong).read(&mut [0]).unwrap_or(0), 0);
            });
            std::thread::sleep(Duration::from_millis(50));
            scope.spawn(|| connect(&[name, number].concat(), 2, until).unwrap());
            assert_eq!(accept(&listener, &number, until).unwrap().0, 2);
        });
        let soon = Instant::now() + Duration::from_millis(50);
        assert_eq!(accept(&listener, &number, soon).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(connect(&[1; 2 * BYTES], 0, until).is_err());
    }
}
