//! Lane instructions a second on three programs: arithmetic in a loop, a streaming vector addition, and a
//! two-shot allreduce of 1 Mi floats over 8 PEs.
//!
//! `cargo run --release -p weft-sim --example throughput`

use std::time::Instant;
use weft_sim::{Arg, Config, Launch, Machine, Module, SimError, Stats};

fn report(name: &str, start: Instant, stats: &Stats) {
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{name:24} {seconds:7.3} s  {:9} warp instructions  {:8.1} million lane instructions/s",
        stats.warp_instructions,
        stats.lane_instructions as f64 / seconds / 1e6
    );
}

fn grid(pe: usize, ctas: u32, threads: u32, args: Vec<Arg>) -> Launch {
    Launch { pe, grid: [ctas, 1, 1], block: [threads, 1, 1], args, ..Launch::default() }
}

fn fma_loop() -> Result<(), Box<dyn std::error::Error>> {
    let module = Module::parse(include_str!("../tests/ptx/fma_loop.ptx"))?;
    let mut m = Machine::new(Config::default())?;
    let out = m.alloc(0, "out", 16384 * 4, 16)?;
    let start = Instant::now();
    let stats = m.launch(&module, "fma_loop", &[grid(0, 64, 256, vec![Arg::U64(out), Arg::U32(1000)])])?;
    report("fma loop", start, &stats);
    Ok(())
}

fn vector_add() -> Result<(), Box<dyn std::error::Error>> {
    let n = 4 << 20;
    let module = Module::parse(include_str!("../tests/ptx/vector_add.ptx"))?;
    let mut m = Machine::new(Config::default())?;
    let tensors: Vec<u64> =
        ["out", "a", "b"].iter().map(|t| m.alloc(0, t, n * 4, 16)).collect::<Result<_, _>>()?;
    for t in &tensors {
        m.write(0, *t, &vec![0; n as usize * 4])?;
    }
    let mut args: Vec<Arg> = tensors.into_iter().map(Arg::U64).collect();
    args.push(Arg::U32(n as u32));
    let start = Instant::now();
    let stats = m.launch(&module, "vector_add", &[grid(0, (n / 512) as u32, 512, args)])?;
    report("vector add", start, &stats);
    Ok(())
}

fn two_shot(ctas: u32) -> Result<(), Box<dyn std::error::Error>> {
    let (n_pes, n) = (8, 1_u32 << 20);
    let module = Module::parse(include_str!("../tests/ptx/two_shot.ptx"))?;
    let mut m = Machine::new(Config { n_pes, ..Config::default() })?;
    let x = m.alloc_symmetric("x", u64::from(n) * 4, 16)?;
    let sync = m.alloc_symmetric("sync", 4 * u64::from(ctas), 16)?;
    let team = m.team(&(0..n_pes).collect::<Vec<_>>())?;
    let mut grids = Vec::new();
    for pe in 0..n_pes {
        let (local, flags) = (m.local_addr(pe, x)?, m.local_addr(pe, sync)?);
        m.write(pe, local, &vec![0; n as usize * 4])?;
        m.write(pe, flags, &vec![0; 4 * ctas as usize])?;
        let multicast = |what| -> Result<Arg, SimError> { Ok(Arg::U64(m.multicast_addr(pe, what, team)?)) };
        let args = vec![
            multicast(x)?,
            multicast(sync)?,
            Arg::U64(flags),
            Arg::U32(n),
            Arg::U32(pe as u32),
            Arg::U32(n_pes as u32),
        ];
        grids.push(grid(pe, ctas, 512, args));
    }
    let start = Instant::now();
    let stats = m.launch(&module, "two_shot", &grids)?;
    report(&format!("two-shot, {ctas} CTAs a PE"), start, &stats);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    fma_loop()?;
    vector_add()?;
    two_shot(8)?;
    two_shot(64)
}
