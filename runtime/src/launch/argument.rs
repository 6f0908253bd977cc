//! The arguments that a caller passes to a kernel.

use super::scalar::Number;
use crate::cuda::{AnyDeviceTensor, BorrowedTensor, CudaSlice, DeviceTensor, Keep, Stream};
use crate::memory::{AnyTensor, Barrier, ImportedTensor, PeerTensor, SymmetricBuffer, SymmetricTensor};
use crate::nccl;
use crate::team::Team;
use crate::{DType, Element};
use cudarc::driver::{DevicePtr, SyncOnDrop};
use std::fmt;
use std::sync::Arc;
use weft_layout::{Int, IntTuple, Layout};

/// The facts about an argument that the checks compare.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ArgumentValue<'a> {
    /// A tensor in device memory.
    Tensor {
        /// The address of the first element.
        address: u64,
        /// The type of the elements.
        dtype: DType,
        /// The positions of its elements.
        extent: Elements<'a>,
        /// Whether every PE has it, at the same offset of the symmetric heap.
        symmetric: bool,
    },
    /// A number, passed by value.
    Scalar {
        /// The type of the number in the caller.
        dtype: DType,
        /// The value of the number.
        value: Number,
    },
    /// A team, of which the caller is a member.
    Team {
        /// The rank of this PE.
        my_pe: u32,
        /// The number of PEs of the team.
        n_pes: u32,
        /// The number of the team in NVSHMEM.
        handle: i32,
    },
    /// The memory of a barrier.
    Barrier {
        /// The address of the memory.
        address: u64,
        /// The number of CTAs that it has counters for.
        ctas: u32,
    },
}

/// The positions of a tensor's elements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Elements<'a> {
    /// The elements have this shape and these strides.
    Layout(&'a Layout),
    /// The elements are contiguous, in any shape that the kernel declares.
    Flat(usize),
}

impl fmt::Display for ArgumentValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgumentValue::Tensor { dtype, extent, symmetric, .. } => {
                f.write_str(if *symmetric { "symm" } else { "global" })?;
                match extent {
                    Elements::Layout(l) => write!(f, "<{dtype}, {l}>"),
                    Elements::Flat(n) => write!(f, "<{dtype}, {n} elements>"),
                }
            }
            ArgumentValue::Scalar { dtype, value } => write!(f, "{value}: {dtype}"),
            ArgumentValue::Team { n_pes, .. } => write!(f, "team of {n_pes} PEs"),
            ArgumentValue::Barrier { ctas, .. } => write!(f, "barrier for {ctas} CTAs"),
        }
    }
}

/// An argument of one launch.
pub struct Argument<'a> {
    pub(super) given: ArgumentValue<'a>,
    /// The source of its hidden parameters.
    pub(super) origin: Origin<'a>,
    /// The GPU whose memory it is in.
    pub(super) device: Option<u32>,
    /// The object that a graph keeps alive.
    pub(super) keep: Option<Keep>,
    /// The record of the use for `cudarc`, if the slice's context tracks uses. It is made on drop.
    _used: Option<SyncOnDrop<'a>>,
}

