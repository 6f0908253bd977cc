//! Measures the cost of a call on the host. Calls are made until their stream has a few hundred,
//! and are then waited for. One rank is enough, because no call waits for another one on the host.
//! Without a GPU nothing is measured.

#![allow(unsafe_code, reason = "addresses of its own tensors")]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use warpweft_comm::{AddRmsNorm, Comm, DType, Id, Operands, Options};
use weft::runtime::DeviceTensor;
use weft::runtime::cuda::{Device, Stream, device_count};

const CALLS: u32 = 200;
const ROUNDS: usize = 31;

fn main() -> Result<(), Box<dyn Error>> {
    if device_count().unwrap_or(0) == 0 {
        println!("no GPU: nothing is measured");
        return Ok(());
    }
    let comm = Arc::new(Comm::new(0, 1, &Id::random()?, &Options::default())?);
    let stream = Device::open(0)?.new_stream()?;
    let raw = stream.gpu()?.cu_stream();
    let (tokens, hidden) = (8, 4096);
    let n = tokens * hidden;
    let tensor = |n: usize| DeviceTensor::<u16>::zeros(n, &stream);
    let (x, y, weight) = (tensor(n)?, tensor(n)?, tensor(hidden)?);
    let buffer = comm.alloc(n * 2)?;
    let norm = AddRmsNorm::new(&comm, hidden, DType::BF16, tokens)?;
    let operands = Operands {
        input: x.address(),
        residual: y.address(),
        weight: weight.address(),
        out: x.address(),
        ..Operands::default()
    };
    // SAFETY: the tensors have these sizes.
    let sum = |src, dst| unsafe { comm.all_reduce(raw, src, dst, n, DType::BF16) };
    report("all_reduce, any memory", &stream, || sum(x.address(), y.address()).map_err(Into::into))?;
    let own = buffer.address();
    report("all_reduce, no copy", &stream, || sum(own, own).map_err(Into::into))?;
    // SAFETY: as above.
    let normed = || unsafe { norm.run(raw, tokens, &operands, 1e-5) };
    report("AddRmsNorm", &stream, || normed().map_err(Into::into))
}

/// Reports the median over the rounds of the time of a call.
fn report(
    name: &str,
    stream: &Stream,
    call: impl Fn() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        (0..CALLS).try_for_each(|_| call())?;
        times.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS));
        stream.synchronize()?;
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{name}: {:.2} us per call on the host (median of {ROUNDS}, {:.2} to {:.2})",
        times[ROUNDS / 2],
        times[0],
        times[ROUNDS - 1]
    );
    Ok(())
}
