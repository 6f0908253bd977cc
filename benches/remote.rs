//! Remote memory operations on GPUs, by loads and stores and by NVSHMEM's functions, in one run: `cargo bench --bench remote`.
//! It is `weft bench put`, with 1 and 8 CTAs and one a multiprocessor, `weft bench get` and `weft bench signal`.
//!
//! Without a GPU it says so and measures nothing.

#![allow(clippy::print_stdout, reason = "it prints tables")]

use std::process::ExitCode;
use weft::runtime::{World, cuda, on_every_pe};
use weft_bench::{Bench, Contender, Operation, Report, run};

/// The measurements: an operation, CTAs, and sizes in bytes.
const ROWS: [(Operation, Option<u32>, &[u64]); 5] = [
    (Operation::Put, Some(1), &[1 << 20]),
    (Operation::Put, Some(8), &[64 << 20]),
    (Operation::Put, None, &[1 << 20, 256 << 20]),
    (Operation::Get, None, &[1 << 20, 256 << 20]),
    (Operation::Signal, None, &[]),
];

fn main() -> ExitCode {
    match cuda::device_count() {
        Ok(n) if n > 1 => on_every_pe(measure),
        Ok(n) => none(&format!("this benchmark needs at least 2 GPUs; this machine has {n}")),
        Err(e) => none(&e.to_string()),
    }
}

fn none(why: &str) -> ExitCode {
    println!("nothing was measured: {why}");
    ExitCode::SUCCESS
}

fn measure(world: &World) -> Result<(), Box<dyn std::error::Error>> {
    for (operation, ctas, sizes) in ROWS {
        let mut bench = Bench::new(operation, sizes.to_vec());
        bench.contenders.push(Contender::Nvshmem);
        if operation.has_size() {
            bench.contenders.push(Contender::Stream);
        }
        (bench.ctas, bench.iters, bench.check) = (ctas, 4, true);
        run(world, &bench, &mut |report, rows| {
            if world.my_pe() == 0 {
                let head = if rows.is_empty() { report.head(false) } else { String::new() };
                let ctas = ctas.filter(|_| rows.is_empty()).map(|n| format!("# {n} CTAs\n"));
                print!("{}{head}{}", ctas.unwrap_or_default(), Report::line(rows, false));
            }
            Ok(())
        })?;
    }
    Ok(())
}
