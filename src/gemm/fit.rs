//! Whether a plan's tiles fit the memory and the registers that a CTA has.

use super::{Major, Param, Plan, Problem};
use weft_runtime::{Error, error};

/// Shared memory that a CTA can have on Hopper, in bytes (CUDA C Programming Guide, Compute Capabilities).
pub(super) const MOST_SHARED: u64 = 227 << 10;
/// Bytes of shared memory for the pipeline's barriers, and up to where tiles begin.
const BARRIERS: u64 = 1 << 10;
/// Most registers of accumulators that a thread can have beside those that it computes addresses and epilogues with.
/// With 192, ptxas 13.5 spills 440 bytes of the kernel's loop.
const MOST_ACCUMULATORS: u64 = 128;
/// Rows of B that lie together in shared memory where its columns are contiguous: 128 bytes of 16-bit elements.
const COLUMNS: u32 = 64;
/// Threads that multiply.
const THREADS: u64 = 256;

/// Bytes of shared memory of a CTA: the stages of A and B, the buffers of D, and the pipeline's barriers.
pub fn shared_bytes(problem: &Problem, plan: &Plan) -> u64 {
    let of = |param| u64::from(plan.get(param));
    let (bm, bn, bk, stages) = (of(Param::Bm), of(Param::Bn), of(Param::Bk), of(Param::Stages));
    let operands = stages * (bm + bn) * bk * u64::from(problem.dtype.bytes());
    let results = (bm / 2) * 64 * 2 * 2 * u64::from(problem.out.bytes());
    operands + results + BARRIERS
}

/// Whether the kernel can be compiled with a plan for a problem.
///
/// # Errors
/// `R0505` with the limit that is met.
pub fn fits(problem: &Problem, plan: &Plan) -> Result<(), Error> {
    let refuse = |message: String, help: &str| Err(Error::new(error::GEMM, message).help(help));
    let row = u64::from(plan.get(Param::Bk)) * u64::from(problem.dtype.bytes());
    if row % 128 != 0 {
        let (bk, dtype) = (plan.get(Param::Bk), problem.dtype);
        let message = format!("the plan {plan} has rows of {row} bytes in a stage ({bk} of {dtype})");
        return refuse(message, "a row of a stage is a multiple of 128 bytes: choose a larger bk");
    }
    let part = plan.get(Param::Bn) / plan.get(Param::Ctas);
    if problem.b == Major::Column && !part.is_multiple_of(COLUMNS) {
        let message =
            format!("the plan {plan} loads {part} rows of B at a time, and columns of B are contiguous");
        return refuse(
            message,
            &format!("a part is a multiple of {COLUMNS} rows: choose a larger bn or fewer ctas"),
        );
    }
    let bytes = shared_bytes(problem, plan);
    if bytes > MOST_SHARED {
        let message =
            format!("the plan {plan} takes {bytes} bytes of shared memory, and a CTA has {MOST_SHARED}");
        return refuse(message, "choose fewer stages or smaller tiles");
    }
    let accumulators = u64::from(plan.get(Param::Bm)) * u64::from(plan.get(Param::Bn)) / THREADS;
    if accumulators > MOST_ACCUMULATORS {
        let message = format!(
            "the plan {plan} takes {accumulators} registers of a thread for sums, and {MOST_ACCUMULATORS} is the most"
        );
        return refuse(message, "choose smaller tiles");
    }
    Ok(())
}

/// Every plan that a problem can be computed with.
pub fn candidates(problem: &Problem) -> impl Iterator<Item = Plan> {
    Plan::all().filter(|plan| fits(problem, plan).is_ok())
}
