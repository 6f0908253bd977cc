//! The connections of PEs with the hub: unix sockets on one host, and TCP between hosts.

use std::fs;
use std::io::{self, BufReader};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::libc::MSG_NOSIGNAL;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde::Serialize;
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use super::env::Hub;
use super::secret::Admission;
use super::wire;

/// The pause between attempts to connect before PE 0 listens.
const RETRY: Duration = Duration::from_millis(20);

/// A connection, which one thread reads and any thread may write.
pub(super) struct Link {
    socket: Arc<Socket>,
    writing: Mutex<()>,
}

impl Link {
    /// Creates a connection that carries frames. `patience` limits a write to a PE that does not
    /// read.
    pub fn new(socket: Socket, patience: Duration) -> io::Result<Link> {
        socket.set_write_timeout(Some(patience))?;
        if matches!(socket.domain()?, Domain::IPV4 | Domain::IPV6) {
            socket.set_tcp_nodelay(true)?;
            // A host that is gone closes nothing, so the connection is probed and given up after 6
            // s.
            let alive = TcpKeepalive::new().with_time(Duration::from_secs(3));
            socket.set_tcp_keepalive(&alive.with_interval(Duration::from_secs(1)).with_retries(3))?;
            socket.set_tcp_user_timeout(Some(Duration::from_secs(6)))?;
        }
        Ok(Link { socket: Arc::new(socket), writing: Mutex::new(()) })
    }

    /// Two ends of a connection within this process.
    pub fn pair() -> io::Result<(Socket, Socket)> {
        Socket::pair(Domain::UNIX, Type::STREAM, None)
    }

    /// Sends a frame whole.
    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let bytes = wire::frame(message)?;
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match self.socket.send_with_flags(rest, MSG_NOSIGNAL) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => rest = &rest[sent..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Returns the reading side for the one thread that reads.
    pub fn reader(&self) -> BufReader<Reader> {
        BufReader::new(Reader { socket: self.socket.clone(), until: None })
    }

    /// Ends the connection for both sides; reads in progress return.
    pub fn close(&self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Whether the process at the other end may belong to a job with this rule. Beyond this host,
    /// the owner of a process cannot be determined.
    pub fn is_allowed(&self, admission: &Admission) -> bool {
        let user = nix::unistd::geteuid().as_raw();
        match (self.socket.domain(), admission) {
            (Ok(Domain::UNIX), _) => {
                getsockopt(&*self.socket, PeerCredentials).is_ok_and(|peer| peer.uid() == user)
            }
            (Ok(_), Admission::SameUser) => self.owner_on_loopback() == Some(user),
            (other, _) => other.is_ok(),
        }
    }

    /// The user of the process at the other end of a connection over this host's loopback (IPv4),
    /// according to the system's table of connections.
    fn owner_on_loopback(&self) -> Option<u32> {
        let here = self.socket.local_addr().ok()?.as_socket_ipv4()?;
        let there = self.socket.peer_addr().ok()?.as_socket_ipv4()?;
        if !there.ip().is_loopback() {
            return None;
        }
        let table = fs::read_to_string("/proc/net/tcp").ok()?;
        owner(&table, there, here)
    }
}

/// The user of a connection in a table of the form of `/proc/net/tcp` (proc(5)). Its columns are:
/// number, local address, remote address, state, queues, timers, retransmissions, user.
fn owner(table: &str, local: SocketAddrV4, remote: SocketAddrV4) -> Option<u32> {
    // The table shows the address in memory as a number, in the machine's byte order.
    let shown = |a: SocketAddrV4| format!("{:08X}:{:04X}", u32::from_ne_bytes(a.ip().octets()), a.port());
    let (local, remote) = (shown(local), shown(remote));
    table.lines().find_map(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let found = columns.get(1) == Some(&&*local) && columns.get(2) == Some(&&*remote);
        columns.get(7).filter(|_| found)?.parse().ok()
    })
}

/// The reading side of a [`Link`].
pub(super) struct Reader {
    socket: Arc<Socket>,
    until: Option<Instant>,
}

impl Reader {
    /// Limits all following reads together by a time, or by none. (If a socket supports no limit,
    /// its read reports this.)
    pub fn until(&mut self, until: Option<Instant>) {
        self.until = until;
        if until.is_none() {
            let _ = self.socket.set_read_timeout(None);
        }
    }
}

impl io::Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(until) = self.until {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left))?;
        }
        (&*self.socket).read(buffer)
    }
}

/// Listens at the address of PE 0.
pub(super) fn listen(hub: &Hub) -> io::Result<Socket> {
    let socket = match hub {
        Hub::Local(name) => {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.bind(&local(name)?)?;
            socket
        }
        Hub::Tcp(host, port) => {
            // Other hosts may use another address of this host, unless the address is only for this
            // host.
            let any = match is_loopback(host) {
                true => SocketAddr::from((Ipv4Addr::LOCALHOST, *port)),
                false => SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port)),
            };
            bind(any).or_else(|e| match any.is_ipv6() {
                // The kernel does not support IPv6.
                true if e.kind() != io::ErrorKind::AddrInUse => bind((Ipv4Addr::UNSPECIFIED, *port).into()),
                _ => Err(e),
            })?
        }
    };
    socket.listen(1024)?;
    Ok(socket)
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Connects to PE 0, which may not listen yet. After `deadline`, returns the error of the last
/// attempt.
pub(super) fn connect(hub: &Hub, deadline: Instant) -> io::Result<Socket> {
    loop {
        match attempt(hub, deadline) {
            Err(_) if Instant::now() + RETRY < deadline => std::thread::sleep(RETRY),
            done => return done,
        }
    }
}

fn attempt(hub: &Hub, deadline: Instant) -> io::Result<Socket> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses(hub)? {
        let socket = Socket::new(address.domain(), Type::STREAM, None)?;
        let left = deadline.saturating_duration_since(Instant::now()).clamp(RETRY, Duration::from_secs(5));
        let connected = match address.domain() {
            Domain::UNIX => socket.connect(&address),
            _ => socket.connect_timeout(&address, left),
        };
        match connected {
            Ok(()) => return Ok(socket),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn addresses(hub: &Hub) -> io::Result<Vec<SockAddr>> {
    match hub {
        Hub::Local(name) => Ok(vec![local(name)?]),
        Hub::Tcp(host, port) => Ok((host.as_str(), *port).to_socket_addrs()?.map(SockAddr::from).collect()),
    }
}

/// An address in the abstract namespace, which is not a file, so nothing can remain.
fn local(name: &str) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0{name}"))
}

/// Whether the name means the host itself.
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|a| a.is_loopback())
}
