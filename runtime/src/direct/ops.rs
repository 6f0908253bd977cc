//! The operations on streams of a world without NVSHMEM: copies of the driver, and the kernels of
//! `ops.ptx`.
#![allow(unsafe_code, reason = "calls of the CUDA driver on addresses")]

use crate::cuda::{Device, Stream, error};
use crate::error::{CUDA, Error, Result};
use crate::launch::driver::{Function, Loaded, NotLaunched, NotLoaded, Shape};
use cudarc::driver::result;
use std::sync::OnceLock;
use std::time::Duration;

/// The largest number of PEs. `theirs` of `weft_meet` has this number of addresses, and its CTA
/// this number of threads.
pub(super) const MAX_PES: usize = 64;

/// The kernels' text, with its terminating 0.
pub(super) const TEXT: &str = concat!(include_str!("ops.ptx"), "\0");

/// The time that a kernel waits beyond the host's limit, so that the host reports first.
const GRACE: Duration = Duration::from_secs(5);

/// The kernels, loaded when the first of them is launched.
pub(super) struct Ops {
    device: Device,
    limit: u64,
    loaded: OnceLock<Kernels>,
}

struct Kernels {
    meet: Function,
    signal: Function,
    wait: Function,
    /// The module, which must be dropped after its functions.
    _module: Loaded,
}

/// A kernel's parameters in C's layout.
#[derive(Default)]
pub(super) struct Block {
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

impl Block {
    pub fn word(mut self, value: u64) -> Block {
        self.offsets.push(self.bytes.len());
        self.bytes.extend(value.to_ne_bytes());
        self
    }

    /// Adds a number of 32 bits, followed by unused space of the same size.
    fn half(mut self, value: u32) -> Block {
        self.offsets.push(self.bytes.len());
        self.bytes.extend(u64::from(value).to_le_bytes());
        self
    }

    /// Adds a number of 32 bits that is followed by another.
    pub fn packed(mut self, value: u32) -> Block {
        self.offsets.push(self.bytes.len());
        self.bytes.extend(value.to_ne_bytes());
        self
    }

    /// Adds a table of addresses.
    pub fn words(mut self, values: impl Iterator<Item = u64>) -> Block {
        self.offsets.push(self.bytes.len());
        let end = self.bytes.len() + MAX_PES * size_of::<u64>();
        values.for_each(|value| self.bytes.extend(value.to_ne_bytes()));
        self.bytes.resize(end, 0);
        self
    }
}

impl Ops {
    pub fn new(device: &Device, timeout: Duration) -> Ops {
        let limit = u64::try_from((timeout + GRACE).as_nanos()).unwrap_or(u64::MAX);
        Ops { device: device.clone(), limit, loaded: OnceLock::new() }
    }

    fn kernels(&self) -> Result<&Kernels> {
        if let Some(kernels) = self.loaded.get() {
            return Ok(kernels);
        }
        let module = load(&self.device, TEXT)?;
        let [meet, signal, wait] =
            ["weft_meet", "weft_signal", "weft_await"].map(|name| module.function(name));
        let kernels = Kernels { meet: meet?, signal: signal?, wait: wait?, _module: module };
        Ok(self.loaded.get_or_init(|| kernels))
    }

    /// Lets a team meet. Its flags on this PE begin at `mine`, and `theirs` are this PE's flags on
    /// all members.
    pub fn meet(&self, mine: u64, epoch: u64, theirs: &[u64], stream: &Stream) -> Result<()> {
        let n = u32::try_from(theirs.len()).unwrap_or(u32::MAX);
        let block = Block::default().word(mine).word(epoch).word(self.limit);
        let block = block.half(n).words(theirs.iter().copied());
        launch(&self.kernels()?.meet, (1, n), block, stream)
    }

    /// Sets the signal at an address, or adds to it.
    pub fn signal(&self, at: u64, value: u64, adds: bool, stream: &Stream) -> Result<()> {
        let block = Block::default().word(at).word(value).half(adds.into());
        launch(&self.kernels()?.signal, (1, 1), block, stream)
    }

    /// Waits for the signal at an address; `compare` is NVSHMEM's number.
    pub fn wait(&self, at: u64, compare: i32, value: u64, stream: &Stream) -> Result<()> {
        let compare = u32::try_from(compare).ok().filter(|c| *c < 6);
        let compare = compare.ok_or_else(|| Error::new(CUDA, "this comparison does not exist"))?;
        let block = Block::default().word(at).word(value).word(self.limit).half(compare);
        launch(&self.kernels()?.wait, (1, 1), block, stream)
    }
}

/// Loads PTX that ends in NUL.
pub(super) fn load(device: &Device, text: &str) -> Result<Loaded> {
    device.bind()?;
    Loaded::new(device, text.as_bytes()).map_err(|e| match e {
        NotLoaded::Refused(e) => error(&format!("cuModuleLoadDataEx: {}", e.log), e.error),
        NotLoaded::Simulated(e) => e,
    })
}

/// Launches this number of CTAs of this number of threads.
pub(super) fn launch(
    function: &Function,
    (ctas, threads): (u32, u32),
    mut block: Block,
    stream: &Stream,
) -> Result<()> {
    let (grid, threads) = ([ctas, 1, 1], [threads, 1, 1]);
    let shape =
        Shape { grid, block: threads, cluster: None, cooperative: false, dependent: false, shared: 0 };
    let launched = function.launch(stream, &shape, &mut block.bytes, &block.offsets);
    launched.map_err(|e| match e {
        NotLaunched::Driver(e) => error("cuLaunchKernelEx", e),
        NotLaunched::Other(e) => e,
    })
}

/// Sets bytes to 0, and waits.
pub(super) fn clear(device: &Device, address: u64, bytes: usize) -> Result<()> {
    device.bind()?;
    // SAFETY: the caller has allocated this number of bytes there.
    unsafe { result::memset_d8_sync(address, 0, bytes) }.map_err(|e| error("cuMemsetD8", e))
}