#[derive(Clone, Copy)]
pub(super) enum Origin<'a> {
    Nothing,
    /// A part of a buffer, from this byte on.
    Symmetric(&'a SymmetricBuffer, u64),
    Team(&'a Team),
}

impl<'a> Argument<'a> {
    fn new(given: ArgumentValue<'a>) -> Argument<'a> {
        Argument { given, origin: Origin::Nothing, device: None, keep: None, _used: None }
    }

    fn symmetric(given: ArgumentValue<'a>, buffer: &'a SymmetricBuffer, offset: u64) -> Argument<'a> {
        Argument {
            origin: Origin::Symmetric(buffer, offset),
            keep: Some(Arc::new(buffer.clone())),
            device: Some(buffer.world().device.ordinal()),
            ..Argument::new(given)
        }
    }

    /// The value that the checks of a launch compare.
    pub fn given(&self) -> ArgumentValue<'a> {
        self.given
    }

    /// The object that a graph being captured keeps alive, so that the memory exists as long as the
    /// graph.
    pub(crate) fn held(&self) -> Option<Keep> {
        self.keep.clone()
    }

    /// The number of the GPU whose memory it is in.
    pub(crate) fn gpu(&self) -> Option<u32> {
        self.device
    }

    /// Returns a tensor as its memory with contiguous elements, or unchanged if it has gaps.
    pub fn flat(mut self) -> Argument<'a> {
        if let ArgumentValue::Tensor { extent, .. } = &mut self.given
            && let Elements::Layout(layout) = extent
            && let Some(n) = filled(layout)
        {
            *extent = Elements::Flat(n);
        }
        self
    }

    /// Returns the elements of a tensor from number `first` on, as their memory. A tensor with gaps is unchanged, and one
    /// that is shorter has no elements left.
    pub fn skip(self, first: usize) -> Argument<'a> {
        let mut rest = self.flat();
        let ArgumentValue::Tensor { address, dtype, extent: Elements::Flat(n), .. } = &mut rest.given else {
            return rest;
        };
        let skipped = first.min(*n);
        let bytes = (skipped * dtype.bytes() as usize) as u64;
        (*address, *n) = (*address + bytes, *n - skipped);
        if let Origin::Symmetric(_, offset) = &mut rest.origin {
            *offset += bytes;
        }
        rest
    }
}

impl fmt::Debug for Argument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Argument({})", self.given)
    }
}

/// The number of elements of a layout that covers each element of its memory exactly once.
fn filled(layout: &Layout) -> Option<usize> {
    let leaves = |t: &IntTuple| t.leaves().into_iter().map(Int::as_const).collect::<Option<Vec<i64>>>();
    let (shape, stride) = (leaves(layout.shape())?, leaves(layout.stride())?);
    let mut modes: Vec<_> = stride.into_iter().zip(shape).filter(|(_, n)| *n != 1).collect();
    modes.sort_unstable();
    let mut next: i64 = 1;
    for (stride, n) in modes {
        next = next.checked_mul(n).filter(|_| stride == next)?;
    }
    usize::try_from(next).ok()
}

