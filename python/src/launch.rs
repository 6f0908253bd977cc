//! Launches: converts Python's values to arguments, and loads kernels for each device.
#![allow(unsafe_code, reason = "arrays and streams of other libraries are addresses")]

use crate::error::Fault;
use crate::kernel::Compiled;
use crate::tensor::{Tensor, layout};
use crate::world::{Barrier, Team, World, dtype};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use weft::gpu::{Grid, Kernel, LaunchOptions, On, target};
use weft::runtime::cuda::{BorrowedTensor, Device, RawStream, Stream};
use weft::runtime::launch::{Argument, AsArgument};
use weft::runtime::memory::AnyTensor;
use weft::runtime::{self, Team as RuntimeTeam};
use weft::{KernelFile, Options};

/// An array of another library, in a device's memory.
#[pyclass(frozen, module = "warpweft._native")]
pub struct Borrowed {
    pub tensor: BorrowedTensor,
    #[pyo3(get)]
    address: u64,
}

/// A GPU of this process, for kernels that do not communicate.
#[pyclass(frozen, module = "warpweft._native")]
pub struct Gpu {
    device: Device,
}

fn borrowed(device: &Device, address: u64, code: u8, layout_text: &str) -> Result<Borrowed, Fault> {
    let (dtype, layout) = (dtype(code)?, layout(layout_text)?);
    // SAFETY: Python keeps the array during the call, and its library orders the release of its
    // memory after the stream's work.
    let tensor = unsafe { BorrowedTensor::with_layout(device, address, dtype, layout)? };
    Ok(Borrowed { tensor, address })
}

#[pymethods]
impl Borrowed {
    /// Memory at an address that this PE's device can access.
    #[staticmethod]
    fn of_world(world: &World, address: u64, code: u8, layout_text: &str) -> PyResult<Borrowed> {
        Ok(borrowed(world.inner.device(), address, code, layout_text)?)
    }

    /// Memory of a GPU.
    #[staticmethod]
    fn of_gpu(gpu: &Gpu, address: u64, code: u8, layout_text: &str) -> PyResult<Borrowed> {
        Ok(borrowed(&gpu.device, address, code, layout_text)?)
    }
}

#[pymethods]
impl Gpu {
    /// The GPU with this number.
    #[staticmethod]
    fn open(py: Python<'_>, ordinal: u32) -> PyResult<Gpu> {
        Ok(Gpu { device: py.detach(|| Device::open(ordinal)).map_err(Fault::from)? })
    }
}

/// An argument, kept alive during a launch.
enum Value {
    Tensor(AnyTensor),
    Borrowed(BorrowedTensor),
    Barrier(runtime::Barrier),
    Team(Arc<RuntimeTeam>),
    Bool(bool),
    Int(i64),
    Large(u64),
    Float(f64),
}

impl AsArgument for Value {
    fn argument<'a>(&'a self, stream: &'a Stream) -> Argument<'a> {
        match self {
            Value::Tensor(v) => v.argument(stream),
            Value::Borrowed(v) => v.argument(stream),
            Value::Barrier(v) => v.argument(stream),
            Value::Team(v) => (**v).argument(stream),
            Value::Bool(v) => v.argument(stream),
            Value::Int(v) => v.argument(stream),
            Value::Large(v) => v.argument(stream),
            Value::Float(v) => v.argument(stream),
        }
    }
}

fn value(position: usize, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(tensor) = given.cast::<Tensor>() {
        return Ok(Value::Tensor(tensor.get().any()?));
    }
    if let Ok(array) = given.cast::<Borrowed>() {
        return Ok(Value::Borrowed(array.get().tensor.clone()));
    }
    if let Ok(barrier) = given.cast::<Barrier>() {
        return Ok(Value::Barrier(barrier.get().inner.clone()));
    }
    if let Ok(team) = given.cast::<Team>() {
        return Ok(Value::Team(team.get().inner.clone()));
    }
    if let Ok(b) = given.cast::<PyBool>() {
        return Ok(Value::Bool(b.is_true()));
    }
    if given.is_instance_of::<PyInt>() {
        return given.extract().map(Value::Int).or_else(|_| given.extract().map(Value::Large));
    }
    if given.is_instance_of::<PyFloat>() {
        return given.extract().map(Value::Float);
    }
    let kind = given.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "argument {position} is a {kind}, but it must be a tensor, a barrier, a team, an array on a GPU, or a number"
    )))
}

