//! Kernels that each measure one thing: remote operations, barriers, and an empty launch.

use super::measure::Result;
use weft::gpu::{GpuError, Grid, Kernel, target};
use weft::{KernelFile, Options, Transport};
use weft_lang::elaborate::Define;
use weft_runtime::{DType, DeviceTensor, Element, Stream, SymmetricTensor, World};

/// Each CTA puts its part to the next PE.
pub const PUT: &str = "
kernel put_part<T: dtype, N: int, CTAS: int>(x: symm<T, (N):(1)>, out: symm<T, (N):(1)>)
    block(1024) grid(CTAS) computes(rotate(x, out))
{
    let part  = round_up(ceil_div(N, CTAS), 128 / sizeof(x));      // whole lines of 128 bytes
    let mine  = zipped_divide(x, part)[_, block_idx()];
    let there = zipped_divide(out, part)[_, block_idx()];
    put<block>(there, mine, (my_pe() + 1) % n_pes());
}";

/// Each CTA gets its part from the previous PE.
pub const GET: &str = "
kernel get_part<T: dtype, N: int, CTAS: int>(x: symm<T, (N):(1)>, out: symm<T, (N):(1)>)
    block(1024) grid(CTAS) computes(rotate(x, out))
{
    let part  = round_up(ceil_div(N, CTAS), 128 / sizeof(x));
    let mine  = zipped_divide(out, part)[_, block_idx()];
    let there = zipped_divide(x, part)[_, block_idx()];
    get<block>(mine, there, (my_pe() + n_pes() - 1) % n_pes());
}";

/// Sends a word, a fence and a signal to the other PE and back, `ROUNDS` times. It continues
/// counting where the previous launch ended, so that launches in a graph may follow each other.
const PING_PONG: &str = "
kernel ping_pong<ROUNDS: int>(
    x: symm<u64, (1):(1)>, sig: symm<u64, (1):(1)>, count: global<u64, (1):(1)>) block(32) grid(1)
{
    let me = my_pe();
    let other = 1 - me;
    if me < 2 && thread_idx() == 0 {
        let base = load<relaxed, gpu>(count[0]);
        for i in 0..ROUNDS {
            let now = base + i.to<u64>() + 1;
            if me == 1 { signal_wait_until<ge>(sig[0], now); }
            p(x[0], now, other);
            rma_fence();
            signal_op<set>(sig[0], now, other);
            if me == 0 { signal_wait_until<ge>(sig[0], now); }
        }
        count[0] = base + ROUNDS;
    }
}";

/// The number of round trips in a launch of [`PING_PONG`].
const ROUNDS: u32 = 100;

/// A barrier of all PEs.
pub const BARRIER: &str = "
kernel wait_for_all(sync: barrier, team: team) block(32) grid(1) {
    barrier(sync, team, acq_rel, sys);
}";

/// A barrier of all PEs after a delay that gives the host time to launch the next kernels. The
/// delay is a chain of accesses of one word, each of which waits for the previous one.
pub const START_LINE: &str = "
kernel start_line(word: global<u32, (1):(1)>, accesses: i32, sync: barrier, team: team) block(32) grid(1) {
    if thread_idx() == 0 {
        let mut last: u32 = 0;
        for i in 0..accesses {
            last = atomic<add, relaxed, gpu>(word[0], last & 1);
        }
    }
    barrier(sync, team, acq_rel, sys);
}";

/// The text of a kernel that does nothing.
pub const EMPTY: &str = "kernel empty() block(32) grid(1) {}";

/// Compiles one of these kernels for the GPU of a world.
pub fn compile(
    world: &World,
    text: &str,
    transport: Transport,
    dtype: Option<DType>,
    defines: &[(&str, i64)],
) -> Result<Kernel> {
    let mut options = Options::new(target(world.device())?);
    options.transport = transport;
    options.defines = defines.iter().map(|(name, n)| ((*name).to_owned(), Define::Int(*n))).collect();
    if let Some(dtype) = dtype {
        options.defines.insert("T".into(), dtype.into());
    }
    let file = KernelFile::parse("bench.weft", text).map_err(GpuError::from)?;
    Ok(Kernel::with(world, file, options)?)
}

/// [`PUT`] or [`GET`] with its operands.
pub struct Copy<T> {
    kernel: Kernel,
    operands: [SymmetricTensor<T>; 2],
}