/// Whether every symmetric argument has a multicast address in every team among the arguments; none
/// without a symmetric argument or a team.
pub fn multicast(arguments: &[Argument<'_>]) -> Option<bool> {
    let mut all = None;
    for a in arguments {
        for b in arguments {
            if let (Origin::Symmetric(buffer, _), Origin::Team(team)) = (a.origin, b.origin) {
                all = Some(all.unwrap_or(true) && buffer.multicast_address(team).is_some());
            }
        }
    }
    all
}

/// A value that can be passed to a kernel: a tensor, number, team or barrier, by value or by
/// reference.
///
/// The kernel can read and write a tensor however it is passed; the kernel's text says which it
/// does.
pub trait AsArgument {
    /// The value as an argument of a launch on `stream`.
    fn argument<'a>(&'a self, stream: &'a Stream) -> Argument<'a>;
}

impl<A: AsArgument + ?Sized> AsArgument for &A {
    fn argument<'a>(&'a self, stream: &'a Stream) -> Argument<'a> {
        (**self).argument(stream)
    }
}

impl<A: AsArgument + ?Sized> AsArgument for Box<A> {
    fn argument<'a>(&'a self, stream: &'a Stream) -> Argument<'a> {
        (**self).argument(stream)
    }
}

impl<T: Element> AsArgument for SymmetricTensor<T> {
    fn argument<'a>(&'a self, _: &'a Stream) -> Argument<'a> {
        let extent = Elements::Layout(self.layout());
        let given =
            ArgumentValue::Tensor { address: self.address(), dtype: T::DTYPE, extent, symmetric: true };
        Argument::symmetric(given, self.buffer(), self.offset())
    }
}

impl AsArgument for AnyTensor {
    fn argument<'a>(&'a self, _: &'a Stream) -> Argument<'a> {
        let address = self.buffer().address() + self.offset();
        let extent = Elements::Layout(self.layout());
        let given = ArgumentValue::Tensor { address, dtype: self.dtype(), extent, symmetric: true };
        Argument::symmetric(given, self.buffer(), self.offset())
    }
}

/// Another PE's copy is plain memory for loads and stores, without copies of its own.
impl<T: Element> AsArgument for PeerTensor<T> {
    fn argument<'a>(&'a self, _: &'a Stream) -> Argument<'a> {
        let extent = Elements::Layout(self.tensor().layout());
        let given =
            ArgumentValue::Tensor { address: self.address(), dtype: T::DTYPE, extent, symmetric: false };
        Argument::symmetric(given, self.tensor().buffer(), 0)
    }
}

impl<T: Element> AsArgument for ImportedTensor<T> {
    fn argument<'a>(&'a self, _: &'a Stream) -> Argument<'a> {
        let extent = Elements::Layout(self.layout());
        let given =
            ArgumentValue::Tensor { address: self.address(), dtype: T::DTYPE, extent, symmetric: false };
        let (device, keep) = (Some(self.device().ordinal()), Some(self.owner() as Keep));
        Argument { device, keep, ..Argument::new(given) }
    }
}

impl AsArgument for Barrier {
    fn argument<'a>(&'a self, _: &'a Stream) -> Argument<'a> {
        let given = ArgumentValue::Barrier { address: self.buffer().address(), ctas: self.ctas() };
        Argument::symmetric(given, self.buffer(), 0)
    }
}

impl AsArgument for Team {
    fn argument<'a>(&'a self, _: &'a Stream) -> Argument<'a> {
        let given = ArgumentValue::Team { my_pe: self.my_pe(), n_pes: self.n_pes(), handle: self.handle };
        Argument { origin: Origin::Team(self), ..Argument::new(given) }
    }
}

impl<T: Element> AsArgument for DeviceTensor<T> {
    fn argument<'a>(&'a self, _: &'a Stream) -> Argument<'a> {
        let extent = Elements::Layout(self.layout());
        let given =
            ArgumentValue::Tensor { address: self.address(), dtype: T::DTYPE, extent, symmetric: false };
        Argument {
            device: Some(self.device().ordinal()),
            keep: Some(self.memory().clone()),
            ..Argument::new(given)
        }
    }
}

impl AsArgument for AnyDeviceTensor {
    fn argument<'a>(&'a self, _: &'a Stream) -> Argument<'a> {
        let extent = Elements::Layout(self.layout());
        let given =
            ArgumentValue::Tensor { address: self.address(), dtype: self.dtype(), extent, symmetric: false };
        Argument {
            device: Some(self.device().ordinal()),
            keep: Some(self.memory().clone()),
            ..Argument::new(given)
        }
    }
}

impl AsArgument for BorrowedTensor {
    fn argument<'a>(&'a self, _: &'a Stream) -> Argument<'a> {
        let extent = self.layout().map_or(Elements::Flat(self.len()), Elements::Layout);
        let address = self.address();
        let given = ArgumentValue::Tensor { address, dtype: self.dtype(), extent, symmetric: false };
        Argument { device: Some(self.ordinal()), ..Argument::new(given) }
    }
}

impl<T: Element> AsArgument for nccl::Tensor<T> {
    fn argument<'a>(&'a self, _: &'a Stream) -> Argument<'a> {
        let extent = Elements::Flat(self.len());
        let given =
            ArgumentValue::Tensor { address: self.address(), dtype: T::DTYPE, extent, symmetric: false };
        Argument { keep: Some(self.memory()), ..Argument::new(given) }
    }
}

impl<T: Element> AsArgument for CudaSlice<T> {
    fn argument<'a>(&'a self, stream: &'a Stream) -> Argument<'a> {
        let (address, used) = match stream {
            Stream::Gpu(stream) => {
                let (address, used) = self.device_ptr(stream);
                (address, Some(used))
            }
            // The launch rejects it, since the memory is on a GPU.
            Stream::Simulated(_) => (0, None),
        };
        let extent = Elements::Flat(self.len());
        let given = ArgumentValue::Tensor { address, dtype: T::DTYPE, extent, symmetric: false };
        let device = u32::try_from(self.ordinal()).ok();
        Argument { device, _used: used, ..Argument::new(given) }
    }
}

macro_rules! numbers {
    ($($ty:ty: $dtype:ident, $x:ident => $number:expr;)*) => {$(
        impl AsArgument for $ty {
            fn argument<'a>(&'a self, _: &'a Stream) -> Argument<'a> {
                let $x = *self;
                Argument::new(ArgumentValue::Scalar { dtype: DType::$dtype, value: $number })
            }
        }
    )*};
}

numbers! {
    bool: Bool, x => Number::Bool(x);
    i8: I8, x => Number::Int(x.into());
    i16: I16, x => Number::Int(x.into());
    i32: I32, x => Number::Int(x.into());
    i64: I64, x => Number::Int(x.into());
    isize: I64, x => Number::Int(x as i128);
    u8: U8, x => Number::Int(x.into());
    u16: U16, x => Number::Int(x.into());
    u32: U32, x => Number::Int(x.into());
    u64: U64, x => Number::Int(x.into());
    usize: U64, x => Number::Int(x as i128);
    half::f16: F16, x => Number::Float(x.to_f64());
    half::bf16: BF16, x => Number::Float(x.to_f64());
    f32: F32, x => Number::Float(x.into());
    f64: F64, x => Number::Float(x);
    float8::F8E4M3: E4M3, x => Number::Float(x.to_f64());
    float8::F8E5M2: E5M2, x => Number::Float(x.to_f64());
}

/// All arguments of a launch, in the order of the kernel's text: a tuple of up to 12, or a list of
/// `&dyn AsArgument` where their number is known only at run time.
pub trait Arguments {
    /// Returns the arguments for a launch on `stream`.
    fn arguments<'a>(&'a self, stream: &'a Stream) -> Vec<Argument<'a>>;
}

impl Arguments for () {
    fn arguments<'a>(&'a self, _: &'a Stream) -> Vec<Argument<'a>> {
        Vec::new()
    }
}

impl<A: AsArgument> Arguments for [A] {
    fn arguments<'a>(&'a self, stream: &'a Stream) -> Vec<Argument<'a>> {
        self.iter().map(|a| a.argument(stream)).collect()
    }
}

impl<A: AsArgument> Arguments for Vec<A> {
    fn arguments<'a>(&'a self, stream: &'a Stream) -> Vec<Argument<'a>> {
        self.as_slice().arguments(stream)
    }
}

impl<A: Arguments + ?Sized> Arguments for &A {
    fn arguments<'a>(&'a self, stream: &'a Stream) -> Vec<Argument<'a>> {
        (**self).arguments(stream)
    }
}

macro_rules! tuples {
    ($first:ident $($rest:ident)*) => {
        impl<$first: AsArgument, $($rest: AsArgument),*> Arguments for ($first, $($rest,)*) {
            fn arguments<'a>(&'a self, stream: &'a Stream) -> Vec<Argument<'a>> {
                #[expect(non_snake_case, reason = "a type's name is its field's too")]
                let ($first, $($rest,)*) = self;
                vec![$first.argument(stream), $($rest.argument(stream)),*]
            }
        }
        tuples!($($rest)*);
    };
    () => {};
}

tuples!(A B C D E F G H I J K L);

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn elements_behind_others() {
        let rest = |first| {
            let extent = Elements::Flat(12);
            let given = ArgumentValue::Tensor { address: 64, dtype: DType::BF16, extent, symmetric: false };
            match Argument::new(given).skip(first).given() {
                ArgumentValue::Tensor { address, extent: Elements::Flat(n), .. } => (address, n),
                other => panic!("{other}"),
            }
        };
        assert_eq!([rest(0), rest(8), rest(13)], [(64, 12), (80, 4), (88, 0)]);
    }

    #[test]
    fn memory_without_gaps() {
        let layout = |shape: &[i64], stride: &[i64]| {
            let tuple = |list: &[i64]| IntTuple::tuple(list.iter().map(|n| Int::from(*n)));
            Layout::new(tuple(shape), tuple(stride)).unwrap()
        };
        assert_eq!(filled(&layout(&[64, 8], &[8, 1])), Some(512));
        assert_eq!(filled(&layout(&[8, 64], &[1, 8])), Some(512));
        assert_eq!(filled(&layout(&[3, 1, 5], &[5, 99, 1])), Some(15));
        assert_eq!(filled(&layout(&[1], &[7])), Some(1));
        assert_eq!(filled(&layout(&[64, 8], &[9, 1])), None);
        assert_eq!(filled(&layout(&[4, 2], &[1, 0])), None);
        assert_eq!(filled(&layout(&[4, 4], &[1, 2])), None);
    }
}
