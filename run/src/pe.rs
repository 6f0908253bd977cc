//! The work of one PE of a run, on a GPU or simulated. PE 0 also reads all results, compares them
//! and writes files.

use super::array::Array;
use super::expected::{self, Tolerance};
use super::inputs::{RunData, of_pe};
use super::plan::{ArgumentSource, KernelPlan, Plan};
use super::reference::{Checked, Values};
use super::tensors::Tensor;
use super::{RunError, TensorInfo, request};
use std::path::{Path, PathBuf};
use std::time::Instant;
use weft_ir::Scalar;
use weft_lang::elaborate::Define;
use weft_runtime::cuda::{AnyDeviceTensor, Event, Stream};
use weft_runtime::launch::{AsArgument, Grid, Kernel, LaunchOptions};
use weft_runtime::memory::AnyTensor;
use weft_runtime::{Simulation, World};

pub(super) struct Pe<'a> {
    world: &'a World,
    plan: &'a Plan,
    kernels: Vec<Kernel>,
    /// The tensors by number in the plan.
    tensors: Vec<Memory>,
    /// The arguments by kernel and parameter.
    arguments: Vec<Vec<Box<dyn AsArgument>>>,
    /// The time of each launch in microseconds.
    pub micros: Vec<f64>,
}

impl<'a> Pe<'a> {
    /// Allocates the memory of the plan. *Collective.*
    pub fn new(world: &'a World, plan: &'a Plan, kernels: Vec<Kernel>) -> Result<Pe<'a>, RunError> {
        let tensors = plan.tensors.iter().map(|t| Memory::new(world, t)).collect::<Result<Vec<_>, _>>()?;
        let argument = |kernel: &KernelPlan, (name, place): &(String, ArgumentSource)| {
            Ok::<Box<dyn AsArgument>, RunError>(match place {
                ArgumentSource::Tensor(t) => tensors[*t].argument(),
                ArgumentSource::Barrier => {
                    let barrier = world.kernel_barrier(kernel.ctas())?;
                    barrier.buffer().set_name(name.as_str());
                    Box::new(barrier)
                }
                ArgumentSource::Team => Box::new(world.team()),
                ArgumentSource::Scalar(value, dtype) => number(value.first, *dtype)?,
            })
        };
        let of =
            |kernel: &KernelPlan| kernel.params.iter().map(|p| argument(kernel, p)).collect::<Result<_, _>>();
        let arguments = plan.kernels.iter().map(of).collect::<Result<_, _>>()?;
        Ok(Pe { world, plan, kernels, tensors, arguments, micros: Vec::new() })
    }

    /// Sets the scalars that change between launches to their values in a launch, counted from 0.
    pub fn set_arguments(&mut self, launch: u32) -> Result<(), RunError> {
        self.replace(|place, _| match place {
            ArgumentSource::Scalar(value, dtype) if value.step != 0 => {
                value.of_launch(launch).map(|value| number(value, *dtype)).transpose()
            }
            _ => Ok(None),
        })
    }

    /// Replaces the arguments for which `new` returns others.
    fn replace(
        &mut self,
        new: impl Fn(&ArgumentSource, &[Memory]) -> Result<Option<Box<dyn AsArgument>>, RunError>,
    ) -> Result<(), RunError> {
        for (kernel, arguments) in self.plan.kernels.iter().zip(&mut self.arguments) {
            for ((_, place), argument) in kernel.params.iter().zip(arguments) {
                if let Some(other) = new(place, &self.tensors)? {
                    *argument = other;
                }
            }
        }
        Ok(())
    }

    /// Whether this PE reads all results.
    pub fn checks_results(&self) -> bool {
        self.world.my_pe() == 0
    }

    /// Waits until all PEs have arrived and their remote operations are complete, with no limit on
    /// PE 0's comparisons. *Collective.*
    pub fn settle(&self) -> Result<(), RunError> {
        Ok(self.world.wait_for_all()?)
    }

    /// Fills this PE's tensors with the input files or with their initial contents.
    pub fn fill(&self, seed: u64, found: &RunData) -> Result<(), RunError> {
        let me = self.world.my_pe() as usize;
        for (tensor, memory) in self.plan.tensors.iter().zip(&self.tensors) {
            let info = &tensor.info;
            let data = match found.arrays.get(&info.name) {
                Some(arrays) => {
                    let a = &arrays[me];
                    if a.shape != info.shape || a.dtype != info.dtype {
                        let (name, dtype, shape) = (&info.name, info.dtype, &info.shape);
                        return request(format!(
                            "`{name}` is {dtype}{shape:?}, but its file has {a:?} for each PE"
                        ));
                    }
                    Some(a.data.clone())
                }
                None => tensor.first(seed, me),
            };
            data.map_or(Ok(()), |data| self.put(tensor, memory, &data))?;
        }
        Ok(())
    }

    /// Restores the [renewed](Tensor::renewed) tensors to their contents before the first launch,
    /// except those that files fill. So a launch that does nothing does not keep the result of the
    /// one before. *Collective.*
    pub fn renew(&mut self, seed: u64, found: &RunData) -> Result<(), RunError> {
        let me = self.world.my_pe() as usize;
        let mut forgotten = vec![false; self.tensors.len()];
        for (number, tensor) in self.plan.tensors.iter().enumerate() {
            if !tensor.renewed || found.arrays.contains_key(&tensor.info.name) {
                continue;
            }
            match tensor.first(seed, me) {
                Some(data) => self.put(tensor, &self.tensors[number], &data)?,
                None if self.tensors[number].forget(self.world)? => {}
                None => {
                    self.tensors[number] = Memory::new(self.world, tensor)?;
                    forgotten[number] = true;
                }
            }
        }
        self.replace(|place, tensors| {
            Ok(match place {
                ArgumentSource::Tensor(number) if forgotten[*number] => Some(tensors[*number].argument()),
                _ => None,
            })
        })
    }

    /// Writes a tensor's elements, which are given in C order.
    fn put(&self, tensor: &Tensor, memory: &Memory, data: &[u8]) -> Result<(), RunError> {
        let (size, places) = (tensor.size(), &tensor.places);
        let mut image = vec![UNWRITTEN; places.span() as usize * size];
        places.scatter(size, data, &mut image);
        // The simulator finds reads of gaps, which are not initialised. On a GPU the whole range is
        // written in one copy.
        let simulated = self.world.simulation().is_some();
        let whole = 0..places.span() as usize;
        let ranges = if simulated { places.ranges() } else { vec![whole] };
        for range in ranges {
            let bytes = range.start * size..range.end * size;
            memory.write(bytes.start, &image[bytes], self.world.stream())?;
        }
        Ok(())
    }

    /// Returns a tensor's elements on every PE, in C order. It is for PE 0, once all PEs have
    /// [settled](Pe::settle).
    pub fn values(&self, name: &str) -> Result<Option<Values>, RunError> {
        let Some(number) = self.plan.tensor(name) else { return Ok(None) };
        let (tensor, memory) = (&self.plan.tensors[number], &self.tensors[number]);
        let get = |pe: usize| {
            let mut image = vec![0; tensor.bytes() as usize];
            memory.read(pe as u32, &mut image, self.world)?;
            Ok(tensor.places.gather(tensor.size(), &image))
        };
        let data = (0..self.plan.n_pes).map(get).collect::<Result<_, weft_runtime::Error>>()?;
        let TensorInfo { dtype, ref shape, .. } = tensor.info;
        Ok(Some(Values { dtype, shape: shape.clone(), data }))
    }

    /// Launches a kernel, and waits for its end on this PE.
    pub fn launch(&mut self, kernel: usize) -> Result<(), RunError> {
        let stream = self.world.stream();
        if self.world.simulation().is_some() {
            let start = Instant::now();
            self.enqueue(kernel)?;
            stream.synchronize()?;
            self.micros.push(start.elapsed().as_secs_f64() * 1e6);
            return Ok(());
        }
        // The PEs begin at about the same time, so that a launch's time contains less waiting for
        // others.
        self.world.team().sync(stream)?;
        let start = Event::record(stream)?;
        self.enqueue(kernel)?;
        let end = Event::record(stream)?;
        // This call waits for the end.
        self.micros.push(start.elapsed_us(&end)?);
        Ok(())
    }

    /// Enqueues a launch of a kernel on the stream.
    pub fn enqueue(&self, number: usize) -> Result<(), RunError> {
        let (kernel, plan) = (&self.kernels[number], &self.plan.kernels[number]);
        let own = kernel.info().grid.is_some();
        let grid = if own { Grid::Kernel } else { Grid::Of(plan.grid) };
        let mut options = LaunchOptions::default();
        if self.world.simulation().is_some() {
            // The simulator reports which CTAs wait for one that cannot start; the check of a
            // cooperative launch does not.
            options.cooperative = Some(false);
        }
        Ok(kernel.launch_with(self.world.stream(), grid, &options, &self.arguments[number])?)
    }

    /// Compares a tensor with the numbers of a file.
    pub fn expect(&self, name: &str, path: &Path, tolerance: Option<Tolerance>) -> Result<Checked, RunError> {
        let name =
            if name.is_empty() { self.plan.tensors.first().map_or("", |t| &t.info.name) } else { name };
        let Some(values) = self.values(name)? else {
            return request(format!("there is no tensor `{name}` to compare with {}", path.display()));
        };
        expected::compare(name, &values, path, tolerance)
    }

    /// Writes the requested tensors.
    pub fn write(&self, outputs: &[(String, PathBuf)]) -> Result<(), RunError> {
        for (name, path) in outputs {
            let tensors = &self.plan.tensors;
            let number = if name.is_empty() { Some(0) } else { self.plan.tensor(name) };
            let info = number.and_then(|n| tensors.get(n)).map(|t| &t.info);
            let Some((info, values)) = info.zip(info.map_or(Ok(None), |info| self.values(&info.name))?)
            else {
                return request(format!("there is no tensor `{name}` to write to {}", path.display()));
            };
            let shape = || info.shape.iter().copied();
            if of_pe(path, 0).is_some() {
                for (pe, data) in values.data.into_iter().enumerate() {
                    let array = Array { dtype: info.dtype, shape: shape().collect(), data };
                    array.write(&of_pe(path, pe).unwrap_or_default())?;
                }
            } else {
                let shape = std::iter::once(self.plan.n_pes as u64).chain(shape()).collect();
                Array { dtype: info.dtype, shape, data: values.data.concat() }.write(path)?;
            }
        }
        Ok(())
    }
}

