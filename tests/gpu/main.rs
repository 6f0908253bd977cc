//! Tests of programs with several PEs. Each test is a job. On GPUs it has one process per GPU with
//! NVSHMEM, which weft's own launcher starts.
//!
//! `cargo test --test gpu` runs the jobs on all GPUs of the machine, or on `WEFT_PES` of them.
//! Without a GPU, or without NVSHMEM, these tests are ignored and counted, and the reason is
//! printed. The same bodies run on simulated PEs everywhere, as tests whose names begin with
//! `simulated`. Cases that are about GPUs alone state why.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod bench;
mod check;
mod collective;
mod examples;
mod faults;
mod fused;
mod gemm;
mod gemm_comm;
mod kernels;
mod launch;
mod local;
mod memory;
mod remote;
mod simulated;
mod streams;
mod teams;
mod tune;
mod watch;

use check::{Case, Outcome};
use libtest_mimic::{Arguments, Failed, Trial};
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use weft::runtime::{cuda, find, on_every_pe};

/// The variable that names the case of which this process is a PE.
const CASE: &str = "WEFT_GPU_CASE";

/// The time within which a job must end, whatever happens in it.
const LIMIT: Duration = Duration::from_secs(120);

/// The cases, by the beginning of their names, that do not apply to simulated PEs, and the reason.
const ONLY_GPUS: &[(&str, &str)] = &[
    ("bench::", "it times GPUs"),
    ("fused::", "it times GPUs"),
    ("gemm::beside_cublas", "it times GPUs"),
    ("gemm::what_is_tuned", "tests/gemm.rs does it with less"),
    ("gemm_comm::", "tests/gemm_comm.rs does it with less"),
    ("tune::", "it times GPUs"),
    ("memory::until_it_is_full", "it fills the memory of a GPU"),
    ("faults::one_pe_has_too_little_memory", "it fills the memory of a GPU"),
    (
        "faults::a_signal_that_nobody_sends",
        "the simulator tells a deadlock from a long wait: R0403, not R0402",
    ),
    ("faults::no_peer_access", "NVSHMEM's own variable; SimConfig::node has the same effect"),
    ("faults::a_second_start", "NVSHMEM has one state a process; simulated jobs have not"),
    ("faults::more_pes_than_gpus", "there are no GPUs to be too few"),
    ("faults::no_nvshmem", "no library is opened"),
    ("faults::a_pe_killed", "a simulated PE is no process"),
    ("faults::a_pe_that_panics", "the status of a panic is a process's; see runtime/tests/simulated.rs"),
    ("launch::ptx_that_the_driver_refuses", "the driver's own words"),
    (
        "watch::",
        "tests/watch.rs does it, where kernels that wait for ever are given up after a number of steps",
    ),
    ("local::", "simulated PEs share one process already"),
];

/// The cases, by the beginning of their names, that need NVSHMEM, and the reason. The others also
/// run in worlds without it.
const NEED_NVSHMEM: &[(&str, &str)] = &[
    ("remote::reductions", "NVSHMEM's device functions"),
    ("remote::exchanges", "NVSHMEM's device functions"),
    ("remote::barriers", "NVSHMEM's device functions"),
    ("remote::parts_of_the_world", "NVSHMEM's device functions"),
    ("fused::nccl", "NCCL refuses two PEs on one GPU"),
    ("gemm_comm::", "PEs share a GPU here, whose multiprocessors each of their launches fills"),
    ("tune::", "it stores NVSHMEM's version"),
    ("bench::", "it compares with NVSHMEM's and NCCL's collectives"),
    ("faults::no_peer_access", "NVSHMEM's own variable"),
    ("faults::no_nvshmem", "it is about NVSHMEM's library"),
    ("faults::a_second_start", "a process may be in several worlds without NVSHMEM"),
    ("faults::more_pes_than_gpus", "PEs share a GPU here"),
    ("faults::one_pe_has_too_little_memory", "PEs share a GPU here"),
    ("memory::until_it_is_full", "PEs share a GPU here"),
    ("memory::external_memory_is_registered", "NVSHMEM's own granularity"),
    ("memory::multicast_is_none_with_a_reason", "NVSHMEM's reasons"),
];

/// The row of the table for a case.
fn row(table: &[(&'static str, &'static str)], case: &Case) -> Option<&'static str> {
    table.iter().find(|(name, _)| case.name.starts_with(name)).map(|(_, why)| *why)
}

/// The reason why a case does not apply to simulated PEs, if there is one.
fn only_gpus(case: &Case) -> Option<&'static str> {
    row(ONLY_GPUS, case)
}

fn cases() -> Vec<Case> {
    [
        memory::CASES,
        teams::CASES,
        streams::CASES,
        launch::CASES,
        kernels::CASES,
        remote::CASES,
        examples::CASES,
        faults::CASES,
        bench::CASES,
        collective::CASES,
        fused::CASES,
        gemm::CASES,
        gemm_comm::CASES,
        tune::CASES,
        local::CASES,
        watch::CASES,
    ]
    .concat()
}

