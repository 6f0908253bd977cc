//! The library NCCL, which benchmarks compare with. It is opened at run time, over the PEs of a
//! world. [`sys`] has the raw functions, and `result` a `Result` for every call.
//!
//! warpweft itself does not need it.

mod result;
pub mod sys;
mod version;

pub use version::Version;

use crate::collective::Reduce;
use crate::cuda::{self, DeviceTensor, Stream, copy};
use crate::error::{self, Error, Result};
use crate::find::{self, Found};
use crate::nvshmem::raw;
use crate::world::{Inner, World};
use crate::{DType, Element};
use result::{Library, Sides};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A communicator over all PEs of a world. Clones share the communicator, which ends when the last
/// of them and of its [windows](Communicator::window) is dropped. The PEs must drop communicators
/// in the same order.
#[derive(Clone)]
pub struct Communicator(Arc<Shared>);

struct Shared {
    world: Arc<Inner>,
    library: &'static Library,
    /// The lock is held for each call and for each whole group of calls, since threads must not
    /// issue operations to one communicator in parallel (NCCL user guide, Thread Safety).
    comm: Mutex<sys::Comm>,
}

impl Shared {
    fn comm(&self) -> MutexGuard<'_, sys::Comm> {
        // A panic while the lock is held leaves the handle unchanged.
        self.comm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(unsafe_code, reason = "a handle of a C library")]
// SAFETY: the handle is not bound to the thread that made it (NCCL user guide, Creating a Communicator). The other fields
// are `Send` by themselves.
unsafe impl Send for Shared {}
#[allow(unsafe_code, reason = "a handle of a C library")]
// SAFETY: every use of the handle holds its mutex, so that threads use it one after the other. The other fields are `Sync`
// by themselves.
unsafe impl Sync for Shared {}

/// Elements in memory of this PE's GPU that NCCL's collectives read and write. Clones and
/// [slices](Tensor::slice) share the memory.
#[derive(Clone)]
pub struct Tensor<T> {
    memory: Arc<Memory>,
    /// The offset from the start of the memory in bytes.
    offset: usize,
    len: usize,
    marker: PhantomData<T>,
}

enum Memory {
    /// Memory of cudaMalloc, which NCCL copies through its own buffers.
    Plain(DeviceTensor<u8>),
    Window(Window),
}

/// Registered memory of `ncclMemAlloc`.
struct Window {
    of: Communicator,
    address: u64,
    bytes: usize,
    handle: Option<sys::Window>,
}

#[allow(unsafe_code, reason = "a handle of a C library")]
// SAFETY: an address and a handle, neither bound to a thread.
unsafe impl Send for Window {}
#[allow(unsafe_code, reason = "a handle of a C library")]
// SAFETY: as above.
unsafe impl Sync for Window {}

/// The library of this machine, which is looked for and opened once in a process.
fn library() -> Result<&'static (Found, Library)> {
    static LIBRARY: OnceLock<Result<(Found, Library)>> = OnceLock::new();
    let open = || {
        let found = find::nccl()?;
        Library::open(&found.path).map(|library| (found, library))
    };
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}

/// Returns the version and the path of this machine's NCCL.
///
/// # Errors
/// Fails if the library is not found, is too old, or is not NCCL (R0109). The message lists every
/// place searched.
pub fn installed() -> Result<(Version, &'static Path)> {
    library().map(|(found, library)| (library.version, &*found.path))
}

/// Checks that NCCL has the reduction for a type.
///
/// # Errors
/// Fails if NCCL does not have the reduction for the type (R0401). The message lists what it has.
pub fn reduces(dtype: DType, op: Reduce) -> Result<()> {
    reduction(dtype, op).map(drop)
}

fn reduction(dtype: DType, op: Reduce) -> Result<(i32, i32)> {
    sys::data_type(dtype).zip(sys::operation(op)).ok_or_else(|| {
        Error::new(error::OPERATION, format!("NCCL does not have {} of {dtype}", op.name())).help(
            "use sum, prod, min or max of 8-, 32- or 64-bit integers, f16, bf16, f32, f64, e4m3 or e5m2",
        )
    })
}

