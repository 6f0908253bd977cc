//! Objects that PEs wait for: signals, and the memory of a kernel's barriers.

use super::{SymmetricBuffer, SymmetricTensor};
use crate::cuda::Stream;
use crate::error::Result;
use crate::world::World;

impl World {
    /// Allocates the memory of a kernel's `barrier` parameter, for grids of up to `ctas` CTAs. This
    /// call is *collective*.
    ///
    /// # Errors
    /// Fails where [`buffer`](World::buffer) fails.
    #[track_caller]
    pub fn kernel_barrier(&self, ctas: u32) -> Result<Barrier> {
        Barrier::new(self, ctas)
    }

    /// Allocates a signal with the value 0. This call is *collective*.
    ///
    /// # Errors
    /// Fails where [`buffer`](World::buffer) fails.
    #[track_caller]
    pub fn signal(&self) -> Result<Signal> {
        Ok(Signal(self.zeros(1)?))
    }
}

/// The size of a CTA's counters in a barrier in bytes: one cache line, so that CTAs do not share
/// lines.
pub const BARRIER_LINE: u64 = 128;

/// The memory of a kernel's `barrier` parameter. It has counters for each CTA, which are zeroed
/// once and never reset. So one barrier serves any number of launches of any kernels, one after
/// another.
#[derive(Clone, Debug)]
pub struct Barrier {
    buffer: SymmetricBuffer,
    ctas: u32,
}

impl Barrier {
    #[track_caller]
    pub(crate) fn new(world: &World, ctas: u32) -> Result<Barrier> {
        let buffer = world.buffer(ctas as usize * BARRIER_LINE as usize)?;
        buffer.fill(0)?;
        // No PE arrives before all counters are zero.
        world.barrier()?;
        Ok(Barrier { buffer, ctas })
    }

    /// The memory of the barrier.
    pub fn buffer(&self) -> &SymmetricBuffer {
        &self.buffer
    }

    /// Returns the number of CTAs that it has counters for.
    pub fn ctas(&self) -> u32 {
        self.ctas
    }
}

/// A word of symmetric memory that PEs set and wait for (NVSHMEM API, Signaling Operations).
#[derive(Clone, Debug)]
pub struct Signal(pub(crate) SymmetricTensor<u64>);

impl Signal {
    /// The word as a tensor of one element.
    pub fn tensor(&self) -> &SymmetricTensor<u64> {
        &self.0
    }

    /// Returns an element of a symmetric `u64` tensor as a signal.
    ///
    /// # Errors
    /// Fails if the index is past the end of the tensor (R0307).
    pub fn of(tensor: &SymmetricTensor<u64>, index: usize) -> Result<Signal> {
        tensor.slice(index..index.saturating_add(1)).map(Signal)
    }

    /// Returns the value of the signal on this PE, read in stream order.
    ///
    /// # Errors
    /// Fails after the world has ended (R0305), or if the CUDA driver rejects a call (R0103).
    pub fn get(&self, stream: &Stream) -> Result<u64> {
        Ok(self.0.to_vec(stream)?.first().copied().unwrap_or_default())
    }

    /// Sets the signal on this PE, in stream order.
    ///
    /// # Errors
    /// Fails after the world has ended (R0305), or if the CUDA driver rejects a call (R0103).
    pub fn set(&self, value: u64, stream: &Stream) -> Result<()> {
        self.0.copy_from(&[value], stream)
    }
}

/// The way in which a signal is updated atomically.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalOp {
    /// The signal becomes the value (`NVSHMEM_SIGNAL_SET`).
    Set = 9,
    /// The value is added to the signal (`NVSHMEM_SIGNAL_ADD`).
    Add = 10,
}

/// The condition to wait for: how the signal compares with a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// The signal is equal to the value.
    Eq = 0,
    /// The signal differs from the value.
    Ne = 1,
    /// The signal is greater than the value.
    Gt = 2,
    /// The signal is at most the value.
    Le = 3,
    /// The signal is less than the value.
    Lt = 4,
    /// The signal is at least the value.
    Ge = 5,
}

impl Compare {
    /// Every comparison, in the order of the variants.
    pub const ALL: [Compare; 6] =
        [Compare::Eq, Compare::Ne, Compare::Gt, Compare::Le, Compare::Lt, Compare::Ge];

    /// Whether a signal's value satisfies it.
    pub fn holds(self, signal: u64, value: u64) -> bool {
        match self {
            Compare::Eq => signal == value,
            Compare::Ne => signal != value,
            Compare::Gt => signal > value,
            Compare::Le => signal <= value,
            Compare::Lt => signal < value,
            Compare::Ge => signal >= value,
        }
    }
}