/// The byte that fills uninitialised memory, which makes NaNs or extreme numbers.
const UNWRITTEN: u8 = 0xff;

/// The memory of a tensor.
enum Memory {
    Symmetric(AnyTensor),
    /// Memory on a simulated PE, with the addresses on all PEs. On GPUs all memory is symmetric,
    /// even for a `global` parameter, so that PE 0 can read it.
    Private(AnyDeviceTensor, Vec<u64>, Simulation),
}

impl Memory {
    fn new(world: &World, tensor: &Tensor) -> Result<Memory, RunError> {
        let (info, layout) = (&tensor.info, tensor.layout.clone());
        if let Some(simulation) = world.simulation().filter(|_| !tensor.symmetric) {
            let memory = AnyDeviceTensor::alloc(world.device(), info.dtype, layout)?;
            memory.set_name(tensor.name());
            let all = world.all_gather_host(&memory.address().to_le_bytes())?;
            let address = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes);
            return Ok(Memory::Private(memory, all.iter().map(address).collect(), simulation));
        }
        let buffer = world.buffer(usize::try_from(tensor.bytes()).unwrap_or(usize::MAX))?;
        buffer.set_name(tensor.name());
        // The simulator does this itself, and finds reads of uninitialised memory.
        if world.simulation().is_none() {
            buffer.fill(UNWRITTEN)?;
        }
        Ok(Memory::Symmetric(AnyTensor::new(buffer, info.dtype, layout)?))
    }

    /// Makes memory of a GPU uninitialised. Returns whether this is possible: the simulator, which
    /// tracks writes, needs new memory.
    fn forget(&self, world: &World) -> Result<bool, weft_runtime::Error> {
        match self {
            Memory::Symmetric(tensor) if world.simulation().is_none() => {
                tensor.buffer().fill(UNWRITTEN)?;
                Ok(true)
            }
            Memory::Symmetric(_) | Memory::Private(..) => Ok(false),
        }
    }

    fn argument(&self) -> Box<dyn AsArgument> {
        match self {
            Memory::Symmetric(tensor) => Box::new(tensor.clone()),
            Memory::Private(tensor, ..) => Box::new(tensor.clone()),
        }
    }

    /// Writes bytes of this PE.
    fn write(&self, offset: usize, data: &[u8], stream: &Stream) -> Result<(), weft_runtime::Error> {
        match self {
            Memory::Symmetric(tensor) => tensor.buffer().write(offset, data, stream),
            Memory::Private(tensor, ..) => tensor.write(offset, data, stream),
        }
    }

    /// Reads the bytes of a PE.
    fn read(&self, pe: u32, data: &mut [u8], world: &World) -> Result<(), weft_runtime::Error> {
        match self {
            Memory::Symmetric(tensor) => tensor.buffer().read(pe, 0, data, world.stream()),
            Memory::Private(_, addresses, simulation) => simulation.read(pe, addresses[pe as usize], data),
        }
    }
}

/// Converts a scalar to an argument.
fn number(value: Define, dtype: Scalar) -> Result<Box<dyn AsArgument>, RunError> {
    Ok(match (value, dtype) {
        (Define::Float(x), _) => Box::new(x),
        (Define::Int(n), Scalar::Bool) => Box::new(n != 0),
        // All 64 bits are used.
        (Define::Int(n), Scalar::U64) => Box::new(n as u64),
        (Define::Int(n), _) => Box::new(n),
        (Define::Bool(b), _) => Box::new(b),
        (Define::Dtype(_) | Define::Reduction(_), _) => return request("the value is a type, not a number"),
    })
}