impl<T: Element> Copy<T> {
    /// Compiles the kernel for the elements of the operands and for `ctas` CTAs.
    pub fn new(
        world: &World,
        text: &str,
        transport: Transport,
        ctas: u32,
        (x, out): (&SymmetricTensor<T>, &SymmetricTensor<T>),
    ) -> Result<Copy<T>> {
        let defines = [("N", x.len() as i64), ("CTAS", i64::from(ctas))];
        let kernel = compile(world, text, transport, Some(T::DTYPE), &defines)?;
        Ok(Copy { kernel, operands: [x.clone(), out.clone()] })
    }

    /// Puts a call on a stream.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let [x, out] = &self.operands;
        Ok(self.kernel.launch(stream, Grid::Kernel, (x, out))?)
    }
}

/// Words and signals between PEs 0 and 1; the other PEs do nothing.
pub struct PingPong {
    kernel: Kernel,
    x: SymmetricTensor<u64>,
    signal: SymmetricTensor<u64>,
    count: DeviceTensor<u64>,
}

impl PingPong {
    /// The number of one-way transfers in a launch.
    pub const FLIGHTS: u32 = 2 * ROUNDS;

    /// Compiles the kernel and allocates its memory. This call is *collective*.
    pub fn new(world: &World, transport: Transport) -> Result<PingPong> {
        let kernel = compile(world, PING_PONG, transport, None, &[("ROUNDS", i64::from(ROUNDS))])?;
        let (x, signal) = (world.zeros(1)?, world.zeros(1)?);
        Ok(PingPong { kernel, x, signal, count: DeviceTensor::zeros(1, world.stream())? })
    }

    /// Puts a launch on a stream.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        Ok(self.kernel.launch(stream, Grid::Kernel, (&self.x, &self.signal, &self.count))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::Lowering;
    use weft_run::{RunOptions, run_file};

    fn options(transport: Transport, defines: &[(&str, i64)]) -> Options {
        let mut options = Options::new("sm_90a".parse().unwrap());
        (options.lowering, options.transport) = (Lowering::Unicast, transport);
        options.defines = defines.iter().map(|(name, n)| ((*name).to_owned(), Define::Int(*n))).collect();
        options
    }

    /// Runs the launches on the simulator one after the other, and compares their results with what
    /// they should compute.
    fn simulate(text: &str, n_pes: usize, defines: &[(&str, i64)], args: &[(&str, i64)]) -> String {
        let mut compile = options(Transport::P2p, defines);
        if text.contains("T: dtype") || text.contains("T: float") {
            compile.defines.insert("T".into(), DType::BF16.into());
        }
        let mut options = RunOptions::new(compile, n_pes);
        options.launches = 3;
        options.args = args.iter().map(|(name, n)| ((*name).to_owned(), Define::Int(*n).into())).collect();
        let file = KernelFile::parse("bench.weft", text).unwrap();
        let outcome = run_file(&file, &options).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!(outcome.passed(), text.contains("computes"), "{text}");
        assert_eq!((outcome.checks().count() == 3), text.contains("computes"), "{text}");
        outcome.kernels[0].compiled.ptx.clone()
    }

    /// The kernels of `weft bench --kernel`, on the number of PEs that they are compiled for by
    /// default.
    #[test]
    fn kernels_by_bulk_copies_do_what_they_say() {
        let (all_to_all, allreduce) =
            (include_str!("../kernels/all_to_all_bulk.weft"), include_str!("../kernels/allreduce_bulk.weft"));
        for (text, n) in [(all_to_all, 1 << 17), (all_to_all, 1 << 13), (allreduce, 1 << 16)] {
            let ptx = simulate(text, 2, &[("N", n)], &[]);
            assert!(ptx.contains("cp.async.bulk.global.shared::cta"), "{ptx}");
        }
        assert_eq!(
            crate::Own::new("k", all_to_all).map(|own| own.places()),
            Ok(&[crate::Placement::OutOfPlace][..])
        );
    }

    #[test]
    fn each_does_what_it_says_on_the_simulator() {
        for n_pes in [1, 3] {
            for n in [7, 1000, 5003] {
                for text in [PUT, GET] {
                    simulate(text, n_pes, &[("N", n), ("CTAS", 3)], &[]);
                }
            }
            simulate(BARRIER, n_pes, &[], &[]);
            simulate(EMPTY, n_pes, &[], &[]);
            // Each access of the chain follows the previous one.
            let ptx = simulate(START_LINE, n_pes, &[], &[("accesses", 5)]);
            assert!(ptx.contains("atom."), "{ptx}");
        }
        for n_pes in [2, 3] {
            simulate(PING_PONG, n_pes, &[("ROUNDS", 7)], &[]);
        }
    }
}
