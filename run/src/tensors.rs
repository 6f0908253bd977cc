//! The tensors of a run: the positions of their elements, and their initial contents.

use super::array::{Number, write_number};
use super::positions::Positions;
use super::{RunError, TensorInfo};
use std::sync::Arc;
use weft::TensorRole;
use weft_ir::{Layout, NumberKind, Role, Space, TensorType};
use weft_sim::{Elements, Name};

/// A tensor: its extents, and the position of each element.
pub(super) struct Tensor {
    pub info: TensorInfo,
    pub layout: Layout,
    /// The positions of its elements.
    pub places: Positions,
    /// The kind of its contents before a launch, if no file gives them.
    pub role: Role,
    /// Whether its initial contents are restored before each launch that the host waits for. What a
    /// launch leaves in it is a result or scratch data.
    pub renewed: bool,
    /// Whether `computes(...)` names it as a result and not also as an operand.
    pub is_result: bool,
    pub symmetric: bool,
}

impl Tensor {
    pub fn new(
        name: &str,
        t: &TensorType,
        layout: Layout,
        assigned: &TensorRole,
    ) -> Result<Tensor, RunError> {
        let places = Positions::new(&layout).map_err(|why| RunError::Request(format!("`{name}` {why}")))?;
        let info = TensorInfo { name: name.to_owned(), dtype: t.elem, shape: places.shape() };
        let role = assigned.role;
        let is_result = assigned.is_result;
        let renewed = is_result || matches!(role, Role::Output | Role::Workspace);
        Ok(Tensor { info, layout, places, role, renewed, is_result, symmetric: t.space == Space::Symmetric })
    }

    /// The size of an element in bytes.
    pub fn size(&self) -> usize {
        self.info.dtype.bytes() as usize
    }

    /// Its name, with which the simulator describes its elements.
    pub fn name(&self) -> Name {
        let count = self.places.len() as u64;
        let elements = Counted { layout: self.layout.clone(), count, size: self.size() as u64 };
        Name::of(&self.info.name, Arc::new(elements))
    }

    /// The size of the memory from the first to the last element in bytes.
    pub fn bytes(&self) -> u64 {
        self.places.span().saturating_mul(self.size() as u64)
    }

    /// Its elements on a PE before the first launch, in C order; none if they are uninitialised.
    pub fn first(&self, seed: u64, pe: usize) -> Option<Vec<u8>> {
        match self.role {
            Role::Output | Role::Workspace => None,
            Role::Zeroed => Some(self.zeros()),
            Role::Input => Some(seeded(&self.info, seed, pe)),
        }
    }

    /// The bytes of the elements if all are 0.
    pub fn zeros(&self) -> Vec<u8> {
        vec![0; self.places.len() * self.size()]
    }
}

/// The elements of a tensor, for the simulator.
#[derive(Debug)]
struct Counted {
    layout: Layout,
    count: u64,
    size: u64,
}

impl Elements for Counted {
    fn size(&self) -> u64 {
        self.size
    }

    fn count(&self) -> u64 {
        self.count
    }

    fn coordinate(&self, offset: u64) -> Option<Vec<u64>> {
        let found = self.layout.coordinate(i64::try_from(offset).ok()?)?;
        found.into_iter().map(|index| u64::try_from(index).ok()).collect()
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
            let least = if info.dtype.kind() == NumberKind::Signed { 100 } else { 0 };
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