impl Communicator {
    /// Connects the PEs of a world. This call is *collective*.
    ///
    /// # Errors
    /// Fails if a PE has no NCCL (R0109), if NCCL cannot connect them (R0110), if the PEs do not agree
    /// (R0301), or if another PE has ended (R0203).
    pub fn over(world: &World) -> Result<Communicator> {
        let inner = &world.0;
        let entered = inner.enter()?;
        let (_, library) = library().map_err(|e| entered.refuse(&entered.everyone, e))?;
        let (rank, size) = (world.my_pe(), world.n_pes());
        let version = library.version.to_string();
        let versions = entered.together("NCCL: version", version.as_bytes())?;
        if let Some(pe) = versions.iter().position(|v| v != version.as_bytes()) {
            let theirs = String::from_utf8_lossy(&versions[pe]).into_owned();
            let message = format!("PE {rank} has NCCL {version}, but PE {pe} has {theirs}");
            return Err(Error::new(error::NCCL, message).help("install one version on all hosts"));
        }
        let id = match rank {
            0 => library.unique_id().map_err(|e| entered.refuse(&entered.everyone, e))?.internal,
            _ => [0; 128],
        };
        let ids = entered.together("NCCL: unique id", &id)?;
        let internal = ids.first().and_then(|id| id.as_slice().try_into().ok());
        let internal =
            internal.ok_or_else(|| Error::new(error::BOOTSTRAP, "PE 0 sent no unique id of NCCL"))?;
        let comm = library.init(size, sys::UniqueId { internal }, rank)?;
        Ok(Communicator(Arc::new(Shared { world: inner.clone(), library, comm: Mutex::new(comm) })))
    }

    /// The version of the NCCL library.
    pub fn version(&self) -> Version {
        self.0.library.version
    }

    /// Allocates memory like cudaMalloc.
    ///
    /// # Errors
    /// Fails if the device does not have enough memory (R0302).
    pub fn plain<T: Element>(&self, len: usize) -> Result<Tensor<T>> {
        let entered = self.0.world.enter()?;
        let memory = DeviceTensor::alloc(&entered.device, bytes_of::<T>(len)?)?;
        Ok(Tensor { memory: Arc::new(Memory::Plain(memory)), offset: 0, len, marker: PhantomData })
    }

    /// Allocates memory with `ncclMemAlloc` and registers it as a symmetric window, which NCCL's
    /// symmetric kernels use. This call is *collective*.
    ///
    /// # Errors
    /// Fails if NCCL (before 2.27) has no windows, or a PE does not have enough memory (R0110), or
    /// if the PEs do not agree (R0301).
    pub fn window<T: Element>(&self, len: usize) -> Result<Tensor<T>> {
        let (entered, library) = (self.0.world.enter()?, self.0.library);
        let bytes = bytes_of::<T>(len)?.max(1);
        let address = library.windows().and_then(|()| library.alloc(bytes));
        let address = address.map_err(|e| entered.refuse(&entered.everyone, e))?;
        let mut window = Window { of: self.clone(), address, bytes, handle: None };
        entered.together(&format!("NCCL: window of {bytes} bytes"), &[])?;
        window.handle = Some(library.register(*self.0.comm(), address, bytes)?);
        Ok(Tensor { memory: Arc::new(Memory::Window(window)), offset: 0, len, marker: PhantomData })
    }

    /// Reports what has failed in NCCL's own threads since the last call.
    ///
    /// # Errors
    /// Fails if NCCL reports an asynchronous error (R0110).
    pub fn check(&self) -> Result<()> {
        self.0.library.state(*self.0.comm())
    }

    /// Reduces all PEs' `source` into `dest` of every PE. Both can be the same.
    ///
    /// # Errors
    /// Fails where [`reduces`] fails, for different sizes (R0307), if an NCCL call fails (R0110),
    /// or after the world has ended (R0305).
    pub fn all_reduce<T: Element>(
        &self,
        op: Reduce,
        dest: &Tensor<T>,
        source: &Tensor<T>,
        stream: &Stream,
    ) -> Result<()> {
        let (dtype, op) = reduction(T::DTYPE, op)?;
        let io = Sides { dtype, ..self.sides("allreduce", dest, source, (1, 1))? };
        let _entered = self.0.world.on(stream)?;
        let comm = self.0.comm();
        self.0.library.all_reduce(io, op, *comm, raw(stream)?)
    }

