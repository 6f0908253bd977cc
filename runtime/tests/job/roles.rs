//! What this program does when a test starts it again.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use weft_runtime::job::{Control, Job, Launcher, ProcessRank, Started, start};

/// The variable with the role and its arguments.
pub const ROLE: &str = "WEFT_TEST_ROLE";
/// Lines that `chatter` writes on each stream.
pub const CHATTER: usize = 5000;

/// Longer than any test runs.
const FOREVER: Duration = Duration::from_secs(600);

pub fn play(role: &str) -> ExitCode {
    let (name, rest) = role.split_once(' ').unwrap_or((role, ""));
    let result = match name {
        "job" => job(rest),
        "start" => start(rest.parse().unwrap()).and_then(|started| match started {
            Started::Pe(place) => ring(&place),
            Started::Done(code) => Ok(code),
        }),
        "sh" => sh(rest),
        "ring" => place().and_then(|place| ring(&place)),
        // Fewer open files than a flood has connections.
        "ring_with_few_files" => {
            setrlimit(Resource::RLIMIT_NOFILE, 256, 256).unwrap();
            place().and_then(|place| ring(&place))
        }
        "die" => die(rest),
        "late" => late(),
        "sleep" => sleeper(rest == "stubborn"),
        "chatter" => chatter(),
        "send_deaths" => send_deaths(),
        "connect" => connect(rest),
        #[cfg(feature = "mpi")]
        "mpi" => {
            let universe = mpi::initialize().unwrap();
            let place = ProcessRank::from_mpi(&universe.world()).unwrap();
            assert_eq!(place.launcher, Launcher::Mpi);
            ring(&place)
        }
        _ => panic!("no role {role}"),
    };
    result.unwrap_or_else(|e| {
        eprintln!("{e}");
        ExitCode::FAILURE
    })
}

type Result = weft_runtime::error::Result<ExitCode>;

fn place() -> weft_runtime::error::Result<ProcessRank> {
    Ok(ProcessRank::detect()?.expect("a launcher"))
}

/// Supervises PEs of a role: `4 ring`.
fn job(rest: &str) -> Result {
    let (pes, role) = rest.split_once(' ').unwrap();
    let program = std::env::current_exe().unwrap();
    Job::new(program, pes.parse().unwrap()).env(ROLE, role).run().map(ExitCode::from)
}

/// Supervises shells: `2 echo $WEFT_RANK`.
fn sh(rest: &str) -> Result {
    let (pes, text) = rest.split_once(' ').unwrap();
    let job = Job::new("/bin/sh", pes.parse().unwrap()).args(["-c", text]);
    job.env("ALL", "all").env_of(1, "ONE", "one").run().map(ExitCode::from)
}

fn ring(place: &ProcessRank) -> Result {
    let control = Control::connect(place)?;
    let all: Vec<u32> = (0..control.size()).collect();
    let mut sum = 0;
    for round in 0..50 {
        let ranks = control.exchange(&all, &format!("round {round}"), &control.rank().to_le_bytes())?;
        sum = ranks.iter().map(|rank| u32::from_le_bytes(rank.as_slice().try_into().unwrap())).sum();
    }
    println!("{} of {}, sum {sum}", control.rank(), control.size());
    control.goodbye();
    Ok(ExitCode::SUCCESS)
}

/// The last PE comes to an exchange after the limit of the others.
fn late() -> Result {
    let control = Control::connect(&place()?)?;
    let all: Vec<u32> = (0..control.size()).collect();
    if control.rank() + 1 == control.size() {
        sleep(control.timeout() * 5 / 2);
    }
    let met = control.exchange(&all, "meeting", &[control.rank() as u8 + 7])?;
    println!("{} met {met:?}", control.rank());
    control.goodbye();
    Ok(ExitCode::SUCCESS)
}

/// One PE ends in some way; the others wait for it, or are stuck where no message reaches them.
fn die(rest: &str) -> Result {
    let [way, pe, others] = rest.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let control = Control::connect(&place()?)?;
    if control.rank() != pe.parse::<u32>().unwrap() {
        if others == "stuck" {
            sleep(FOREVER);
        }
        let all: Vec<u32> = (0..control.size()).collect();
        return control.exchange(&all, "barrier", &[]).map(|_| ExitCode::SUCCESS);
    }
    // The others are waiting by then.
    sleep(Duration::from_millis(200));
    match way {
        "kill" => nix::sys::signal::raise(nix::sys::signal::SIGKILL).unwrap(),
        "abort" => std::process::abort(),
        "panic" => panic!("its own panic"),
        "early" => std::process::exit(0),
        "exit" => {
            eprintln!("its own error");
            std::process::exit(3)
        }
        "fail" => {
            control.fail("its own error");
            // Slower than the others to end.
            sleep(Duration::from_millis(700));
            eprintln!("its own error, late");
            std::process::exit(5)
        }
        "fail-stuck" => {
            control.fail("its own error");
            sleep(FOREVER);
        }
        "fail-stopped" => {
            control.fail("its own error");
            nix::sys::signal::raise(nix::sys::signal::SIGSTOP).unwrap();
        }
        _ => panic!("no way {way}"),
    }
    Ok(ExitCode::SUCCESS)
}

fn sleeper(stubborn: bool) -> Result {
    if stubborn {
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).unwrap();
        }
    }
    let place = place()?;
    assert_eq!(place.launcher, Launcher::Weft);
    let _control = Control::connect(&place)?;
    println!("pid {} {}", std::process::id(), place.hub);
    loop {
        sleep(FOREVER);
    }
}

pub fn chatter_line(pe: u32, n: usize) -> String {
    format!("line {n} of {pe} {}", "x".repeat(n * 7 % 211))
}

/// Lines in pieces, on both streams.
fn chatter() -> Result {
    let pe = place()?.rank;
    let write = |out: &mut dyn Write| -> std::io::Result<()> {
        for n in 0..CHATTER {
            let line = chatter_line(pe, n) + "\n";
            let (first, second) = line.as_bytes().split_at(line.len() / 2);
            out.write_all(first)?;
            out.flush()?;
            out.write_all(second)?;
        }
        out.flush()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(&mut std::io::stderr()).unwrap());
        write(&mut std::io::stdout()).unwrap();
    });
    Ok(ExitCode::SUCCESS)
}

/// Sends every abstract socket of a job what a supervisor would take for a PE's death, and damaged forms of it.
fn send_deaths() -> Result {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let names = table.lines().filter_map(|line| line.split_once('@')).map(|(_, name)| name);
    let socket = UnixDatagram::unbound().unwrap();
    let mut tried = 0;
    for name in names.filter(|name| name.starts_with("weft-")) {
        let address = SocketAddr::from_abstract_name(name).unwrap();
        for message in [&1u32.to_le_bytes()[..], &[1], &[], &[0; 64]] {
            let _ = socket.send_to_addr(message, &address);
        }
        tried += 1;
    }
    println!("tried {tried}");
    Ok(ExitCode::SUCCESS)
}

/// Holds as many connections to a socket as the system gives, without a word.
fn connect(name: &str) -> Result {
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let until = Instant::now() + Duration::from_secs(9);
    let mut held = Vec::new();
    while held.len() < 1000 && Instant::now() < until {
        match UnixStream::connect_addr(&address) {
            Ok(stream) => held.push(stream),
            Err(_) => sleep(Duration::from_millis(1)),
        }
    }
    println!("holds {}", held.len());
    sleep(FOREVER);
    Ok(ExitCode::SUCCESS)
}
