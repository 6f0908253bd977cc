//! Remote memory operations on GPUs, in place and by NVSHMEM's functions, in one run: `cargo bench --bench remote`.
//!
//! - put: each PE puts to the next, all at once; one CTA over 1 MiB, and a CTA a multiprocessor over 256 MiB beside the
//!   copy engine (`cudaMemcpyAsync` between the same buffers);
//! - ping-pong: 8 bytes by `p`, a fence, a signal and the wait for the answer between PEs 0 and 1; half a round trip.
//!
//! A time is the median of the blocks on their slowest PE. Without a GPU it says so and measures nothing.

#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::error::Error;
use std::process::ExitCode;
use weft::gpu::{Grid, Kernel, target};
use weft::runtime::cuda::{self, Event};
use weft::runtime::{Stream, SymmetricTensor, World, on_every_gpu};
use weft::{KernelFile, Options, Transport};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PUT: &str = "
kernel put_part<N: int, CTAS: int>(x: symm<f32, (N):(1)>, out: symm<f32, (N):(1)>) block(1024) grid(CTAS) {
    let part  = round_up(ceil_div(N, CTAS), 32);      // whole 128-byte lines
    let mine  = zipped_divide(x, part)[_, block_idx()];
    let there = zipped_divide(out, part)[_, block_idx()];
    put<block>(there, mine, (my_pe() + 1) % n_pes());
}";

const PING_PONG: &str = "
kernel ping_pong<ROUNDS: int>(x: symm<u64, (1):(1)>, sig: symm<u64, (1):(1)>, base: i64) block(32) grid(1) {
    let me = my_pe();
    let other = 1 - me;
    if me < 2 && thread_idx() == 0 {
        for i in 0..ROUNDS {
            let now = base + i + 1;
            if me == 1 { signal_wait_until<ge>(sig[0], now); }
            p(x[0], now, other);
            rma_fence();
            signal_op<set>(sig[0], now, other);
            if me == 0 { signal_wait_until<ge>(sig[0], now); }
        }
    }
}";

const TRANSPORTS: [(&str, Transport); 2] = [("in place", Transport::P2p), ("NVSHMEM", Transport::Nvshmem)];
const ROUNDS: i64 = 1000;
const BLOCKS: usize = 11;

fn main() -> ExitCode {
    match cuda::device_count() {
        Ok(n) if n > 1 => on_every_gpu(measure),
        Ok(n) => none(&format!("{n} GPU: a PE needs another")),
        Err(e) => none(&e.to_string()),
    }
}

fn none(why: &str) -> ExitCode {
    println!("nothing is measured: {why}");
    ExitCode::SUCCESS
}