    /// Stores this PE's part of the reduction of `source` in `dest`, which can be that part of
    /// `source`.
    ///
    /// # Errors
    /// Fails where [`all_reduce`](Communicator::all_reduce) fails.
    pub fn reduce_scatter<T: Element>(
        &self,
        op: Reduce,
        dest: &Tensor<T>,
        source: &Tensor<T>,
        stream: &Stream,
    ) -> Result<()> {
        let (dtype, op) = reduction(T::DTYPE, op)?;
        let io = Sides { dtype, ..self.sides("reducescatter", dest, source, (1, self.n_pes()))? };
        let _entered = self.0.world.on(stream)?;
        let comm = self.0.comm();
        self.0.library.reduce_scatter(io, op, *comm, raw(stream)?)
    }

    /// Gathers all PEs' `source` in `dest`. `source` can be this PE's part of `dest`.
    ///
    /// # Errors
    /// Fails where [`all_reduce`](Communicator::all_reduce) fails, but supports every type.
    pub fn all_gather<T: Element>(
        &self,
        dest: &Tensor<T>,
        source: &Tensor<T>,
        stream: &Stream,
    ) -> Result<()> {
        let io = self.sides("allgather", dest, source, (self.n_pes(), 1))?;
        let _entered = self.0.world.on(stream)?;
        let comm = self.0.comm();
        self.0.library.all_gather(io, *comm, raw(stream)?)
    }

    /// Copies the `source` of one PE to `dest` of every PE. Both can be the same.
    ///
    /// # Errors
    /// Fails where [`all_gather`](Communicator::all_gather) fails, or for a root that does not
    /// exist (R0303).
    pub fn broadcast<T: Element>(
        &self,
        dest: &Tensor<T>,
        source: &Tensor<T>,
        root: u32,
        stream: &Stream,
    ) -> Result<()> {
        let io = self.sides("broadcast", dest, source, (1, 1))?;
        let root = self.0.world.member(root)?;
        let _entered = self.0.world.on(stream)?;
        let comm = self.0.comm();
        self.0.library.broadcast(io, root, *comm, raw(stream)?)
    }

    /// Moves part j of PE i's `source` to part i of PE j's `dest`, with sends and receives in a
    /// group.
    ///
    /// # Errors
    /// Fails where [`all_gather`](Communicator::all_gather) fails.
    pub fn all_to_all<T: Element>(
        &self,
        dest: &Tensor<T>,
        source: &Tensor<T>,
        stream: &Stream,
    ) -> Result<()> {
        let n = self.n_pes();
        let io = self.sides("alltoall", dest, source, (n, n))?;
        let stride = dest.len / n * size_of::<T>();
        let _entered = self.0.world.on(stream)?;
        let comm = self.0.comm();
        self.0.library.all_to_all(io, stride, n as u32, *comm, raw(stream)?)
    }

    fn n_pes(&self) -> usize {
        self.0.world.control.size() as usize
    }

    /// Checks both sides: `dest` and `source` have these numbers of parts, all of equal size.
    /// 16-bit integers are moved as bytes.
    fn sides<T: Element>(
        &self,
        name: &str,
        dest: &Tensor<T>,
        source: &Tensor<T>,
        (of_dest, of_source): (usize, usize),
    ) -> Result<Sides> {
        let (d, s) = (dest.len, source.len);
        if d % of_dest != 0 || s % of_source != 0 || d / of_dest != s / of_source {
            let message =
                format!("NCCL's {name} over {} PEs cannot go from {s} to {d} elements", self.n_pes());
            let help =
                format!("give the destination {of_dest} and the source {of_source} parts of equal size");
            return Err(Error::new(error::SHAPE, message).help(help));
        }
        cuda::keep(dest.memory.clone());
        cuda::keep(source.memory.clone());
        let (dtype, unit) = match sys::data_type(T::DTYPE) {
            Some(dtype) => (dtype, 1),
            None => (sys::BYTES, size_of::<T>()),
        };
        let count = d / of_dest * unit;
        Ok(Sides { source: source.address(), dest: dest.address(), count, dtype })
    }
}

fn bytes_of<T>(len: usize) -> Result<usize> {
    let too_large = || Error::new(error::SHAPE, format!("{len} elements exceed the address space"));
    len.checked_mul(size_of::<T>()).ok_or_else(too_large)
}

