//! The algorithms of collectives on simulated PEs.

use crate::RunOptions;
use weft::collective::{Plan, Request};
use weft::gpu::GpuError;
use weft::{Define, KernelFile, Target};

/// Returns the file and the options with which [`run_file`](crate::run_file) executes `request`
/// with `plan` on simulated PEs. With `request.multicast`, the kernel uses multimem instructions.
///
/// # Errors
/// Fails if the plan does not fit the request ([`Plan::check`]).
pub fn simulation(
    plan: &Plan,
    request: &Request,
    target: Target,
) -> Result<(KernelFile, RunOptions), GpuError> {
    let (file, compile) = plan.compilation(request, target)?;
    let mut run = RunOptions::new(compile, request.n_pes as usize);
    // The PEs form one node, or nodes of two PEs. Between nodes only NVSHMEM functions reach a PE.
    run.node = Some(if request.reach { request.n_pes } else { 2 });
    run.grid = Some([plan.ctas, 1, 1]);
    run.args.insert("n".into(), Define::Int(i64::try_from(request.count).unwrap_or(i64::MAX)).into());
    Ok((file, run))
}
