//! Symmetric memory for Python.

use crate::dlpack;
use crate::error::Fault;
use crate::world::{Team, dtype};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::sync::{Arc, Mutex, PoisonError};
use weft::layout::{Int, IntTuple, Layout, expr};
use weft::runtime::memory::AnyTensor;
use weft::runtime::{self, DType, SymmetricBuffer};

/// A layout of integers.
pub fn layout(text: &str) -> Result<Layout, Fault> {
    expr::parse_layout(text, &mut |_| None).map_err(|e| Fault::new("L0001", format!("`{text}` {e}"), ""))
}

/// The memory of tensors, which is released when it is freed or no tensor is left.
pub struct Memory {
    buffer: Mutex<Option<SymmetricBuffer>>,
    address: u64,
    bytes: usize,
    /// Its address in this process, for a simulated PE.
    host: Option<usize>,
}

impl Memory {
    pub fn bytes_of(dtype: DType, layout: &Layout) -> Result<usize, Fault> {
        let cosize = layout.cosize().as_const().and_then(|n| usize::try_from(n).ok());
        let bytes = cosize.and_then(|n| n.checked_mul(dtype.bytes() as usize)).filter(|n| *n > 0);
        bytes.ok_or_else(|| Fault::new("R0307", format!("memory cannot have the layout {layout}"), ""))
    }

    /// The buffer in symmetric memory, unless it has been freed.
    ///
    /// # Errors
    ///
    /// Fails if the memory was freed (R0305).
    pub fn buffer(&self) -> Result<SymmetricBuffer, Fault> {
        let buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer
            .clone()
            .ok_or_else(|| Fault::new("R0305", "the symmetric memory was freed", "allocate the tensor again"))
    }
}

/// A tensor that every PE has a copy of.
#[pyclass(frozen, module = "warpweft._native")]
pub struct Tensor {
    pub memory: Arc<Memory>,
    pub offset: u64,
    pub dtype: DType,
    layout: Layout,
}

impl Tensor {
    pub fn new(
        world: &runtime::World,
        buffer: SymmetricBuffer,
        dtype: DType,
        layout: Layout,
    ) -> Result<Tensor, runtime::Error> {
        buffer.free_later();
        let (address, bytes) = (buffer.address(), buffer.bytes());
        let simulation = world.simulation();
        let host = simulation.map(|s| s.host_address(world.my_pe(), address, bytes as u64)).transpose()?;
        let memory = Memory { buffer: Mutex::new(Some(buffer)), address, bytes, host };
        Ok(Tensor { memory: Arc::new(memory), offset: 0, dtype, layout })
    }

    pub fn any(&self) -> Result<AnyTensor, Fault> {
        Ok(AnyTensor::view(self.memory.buffer()?, self.offset, self.dtype, self.layout.clone())?)
    }

    pub fn bytes(&self) -> Result<usize, Fault> {
        Memory::bytes_of(self.dtype, &self.layout)
    }
}

/// The numbers of a shape or of strides.
fn numbers(tuple: &IntTuple) -> Vec<i64> {
    let of = |t: &IntTuple| t.product().as_const().unwrap_or(0);
    tuple.as_modes().iter().map(of).collect()
}

#[pymethods]
impl Tensor {
    #[getter]
    fn address(&self) -> u64 {
        self.memory.address + self.offset
    }

    /// The address of the tensor in this process; None on a GPU.
    #[getter]
    fn host_address(&self) -> Option<usize> {
        self.memory.host.map(|start| start + self.offset as usize)
    }

