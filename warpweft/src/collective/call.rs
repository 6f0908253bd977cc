//! Calls of collectives, and their operands.

use super::Collective;
use super::kernel::refuse;
use super::sums::Sums;
use crate::gpu::GpuError;
use weft_runtime::cuda::Stream;
use weft_runtime::launch::{Argument, ArgumentValue, AsArgument, Elements};
use weft_runtime::{DType, Reduce, error};

/// One call of a collective.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The collective that is called.
    pub collective: Collective,
    /// The operation of a reduction.
    pub op: Reduce,
    /// The operand of this PE. In place, it is the larger tensor, in which this PE's part is at its
    /// rank.
    pub x: &'a dyn AsArgument,
    /// The tensor for the result, if it is not the operand.
    pub out: Option<&'a dyn AsArgument>,
    /// The rank in the team of the PE that a broadcast is from.
    pub root: u32,
    /// The sums that a reduction allows. By default, they are
    /// [`Config::sums`](super::Config::sums). They must be the same on all PEs.
    pub sums: Option<Sums>,
}

impl<'a> Call<'a> {
    /// Makes a call that computes a sum or broadcasts from rank 0.
    pub fn new(collective: Collective, x: &'a dyn AsArgument, out: Option<&'a dyn AsArgument>) -> Call<'a> {
        Call { collective, op: Reduce::Sum, x, out, root: 0, sums: None }
    }
}

/// An operand of a call.
pub(super) struct Operand {
    pub address: u64,
    pub dtype: DType,
    pub elements: u64,
    pub symmetric: bool,
    /// Whether its elements are contiguous.
    flat: bool,
}

impl Operand {
    /// Its address, if it is the same in all calls.
    pub fn fixed(&self) -> Option<u64> {
        (self.symmetric || !self.flat).then_some(self.address)
    }
}

/// The elements of a tensor of any shape in the order of memory, because collectives do not depend
/// on coordinates.
pub struct Flat<'a>(pub &'a dyn AsArgument);

impl AsArgument for Flat<'_> {
    fn argument<'a>(&'a self, stream: &'a Stream) -> Argument<'a> {
        self.0.argument(stream).flat()
    }
}

/// Describes an operand.
///
/// # Errors
/// Fails for a value that is not a tensor (R0502).
pub(super) fn operand(given: &dyn AsArgument, name: &str, stream: &Stream) -> Result<Operand, GpuError> {
    match Flat(given).argument(stream).given() {
        ArgumentValue::Tensor { address, dtype, extent, symmetric } => {
            let elements = match extent {
                Elements::Layout(l) => l.size().as_const().and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
                Elements::Flat(n) => n as u64,
            };
            let flat = matches!(extent, Elements::Flat(_));
            Ok(Operand { address, dtype, elements, symmetric, flat })
        }
        other => Err(refuse(error::ARGUMENT, format!("{name} is {other}, but it must be a tensor"))),
    }
}