fn main() -> ExitCode {
    match std::env::var(CASE) {
        Ok(name) => pe(&name),
        Err(_) => tests(),
    }
}

/// The number of GPUs to use, or the reason why there are none.
fn gpus() -> Result<u32, String> {
    let have = cuda::device_count().map_err(|e| e.to_string())?;
    find::nvshmem_host().map_err(|e| e.to_string())?;
    let asked = std::env::var("WEFT_PES").ok().and_then(|v| v.parse().ok());
    match asked.unwrap_or(have).min(have) {
        0 => Err("the driver is there, and no GPU".into()),
        n => Ok(n),
    }
}

fn tests() -> ExitCode {
    let args = Arguments::from_args();
    let gpus = gpus();
    match &gpus {
        Ok(n) => println!("on {n} GPUs"),
        Err(why) => println!("all ignored: {why}"),
    }
    let with_nvshmem = |case: &Case| !case.name.starts_with("local::");
    let trials = cases().into_iter().filter(with_nvshmem).map(|case| {
        let pes = gpus.clone().unwrap_or(0);
        let enough = pes >= case.min_pes;
        if gpus.is_ok() && !enough {
            println!("{} ignored: it needs {} GPUs", case.name, case.min_pes);
        }
        Trial::test(case.name, move || run(&case, "gpu", pes)).with_ignored_flag(!enough)
    });
    let on_simulated = cases().into_iter().filter(|case| only_gpus(case).is_none()).flat_map(|case| {
        let numbers: &[u32] = if case.name.starts_with("examples::") { &[2, 3, 4] } else { &[3] };
        numbers.iter().filter(move |pes| **pes >= case.min_pes).map(move |pes| {
            let name = format!("simulated::{}::{pes}_pes", case.name);
            Trial::test(name, move || run(&case, "sim", *pes))
        })
    });
    // These run in worlds without NVSHMEM, where two PEs can share a GPU.
    let count = cuda::device_count().unwrap_or(0);
    let local = cases().into_iter().filter(|case| row(NEED_NVSHMEM, case).is_none()).map(|case| {
        let pes = count.max(2);
        let name = case.name.strip_prefix("local::").unwrap_or(case.name);
        Trial::test(format!("local::{name}"), move || run(&case, "local", pes))
            .with_ignored_flag(count == 0 || case.min_pes > 2.max(count))
    });
    let pes = gpus.clone().unwrap_or(0);
    let command = Trial::test("bench::the_command", move || bench::command(pes)).with_ignored_flag(pes == 0);
    let switch = Trial::test("bench::verify_switch", move || bench::verify_switch(pes));
    let tuned = Trial::test("tune::the_command", move || tune::command(pes)).with_ignored_flag(pes < 2);
    let trials = trials
        .chain([command, tuned, switch.with_ignored_flag(pes == 0)])
        .chain(local)
        .chain(on_simulated)
        .chain(simulated::trials());
    // Jobs run one at a time, because each uses all GPUs.
    let args = if count > 0 { Arguments { test_threads: Some(1), ..args } } else { args };
    libtest_mimic::run(&args, trials.collect()).exit_code()
}

/// Runs a case as a job and judges its end.
fn run(case: &Case, on: &str, pes: u32) -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.env(CASE, case.name).env("WEFT_ON", on).env("WEFT_PES", pes.to_string());
    if on == "local" {
        command.envs([("WEFT_ON", "gpu"), ("WEFT_MEMORY", "local"), ("WEFT_SHARE_GPU", "1")]);
    }
    command.envs(case.env.iter().copied());
    let outcome = finish(&mut command, case.name)?;
    (case.judge)(&outcome).map_err(|why| outcome.told(&why).into())
}

/// Starts a job and waits for its end, up to a limit.
fn finish(command: &mut Command, name: &str) -> Result<Outcome, Failed> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let began = Instant::now();
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let mut pipes: Vec<_> = [
        child.stdout.take().map(|p| Box::new(p) as Box<dyn Read + Send>),
        child.stderr.take().map(|p| Box::new(p) as Box<dyn Read + Send>),
    ]
    .into_iter()
    .flatten()
    .map(|mut pipe| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    })
    .collect();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break status;
        }
        if began.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("the job did not end within {} s", LIMIT.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let err = pipes.pop().and_then(|p| p.join().ok()).unwrap_or_default();
    let out = pipes.pop().and_then(|p| p.join().ok()).unwrap_or_default();
    let seconds = began.elapsed().as_secs_f64();
    println!("{name} ended in {seconds:.1} s");
    Ok(Outcome { code: status.code(), out, err, seconds })
}

/// Runs one PE of a case, or its parent, which starts the PEs.
fn pe(name: &str) -> ExitCode {
    let Some(case) = cases().into_iter().find(|c| c.name == name) else {
        eprintln!("there is no case {name}");
        return ExitCode::FAILURE;
    };
    on_every_pe(case.body)
}
