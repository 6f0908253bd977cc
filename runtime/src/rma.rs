//! One-sided operations on streams: put, get, signals and their order.
//!
//! Source: NVSHMEM API, Remote Memory Access, Signaling Operations, Memory Ordering (`_on_stream`
//! forms). PEs are ranks of the world. A blocking operation is complete, at the PE that started it,
//! when the stream gets past it. An `nbi` operation is complete after the next
//! [`quiet`](World::quiet).

use crate::Element;
use crate::cuda::{self, BorrowedTensor, DeviceTensor, Stream};
use crate::error::{self, Error, Result};
use crate::memory::{Compare, ImportedTensor, Signal, SignalOp, SymmetricTensor};
use crate::nvshmem::PutSignal;
use crate::shape::without_gaps;
use crate::world::{Entered, Inner, World};

/// Memory of this PE's GPU that a put reads or a get writes: symmetric memory, or the GPU's own.
pub trait Local<T: Element>: sealed::Sealed {
    /// Returns the address and the number of elements, which must have no gaps.
    ///
    /// # Errors
    /// Fails for a layout with gaps (R0307).
    fn local(&self) -> Result<(u64, usize)>;

    /// Lets a graph that is being captured keep the memory alive.
    fn keep(&self);
}

mod sealed {
    /// Only types that own memory, or are constructed by unsafe code, implement the trait.
    pub trait Sealed {}
}

impl<T> sealed::Sealed for SymmetricTensor<T> {}
impl<T> sealed::Sealed for DeviceTensor<T> {}
impl<T> sealed::Sealed for ImportedTensor<T> {}
impl sealed::Sealed for BorrowedTensor {}

impl<T: Element> Local<T> for SymmetricTensor<T> {
    fn local(&self) -> Result<(u64, usize)> {
        Ok((self.address(), self.compact("put or get")?))
    }

    fn keep(&self) {
        cuda::keep(self.buffer().0.clone());
    }
}

impl<T: Element> Local<T> for DeviceTensor<T> {
    fn local(&self) -> Result<(u64, usize)> {
        Ok((self.address(), without_gaps("put or get", self.layout(), self.len())?))
    }

    fn keep(&self) {
        cuda::keep(self.memory().clone());
    }
}

impl<T: Element> Local<T> for ImportedTensor<T> {
    fn local(&self) -> Result<(u64, usize)> {
        Ok((self.address(), without_gaps("put or get", self.layout(), self.len())?))
    }

    fn keep(&self) {
        cuda::keep(self.owner());
    }
}

/// The elements as bytes. The code that created the tensor keeps the memory.
impl Local<u8> for BorrowedTensor {
    fn local(&self) -> Result<(u64, usize)> {
        let elements =
            self.layout().map_or(Ok(self.len()), |layout| without_gaps("put or get", layout, self.len()))?;
        Ok((self.address(), elements * self.dtype().bytes() as usize))
    }

    fn keep(&self) {}
}

impl Inner {
    /// Checks, before every operation on a stream, that NVSHMEM has not ended and that the stream
    /// belongs to this PE's GPU.
    pub fn on(&self, stream: &Stream) -> Result<Entered<'_>> {
        if !self.device.has(stream) {
            let (of, mine) = (stream.ordinal(), self.device.ordinal());
            return Err(Error::new(
                error::NO_GPU,
                format!("the stream belongs to GPU {of}, but this PE has GPU {mine}"),
            )
            .help("use World::stream or World::device().new_stream()"));
        }
        self.enter()
    }
}

/// Checks the two sides of a transfer, and returns its size in bytes and both addresses.
fn sides<T: Element>(remote: &SymmetricTensor<T>, local: &impl Local<T>) -> Result<(u64, u64, usize)> {
    let n = remote.compact("put or get")?;
    let (address, m) = local.local()?;
    if n != m {
        return Err(Error::new(
            error::SHAPE,
            format!("the symmetric tensor has {n} elements, but the other tensor has {m}"),
        )
        .help("pass slices of the same length"));
    }
    remote.keep();
    local.keep();
    Ok((remote.address(), address, n * size_of::<T>()))
}

impl World {
    /// Copies `source` to `dest` of a PE, in stream order.
    ///
    /// # Errors
    /// Fails for a PE that does not exist (R0303), for different sizes (R0307), or after the world
    /// has ended (R0305).
    pub fn put<T: Element>(
        &self,
        dest: &SymmetricTensor<T>,
        source: &impl Local<T>,
        pe: u32,
        stream: &Stream,
    ) -> Result<()> {
        self.copy_to(dest, source, pe, false, stream)
    }

    /// Copies like [`put`](World::put), but is complete only after a [`quiet`](World::quiet).
    /// `source` must not change until then.
    ///
    /// # Errors
    /// Fails where [`put`](World::put) fails.
    pub fn put_nbi<T: Element>(
        &self,
        dest: &SymmetricTensor<T>,
        source: &impl Local<T>,
        pe: u32,
        stream: &Stream,
    ) -> Result<()> {
        self.copy_to(dest, source, pe, true, stream)
    }

