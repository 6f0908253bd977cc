//! Starting the PEs of a job on this host, and ending them together.

use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::{MSG_DONTWAIT, MSG_NOSIGNAL};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use socket2::{Domain, Socket, Type};

use super::control::lock;
use super::output::{Output, Stream};
use super::shm::{self, Segment, Segments};
use super::{ENDED_WITH_PEER, Launcher, ProcessRank, pes};
use crate::error::{BOOTSTRAP, Error, Result};

/// The variable that tells PEs the number of an open socket, through which their supervisor learns
/// of a death. Only processes that the supervisor started can use it.
pub(super) const SUPERVISOR: &str = "WEFT_SUPERVISOR";

/// The time for a failed PE to end by itself and write its output, which is a little more than it
/// allows itself ([`Options::grace`](super::Options)).
const LAST_WORDS: Duration = Duration::from_secs(4);
/// The time from SIGTERM to SIGKILL.
const PATIENCE: Duration = Duration::from_secs(3);
/// The time for the supervisor to see the failed PE's end and output before the end of the others.
const HEAD_START: Duration = Duration::from_millis(100);

/// The connection of a PE to the supervisor that started it.
#[derive(Clone)]
pub(super) struct Parent(Arc<Socket>);

impl Parent {
    /// The supervisor of the PE with this rank, if it has one.
    pub fn of(place: &ProcessRank) -> Option<Parent> {
        static SOCKET: OnceLock<Option<Parent>> = OnceLock::new();
        if place.launcher != Launcher::Weft {
            return None;
        }
        let inherited = || {
            let number = std::env::var(SUPERVISOR).ok()?.parse().ok()?;
            super::sys::inherited_socket(number).map(|socket| Parent(Arc::new(socket)))
        };
        SOCKET.get_or_init(inherited).clone()
    }

    /// Reports the death of a PE, and gives the supervisor time to find the cause.
    pub fn tell(&self, pe: u32) {
        if self.send(&Message::Died(pe)) {
            thread::sleep(HEAD_START);
        }
    }

    /// Reports the segments of shared memory that this process has mapped.
    pub fn tell_of_segments(&self) {
        for segment in shm::mapped("self") {
            self.send(&Message::Mapped(segment));
        }
    }

    fn send(&self, message: &Message) -> bool {
        self.0.send_with_flags(message.write().as_bytes(), MSG_NOSIGNAL | MSG_DONTWAIT).is_ok()
    }
}

/// The result of [`start`]: whether this process is a PE or the parent of the PEs.
#[derive(Debug)]
pub enum Started {
    /// This process is a PE of the job.
    Pe(ProcessRank),
    /// This process was the parent. The job is over, with this status.
    Done(ExitCode),
}

/// Returns this process's place in the job that a launcher started ([`ProcessRank::detect`]). Without a launcher,
/// it starts `pes` processes of this program with these arguments and waits for their end. One PE needs no
/// other process.
///
/// # Errors
/// Fails for a launcher's variables that do not fit together (R0201), or if a process cannot be started
/// (R0202).
pub fn start(pes: u32) -> Result<Started> {
    match ProcessRank::detect()? {
        Some(place) => Ok(Started::Pe(place)),
        None if pes <= 1 => Ok(Started::Pe(ProcessRank::alone())),
        None => {
            let (program, args) = command();
            let status = Job::new(program, pes).args(args).run()?;
            Ok(Started::Done(ExitCode::from(status)))
        }
    }
}

/// The command line that starts this program again, if it differs from the process's own.
static COMMAND: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the command line that starts this program again with the same arguments, for [`start`]. A
/// program inside an interpreter needs it, since the process's own command line is that of the
/// interpreter. Only the first call has an effect.
pub fn set_command(words: impl IntoIterator<Item = OsString>) {
    let _ = COMMAND.set(words.into_iter().collect());
}

/// The program to start again, and its arguments.
fn command() -> (OsString, Vec<OsString>) {
    if let Some((program, args)) = COMMAND.get().and_then(|words| words.split_first()) {
        return (program.clone(), args.to_vec());
    }
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
    (program.into(), std::env::args_os().skip(1).collect())
}