    /// The number of bytes from the first to the last element.
    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        Ok(self.bytes()?)
    }

    #[getter]
    fn dtype(&self) -> String {
        self.dtype.to_string()
    }

    #[getter]
    fn layout(&self) -> String {
        self.layout.to_string()
    }

    /// The number of elements in each mode.
    #[getter]
    fn shape(&self) -> Vec<i64> {
        numbers(self.layout.shape())
    }

    /// The strides by mode, in elements; None if a mode has several strides.
    #[getter]
    fn strides(&self) -> Option<Vec<i64>> {
        let mode = |m: usize| -> Option<i64> {
            let mode = self.layout.mode(m)?.coalesce().ok()?;
            mode.stride().as_int().and_then(Int::as_const)
        };
        (0..self.layout.rank()).map(mode).collect()
    }

    #[getter]
    fn freed(&self) -> bool {
        self.memory.buffer().is_err()
    }

    /// A tensor of other elements of the same memory, which begins at byte `offset` of this one.
    fn view(&self, offset: u64, code: u8, layout_text: &str) -> PyResult<Tensor> {
        let (dtype, layout) = (dtype(code)?, layout(layout_text)?);
        // Fails if the memory has been freed.
        self.memory.buffer()?;
        let offset = self.offset.saturating_add(offset);
        let end = offset.saturating_add(Memory::bytes_of(dtype, &layout)? as u64);
        if end > self.memory.bytes as u64 || !offset.is_multiple_of(dtype.bytes().into()) {
            let message = format!(
                "{layout} of {dtype} from byte {offset} does not fit into symmetric memory of {} bytes",
                self.memory.bytes
            );
            return Err(Fault::new(
                "R0307",
                message,
                "a view must lie in its memory, at a multiple of its element's size",
            )
            .into());
        }
        Ok(Tensor { memory: self.memory.clone(), offset, dtype, layout })
    }

    /// The address at which this PE's loads and stores access another PE's copy.
    fn peer_address(&self, py: Python<'_>, pe: u32) -> PyResult<u64> {
        let buffer = self.memory.buffer()?;
        Ok(py.detach(|| buffer.peer_address(pe)).map_err(Fault::from)? + self.offset)
    }

    /// The address of a simulated PE's copy in this process.
    fn host_of(&self, pe: u32, world: &crate::world::World) -> PyResult<usize> {
        let simulation = world.inner.simulation();
        let simulation =
            simulation.ok_or_else(|| Fault::usage("the host cannot access a GPU's memory", ""))?;
        let address = self.memory.buffer()?.peer_address(pe).map_err(Fault::from)? + self.offset;
        let at = simulation.host_address(world.inner.my_pe(), address, self.bytes()? as u64);
        Ok(at.map_err(Fault::from)?)
    }

    /// The address at which multimem instructions access all copies of a team, or None and the
    /// reason.
    fn multicast_address(&self, team: &Team) -> PyResult<(Option<u64>, Option<String>)> {
        let buffer = self.memory.buffer()?;
        let address = buffer.multicast_address(&team.inner).map(|a| a + self.offset);
        Ok((address, buffer.why_no_multicast(&team.inner)))
    }

    /// Reads the bytes of this PE's copy, in the order of the world's stream.
    fn read(&self, py: Python<'_>, pe: u32, world: &crate::world::World) -> PyResult<Vec<u8>> {
        let (buffer, mut data) = (self.memory.buffer()?, vec![0; self.bytes()?]);
        let done = py.detach(|| buffer.read(pe, self.offset as usize, &mut data, world.inner.stream()));
        done.map_err(Fault::from)?;
        Ok(data)
    }

    /// Writes the bytes of this PE's copy, in the order of the world's stream.
    fn write(&self, py: Python<'_>, data: Vec<u8>, world: &crate::world::World) -> PyResult<()> {
        let buffer = self.memory.buffer()?;
        let done = py.detach(|| buffer.write(self.offset as usize, &data, world.inner.stream()));
        Ok(done.map_err(Fault::from)?)
    }

    /// Frees the memory, even though this tensor and its views refer to it.
    fn free(&self, py: Python<'_>) {
        let taken = self.memory.buffer.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(taken));
    }

    /// A DLPack capsule, in the format of version 1 or the older one.
    fn dlpack<'py>(&self, py: Python<'py>, versioned: bool) -> PyResult<Bound<'py, PyCapsule>> {
        dlpack::export(py, &self.any()?, versioned)
    }
}
