//! What needs GPUs: each test is a job of one process a GPU over NVSHMEM, started by weft's own launcher.
//!
//! `cargo test --test gpu` runs it on all GPUs of the machine, or on `WEFT_PES` of them. Without a GPU, or without
//! NVSHMEM, every test is ignored, counted, and the reason printed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod bench;
mod check;
mod collective;
mod examples;
mod faults;
mod fused;
mod kernels;
mod launch;
mod memory;
mod remote;
mod streams;
mod teams;
mod tune;

use check::{Case, Outcome};
use libtest_mimic::{Arguments, Failed, Trial};
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use weft::runtime::{cuda, find, on_every_gpu};

/// Names the case that this process is a PE of.
const CASE: &str = "WEFT_GPU_CASE";

/// Within which a job ends, whatever happens in it.
const LIMIT: Duration = Duration::from_secs(120);

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
        tune::CASES,
    ]
    .concat()
}

fn main() -> ExitCode {
    match std::env::var(CASE) {
        Ok(name) => pe(&name),
        Err(_) => tests(),
    }
}

/// GPUs to use, or why there are none.
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
    let trials = cases().into_iter().map(|case| {
        let pes = gpus.clone().unwrap_or(0);
        let enough = pes >= case.least_pes;
        if gpus.is_ok() && !enough {
            println!("{} ignored: it needs {} GPUs", case.name, case.least_pes);
        }
        Trial::test(case.name, move || run(&case, pes)).with_ignored_flag(!enough)
    });
    let pes = gpus.clone().unwrap_or(0);
    let command = Trial::test("bench::the_command", move || bench::command(pes)).with_ignored_flag(pes == 0);
    let switch = Trial::test("bench::verify_switch", move || bench::verify_switch(pes));
    let tuned = Trial::test("tune::the_command", move || tune::command(pes)).with_ignored_flag(pes < 2);
    let trials = trials.chain([command, tuned, switch.with_ignored_flag(pes == 0)]);
    // One job at a time: each has all the GPUs.
    let args = Arguments { test_threads: Some(1), ..args };
    libtest_mimic::run(&args, trials.collect()).exit_code()
}

/// Runs a case as a job of its own and looks at how it ended.
fn run(case: &Case, pes: u32) -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.env(CASE, case.name).env("WEFT_PES", pes.to_string());
    command.envs(case.env.iter().copied());
    let outcome = finish(&mut command, case.name)?;
    (case.judge)(&outcome).map_err(|why| outcome.told(&why).into())
}

/// Starts a job, and waits for its end, but not for ever.
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

/// One PE of a case; or its parent, which starts the PEs.
fn pe(name: &str) -> ExitCode {
    let Some(case) = cases().into_iter().find(|c| c.name == name) else {
        eprintln!("there is no case {name}");
        return ExitCode::FAILURE;
    };
    on_every_gpu(case.body)
}
