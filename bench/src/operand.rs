//! The input and output of a contender on this PE, in the kind of memory that the contender needs.

use super::measure::Result;
use weft_runtime::{DeviceTensor, Element, Stream, SymmetricBuffer, SymmetricTensor, World, nccl};

/// A tensor of this PE.
#[derive(Clone)]
pub enum Operand<T> {
    /// A tensor in NVSHMEM's symmetric heap.
    Symmetric(SymmetricTensor<T>),
    /// A tensor in memory of NCCL.
    Nccl(nccl::Tensor<T>),
}

/// Two tensors, each large enough for the input or the output of every size.
pub struct Pair<T> {
    first: Operand<T>,
    second: Operand<T>,
}

impl<T: Element> Operand<T> {
    /// The elements `range` of the tensor.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Result<Operand<T>> {
        Ok(match self {
            Operand::Symmetric(t) => Operand::Symmetric(t.slice(range)?),
            Operand::Nccl(t) => Operand::Nccl(t.slice(range)?),
        })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Operand::Symmetric(t) => t.len(),
            Operand::Nccl(t) => t.len(),
        }
    }

    /// Writes the elements, and waits.
    pub fn write(&self, data: &[T], stream: &Stream) -> Result<()> {
        Ok(match self {
            Operand::Symmetric(t) => t.copy_from(data, stream),
            Operand::Nccl(t) => t.copy_from(data, stream),
        }?)
    }

    /// Sets all bytes of the memory to a poison value, and waits.
    pub fn poison(&self, stream: &Stream) -> Result<()> {
        const BYTE: u8 = 0xff;
        Ok(match self {
            Operand::Symmetric(t) => t.buffer().fill(BYTE),
            Operand::Nccl(t) => t.fill(BYTE, stream).and_then(|()| weft_runtime::cuda::wait_for(stream)),
        }?)
    }

    /// Copies elements from a device tensor, in the stream's order.
    pub fn load(&self, from: &DeviceTensor<T>, world: &World, stream: &Stream) -> Result<()> {
        Ok(match self {
            Operand::Symmetric(t) => world.put(t, from, world.my_pe(), stream),
            Operand::Nccl(t) => t.load(from, stream),
        }?)
    }

    /// Copies the elements to a device tensor, in the stream's order.
    pub fn store(&self, to: &DeviceTensor<T>, world: &World, stream: &Stream) -> Result<()> {
        Ok(match self {
            Operand::Symmetric(t) => world.get(to, t, world.my_pe(), stream),
            Operand::Nccl(t) => t.store(to, stream),
        }?)
    }
}

impl<T: Element> Pair<T> {
    /// Makes a pair with `elements` elements in each of two symmetric buffers.
    pub fn symmetric(buffers: [&SymmetricBuffer; 2], elements: usize) -> Result<Pair<T>> {
        let [first, second] =
            buffers.map(|b| SymmetricTensor::view(b.clone(), 0, elements).map(Operand::Symmetric));
        Ok(Pair { first: first?, second: second? })
    }

    /// Makes a pair of two NCCL tensors.
    pub fn nccl(first: nccl::Tensor<T>, second: nccl::Tensor<T>) -> Pair<T> {
        Pair { first: Operand::Nccl(first), second: Operand::Nccl(second) }
    }

    /// The input and the output, with `send` and `recv` elements, each in its own tensor.
    pub fn apart(&self, send: usize, recv: usize) -> Result<[Operand<T>; 2]> {
        Ok([self.first.slice(0..send)?, self.second.slice(0..recv)?])
    }

    /// The input and the output in one tensor: the smaller one at this PE's part of the larger one.
    pub fn together(&self, send: usize, recv: usize, my_pe: usize) -> Result<[Operand<T>; 2]> {
        let whole = send.max(recv);
        let side = |n: usize| match n == whole {
            true => self.first.slice(0..whole),
            false => self.first.slice(my_pe * n..(my_pe + 1) * n),
        };
        Ok([side(send)?, side(recv)?])
    }
}
