//! The communicator with its ranks, their memory and their collective calls.
#![allow(unsafe_code, reason = "callers vouch for streams and addresses")]

use crate::{DType, Error, Id, RawStream};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weft::collective::{Call, Collective, Collectives, Config as CollectiveConfig};
use weft::runtime::cuda::{BorrowedTensor, Device, Stream};
use weft::runtime::job::{self, ProcessRank};
use weft::runtime::launch::{Argument, AsArgument};
use weft::runtime::memory::AnyTensor;
use weft::runtime::{Config, IntoLayout, Memory, SymmetricBuffer, World};

pub use weft::collective::Sums;
pub use weft::runtime::Reduce;

/// The alignment of all addresses in bytes. Ranks must agree on the width of their loads.
const ALIGN: u64 = 16;

/// The options of a communicator. They must be the same on all ranks, except for the device. The default
/// suits most programs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The GPU of this rank, as CUDA numbers those that the process sees. The default is the GPU
    /// with the rank's own number, or the only GPU.
    pub device: Option<u32>,
    /// The limit of a call, in bytes of its larger side. Above it, [`Comm::should_all_reduce`]
    /// returns `false` and calls fail, so that the caller uses its own NCCL. The default is 1 GiB.
    pub max_bytes: usize,
    /// The time that ranks wait for each other on the host. The default is 60 s.
    pub timeout: Duration,
    /// The maximum number of CTAs of a call. The default is the number of the GPU's
    /// multiprocessors.
    pub max_ctas: Option<u32>,
    /// Whether several ranks can share one GPU, for tests.
    pub share_gpu: bool,
    /// The properties of the sums of reductions. By default they are ordinary. Deterministic sums
    /// have the same bits for any split of a batch over calls. Quantised sums are faster and not
    /// exact.
    pub sums: Sums,
}

weft::sim::setters!(
    Options {
        device: Option<u32>,
        max_bytes: usize,
        timeout: Duration,
        max_ctas: Option<u32>,
        share_gpu: bool,
        sums: Sums,
    }
);

impl Default for Options {
    fn default() -> Options {
        let timeout = Duration::from_secs(60);
        let sums = Sums::default();
        Options { device: None, max_bytes: 1 << 30, timeout, max_ctas: None, share_gpu: false, sums }
    }
}

/// Ranks of one host, each with a GPU, and their collective calls.
///
/// Threads can share a communicator. All ranks make the same calls in the same order, with the same
/// sizes and types. An operand must be either the same part of the same [`Buffer`] on all ranks, or
/// memory that is not in a `Buffer` on any rank. The communicator ends on all ranks when it has
/// been dropped on all of them.
pub struct Comm {
    pub(crate) world: World,
    pub(crate) collectives: Collectives,
    max_bytes: usize,
    /// The symmetric memory, by address.
    buffers: Arc<Mutex<BTreeMap<u64, SymmetricBuffer>>>,
}

/// Memory of all ranks, which calls use without a copy. It is freed when all ranks have dropped
/// their part.
pub struct Buffer {
    inner: SymmetricBuffer,
    buffers: Arc<Mutex<BTreeMap<u64, SymmetricBuffer>>>,
}

impl Buffer {
    /// The address of the first byte on this rank's device.
    pub fn address(&self) -> u64 {
        self.inner.address()
    }

    /// The size of this rank's part in bytes.
    pub fn bytes(&self) -> usize {
        self.inner.bytes()
    }

    /// The address at which loads and stores of this rank's device reach another rank's memory.
    ///
    /// # Errors
    /// Fails for a rank that does not exist (R0303).
    pub fn peer_address(&self, rank: u32) -> Result<u64, Error> {
        Ok(self.inner.peer_address(rank)?)
    }

    /// The address at which multimem instructions reach the memory of all ranks, if there is one.
    pub fn multicast_address(&self, comm: &Comm) -> Option<u64> {
        self.inner.multicast_address(&comm.world.team())
    }

