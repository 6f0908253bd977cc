//! Whole launches have the results of an H200.
//!
//! With `WEFT_CORPUS=DIR` this test writes them to `DIR`, for `tests/golden/run_launches.py` to execute on a GPU.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/gpu/mod.rs"]
mod gpu;

use gpu::{Item, Job};
use weft_sim::{Arg, Config, Launch, Machine, Module, SimError};

/// What the simulator makes of a job.
fn simulate(job: &Job, module: &Module) -> Result<Vec<u8>, SimError> {
    let mut m = Machine::new(Config::default())?;
    let mut results = Vec::new();
    let mut args = Vec::new();
    for (i, item) in job.args.iter().enumerate() {
        let mut place = |data: &[u8], wanted: bool| -> Result<Arg, SimError> {
            let at = m.alloc(0, &format!("argument {i}"), data.len().max(1) as u64, 512)?;
            m.write(0, at, data)?;
            if wanted {
                results.push((at, data.len()));
            }
            Ok(Arg::U64(at))
        };
        args.push(match item {
            Item::In(d) => place(d, false)?,
            Item::InOut(d) => place(d, true)?,
            Item::Out(n) => place(&vec![0; *n], true)?,
            Item::Scratch(n) => place(&vec![0; *n], false)?,
            Item::I32(v) => Arg::I32(*v),
            Item::I64(v) => Arg::I64(*v),
            Item::F32(v) => Arg::F32(*v),
            Item::Null => Arg::U64(0),
            Item::Map(_) => unreachable!("the reader does not know tensor maps"),
        });
    }
    let launch =
        Launch { grid: job.grid, block: job.block, dynamic_shared: job.shared, args, ..Launch::default() };
    m.launch(module, &job.entry, &[launch])?;
    let mut all = Vec::new();
    for (at, size) in results {
        let mut data = vec![0; size];
        m.read(0, at, &mut data)?;
        all.extend(data);
    }
    Ok(all)
}

#[test]
fn launches_run() {
    let jobs = gpu::jobs();
    if let Ok(dir) = std::env::var("WEFT_CORPUS") {
        return gpu::dump(std::path::Path::new(&dir), &jobs).unwrap();
    }
    let (mut unknown, mut wrong) = (0, Vec::new());
    for job in &jobs {
        // The rest waits for its instructions.
        let Ok(module) = Module::parse(&job.ptx) else {
            unknown += 1;
            continue;
        };
        match simulate(job, &module) {
            Ok(result) => assert!(result.iter().any(|b| *b != 0), "{}: nothing was computed", job.name),
            Err(e) => wrong.push(format!("{}: {e}", job.name)),
        }
    }
    assert!(wrong.is_empty(), "{} of {} fail:\n{}", wrong.len(), jobs.len(), wrong.join("\n"));
    assert!(unknown <= 850, "{unknown} of {} are not simulated", jobs.len());
}
