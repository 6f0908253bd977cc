//! PEs on GPUs, one a process. Each fills its own memory; PE 0 reads all, checks, and writes files.

use super::backend::{Backend, Memory, Request};
use super::tensors::{Place, Plan, Tensor};
use super::{Outcome, Prepared, Ran, RunError, RunOptions};
use crate::compile::{KernelFile, Lowering};
use crate::gpu::cache::Entry;
use std::ops::Range;
use weft_ir::Scalar;
use weft_lang::elaborate::Define;
use weft_runtime::cuda::Event;
use weft_runtime::launch::{AsArgument, Grid, Kernel, Module, ParamKind};
use weft_runtime::memory::{AnyTensor, SymmetricBuffer};
use weft_runtime::{Barrier, Team, World};

pub(super) fn run(file: &KernelFile, options: &RunOptions, world: &World) -> Result<Outcome, RunError> {
    let mut options = options.clone();
    options.n_pes = world.n_pes() as usize;
    let mut no_multicast = None;
    if options.compile.lowering == Lowering::Auto {
        // What the switch has for one allocation it has for all.
        let probe = world.buffer(256)?;
        no_multicast = probe.why_no_multicast(&world.team());
        options.compile.lowering = options.compile.lowering.decide(no_multicast.is_none()).into();
    }
    let prepared = Prepared::new(file, &options)?;
    let gpus = Gpus::new(file, &prepared, world)?;
    let mut plan = Plan::new(&prepared.compiled, &options, &prepared.found, gpus)?;
    let checks = prepared.carry_out(&mut plan, &options)?;
    let ran = Ran::Gpus {
        gpu: world.device().name()?,
        nvshmem: world.nvshmem_version(),
        no_multicast,
        micros: plan.backend.micros.clone(),
    };
    Ok(Outcome {
        grid: plan.grid,
        block: plan.block,
        tensors: plan.infos(),
        checks,
        printed: String::new(),
        ran,
        kernel: prepared.kernel,
        compile_time: prepared.compile_time,
        compiled: prepared.compiled,
    })
}

/// Memory of a parameter: symmetric even where a `global` would do, so that PE 0 can look at all.
enum Block {
    Tensor(AnyTensor),
    Barrier(Barrier),
}

struct Gpus<'w> {
    world: &'w World,
    team: Team,
    kernel: Kernel,
    blocks: Vec<Block>,
    /// Time of each launch.
    micros: Vec<f64>,
}

impl<'w> Gpus<'w> {
    fn new(file: &KernelFile, prepared: &Prepared, world: &'w World) -> Result<Gpus<'w>, RunError> {
        let compiled = &prepared.compiled;
        let info = crate::meta::describe(compiled).map_err(|e| RunError::Request(e.to_string()))?;
        let name = info.kernels.first().map(|k| k.name.clone()).unwrap_or_default();
        let ptx = Entry { info, image: compiled.ptx.clone().into_bytes() };
        let entry = crate::gpu::complete(world.device(), ptx, file, &prepared.options)?;
        let module = Module::load_in(world, &entry.image, entry.info)?;
        let kernel = module.kernel(&name)?;
        Ok(Gpus { world, team: world.team(), kernel, blocks: Vec::new(), micros: Vec::new() })
    }

    fn buffer(&self, memory: usize) -> &SymmetricBuffer {
        match &self.blocks[memory] {
            Block::Tensor(t) => t.buffer(),
            Block::Barrier(b) => b.buffer(),
        }
    }

    fn argument(&self, place: &Place, kind: &ParamKind) -> Result<Box<dyn AsArgument>, RunError> {
        Ok(match (place, kind) {
            (Place::Memory(m), _) => match &self.blocks[*m] {
                Block::Tensor(t) => Box::new(t.clone()),
                Block::Barrier(b) => Box::new(b.clone()),
            },
            (Place::Team, _) => Box::new(self.world.team()),
            (Place::Scalar(Define::Float(x)), _) => Box::new(*x),
            (Place::Scalar(d), kind) => {
                let n = match d {
                    Define::Int(n) => *n,
                    Define::Bool(b) => i64::from(*b),
                    _ => return super::request("a type is no number"),
                };
                if matches!(kind, ParamKind::Scalar { dtype: Scalar::Bool, .. }) {
                    Box::new(n != 0)
                } else {
                    Box::new(n)
                }
            }
        })
    }
}

impl Backend for Gpus<'_> {
    fn fills(&self) -> Range<usize> {
        let me = self.world.my_pe() as usize;
        me..me + 1
    }

    fn judges(&self) -> bool {
        self.world.my_pe() == 0
    }

    fn settle(&mut self) -> Result<(), RunError> {
        // PE 0 may be comparing many elements.
        Ok(self.world.wait_for_all()?)
    }

    fn alloc(&mut self, memory: &Memory<'_>) -> Result<usize, RunError> {
        let bytes = usize::try_from(memory.bytes).unwrap_or(usize::MAX);
        self.blocks.push(match memory.tensor {
            None => {
                let lines = memory.bytes / weft_runtime::launch::BARRIER_LINE;
                Block::Barrier(self.world.kernel_barrier(u32::try_from(lines).unwrap_or(u32::MAX))?)
            }
            Some((elem, layout)) => {
                let buffer = self.world.buffer(bytes)?;
                // What nobody writes is seen: NaNs, or numbers far away.
                buffer.fill(0xff)?;
                Block::Tensor(AnyTensor::new(buffer, elem, layout.clone())?)
            }
        });
        Ok(self.blocks.len() - 1)
    }

    fn put(&mut self, pe: usize, memory: usize, tensor: &Tensor, data: &[u8]) -> Result<(), RunError> {
        if pe != self.world.my_pe() as usize {
            return Ok(());
        }
        let size = tensor.info.dtype.bytes() as usize;
        let mut image = vec![0xff; tensor.places.span() as usize * size];
        tensor.places.scatter(size, data, &mut image);
        Ok(self.buffer(memory).write(0, &image, self.world.stream())?)
    }

    fn get(&self, pe: usize, memory: usize, tensor: &Tensor) -> Result<Vec<u8>, RunError> {
        let size = tensor.info.dtype.bytes() as usize;
        let mut image = vec![0; tensor.places.span() as usize * size];
        self.buffer(memory).read(pe as u32, 0, &mut image, self.world.stream())?;
        Ok(tensor.places.gather(size, &image))
    }

    fn launch(&mut self, request: &Request<'_>) -> Result<(), RunError> {
        let arguments = request
            .places
            .iter()
            .zip(&request.kernel.params)
            .map(|(place, p)| self.argument(place, &p.kind))
            .collect::<Result<Vec<_>, _>>()?;
        let own = self.kernel.info().grid.is_some();
        let grid = if own { Grid::Kernel } else { Grid::Of(request.grid) };
        let stream = self.world.stream();
        self.team.sync(stream)?;
        let start = Event::record(stream)?;
        self.kernel.launch(stream, grid, arguments)?;
        let end = Event::record(stream)?;
        // That waits for the end.
        self.micros.push(start.elapsed_us(&end)?);
        Ok(())
    }
}