    fn copy_to<T: Element>(
        &self,
        dest: &SymmetricTensor<T>,
        source: &impl Local<T>,
        pe: u32,
        nbi: bool,
        stream: &Stream,
    ) -> Result<()> {
        let inner = self.0.on(stream)?;
        let (remote, local, bytes) = sides(dest, source)?;
        inner.library.put(remote, local, bytes, inner.member(pe)?, nbi, stream)
    }

    /// Copies `source` of a PE to `dest`, in stream order.
    ///
    /// # Errors
    /// Fails where [`put`](World::put) fails.
    pub fn get<T: Element>(
        &self,
        dest: &impl Local<T>,
        source: &SymmetricTensor<T>,
        pe: u32,
        stream: &Stream,
    ) -> Result<()> {
        self.copy_from(dest, source, pe, false, stream)
    }

    /// Copies like [`get`](World::get), but is complete only after a [`quiet`](World::quiet).
    ///
    /// # Errors
    /// Fails where [`get`](World::get) fails.
    pub fn get_nbi<T: Element>(
        &self,
        dest: &impl Local<T>,
        source: &SymmetricTensor<T>,
        pe: u32,
        stream: &Stream,
    ) -> Result<()> {
        self.copy_from(dest, source, pe, true, stream)
    }

    fn copy_from<T: Element>(
        &self,
        dest: &impl Local<T>,
        source: &SymmetricTensor<T>,
        pe: u32,
        nbi: bool,
        stream: &Stream,
    ) -> Result<()> {
        let inner = self.0.on(stream)?;
        let (remote, local, bytes) = sides(source, dest)?;
        inner.library.get(local, remote, bytes, inner.member(pe)?, nbi, stream)
    }

    /// Copies `source` to `dest` of a PE, and then updates that PE's signal. A thread that sees the
    /// signal also sees the data.
    ///
    /// # Errors
    /// Fails where [`put`](World::put) fails.
    pub fn put_signal<T: Element>(
        &self,
        dest: &SymmetricTensor<T>,
        source: &impl Local<T>,
        update: (&Signal, SignalOp, u64),
        pe: u32,
        stream: &Stream,
    ) -> Result<()> {
        self.signalled(dest, source, update, pe, false, stream)
    }

    /// Copies and signals like [`put_signal`](World::put_signal). `source` must not change until
    /// the next [`quiet`](World::quiet).
    ///
    /// # Errors
    /// Fails where [`put_signal`](World::put_signal) fails.
    pub fn put_signal_nbi<T: Element>(
        &self,
        dest: &SymmetricTensor<T>,
        source: &impl Local<T>,
        update: (&Signal, SignalOp, u64),
        pe: u32,
        stream: &Stream,
    ) -> Result<()> {
        self.signalled(dest, source, update, pe, true, stream)
    }

    fn signalled<T: Element>(
        &self,
        dest: &SymmetricTensor<T>,
        source: &impl Local<T>,
        (signal, op, value): (&Signal, SignalOp, u64),
        pe: u32,
        nbi: bool,
        stream: &Stream,
    ) -> Result<()> {
        let inner = self.0.on(stream)?;
        let (remote, local, bytes) = sides(dest, source)?;
        signal.0.keep();
        let copy = PutSignal {
            dest: remote,
            source: local,
            bytes,
            signal: signal.0.address(),
            value,
            op: op as i32,
            pe: inner.member(pe)?,
            nbi,
        };
        inner.library.put_signal(&copy, stream)
    }

    /// Updates a PE's signal, in stream order.
    ///
    /// # Errors
    /// Fails for a PE that does not exist (R0303), or after the world has ended (R0305).
    pub fn signal_op(
        &self,
        signal: &Signal,
        op: SignalOp,
        value: u64,
        pe: u32,
        stream: &Stream,
    ) -> Result<()> {
        let inner = self.0.on(stream)?;
        signal.0.keep();
        inner.library.signal(signal.0.address(), value, op as i32, inner.member(pe)?, stream)
    }

    /// Makes the stream wait until this PE's signal fulfils a comparison with a value.
    ///
    /// # Errors
    /// Fails after the world has ended (R0305).
    pub fn signal_wait(&self, signal: &Signal, compare: Compare, value: u64, stream: &Stream) -> Result<()> {
        let inner = self.0.on(stream)?;
        signal.0.keep();
        inner.library.signal_wait(signal.0.address(), compare as i32, value, stream)
    }

    /// Waits, in stream order, until all operations that this PE started are complete at their
    /// targets.
    ///
    /// # Errors
    /// Fails after the world has ended (R0305).
    pub fn quiet(&self, stream: &Stream) -> Result<()> {
        self.0.on(stream)?.library.quiet(stream)
    }

    /// Orders the operations that this PE started before it, at each PE, before those that it
    /// starts after it. NVSHMEM's only such operation on streams is [`quiet`](World::quiet), which
    /// is stronger, so this function calls it.
    ///
    /// # Errors
    /// Fails after the world has ended (R0305).
    pub fn fence(&self, stream: &Stream) -> Result<()> {
        self.quiet(stream)
    }
}
