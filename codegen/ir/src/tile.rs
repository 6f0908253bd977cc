//! The typing rules of tiles that move asynchronously, of pipelines, and of the barriers behind them.

use crate::diag::Code;
use crate::kernel::Value;
use crate::level::Level;
use crate::names::{RedOp, Scalar, Space};
use crate::types::{TensorType, TypeRef, ValueType};
use crate::typing::{MISMATCH, NOT_STATIC, TypeError, Typing, WRONG_SPACE, fail, fail_help};
use std::sync::Arc;

/// Most modes of a tensor that TMA copies (PTX ISA, Tensors).
pub const MAX_MODES: usize = 5;
/// Most stages of a pipeline: more than shared memory has room for.
pub const MAX_STAGES: u32 = 64;
/// Bytes that a barrier can expect in one phase (PTX ISA, mbarrier: tx-count).
pub const MAX_EXPECTED: u32 = (1 << 20) - 1;

/// A tensor map beyond its limits.
pub const BAD_MAP: Code = Code(246);

type Rule<L> = Result<<L as Level>::Type, TypeError>;

/// Pipelines and copies of tiles.
impl<L: Level> Typing<'_, L> {
    pub(crate) fn pipeline(&self, stages: u32) -> Rule<L> {
        if !(1..=MAX_STAGES).contains(&stages) {
            return fail(MISMATCH, format!("a pipeline has 1 to {MAX_STAGES} stages, not {stages}"));
        }
        self.make(TypeRef::Pipeline(stages))
    }

    fn is_pipeline(&self, pipe: Value) -> Result<(), TypeError> {
        match self.k.ty(pipe).view() {
            TypeRef::Pipeline(_) => Ok(()),
            other => fail(MISMATCH, format!("`{}` needs a pipeline, found {other}", self.name)),
        }
    }

    pub(crate) fn stage_of(&self, pipe: Value, stage: Scalar) -> Rule<L> {
        self.is_pipeline(pipe).and_then(|()| self.scalar(stage))
    }

    pub(crate) fn pipe_user(&self, pipe: Value) -> Rule<L> {
        self.is_pipeline(pipe).and_then(|()| self.unit())
    }

    pub(crate) fn tma_load(
        &self,
        dst: Value,
        src: Value,
        pipe: Value,
        at: &[Value],
        along: &[u32],
    ) -> Rule<L> {
        // Once the pipeline is lowered, it is the barrier of the stage.
        if self.in_shared(pipe).is_err() {
            self.is_pipeline(pipe)?;
        }
        self.tma(dst, src, at, along)
    }

    pub(crate) fn tma_store(&self, dst: Value, src: Value, at: &[Value], along: &[u32]) -> Rule<L> {
        self.tma(src, dst, at, along)
    }

    /// A copy between a tile in shared memory and one of a parameter's tensor.
    fn tma(&self, shared: Value, global: Value, at: &[Value], along: &[u32]) -> Rule<L> {
        let (inside, outside) = (self.tile(shared)?, self.tile(global)?);
        if inside.space != Space::Shared {
            return fail(
                WRONG_SPACE,
                format!("`{}` copies from or to shared memory, not {}", self.name, inside.space),
            );
        }
        if !matches!(outside.space, Space::Global | Space::Symmetric | Space::Peer) {
            return fail_help(
                WRONG_SPACE,
                format!("`{}` cannot copy a tensor in {} memory", self.name, outside.space),
                "it copies tiles of `global` and `symm` parameters, and of peers' tensors",
            );
        }
        if inside.elem != outside.elem {
            return fail(MISMATCH, format!("`{}` of {} to {}", self.name, outside.elem, inside.elem));
        }
        let static_size = |t: &TensorType| t.layout.size().as_const();
        if static_size(&inside).is_none() || static_size(&inside) != static_size(&outside) {
            return fail(
                NOT_STATIC,
                format!(
                    "`{}` of {} to {}: both have the same static shape",
                    self.name, outside.layout, inside.layout
                ),
            );
        }
        if at.len() != along.len() || !(1..=MAX_MODES).contains(&at.len()) {
            return fail_help(
                BAD_MAP,
                format!("`{}` of a tensor of {} modes", self.name, at.len()),
                format!("a tensor map has 1 to {MAX_MODES} modes"),
            );
        }
        at.iter().try_for_each(|v| self.is_scalar(*v, Scalar::I64, "coordinate"))?;
        self.unit()
    }

    fn tile(&self, v: Value) -> Result<Arc<TensorType>, TypeError> {
        match self.k.ty(v).view() {
            TypeRef::Tensor(t) => Ok(t.clone()),
            other => fail(MISMATCH, format!("`{}` needs a tensor, found {other}", self.name)),
        }
    }
}

/// Barriers in shared memory, and single boxes.
impl<L: Level> Typing<'_, L> {
    fn in_shared(&self, ptr: Value) -> Result<(), TypeError> {
        match self.k.ty(ptr).view() {
            TypeRef::Pointer(Space::Shared) => Ok(()),
            other => fail(MISMATCH, format!("expected an address in shared memory, found {other}")),
        }
    }

    pub(crate) fn mbarrier(&self, ptr: Value) -> Rule<L> {
        self.in_shared(ptr).and_then(|()| self.unit())
    }

    pub(crate) fn mbar_test(&self, ptr: Value, parity: Value) -> Rule<L> {
        self.is_scalar(parity, Scalar::I32, "parity")?;
        self.in_shared(ptr).and_then(|()| self.scalar(Scalar::Bool))
    }

    pub(crate) fn tma_box(&self, shared: Value, map: Value, at: &[Value], mbar: Option<Value>) -> Rule<L> {
        self.in_shared(shared)?;
        mbar.map_or(Ok(()), |mbar| self.in_shared(mbar))?;
        if !matches!(self.k.ty(map).view(), TypeRef::Pointer(Space::Global)) {
            return fail(MISMATCH, format!("expected the address of a tensor map, found {}", self.k.ty(map)));
        }
        if !(1..=MAX_MODES).contains(&at.len()) {
            return fail(BAD_MAP, format!("a box of {} dimensions", at.len()));
        }
        at.iter().try_for_each(|v| self.is_scalar(*v, Scalar::I32, "coordinate"))?;
        self.unit()
    }

    /// The reductions of `cp.reduce.async.bulk.tensor` (PTX ISA).
    pub(crate) fn tma_reduction(&self, op: Option<RedOp>) -> Result<(), TypeError> {
        match op {
            Some(RedOp::Mul) => fail(MISMATCH, "memory does not multiply"),
            _ => Ok(()),
        }
    }
}
