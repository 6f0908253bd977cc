//! Lane instructions a second of one core, with checks off and on, on three programs: arithmetic in a loop, a streaming vector
//! addition, and a two-shot allreduce of 1 Mi floats over 8 PEs; the memory of an allreduce over 64 PEs with checks; how
//! the cost grows with instructions and with PEs.
//!
//! `cargo bench -p weft-sim --bench throughput`; a word behind `--` selects the comparisons whose names contain it, and
//! leaves out the rest.

use std::sync::LazyLock;
use std::time::Instant;
use weft_sim::{Arg, Check, Config, Launch, Machine, Module, Stats};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Seconds that this thread has had a core (Linux), so that other programs do not count; elsewhere, those passed.
fn now() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let busy = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let busy = busy.and_then(|s| s.split_whitespace().next()?.parse::<f64>().ok());
    busy.map_or_else(|| START.elapsed().as_secs_f64(), |nanoseconds| nanoseconds * 1e-9)
}

/// Seconds and counts of a launch.
type Run = (f64, Stats);

fn config(n_pes: usize, checked: bool) -> Config {
    Config::default().n_pes(n_pes).check(checked.then(Check::default))
}

fn grid(pe: usize, ctas: u32, threads: u32, args: Vec<Arg>) -> Launch {
    Launch::default().pe(pe).grid([ctas, 1, 1]).block([threads, 1, 1]).args(args)
}

fn launch(m: &mut Machine, text: &str, kernel: &str, grids: &[Launch]) -> Result<Run> {
    let module = Module::parse(text)?;
    let start = now();
    let stats = m.launch(&module, kernel, grids)?;
    let seconds = now() - start;
    match m.take_findings().first() {
        Some(finding) => Err(finding.to_string().into()),
        None => Ok((seconds, stats)),
    }
}

fn fma_loop(checked: bool, rounds: u32) -> Result<Run> {
    let mut m = Machine::new(config(1, checked))?;
    let out = m.alloc(0, "out", 16384 * 4, 16)?;
    let grids = [grid(0, 64, 256, vec![Arg::U64(out), Arg::U32(rounds)])];
    launch(&mut m, include_str!("../tests/ptx/fma_loop.ptx"), "fma_loop", &grids)
}

fn vector_add(checked: bool, n_pes: usize, n: u64) -> Result<Run> {
    let mut m = Machine::new(config(n_pes, checked))?;
    let mut grids = Vec::new();
    for pe in 0..n_pes {
        let mut args = Vec::new();
        for tensor in ["out", "a", "b"] {
            let t = m.alloc(pe, tensor, n * 4, 16)?;
            m.write(pe, t, &vec![0; n as usize * 4])?;
            args.push(Arg::U64(t));
        }
        args.push(Arg::U32(n as u32));
        grids.push(grid(pe, (n / 512) as u32, 512, args));
    }
    launch(&mut m, include_str!("../tests/ptx/vector_add.ptx"), "vector_add", &grids)
}

fn two_shot(checked: bool, n_pes: usize, n: u32, ctas: u32) -> Result<Run> {
    let mut m = Machine::new(config(n_pes, checked))?;
    let x = m.alloc_symmetric("x", u64::from(n) * 4, 16)?;
    let sync = m.alloc_symmetric("sync", 4 * u64::from(ctas), 16)?;
    let team = m.team(&(0..n_pes).collect::<Vec<_>>())?;
    let mut grids = Vec::new();
    for pe in 0..n_pes {
        let (local, flags) = (m.local_addr(pe, x)?, m.local_addr(pe, sync)?);
        m.write(pe, local, &vec![0; n as usize * 4])?;
        m.write(pe, flags, &vec![0; 4 * ctas as usize])?;
        let multicast = |what| m.multicast_addr(pe, what, team).map(Arg::U64);
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
    launch(&mut m, include_str!("../tests/ptx/two_shot.ptx"), "two_shot", &grids)
}

/// The word that selects comparisons.
fn selected() -> Option<String> {
    std::env::args().skip(1).find(|word| !word.starts_with('-'))
}

/// The most memory that this process has had so far, in MB (Linux).
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kb| kb / 1024)
}

fn rate((seconds, stats): &Run) -> f64 {
    stats.lane_instructions as f64 / seconds / 1e6
}

/// The fastest of three.
fn fastest(run: impl Fn() -> Result<Run>) -> Result<Run> {
    let mut best = run()?;
    for _ in 0..2 {
        let again = run()?;
        if again.0 < best.0 {
            best = again;
        }
    }
    Ok(best)
}

fn compare(name: &str, run: impl Fn(bool) -> Result<Run>) -> Result<()> {
    if selected().is_some_and(|word| !name.contains(&word)) {
        return Ok(());
    }
    let (off, on) = (fastest(|| run(false))?, fastest(|| run(true))?);
    println!(
        "{name:32} {:8.1} M lane instructions: {:7.1} M/s, with checks {:7.1} M/s, {:4.1} times slower",
        off.1.lane_instructions as f64 / 1e6,
        rate(&off),
        rate(&on),
        rate(&off) / rate(&on)
    );
    Ok(())
}

fn main() -> Result<()> {
    let all = selected().is_none();
    if all {
        // First, because the peak is the process's.
        let (seconds, _) = two_shot(true, 64, 1 << 16, 4)?;
        println!("two-shot, 64 PEs x 64 Ki, checks {seconds:7.2} s, at most {} MB", peak().unwrap_or(0));
    }
    compare("fma loop", |checked| fma_loop(checked, 1000))?;
    compare("vector add, 4 Mi", |checked| vector_add(checked, 1, 4 << 20))?;
    compare("vector add, 8 PEs, 512 Ki each", |checked| vector_add(checked, 8, 512 << 10))?;
    compare("two-shot, 8 PEs, 8 CTAs", |checked| two_shot(checked, 8, 1 << 20, 8))?;
    compare("two-shot, 8 PEs, 64 CTAs", |checked| two_shot(checked, 8, 1 << 20, 64))?;
    if !all {
        return Ok(());
    }
    for rounds in [250, 500, 1000, 2000, 4000] {
        println!(
            "fma loop, {rounds:5} rounds {:9.3} s, with checks {:9.3} s",
            fma_loop(false, rounds)?.0,
            fma_loop(true, rounds)?.0
        );
    }
    for n_pes in [2, 4, 8, 16, 32, 64] {
        let run = |checked| two_shot(checked, n_pes, 1 << 16, 4);
        println!(
            "two-shot, {n_pes:3} PEs x 64 Ki {:8.3} s, with checks {:9.3} s",
            run(false)?.0,
            run(true)?.0
        );
    }
    Ok(())
}
