//! Where a run takes place: simulated PEs in this process, or GPUs with a process each.

use super::RunError;
use super::tensors::{Place, Tensor};
use std::ops::Range;
use weft_ir::{Layout, Scalar};
use weft_runtime::launch::KernelInfo;

/// Memory that a parameter wants on every PE.
pub(super) struct Memory<'a> {
    pub name: &'a str,
    pub bytes: u64,
    pub align: u64,
    pub symmetric: bool,
    /// A tensor's element type and layout; none for a barrier's counters, which are zero before any PE goes on.
    pub tensor: Option<(Scalar, &'a Layout)>,
}

/// A launch on every PE.
pub(super) struct Request<'a> {
    /// Hidden parameters included.
    pub kernel: &'a KernelInfo,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// By parameter.
    pub places: &'a [Place],
}

/// PEs with memory.
pub(super) trait Backend {
    /// PEs whose memory this process fills.
    fn fills(&self) -> Range<usize>;

    /// Whether this process reads all PEs' memory, checks, and writes files.
    fn judges(&self) -> bool {
        true
    }

    /// Waits until all PEs are here.
    fn settle(&mut self) -> Result<(), RunError> {
        Ok(())
    }

    /// Allocates on every PE; the memory's number.
    fn alloc(&mut self, memory: &Memory<'_>) -> Result<usize, RunError>;

    /// Writes a tensor's elements, given in C order.
    fn put(&mut self, pe: usize, memory: usize, tensor: &Tensor, data: &[u8]) -> Result<(), RunError>;

    /// A tensor's elements, in C order.
    fn get(&self, pe: usize, memory: usize, tensor: &Tensor) -> Result<Vec<u8>, RunError>;

    /// Runs the kernel on every PE, and waits until all have done.
    fn launch(&mut self, request: &Request<'_>) -> Result<(), RunError>;
}
