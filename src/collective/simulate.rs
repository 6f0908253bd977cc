//! The same algorithms on the simulator.

use super::handle::{file, options};
use super::{Plan, Request};
use crate::compile::{KernelFile, Lowering};
use crate::gpu::GpuError;
use crate::run::RunOptions;
use weft_isa::Target;
use weft_lang::elaborate::Define;

/// What [`run_file`](crate::run::run_file) takes to carry a request out on simulated PEs, as a handle with as many CTAs
/// as the plan would, for `Request::multicast` by multimem instructions.
///
/// # Errors
/// Fails if the plan does not fit the request ([`Plan::check`]).
pub fn simulation(
    plan: &Plan,
    request: &Request,
    target: Target,
) -> Result<(KernelFile, RunOptions), GpuError> {
    plan.check(request, plan.ctas).map_err(super::handle::operation)?;
    let mut compile = options(plan, request, plan.ctas, target)?;
    compile.lowering = Lowering::Auto.decide(request.multicast).into();
    let mut run = RunOptions::new(compile, request.n_pes as usize);
    // One node of all PEs, or nodes of two, between which there is NVSHMEM alone.
    run.node = Some(if request.reach { request.n_pes } else { 2 });
    run.grid = Some([plan.ctas, 1, 1]);
    run.args.insert("n".into(), Define::Int(i64::try_from(request.count).unwrap_or(i64::MAX)).into());
    Ok((file(plan.algorithm)?, run))
}