/// A command to run as every PE of a job on this host.
///
/// The standard output of PE 0 is passed on unchanged. All other lines are passed on whole, with a
/// prefix such as `[PE 3] `. Standard input goes to PE 0, unless it is a terminal. The first PE
/// that fails determines the job's status. Its output is passed on to the end; that of the others
/// is dropped, and they are ended. SIGINT and SIGTERM are passed on to the PEs, and processes that
/// remain after 3 s are killed. The PEs do not survive the thread that runs the job, however its
/// process ends.
#[derive(Clone, Debug)]
pub struct Job {
    program: OsString,
    args: Vec<OsString>,
    pes: u32,
    env: Vec<(Option<u32>, OsString, OsString)>,
}

impl Job {
    /// Creates a job of `pes` processes of this program.
    pub fn new(program: impl AsRef<OsStr>, pes: u32) -> Job {
        Job { program: program.as_ref().into(), args: Vec::new(), pes, env: Vec::new() }
    }

    /// Adds arguments for the program.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Job {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().into()));
        self
    }

    /// Sets a variable in every PE.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Job {
        self.env.push((None, name.as_ref().into(), value.as_ref().into()));
        self
    }

    /// Sets a variable in one PE.
    pub fn env_of(mut self, pe: u32, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Job {
        self.env.push((Some(pe), name.as_ref().into(), value.as_ref().into()));
        self
    }

    /// Runs the job to its end. Returns the exit status of the first PE that failed, 128 + n if
    /// signal n ended it, or 130 or 143 after SIGINT or SIGTERM. (These signals do nothing in this
    /// process once the job is over.)
    ///
    /// # Errors
    /// Fails if a process cannot be started (R0202). The processes that were started are ended.
    pub fn run(&self) -> Result<u8> {
        if self.pes == 0 {
            return Err(Error::new(BOOTSTRAP, "a job needs at least one PE"));
        }
        let segments = Arc::new(Mutex::new(Segments::before()));
        let status = Supervisor::start(self, segments.clone()).map(|mut supervisor| supervisor.attend());
        if let Some(segments) = Arc::into_inner(segments) {
            segments.into_inner().unwrap_or_else(PoisonError::into_inner).clean();
        }
        status.map_err(|e| {
            Error::new(BOOTSTRAP, format!("cannot start {} processes of {:?}: {e}", self.pes, self.program))
        })
    }

    fn command(&self, pe: u32, address: &str, supervisor: &Socket) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        for name in ["WEFT_RANK", "WEFT_LOCAL_RANK"] {
            command.env(name, pe.to_string());
        }
        for name in ["WEFT_SIZE", "WEFT_LOCAL_SIZE"] {
            command.env(name, self.pes.to_string());
        }
        command.env("WEFT_ADDR", format!("@{address}")).env(SUPERVISOR, supervisor.as_raw_fd().to_string());
        command.envs(
            self.env.iter().filter(|e| e.0.is_none_or(|of| of == pe)).map(|(_, name, value)| (name, value)),
        );
        let stdin = match pe == 0 && !io::IsTerminal::is_terminal(&io::stdin()) {
            true => Stdio::inherit(),
            false => Stdio::null(),
        };
        if pe == 0 && io::IsTerminal::is_terminal(&io::stdout()) {
            command.env(super::TERMINAL, "1");
        }
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The PE leaves the terminal's process group. So Ctrl-C reaches only this process, which
        // passes it on once.
        command.process_group(0);
        super::sys::is_child_of_this(&mut command, supervisor);
        command
    }
}

/// The events that the supervisor waits for.
enum Event {
    /// The PE's process has ended, and its status can be read.
    Ended(u32),
    /// The hub has reported this PE's death.
    Died(u32),
    Signal(i32),
}

enum Phase {
    Running,
    /// This PE has failed, and has until then to report the failure and end.
    LastWords(u32, Instant),
    /// All PEs were sent SIGTERM (or SIGINT). Those that remain at that time are sent SIGKILL.
    Ending(Instant),
    /// All PEs were sent SIGKILL. Those that remain at that time are stuck in the kernel.
    Killed(Instant),
}

struct Supervisor {
    /// The processes by PE; none once the process is reaped.
    children: Vec<Option<Child>>,
    /// The exit statuses of reaped processes.
    ended: Vec<Option<ExitStatus>>,
    events: Receiver<Event>,
    output: Output,
    /// The PEs' end of the socket for reports of deaths.
    ear: Socket,
    /// The segments that PEs have mapped and may leave behind.
    segments: Arc<Mutex<Segments>>,
    /// Stops the thread that receives signals.
    signals: signal_hook::iterator::Handle,
    /// The thread that receives the PEs' messages.
    listener: Option<JoinHandle<()>>,
    phase: Phase,
    /// The status of the job, as far as it is known.
    status: u8,
}