impl<T: Element> Tensor<T> {
    /// Returns the elements `range` in the same memory.
    ///
    /// # Errors
    /// Fails if the range goes past the end (R0307).
    pub fn slice(&self, range: Range<usize>) -> Result<Tensor<T>> {
        if range.start > range.end || range.end > self.len {
            return Err(Error::new(
                error::SHAPE,
                format!("the range {range:?} exceeds a tensor of {} elements", self.len),
            ));
        }
        let offset = self.offset + range.start * size_of::<T>();
        Ok(Tensor { memory: self.memory.clone(), offset, len: range.len(), marker: PhantomData })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory that contains its elements.
    pub(crate) fn memory(&self) -> cuda::Keep {
        self.memory.clone()
    }

    /// The address of the first element on the device.
    pub fn address(&self) -> u64 {
        let start = match &*self.memory {
            Memory::Plain(memory) => memory.address(),
            Memory::Window(window) => window.address,
        };
        start + self.offset as u64
    }

    /// The range of its elements in the memory.
    #[allow(unsafe_code, reason = "a window vouches for its address")]
    fn range(&self) -> Result<copy::Range<'_>> {
        let all = match &*self.memory {
            Memory::Plain(memory) => memory.range(),
            // SAFETY: NCCL has allocated this number of bytes, which the window frees when the
            // device is done.
            Memory::Window(w) => unsafe { copy::Range::new(&w.of.0.world.device, w.address, w.bytes) },
        };
        all.part("tensor", self.offset, self.len * size_of::<T>())
    }

    /// Writes its elements, in stream order, and waits.
    ///
    /// # Errors
    /// Fails for another number of elements (R0307), or if the CUDA driver rejects a call (R0103).
    pub fn copy_from(&self, data: &[T], stream: &Stream) -> Result<()> {
        copy::same_len("the tensor", self.len, data.len())?;
        copy::write(self.range()?, data, stream)
    }

    /// Sets all bytes of the tensor to `byte`, in stream order.
    ///
    /// # Errors
    /// Fails if the CUDA driver rejects the call (R0103).
    pub fn fill(&self, byte: u8, stream: &Stream) -> Result<()> {
        cuda::keep(self.memory.clone());
        copy::fill(self.range()?, byte, stream)
    }

    /// Copies another tensor's elements into this one, in stream order.
    ///
    /// # Errors
    /// Fails if they have different numbers of elements (R0307), or if the CUDA driver rejects a
    /// call (R0103).
    pub fn load(&self, from: &DeviceTensor<T>, stream: &Stream) -> Result<()> {
        copy::same_len("the tensor", self.len, from.len())?;
        cuda::keep(self.memory.clone());
        cuda::keep(from.memory().clone());
        copy::on_device(self.range()?, from.range(), stream)
    }

    /// Copies the elements to another tensor, in stream order.
    ///
    /// # Errors
    /// Fails where [`load`](Tensor::load) fails.
    pub fn store(&self, to: &DeviceTensor<T>, stream: &Stream) -> Result<()> {
        copy::same_len("the tensor", self.len, to.len())?;
        cuda::keep(self.memory.clone());
        cuda::keep(to.memory().clone());
        copy::on_device(to.range(), self.range()?, stream)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let (world, library) = (&self.of.0.world, self.of.0.library);
        // After the end, after a panic, or with a kernel that never ends, the other PEs are at
        // another point of the program.
        if world.ended() || std::thread::panicking() || cuda::not_stuck().is_err() {
            return;
        }
        let ended = world.enter().and_then(|entered| {
            entered.device.wait()?;
            if let Some(handle) = self.handle.take() {
                entered.together("NCCL: end of a window", &[])?;
                library.deregister(*self.of.0.comm(), handle)?;
            }
            library.free(self.address)
        });
        if let Err(e) = ended {
            world.print_error("a window of NCCL's is not freed", &e);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.world.ended() || std::thread::panicking() || cuda::not_stuck().is_err() {
            return;
        }
        let ended = self.world.enter().and_then(|entered| {
            entered.device.wait()?;
            entered.together("NCCL: end", &[])?;
            self.library.destroy(*self.comm())
        });
        if let Err(e) = ended {
            self.world.print_error("NCCL is not ended", &e);
        }
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(NCCL {} over {} PEs)", self.version(), self.n_pes())
    }
}

impl<T: Element> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} x {} at {:#x})", self.len, T::DTYPE, self.address())
    }
}
