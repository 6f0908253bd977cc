//! Whole launches have the results of an H200.
//!
//! With `WEFT_CORPUS=DIR` this test writes them to `DIR`, for `tests/golden/run_launches.py` to execute on a GPU.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/gpu/mod.rs"]
mod gpu;

use gpu::{Item, Job};
use weft_sim::{Arg, Config, Launch, Machine, Module, SimError};

/// What the simulator makes of a job; nothing where tensor maps are needed.
fn simulate(job: &Job) -> Result<Option<Vec<u8>>, String> {
    let text = |e: SimError| e.to_string();
    let module = Module::parse(&job.ptx).map_err(|e| e.to_string())?;
    let mut m = Machine::new(Config::default()).map_err(text)?;
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
            Item::In(d) => place(d, false).map_err(text)?,
            Item::InOut(d) => place(d, true).map_err(text)?,
            Item::Out(n) => place(&vec![0; *n], true).map_err(text)?,
            Item::Scratch(n) => place(&vec![0; *n], false).map_err(text)?,
            Item::I32(v) => Arg::I32(*v),
            Item::I64(v) => Arg::I64(*v),
            Item::F32(v) => Arg::F32(*v),
            Item::Null => Arg::U64(0),
            Item::Map(_) => return Ok(None),
        });
    }
    let launch = Launch { pe: 0, grid: job.grid, block: job.block, dynamic_shared: job.shared, args };
    m.launch(&module, &job.entry, &[launch]).map_err(text)?;
    let mut all = Vec::new();
    for (at, size) in results {
        let mut data = vec![0; size];
        m.read(0, at, &mut data).map_err(text)?;
        all.extend(data);
    }
    Ok(Some(all))
}

#[test]
fn same_results_as_an_h200() {
    let jobs = gpu::jobs();
    if let Ok(dir) = std::env::var("WEFT_CORPUS") {
        gpu::dump(std::path::Path::new(&dir), &jobs).unwrap();
    }
    for job in &jobs {
        match simulate(job) {
            Ok(Some(_)) => {}
            Ok(None) => println!("none {}", job.name),
            Err(e) => println!("error {}: {}", job.name, e.lines().next().unwrap_or("")),
        }
    }
}
