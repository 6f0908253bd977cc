//! Calibration of the machine, measured before everything else: launches, flags, bandwidth, and the
//! loading of code.

use super::kernels::{self, Copy, EMPTY, GET, PUT, PingPong};
use super::measure::Result;
use super::report::{Bandwidth, Calibration, Loading, Spread};
use super::start::{Block, StartLine};
use super::times::gather;
use std::time::{Instant, SystemTime};
use weft::gpu::cache::Entry;
use weft::gpu::{GpuError, Grid, target};
use weft::{KernelFile, Lowering, Options, Transport};
use weft_runtime::launch::{Module, to_image};
use weft_runtime::{Stream, SymmetricBuffer, SymmetricTensor, World};

/// The number of launches that a graph has.
const KERNELS: u32 = 20;

/// The numbers of CTAs that the bandwidth is measured with, and also the number of multiprocessors.
const CTAS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The bytes of each CTA in that measurement, and the least and the most bytes in all.
const BYTES: (usize, usize, usize) = (8 << 20, 16 << 20, 256 << 20);

/// The kernel whose loading is timed: one of usual length.
const LOADED: &str = "\
use weft::collectives;
kernel allreduce_two_shot<T: dtype = f32, N: int = 1048576>(x: symm<T, (N):(1)>, sync: barrier, team: team)
    block(512) computes(allreduce<add>(x))
{
    let mc   = multicast(x, team);
    let mine = shard(mc, team, my_pe(team));
    let work = partition(mine, threads());
    barrier(sync, team, acq_rel, sys);
    for i in 0..size<1>(work) unroll(4) {
        work[_, i] = ld_reduce<add, acc = f32>(work[_, i]);
    }
    barrier(sync, team, acq_rel, sys);
}
";

/// Measures the calibration of the machine. Each figure is the median of `repeats` measurements,
/// each of which takes the time of its slowest PE. This call is *collective*.
pub fn run(start: &StartLine<'_>, repeats: u32) -> Result<Calibration> {
    let world = start.world();
    let empty = kernels::compile(world, EMPTY, Transport::P2p, None, &[])?;
    let median = |divisor: f64, block: Block<'_>| -> Result<f64> {
        // The first run is a warm-up and is not timed.
        start.time(&block)?;
        let times = (0..repeats).map(|_| Ok(start.time(&block)? / divisor));
        let times = times.collect::<Result<Vec<f64>>>()?;
        Ok(Spread::over(&gather(world, &times)?).median)
    };
    let in_graph = |call: &dyn Fn(&Stream) -> Result<()>| -> Result<f64> {
        let calls = |s: &Stream| (0..KERNELS).try_for_each(|_| call(s));
        median(f64::from(KERNELS), start.block(true, calls)?)
    };
    let empty_block_us = Some(median(1.0, start.block(true, |_| Ok(()))?)?);
    let empty_kernel_us = in_graph(&|s| Ok(empty.launch(s, Grid::Kernel, ())?))?;
    let barrier_us = in_graph(&|s| start.barrier(s))?;
    let (mut flight_us, mut push, mut pull) = (None, Vec::new(), Vec::new());
    if world.n_pes() > 1 {
        let ping_pong = PingPong::new(world, Transport::P2p)?;
        flight_us = Some(median(f64::from(PingPong::FLIGHTS), start.block(true, |s| ping_pong.launch(s))?)?);
        let (each, min, max) = BYTES;
        let buffers = [world.buffer(max)?, world.buffer(max)?];
        let all = world.device().sm_count()?;
        for ctas in CTAS.into_iter().filter(|n| *n < all).chain([all]) {
            let bytes = (each * ctas as usize).clamp(min, max);
            for (text, out) in [(PUT, &mut push), (GET, &mut pull)] {
                let copy = copy(world, text, ctas, &buffers, bytes)?;
                let us = median(1.0, start.block(true, |s| copy.launch(s))?)?;
                out.push(Bandwidth { ctas, bytes: bytes as u64, gbps: bytes as f64 / us / 1e3 });
            }
        }
    }
    let loading = loading(world)?;
    Ok(Calibration { empty_kernel_us, empty_block_us, barrier_us, flight_us, push, pull, loading })
}

fn copy(
    world: &World,
    text: &str,
    ctas: u32,
    buffers: &[SymmetricBuffer; 2],
    bytes: usize,
) -> Result<Copy<f32>> {
    let view = |b: &SymmetricBuffer| SymmetricTensor::<f32>::view(b.clone(), 0, bytes / size_of::<f32>());
    let (x, out) = (view(&buffers[0])?, view(&buffers[1])?);
    Copy::new(world, text, Transport::P2p, ctas, (&x, &out))
}

/// Milliseconds until the driver has loaded a kernel: from PTX, which the driver compiles, and from
/// a cubin.
fn loading(world: &World) -> Result<Loading> {
    let device = world.device();
    let mut options = Options::new(target(device)?);
    options.lowering = Lowering::Unicast;
    let file = KernelFile::parse("allreduce_two_shot.weft", LOADED).map_err(GpuError::from)?;
    let Entry { info, image } = Entry::compile(&file, &options)?;
    let text = String::from_utf8_lossy(&image);
    // The driver caches what it has compiled, with the text as the key.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let ptx = format!("{text}\n// {} {now}\n", world.my_pe());
    let (cubin, _) = to_image(device, &text, &info)?;
    let time = |image: &[u8]| -> Result<f64> {
        let began = Instant::now();
        let module = Module::load(device, image, info.clone())?;
        let ms = began.elapsed().as_secs_f64() * 1e3;
        drop(module);
        Ok(ms)
    };
    Ok(Loading { ptx_ms: time(ptx.as_bytes())?, cubin_ms: time(&cubin)? })
}
