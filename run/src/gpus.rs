//! Runs on GPUs, with one process for each PE.

use super::pe::Pe;
use super::plan::Plan;
use super::sequence::{Checks, Prepared, Sequence, Stage};
use super::{Outcome, Ran, RunError, RunOptions, entry};
use std::sync::Mutex;
use weft::gpu::cache::Entry;
use weft::{KernelFile, Lowering};
use weft_runtime::World;
use weft_runtime::launch::{Kernel, Module};

pub(super) fn run(stages: &[Stage<'_>], options: &RunOptions, world: &World) -> Result<Outcome, RunError> {
    let mut options = options.clone();
    options.n_pes = world.n_pes() as usize;
    if world.nvshmem_version().is_none() {
        options.compile.transport = options.compile.transport.without_nvshmem();
    }
    let mut no_multicast = None;
    if options.compile.lowering == Lowering::Auto {
        // Multicast support for one allocation means support for all.
        let probe = world.buffer(256)?;
        no_multicast = probe.why_no_multicast(&world.team());
        options.compile.lowering = options.compile.lowering.decide(no_multicast.is_none()).into();
    }
    let mut sequence = Sequence::new(stages, &options)?;
    let plan = Plan::new(&sequence, &options)?;
    let kernels =
        stages.iter().zip(&sequence.stages).map(|(stage, prepared)| kernel(stage.file, prepared, world));
    let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
    for (kernel, prepared) in kernels.iter().zip(&mut sequence.stages) {
        let sources = prepared.compiled.sources();
        let said: Vec<_> = kernel.module().remarks().map(|r| weft::tools::warning(r, sources)).collect();
        prepared.compiled.warnings.extend(said);
    }
    let mut pe = Pe::new(world, &plan, kernels)?;
    let checks = Mutex::<Checks>::default();
    sequence.carry_out(&mut pe, &options, &checks)?;
    let ran = Ran::Gpus {
        gpu: world.device().name()?,
        nvshmem: world.nvshmem_version(),
        no_multicast,
        micros: pe.micros,
    };
    sequence.outcome(&plan, checks, String::new(), ran)
}

/// The compiled kernel, with NVSHMEM functions if it calls them.
fn kernel(file: &KernelFile, prepared: &Prepared, world: &World) -> Result<Kernel, RunError> {
    let info = prepared.compiled.describe().map_err(|e| RunError::Request(e.to_string()))?;
    let ptx = Entry { info, image: prepared.compiled.ptx.clone().into_bytes() };
    let loaded = ptx.complete(world.device(), file, &prepared.options)?;
    let name = entry(&loaded.info).to_owned();
    Ok(Module::load_in(world, &loaded.image, loaded.info)?.kernel(&name)?)
}