    /// Permits each rank to drop the buffer at a different time, as a garbage collector does. The
    /// memory is freed at the next allocation, or at the end, after every rank has dropped it. Call
    /// it on every rank or on none.
    pub fn free_later(&self) {
        self.inner.free_later();
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        lock(&self.buffers).remove(&self.inner.address());
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes at {:#x})", self.bytes(), self.address())
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number of elements. If it does not fit, the result is a number that exceeds all memory.
pub(crate) fn count(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// An operand of a call.
pub(crate) enum CallOperand {
    Symmetric(AnyTensor),
    Other(BorrowedTensor),
}

impl CallOperand {
    pub fn is_symmetric(&self) -> bool {
        matches!(self, CallOperand::Symmetric(_))
    }
}

/// The operand is passed as contiguous elements, with whatever shape the kernel declares.
impl AsArgument for CallOperand {
    fn argument<'a>(&'a self, stream: &'a Stream) -> Argument<'a> {
        match self {
            CallOperand::Symmetric(tensor) => tensor.argument(stream).flat(),
            CallOperand::Other(tensor) => tensor.argument(stream),
        }
    }
}

impl Comm {
    /// Connects `size` ranks that have the same `id`. This call is *collective*.
    ///
    /// # Errors
    /// Fails if the GPU does not exist (R0102), a rank does not connect in time (R0202), or there
    /// is no memory for workspaces (R0302).
    pub fn new(rank: u32, size: u32, id: &Id, options: &Options) -> Result<Comm, Error> {
        let place = ProcessRank { local_rank: Some(rank), ..ProcessRank::of_id(rank, size, &id.0) };
        // An engine outlives its communicators. If a rank dies, calls fail and the process
        // continues.
        let job = job::Options::default().timeout(options.timeout).grace(None);
        let config = Config::default()
            .device(options.device)
            .memory(Some(Memory::Local))
            .job(Some(job))
            .share_gpu(options.share_gpu);
        let world = World::join(&place, &config)?;
        let config = CollectiveConfig::default().ctas(options.max_ctas).sums(options.sums);
        let collectives = Collectives::with(&world, world.team(), config)?;
        Ok(Comm { world, collectives, max_bytes: options.max_bytes, buffers: Arc::default() })
    }

    /// Connects the ranks with an id that is exchanged by the caller, as [`Id::exchanged`]
    /// describes. This call is *collective*.
    ///
    /// # Errors
    /// Fails where [`new`](Comm::new) fails, or if the exchange fails ([`Error::Exchange`]).
    pub fn from_exchange<E: fmt::Display>(
        rank: u32,
        size: u32,
        exchange: impl FnOnce(&[u8]) -> Result<Vec<Vec<u8>>, E>,
        options: &Options,
    ) -> Result<Comm, Error> {
        Comm::new(rank, size, &Id::exchanged(rank, exchange)?, options)
    }

    /// The rank of this process.
    pub fn rank(&self) -> u32 {
        self.world.my_pe()
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.world.n_pes()
    }

    /// The maximum number of bytes of a call, which is [`Options::max_bytes`].
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Whether this communicator is the better choice than NCCL for an allreduce of `count` elements.
    pub fn should_all_reduce(&self, count: usize, dtype: DType) -> bool {
        self.check(count, dtype).is_ok()
    }

    fn check(&self, count: usize, dtype: DType) -> Result<(), Error> {
        let (bytes, limit) = (count.saturating_mul(dtype.bytes() as usize), self.max_bytes);
        if bytes <= limit { Ok(()) } else { Err(Error::TooLarge { bytes, limit }) }
    }

    /// Allocates zeroed memory of the same size on each rank, which calls use without a copy. This
    /// call is *collective*.
    ///
    /// # Errors
    /// Fails if a rank does not have enough memory (R0302).
    pub fn alloc(&self, bytes: usize) -> Result<Buffer, Error> {
        let inner = self.world.buffer(bytes)?;
        inner.fill(0)?;
        // A rank's kernels must not write to memory that another rank has not zeroed yet.
        self.world.barrier()?;
        Ok(self.remember(inner))
    }

    /// Makes memory of the caller symmetric, so that calls use it without a copy. The memory comes
    /// from `cuMemAlloc` or `cuMemCreate`, and has the same size on each rank. This call is
    /// *collective*.
    ///
    /// # Errors
    /// Fails for memory that cannot be shared with other processes (R0306).
    ///
    /// # Safety
    /// The memory must stay allocated until the buffer was dropped on every rank.
    pub unsafe fn register(&self, address: u64, bytes: usize) -> Result<Buffer, Error> {
        // SAFETY: as this function's.
        let inner = unsafe { self.world.register_raw(address, bytes)? };
        Ok(self.remember(inner))
    }

    fn remember(&self, inner: SymmetricBuffer) -> Buffer {
        lock(&self.buffers).insert(inner.address(), inner.clone());
        Buffer { inner, buffers: self.buffers.clone() }
    }

    /// The GPU of this rank.
    pub fn device(&self) -> &Device {
        self.world.device()
    }

    /// The first rank that has died, and the reason, if one has.
    pub fn died(&self) -> Option<(u32, String)> {
        self.world.died()
    }

    /// Whether work on the stream is being captured in a graph.
    ///
    /// # Errors
    /// Fails if the driver rejects the stream (R0103).
    ///
    /// # Safety
    /// `stream` must be a stream of this rank's device, or null for its default stream.
    pub unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool, Error> {
        // SAFETY: as this function's.
        Ok(unsafe { self.stream(stream)? }.is_capturing())
    }

    /// Waits on the host until all ranks have arrived. This call is *collective*.
    ///
    /// # Errors
    /// Fails if a rank died (R0203), or if a rank makes another call (R0301).
    pub fn barrier(&self) -> Result<(), Error> {
        Ok(self.world.barrier()?)
    }

    /// Writes the sum over all ranks of the `count` elements at `src` to `dst`. It works in place
    /// if both addresses are equal.
    ///
    /// # Errors
    /// Fails for more elements than a call accepts ([`Error::TooLarge`]), for a type without a sum
    /// (R0401), or, like all calls, if the driver rejects it (R0103).
    ///
    /// # Safety
    /// `stream` must be a stream of this rank's device, or null for its default stream. `src` and
    /// `dst` must each have `count` elements that the device can access until the stream has passed
    /// the call. They must be equal or not overlap.
    pub unsafe fn all_reduce(
        &self,
        stream: RawStream,
        src: u64,
        dst: u64,
        count: usize,
        dtype: DType,
    ) -> Result<(), Error> {
        // SAFETY: as this function's.
        unsafe { self.all_reduce_with(Reduce::Sum, stream, (src, dst), count, dtype) }
    }

    /// Reduces elements like [`all_reduce`](Comm::all_reduce), with another operation.
    ///
    /// # Errors
    /// Fails where [`all_reduce`](Comm::all_reduce) fails.
    ///
    /// # Safety
    /// The conditions are those of [`all_reduce`](Comm::all_reduce).
    pub unsafe fn all_reduce_with(
        &self,
        op: Reduce,
        stream: RawStream,
        (src, dst): (u64, u64),
        count: usize,
        dtype: DType,
    ) -> Result<(), Error> {
        // SAFETY: as this function's.
        unsafe { self.call(Collective::AllReduce, op, (src, dst), (count, count), dtype, stream) }
    }

    /// Copies the `count` elements at `src` of each rank to `dst`, in the order of ranks.
    ///
    /// # Errors
    /// Fails where [`all_reduce`](Comm::all_reduce) fails.
    ///
    /// # Safety
    /// The conditions are those of [`all_reduce`](Comm::all_reduce), but `dst` must have `count`
    /// elements for each rank.
    pub unsafe fn all_gather(
        &self,
        stream: RawStream,
        src: u64,
        dst: u64,
        count: usize,
        dtype: DType,
    ) -> Result<(), Error> {
        let counts = (count, count.saturating_mul(self.size() as usize));
        // SAFETY: as this function's.
        unsafe { self.call(Collective::AllGather, Reduce::Sum, (src, dst), counts, dtype, stream) }
    }

    /// Writes this rank's part of the sum over all ranks to `dst`. `src` has `count` elements for
    /// each rank.
    ///
    /// # Errors
    /// Fails where [`all_reduce`](Comm::all_reduce) fails.
    ///
    /// # Safety
    /// The conditions are those of [`all_reduce`](Comm::all_reduce), but `src` must have `count`
    /// elements for each rank, and `dst` must have `count`.
    pub unsafe fn reduce_scatter(
        &self,
        stream: RawStream,
        src: u64,
        dst: u64,
        count: usize,
        dtype: DType,
    ) -> Result<(), Error> {
        let counts = (count.saturating_mul(self.size() as usize), count);
        // SAFETY: as this function's.
        unsafe { self.call(Collective::ReduceScatter, Reduce::Sum, (src, dst), counts, dtype, stream) }
    }

    /// Compiles the kernel of an allreduce of `count` elements, so that no later call waits for the
    /// compiler. Call it before a capture.
    ///
    /// # Errors
    /// Fails where [`all_reduce`](Comm::all_reduce) fails.
    ///
    /// # Safety
    /// The conditions are those of [`all_reduce`](Comm::all_reduce). Neither side is read or
    /// written.
    pub unsafe fn prepare(&self, src: u64, dst: u64, count: usize, dtype: DType) -> Result<(), Error> {
        // SAFETY: as this function's.
        let [x, out] = unsafe { self.sides((src, dst), (count, count), dtype) }?;
        let out = (src != dst).then_some(&out as &dyn AsArgument);
        let (call, stream) = (Call::new(Collective::AllReduce, &x, out), self.world.stream());
        let plan = self.collectives.plan(&call, stream)?;
        Ok(self.collectives.prepare(&plan, &call, stream)?)
    }

    unsafe fn call(
        &self,
        collective: Collective,
        op: Reduce,
        (src, dst): (u64, u64),
        (send, recv): (usize, usize),
        dtype: DType,
        stream: RawStream,
    ) -> Result<(), Error> {
        self.check(send.max(recv), dtype)?;
        if send == 0 {
            return Ok(());
        }
        // SAFETY: the caller vouches for the stream and both addresses.
        let (stream, [x, out]) =
            unsafe { (self.stream(stream)?, self.sides((src, dst), (send, recv), dtype)?) };
        let out = (src != dst || send != recv).then_some(&out as &dyn AsArgument);
        let call = Call { op, ..Call::new(collective, &x, out) };
        Ok(self.collectives.run(&call, &stream)?)
    }

    /// # Safety
    /// `stream` must be a stream of this rank's device, or null, and must outlive the result.
    pub(crate) unsafe fn stream(&self, stream: RawStream) -> Result<Stream, Error> {
        // SAFETY: as this function's.
        Ok(unsafe { self.world.device().borrow_stream(stream)? })
    }

    unsafe fn sides(
        &self,
        (src, dst): (u64, u64),
        (send, recv): (usize, usize),
        dtype: DType,
    ) -> Result<[CallOperand; 2], Error> {
        // SAFETY: as the caller's.
        unsafe { Ok([self.side(src, send, dtype)?, self.side(dst, recv, dtype)?]) }
    }

    /// The operand at an address: memory of this communicator as its symmetric buffer, and other
    /// memory as the caller's.
    ///
    /// # Safety
    /// `address` must have `count` elements that this rank's device can access.
    pub(crate) unsafe fn side(&self, address: u64, count: usize, dtype: DType) -> Result<CallOperand, Error> {
        if !address.is_multiple_of(ALIGN) {
            return Err(Error::Unaligned { address });
        }
        let buffers = lock(&self.buffers);
        let around = buffers.range(..=address).next_back();
        let bytes = (count as u64).saturating_mul(dtype.bytes().into());
        if let Some((start, buffer)) = around
            && (address - start).saturating_add(bytes) <= buffer.bytes() as u64
        {
            let layout = count.into_layout()?;
            return Ok(CallOperand::Symmetric(AnyTensor::view(
                buffer.clone(),
                address - start,
                dtype,
                layout,
            )?));
        }
        // SAFETY: as this function's.
        Ok(CallOperand::Other(unsafe { BorrowedTensor::new(self.world.device(), address, dtype, count) }))
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm(rank {} of {})", self.rank(), self.size())
    }
}
