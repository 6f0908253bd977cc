//! The tensors of a run: where their elements lie, and what is in them at first.

use super::array::{Number, write_number};
use super::positions::Positions;
use super::{RunError, TensorInfo};
use crate::compile::Compiled;
use weft_ir::ordering::flags;
use weft_ir::{Kernel, Kind, Layout, Space, TensorType};

/// What is in a tensor before the first launch, where no file says that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begins {
    /// Nothing: it is the result of `computes(x, out)`.
    Unwritten,
    /// Zeros: it holds signals or counters, and is no operand of `computes`.
    Zero,
    /// Made data.
    Data,
}

impl Begins {
    /// Of a kernel's parameter.
    pub fn of(compiled: &Compiled, kernel: &Kernel, param: usize) -> Begins {
        let name = &kernel.head.params[param].name;
        let reference = compiled.references.first().and_then(Option::as_ref);
        let operands = reference.map_or(&[][..], |r| &r.args);
        // In place, named once or twice, the result is the operand.
        match operands {
            [from, to] if from != to && to == name => Begins::Unwritten,
            _ if operands.contains(name) => Begins::Data,
            _ if flags(kernel).contains_key(&(param as u32)) => Begins::Zero,
            _ => Begins::Data,
        }
    }
}

/// A tensor: its extents, and where each element lies.
pub(super) struct Tensor {
    pub info: TensorInfo,
    pub layout: Layout,
    /// Where its elements lie.
    pub places: Positions,
    pub begins: Begins,
    pub symmetric: bool,
}

impl Tensor {
    pub fn new(name: &str, t: &TensorType, layout: Layout, begins: Begins) -> Result<Tensor, RunError> {
        let places = Positions::new(&layout).map_err(|why| RunError::Request(format!("`{name}` {why}")))?;
        let info = TensorInfo { name: name.to_owned(), dtype: t.elem, shape: places.shape() };
        Ok(Tensor { info, layout, places, begins, symmetric: t.space == Space::Symmetric })
    }

    /// Bytes of an element.
    pub fn size(&self) -> usize {
        self.info.dtype.bytes() as usize
    }

    /// Bytes of memory from the first to the last element.
    pub fn bytes(&self) -> u64 {
        self.places.span().saturating_mul(self.size() as u64)
    }

    /// Its elements on a PE before the first launch, in C order; none where nobody writes them.
    pub fn first(&self, seed: u64, pe: usize) -> Option<Vec<u8>> {
        match self.begins {
            Begins::Unwritten => None,
            Begins::Zero => Some(self.zeros()),
            Begins::Data => Some(seeded(&self.info, seed, pe)),
        }
    }

    /// So many elements of 0.
    pub fn zeros(&self) -> Vec<u8> {
        vec![0; self.places.len() * self.size()]
    }
}

/// Data that depends on PE and index: floats in [-1, 1), integers in [-100, 100) or [0, 200).
fn seeded(info: &TensorInfo, seed: u64, pe: usize) -> Vec<u8> {
    let n = info.shape.iter().product::<u64>();
    let mut out = Vec::with_capacity(n as usize * info.dtype.bytes() as usize);
    let name = info.name.bytes().fold(seed, |h, b| mix(h ^ u64::from(b)));
    for i in 0..n {
        let bits = mix(name ^ mix((pe as u64) << 40 | i));
        let x = if info.dtype.is_float() {
            Number::Float((bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
        } else {
            let least = if info.dtype.kind() == Kind::Signed { 100 } else { 0 };
            Number::Int(i128::from(bits % 200) - least)
        };
        write_number(info.dtype, x, &mut out);
    }
    out
}

/// One step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): every input bit reaches every output bit.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