fn measure(world: &World) -> Result<()> {
    let (me, sms) = (world.my_pe(), world.device().sm_count()?);
    let say = |text: String| {
        if me == 0 {
            println!("{text}");
        }
    };
    let (major, minor) = cuda::driver_version()?;
    say(format!(
        "{} x {}, CUDA {major}.{minor}, NVSHMEM {}; medians of {BLOCKS} blocks on their slowest PEs",
        world.n_pes(),
        world.device().name()?,
        world.nvshmem_version()
    ));
    let most = 64 << 20;
    let (x, out) = (world.tensor::<f32>(most)?, world.tensor::<f32>(most)?);
    for (ctas, count, iters) in [(1, 1 << 18, 20), (8, 1 << 24, 4), (sms, 1 << 18, 20), (sms, most, 4)] {
        let part = |t: &SymmetricTensor<f32>| SymmetricTensor::<f32>::view(t.buffer().clone(), 0, count);
        let (x, out) = (part(&x)?, part(&out)?);
        let bytes = 4 * count;
        let mut base = None;
        for (name, transport) in TRANSPORTS {
            let defines = [("N", count as i64), ("CTAS", i64::from(ctas))];
            let kernel = compile(world, PUT, transport, &defines)?;
            check(world, &kernel, &x, &out)?;
            let us = time(world, iters, &mut |s| Ok(kernel.launch(s, Grid::Kernel, (&x, &out))?))?;
            let base = *base.get_or_insert(us);
            say(row(&format!("put, {ctas} CTAs, {bytes} bytes, {name}"), us, bytes, us / base));
        }
        let next = (me + 1) % world.n_pes();
        let us = time(world, iters, &mut |s| Ok(world.put(&out, &x, next, s)?))?;
        say(row(&format!("put on a stream, {bytes} bytes"), us, bytes, us / base.unwrap_or(us)));
    }
    let (x, sig) = (world.tensor::<u64>(1)?, world.tensor::<u64>(1)?);
    let mut first = None;
    let mut base = 0i64;
    for (name, transport) in TRANSPORTS {
        let kernel = compile(world, PING_PONG, transport, &[("ROUNDS", ROUNDS)])?;
        let us = time(world, 1, &mut |s| {
            base += ROUNDS;
            Ok(kernel.launch(s, Grid::Kernel, (&x, &sig, base - ROUNDS))?)
        })? / (2 * ROUNDS) as f64;
        let first = *first.get_or_insert(us);
        say(format!(
            "{:<44} {us:>10.2} us {:>22.2} of the first's time",
            format!("p, signal, wait, one way, {name}"),
            us / first
        ));
    }
    Ok(())
}

fn row(what: &str, us: f64, bytes: usize, ratio: f64) -> String {
    format!("{what:<44} {us:>10.2} us {:>8.1} GB/s {ratio:>8.2} of the first's time", bytes as f64 / us / 1e3)
}

fn compile(world: &World, text: &str, transport: Transport, defines: &[(&str, i64)]) -> Result<Kernel> {
    let mut options = Options::new(target(world.device())?);
    options.transport = transport;
    options.defines = defines.iter().map(|(name, n)| ((*name).to_owned(), (*n).into())).collect();
    Ok(Kernel::with(world, KernelFile::parse("bench.weft", text)?, options)?)
}

/// Once with data, and what came is what the PE before gave.
fn check(world: &World, kernel: &Kernel, x: &SymmetricTensor<f32>, out: &SymmetricTensor<f32>) -> Result<()> {
    let (stream, me, n_pes) = (world.stream(), world.my_pe(), world.n_pes());
    let data = |pe: u32| (0..x.len()).map(|i| (pe as usize * 1000 + i % 977) as f32).collect::<Vec<_>>();
    x.copy_from(&data(me), stream)?;
    world.barrier()?;
    kernel.launch(stream, Grid::Kernel, (x, out))?;
    cuda::wait_for(stream)?;
    world.barrier()?;
    let same = out.to_vec(stream)? == data((me + n_pes - 1) % n_pes);
    world.barrier()?;
    if same { Ok(()) } else { Err(format!("PE {me}: the data that came is wrong").into()) }
}

/// Microseconds of a call.
fn time(world: &World, iters: u32, call: &mut dyn FnMut(&Stream) -> Result<()>) -> Result<f64> {
    let stream = world.stream();
    let mut times = Vec::new();
    for block in 0..=BLOCKS {
        world.team().barrier(stream)?;
        let start = Event::record(stream)?;
        (0..iters).try_for_each(|_| call(stream))?;
        let end = Event::record(stream)?;
        let us = start.elapsed_us(&end)? / f64::from(iters);
        // The first one warms up.
        if block > 0 {
            times.extend(us.to_le_bytes());
        }
    }
    let mut slowest = [0.0f64; BLOCKS];
    for pe in world.all_gather_host(&times)? {
        for (slowest, us) in slowest.iter_mut().zip(pe.as_chunks::<8>().0) {
            *slowest = slowest.max(f64::from_le_bytes(*us));
        }
    }
    slowest.sort_by(f64::total_cmp);
    Ok(slowest[BLOCKS / 2])
}