impl Supervisor {
    fn start(job: &Job, segments: Arc<Mutex<Segments>>) -> io::Result<Supervisor> {
        let (send, events) = mpsc::channel();
        let name = format!("weft-{}-{:016x}", nix::unistd::geteuid(), random());
        let (socket, ear) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
        let signals = Signals::new([SIGINT, SIGTERM])?;
        let mut this = Supervisor {
            children: Vec::new(),
            ended: Vec::new(),
            events,
            output: Output::start()?,
            ear,
            segments: segments.clone(),
            signals: signals.handle(),
            listener: None,
            phase: Phase::Running,
            status: 0,
        };
        this.listener = Some(listen(socket, signals, &send, segments)?);
        for pe in 0..job.pes {
            let child = job.command(pe, &name, &this.ear).spawn()?;
            this.follow(pe, child, &send)?;
        }
        Ok(this)
    }

    /// Reads the output of a PE, and waits for its end.
    fn follow(&mut self, pe: u32, mut child: Child, to: &Sender<Event>) -> io::Result<()> {
        let (stdout, stderr, pid) = (child.stdout.take(), child.stderr.take(), pid(&child));
        self.children.push(Some(child));
        self.ended.push(None);
        if let (Some(stdout), Some(stderr)) = (stdout, stderr) {
            self.output.pass_on(pe, Stream::Out, stdout)?;
            self.output.pass_on(pe, Stream::Err, stderr)?;
        }
        let to = to.clone();
        spawn("weft-wait", move || {
            // This leaves the process a zombie, so that its number is not reused until it is
            // reaped.
            while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(Errno::EINTR) {}
            let _ = to.send(Event::Ended(pe));
        })
    }

    /// Waits for the end of all PEs, and returns the job's status.
    fn attend(&mut self) -> u8 {
        while self.children.iter().any(Option::is_some) {
            let event = match self.phase {
                Phase::Running => self.events.recv().ok(),
                Phase::LastWords(_, until) | Phase::Ending(until) | Phase::Killed(until) => {
                    self.events.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
                }
            };
            match (event, &self.phase) {
                (Some(Event::Ended(pe)), phase) => {
                    let blamed = match phase {
                        Phase::Running => None,
                        Phase::LastWords(cause, _) => Some(*cause == pe),
                        Phase::Ending(_) | Phase::Killed(_) => Some(false),
                    };
                    let status = self.reap(pe);
                    if blamed.unwrap_or(!status.success()) {
                        self.conclude(pe, Some(status));
                    }
                }
                (Some(Event::Died(pe)), Phase::Running) => match self.ended.get(pe as usize) {
                    Some(&Some(status)) => self.conclude(pe, Some(status)),
                    Some(None) => {
                        self.output.only(pe);
                        self.phase = Phase::LastWords(pe, Instant::now() + LAST_WORDS);
                    }
                    None => {}
                },
                (Some(Event::Died(_)), _) => {}
                (Some(Event::Signal(signal)), Phase::Running | Phase::LastWords(..)) => {
                    self.status = 128 + signal as u8;
                    self.kill(Signal::try_from(signal).unwrap_or(Signal::SIGTERM));
                    self.phase = Phase::Ending(Instant::now() + PATIENCE);
                }
                (None, &Phase::LastWords(pe, _)) => self.conclude(pe, None),
                (None, Phase::Killed(_)) => {
                    let left: Vec<u32> =
                        (0..).zip(&self.children).filter(|(_, c)| c.is_some()).map(|(pe, _)| pe).collect();
                    self.output.note(&format!(
                        "{} cannot be ended: the process is stuck in a system call",
                        pes(&left)
                    ));
                    break;
                }
                // A second signal ends the job at once.
                (Some(Event::Signal(_)) | None, _) => {
                    self.kill(Signal::SIGKILL);
                    self.phase = Phase::Killed(Instant::now() + PATIENCE);
                }
            }
        }
        self.status
    }

