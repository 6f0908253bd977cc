//! A product and a collective that follow each other, for shapes whose fused launch is no faster.

use super::Form;
use crate::collective::{Collectives, Config, Flat};
use crate::gemm::{Gemm, Problem, Shape};
use crate::gpu::GpuError;
use weft_runtime::launch::AsArgument;
use weft_runtime::memory::AnyTensor;
use weft_runtime::{IntoLayout, Reduce, Stream, Team, World};

/// The product, the collective, and the memory between them.
pub(super) struct Sequence {
    form: Form,
    gemm: Gemm,
    collectives: Collectives,
    /// For a reduce-scatter: this PE's product of all rows, with an equal part for each PE.
    whole: Option<AnyTensor>,
}

impl Sequence {
    /// Compiles the product, and allocates the memory between both. *Collective.*
    ///
    /// # Errors
    /// Fails where [`Gemm::new`] or [`Collectives::with`] fails.
    pub fn new(world: &World, team: Team, form: Form, problem: &Problem) -> Result<Sequence, GpuError> {
        let Shape { m, n, .. } = problem.shape;
        let pes = u64::from(team.n_pes());
        let whole = if form == Form::ReduceScatter {
            let elements = usize::try_from(m.div_ceil(pes) * pes * n).unwrap_or(usize::MAX);
            let buffer = world.buffer(elements.saturating_mul(problem.out.bytes() as usize))?;
            Some(AnyTensor::new(buffer, problem.out, elements.into_layout()?)?)
        } else {
            None
        };
        let collectives = Collectives::with(world, team, Config::default())?;
        Ok(Sequence { form, gemm: Gemm::new(world, *problem)?, collectives, whole })
    }

    /// Puts the product and the collective on a stream.
    ///
    /// # Errors
    /// Fails where [`Gemm::launch`] or [`Collectives::run`] fails.
    pub fn launch(
        &self,
        stream: &Stream,
        a: &dyn AsArgument,
        b: &dyn AsArgument,
        d: &dyn AsArgument,
    ) -> Result<(), GpuError> {
        match (self.form, &self.whole) {
            (Form::AllGather, _) => {
                self.collectives.all_gather(a, None, stream)?;
                self.gemm.launch(stream, &Flat(a), b, d)
            }
            (_, Some(whole)) => {
                self.gemm.launch(stream, a, b, &Flat(whole))?;
                self.collectives.reduce_scatter(whole, Some(d), Reduce::Sum, stream)
            }
            _ => {
                self.gemm.launch(stream, a, b, d)?;
                self.collectives.allreduce(d, None, Reduce::Sum, stream)
            }
        }
    }
}