/// A kernel of a compiled file, loaded on each device on which it is launched.
#[pyclass(frozen, module = "warpweft._native")]
pub struct Launcher {
    file: Arc<KernelFile>,
    options: Options,
    /// The loaded kernels, by the number of the world, or of the GPU without a world.
    loaded: Mutex<BTreeMap<(bool, u64), Arc<Kernel>>>,
}

impl Launcher {
    /// Checks the arguments and launches the kernel.
    fn start(
        &self,
        py: Python<'_>,
        (key, on, device): Target<'_>,
        layout: Shape,
        arguments: &[Bound<'_, PyAny>],
        stream: &Stream,
    ) -> PyResult<()> {
        let values = arguments.iter().enumerate().map(|(i, a)| value(i, a)).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| {
            let kernel = self.kernel(key, on, device)?;
            let (grid, options) = shape(layout);
            Ok(kernel.launch_with(stream, grid, &options, values)?)
        })
        .map_err(|e: Fault| e.into())
    }

    fn kernel(&self, key: (bool, u64), on: On, device: &Device) -> Result<Arc<Kernel>, Fault> {
        let lock = || self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = lock().get(&key) {
            return Ok(kernel.clone());
        }
        let options = self.options.clone().target(target(device)?).keep_ir(false);
        let kernel = Arc::new(Kernel::with(on, self.file.clone(), options)?);
        Ok(lock().entry(key).or_insert(kernel).clone())
    }
}

/// Where a kernel runs: its key among the loaded kernels, and the device.
type Target<'a> = ((bool, u64), On, &'a Device);

/// The shape of a launch as given by Python. None means the kernel's own grid, or as many CTAs as
/// fit.
type Shape = (Option<[u32; 3]>, Option<bool>, Option<[u32; 3]>);

fn shape((grid, cooperative, cluster): Shape) -> (Grid, LaunchOptions) {
    let grid = grid.map_or(Grid::Auto, |[x, y, z]| Grid::xyz(x, y, z));
    (grid, LaunchOptions::default().cooperative(cooperative).cluster(cluster))
}

#[pymethods]
impl Launcher {
    #[new]
    fn new(compiled: &Compiled, name: &str) -> Launcher {
        let options = compiled.options.clone().kernel(Some(name.to_owned()));
        Launcher { file: compiled.file.clone(), options, loaded: Mutex::default() }
    }

    /// Launches the kernel on a PE.
    fn launch(
        &self,
        py: Python<'_>,
        world: &World,
        layout: Shape,
        arguments: Vec<Bound<'_, PyAny>>,
        stream: Option<u64>,
    ) -> PyResult<()> {
        let stream = world.stream(stream)?;
        self.start(
            py,
            ((true, world.number), (&world.inner).into(), world.inner.device()),
            layout,
            &arguments,
            &stream,
        )
    }

    /// Launches the kernel on a GPU without a world.
    fn launch_on(
        &self,
        py: Python<'_>,
        gpu: &Gpu,
        layout: Shape,
        arguments: Vec<Bound<'_, PyAny>>,
        stream: u64,
    ) -> PyResult<()> {
        // SAFETY: the caller keeps the stream during the call.
        let stream =
            unsafe { gpu.device.borrow_stream(stream as usize as RawStream) }.map_err(Fault::from)?;
        let number = u64::from(gpu.device.ordinal());
        self.start(py, ((false, number), (&gpu.device).into(), &gpu.device), layout, &arguments, &stream)
    }

    /// Compiles and loads the kernel for a PE now.
    fn prepare(&self, py: Python<'_>, world: &World) -> PyResult<()> {
        let device = world.inner.device();
        let made = py.detach(|| self.kernel((true, world.number), (&world.inner).into(), device));
        Ok(made.map(drop)?)
    }

    /// The number of CTAs of the kernel that are resident on a PE's device at once.
    fn max_ctas(&self, py: Python<'_>, world: &World) -> PyResult<u32> {
        let device = world.inner.device();
        py.detach(|| Ok(self.kernel((true, world.number), (&world.inner).into(), device)?.max_ctas()?))
            .map_err(|e: Fault| e.into())
    }
}