    /// Ends the job because of one PE, which ended with this status, or did not end.
    fn conclude(&mut self, pe: u32, status: Option<ExitStatus>) {
        self.status = match status.map(code) {
            None | Some(0) => ENDED_WITH_PEER,
            Some(code) => code,
        };
        self.output.only(pe);
        if status.is_some() {
            self.output.drain(pe);
        }
        let how = status.map_or("failed and did not exit".into(), describe);
        let done = self.ended.iter().flatten().filter(|status| status.success()).count();
        let others = self.ended.len() - done - usize::from(!status.is_some_and(|s| s.success()));
        let rest = if others > 0 { format!("; ended the other {others}") } else { String::new() };
        self.output.note(&format!("PE {pe} {how}{rest}"));
        self.kill(Signal::SIGTERM);
        self.phase = Phase::Ending(Instant::now() + PATIENCE);
    }

    /// Ends the processes that the PE's process has left behind, and returns its status.
    fn reap(&mut self, pe: u32) -> ExitStatus {
        let child = self.children.get_mut(pe as usize).and_then(Option::take);
        let status = child.map(|mut child| {
            let _ = killpg(pid(&child), Signal::SIGKILL);
            child.wait()
        });
        // (No child of a process that ignores SIGCHLD has a status.)
        let status = status.and_then(io::Result::ok).unwrap_or_default();
        if let Some(ended) = self.ended.get_mut(pe as usize) {
            *ended = Some(status);
        }
        status
    }

    fn kill(&self, signal: Signal) {
        let alive = || self.children.iter().flatten();
        let mapped = alive().flat_map(|child| shm::mapped(&child.id().to_string()));
        lock(&self.segments).add(mapped.collect::<Vec<_>>());
        for child in alive() {
            let _ = killpg(pid(child), signal);
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.kill(Signal::SIGKILL);
        for pe in 0..self.children.len() as u32 {
            if !matches!(self.phase, Phase::Killed(_)) {
                self.reap(pe);
            }
        }
        let signalled = || matches!(self.events.try_recv(), Ok(Event::Signal(_)));
        self.output.finish(self.status != 0, signalled);
        self.signals.close();
        let _ = self.ear.shutdown(Shutdown::Both);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

/// Turns signals and the PEs' messages into events, until the [`Supervisor`] is dropped.
fn listen(
    socket: Socket,
    mut signals: Signals,
    to: &Sender<Event>,
    segments: Arc<Mutex<Segments>>,
) -> io::Result<JoinHandle<()>> {
    let (signalled, died) = (to.clone(), to.clone());
    spawn("weft-signals", move || {
        for signal in signals.forever() {
            let _ = signalled.send(Event::Signal(signal));
        }
    })?;
    thread::Builder::new().name("weft-messages".into()).spawn(move || {
        let mut message = [0; LONGEST];
        while let Ok(length @ 1..) = (&socket).read(&mut message) {
            match Message::read(&message[..length]) {
                Some(Message::Died(pe)) => _ = died.send(Event::Died(pe)),
                Some(Message::Mapped(segment)) => lock(&segments).add([segment]),
                None => {}
            }
        }
    })
}

/// The largest size of a PE's message to its supervisor in bytes.
const LONGEST: usize = 256;

/// A message of a PE to its supervisor.
enum Message {
    /// The PE has learned of this PE's death.
    Died(u32),
    /// The PE has mapped this segment of shared memory.
    Mapped(Segment),
}

impl Message {
    fn write(&self) -> String {
        match self {
            Message::Died(pe) => format!("died {pe}"),
            Message::Mapped((name, inode)) => format!("mapped {inode} {name}"),
        }
    }

    fn read(bytes: &[u8]) -> Option<Message> {
        let (what, rest) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        match what {
            "died" => Some(Message::Died(rest.parse().ok()?)),
            "mapped" => {
                let (inode, name) = rest.split_once(' ')?;
                Some(Message::Mapped((name.to_owned(), inode.parse().ok()?)))
            }
            _ => None,
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(body).map(drop)
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32)
}

/// Returns the exit status in the convention of shells.
fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => 128u8.wrapping_add(signal.unwrap_or(0) as u8),
    }
}

fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => match Signal::try_from(signal) {
            Ok(name) => format!("was ended by signal {signal} ({})", name.as_str()),
            Err(_) => format!("was ended by signal {signal}"),
        },
        None if status.success() => "ended before the others had finished".into(),
        None => format!("ended with status {}", status.code().unwrap_or(0)),
    }
}

/// Returns a unique number: the keys of `RandomState` come from the system.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
