//! Starting this program again, with its output and a bound on its time.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::roles::ROLE;

/// A command, its standard input, and a folder that it has for itself.
pub struct Launch(Command, String, Option<TempDir>);

/// Started, with what was read of its output.
pub struct Running {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    read: String,
    _folder: Option<TempDir>,
}

/// How the process ended.
pub struct Exited {
    /// None where a signal ended it.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub raw_stderr: Vec<u8>,
}

/// The user that has no rights.
const NOBODY: u32 = 65534;

impl Launch {
    /// This program in that role, without any launcher's variables.
    pub fn new(role: &str) -> Launch {
        Launch::command(Command::new(std::env::current_exe().unwrap()), role)
    }

    /// A supervisor of PEs of that role.
    pub fn job(pes: u32, role: &str) -> Launch {
        Launch::new(&format!("job {pes} {role}"))
    }

    pub fn mpirun(pes: u32, role: &str) -> Launch {
        let mut mpirun = Command::new("mpirun");
        mpirun.args(["--allow-run-as-root", "--oversubscribe", "-n", &pes.to_string(), "-x", ROLE]);
        mpirun.arg(std::env::current_exe().unwrap());
        // Two at a time fail now and then on the folder that all of a user's share (Open MPI 4.1, session_dir.c).
        let folder = TempDir::new().unwrap();
        mpirun.env("TMPDIR", folder.path());
        let Launch(command, input, _) = Launch::command(mpirun, role);
        Launch(command, input, Some(folder))
    }

    /// This program as another user, who may not read the folder that it was built in. For root alone.
    pub fn intruder(role: &str) -> Launch {
        let folder = TempDir::new().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let program = folder.path().join("intruder");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new(program);
        command.uid(NOBODY).gid(NOBODY);
        let Launch(command, input, _) = Launch::command(command, role);
        Launch(command, input, Some(folder))
    }

    fn command(mut command: Command, role: &str) -> Launch {
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            let launchers = ["WEFT_", "OMPI_", "PMI", "SLURM_", "MPI_"];
            let names = ["RANK", "WORLD_SIZE", "MASTER_ADDR"];
            if launchers.iter().any(|l| name.starts_with(l)) || names.contains(&&*name) {
                command.env_remove(&*name);
            }
        }
        command.env(ROLE, role).env("RUST_BACKTRACE", "0").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Launch(command, String::new(), None)
    }

    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Launch {
        self.0.env(name, value);
        self
    }

    pub fn input(mut self, text: &str) -> Launch {
        self.1 = text.into();
        self
    }

    pub fn start(mut self) -> Running {
        let mut child = self.0.spawn().unwrap();
        child.stdin.take().unwrap().write_all(self.1.as_bytes()).unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        Running { child, stdout, read: String::new(), _folder: self.2 }
    }

    /// With nobody who reads its standard output.
    pub fn deaf(self) -> Running {
        let mut running = self.start();
        running.stdout = None;
        running
    }

    pub fn run(self, bound: Duration) -> Exited {
        self.start().finish(bound)
    }
}

impl Running {
    /// The next lines of standard output.
    pub fn lines(&mut self, n: usize, bound: Duration) -> Vec<String> {
        let mut stdout = self.stdout.take().unwrap();
        let (send, receive) = mpsc::channel();
        thread::spawn(move || {
            let lines: Vec<String> = stdout.by_ref().lines().take(n).map_while(Result::ok).collect();
            let _ = send.send((stdout, lines));
        });
        let (stdout, lines) = receive.recv_timeout(bound).expect("lines in time");
        assert_eq!(lines.len(), n);
        self.stdout = Some(stdout);
        lines.iter().for_each(|line| self.read.extend([line, "\n"]));
        lines
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for its end; panics, after killing it, where that takes longer than the bound.
    pub fn finish(mut self, bound: Duration) -> Exited {
        let stdout = self.stdout.take();
        let out = thread::spawn(move || stdout.map(read_all).unwrap_or_default());
        let stderr = self.child.stderr.take().unwrap();
        let err = thread::spawn(move || read_all(stderr));
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if start.elapsed() > bound => {
                    let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
                    let _ = self.child.wait();
                    let (out, err) = (out.join().unwrap(), err.join().unwrap());
                    panic!(
                        "still there after {bound:?}; stdout:\n{}stderr:\n{}",
                        String::from_utf8_lossy(&out),
                        String::from_utf8_lossy(&err)
                    );
                }
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let raw_stderr = err.join().unwrap();
        Exited {
            status: status.code(),
            stdout: self.read + &String::from_utf8(out.join().unwrap()).unwrap(),
            stderr: String::from_utf8_lossy(&raw_stderr).into_owned(),
            raw_stderr,
        }
    }
}

impl Exited {
    pub fn sorted_stdout(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.stdout.lines().map(String::from).collect();
        lines.sort_by_key(|line| (line.starts_with('['), line.clone()));
        lines
    }
}

fn read_all(mut from: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Whether the process is there and no zombie (which nobody reaps in a container without an init).
pub fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}

pub fn until(bound: Duration, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < bound, "not within {bound:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A port that nobody listens at. It is not among those that the system gives to connections and to listeners that ask
/// for any (`ip_local_port_range`), so that no other program, and no other call of this function, takes it meanwhile.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at the same time begin at different places.
    let first = (std::process::id() % 1000) as u16 * 10;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = (0..10_000).map(|_| 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000);
    ports.find(is_free).expect("no port from 20000 to 29999 is free")
}

pub fn has_mpirun() -> bool {
    Command::new("mpirun").arg("--version").output().is_ok_and(|out| out.status.success())
}
