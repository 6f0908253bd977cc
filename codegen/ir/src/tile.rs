//! The typing rules of asynchronous tile copies, of pipelines and their barriers, and of matrix
//! products.

use crate::diag::Code;
use crate::kernel::Value;
use crate::level::Level;
use crate::names::{RedOp, Scalar, Space};
use crate::types::{Accumulator, TensorType, TypeRef, ValueType};
use crate::typing::{MISMATCH, NO_SUCH_OP, NOT_STATIC, TypeError, Typing, WRONG_SPACE, fail, fail_help};
use std::sync::Arc;
use weft_abi::MAP_DIMS;
use weft_layout::{ATOM_ROWS, SLICE_BYTES};

/// The maximum number of stages of a pipeline. Shared memory has no space for more.
pub const MAX_STAGES: u32 = 64;
/// The maximum number of bytes that a barrier can expect in one phase (PTX ISA, mbarrier:
/// tx-count).
pub const MAX_EXPECTED: u32 = (1 << 20) - 1;

/// A tensor map exceeds a limit of the hardware.
pub const BAD_MAP: Code = Code(246);

type Rule<L> = Result<<L as Level>::Type, TypeError>;

/// The rules of pipelines and copies of tiles.
impl<L: Level> Typing<'_, L> {
    pub(crate) fn pipeline(&self, stages: u32) -> Rule<L> {
        if !(1..=MAX_STAGES).contains(&stages) {
            return fail(MISMATCH, format!("a pipeline must have 1 to {MAX_STAGES} stages, not {stages}"));
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

    pub(crate) fn pipe_skip(&self, pipe: Value, stages: Value) -> Rule<L> {
        self.is_pipeline(pipe)?;
        self.is_scalar(stages, Scalar::I64, "number of stages")?;
        self.unit()
    }

    pub(crate) fn tma_load(
        &self,
        dst: Value,
        src: Value,
        pipe: Value,
        dims: u32,
        at: &[Value],
        along: &[u32],
    ) -> Rule<L> {
        self.arrives(pipe, dims)?;
        self.tma(dst, src, at, along)
    }

    /// Checks a copy that arrives on a pipeline in the CTAs that differ from this one in these
    /// dimensions of the cluster.
    fn arrives(&self, pipe: Value, dims: u32) -> Result<(), TypeError> {
        if dims >= 1 << 3 {
            return fail(MISMATCH, format!("`{}` along dimensions {dims:#b} of a cluster", self.name));
        }
        // After lowering, the pipeline is the barrier of the stage.
        self.in_shared(pipe).or_else(|_| self.is_pipeline(pipe))
    }

    pub(crate) fn bulk_load(&self, dst: Value, src: Value, pipe: Value, dims: u32) -> Rule<L> {
        self.arrives(pipe, dims)?;
        let (inside, outside) = (self.tile(dst)?, self.tile(src)?);
        self.corresponds(&inside, &outside)?;
        match outside.space {
            Space::Global | Space::Symmetric | Space::Peer => self.unit(),
            other => self.no_bulk(other, "from `global` and `symm` memory, and peers'"),
        }
    }

    pub(crate) fn bulk_store(&self, dst: Value, src: Value, pipe: Option<Value>) -> Rule<L> {
        let (inside, outside) = (self.tile(src)?, self.tile(dst)?);
        self.corresponds(&inside, &outside)?;
        pipe.map_or(Ok(()), |pipe| self.arrives(pipe, 0))?;
        match (outside.space, pipe) {
            (Space::Global | Space::Symmetric | Space::Peer | Space::Multicast, None)
            | (Space::Cluster, Some(_)) => self.unit(),
            (Space::Cluster, None) => fail_help(
                MISMATCH,
                format!("`{}` to another CTA has no pipeline", self.name),
                "the bytes arrive on a pipeline of that CTA: pass the pipeline",
            ),
            (other, _) => self
                .no_bulk(other, "to `global`, `symm` and multicast memory, peers', and that of other CTAs"),
        }
    }

    fn no_bulk(&self, space: Space, help: &str) -> Rule<L> {
        let message = format!("`{}` does not copy between shared memory and {space} memory", self.name);
        fail_help(WRONG_SPACE, message, format!("it copies {help}"))
    }

    /// Checks the sides of a copy: the first is in shared memory, and both have the same number of
    /// elements of one type.
    fn corresponds(&self, inside: &TensorType, outside: &TensorType) -> Result<(), TypeError> {
        if inside.space != Space::Shared {
            return fail(
                WRONG_SPACE,
                format!("`{}` copies from or to shared memory, not {}", self.name, inside.space),
            );
        }
        if inside.elem != outside.elem {
            return fail(MISMATCH, format!("`{}` of {} to {}", self.name, outside.elem, inside.elem));
        }
        let static_size = |t: &TensorType| t.layout.size().as_const();
        if static_size(inside).is_none() || static_size(inside) != static_size(outside) {
            return fail(
                NOT_STATIC,
                format!(
                    "`{}` of {} to {}: both must have the same static shape",
                    self.name, outside.layout, inside.layout
                ),
            );
        }
        Ok(())
    }

    pub(crate) fn tma_store(&self, dst: Value, src: Value, at: &[Value], along: &[u32]) -> Rule<L> {
        self.tma(src, dst, at, along)
    }

    /// Checks a copy between a tile in shared memory and a tile of a parameter's tensor.
    fn tma(&self, shared: Value, global: Value, at: &[Value], along: &[u32]) -> Rule<L> {
        let (inside, outside) = (self.tile(shared)?, self.tile(global)?);
        if !matches!(outside.space, Space::Global | Space::Symmetric | Space::Peer) {
            return fail_help(
                WRONG_SPACE,
                format!("`{}` cannot copy a tensor in {} memory", self.name, outside.space),
                "it copies tiles of `global` and `symm` parameters, and of peers' tensors",
            );
        }
        self.corresponds(&inside, &outside)?;
        if at.len() != along.len() || !(1..=MAP_DIMS).contains(&at.len()) {
            return fail_help(
                BAD_MAP,
                format!("`{}` cannot copy tiles of a tensor of {} modes", self.name, at.len()),
                format!("a tensor map must have 1 to {MAP_DIMS} modes"),
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

/// The rules of matrix products.
impl<L: Level> Typing<'_, L> {
    /// Checks an accumulator. A warpgroup has a multiple of 64 rows and 8 to 256 columns (PTX ISA,
    /// wgmma.mma_async).
    pub(crate) fn accumulator(&self) -> Rule<L> {
        let TypeRef::Accumulator(acc) = self.given.view() else {
            return fail(MISMATCH, format!("expected an accumulator, found {}", self.given));
        };
        let Accumulator { elem, rows, cols, over } = acc;
        if !matches!(elem, Scalar::F32 | Scalar::F16 | Scalar::I32) {
            return fail_help(
                NO_SUCH_OP,
                format!("matrix products cannot be accumulated in {elem}"),
                "they are accumulated in f32 or f16, and those of integers in i32",
            );
        }
        let split = |n: u32, parts: u32, unit: u32| {
            parts > 0 && n > 0 && parts.checked_mul(unit).is_some_and(|unit| n.is_multiple_of(unit))
        };
        if !split(rows, over[0], ATOM_ROWS as u32) || !split(cols, over[1], 8) || acc.own_cols() > 256 {
            return fail_help(
                MISMATCH,
                format!(
                    "a tile of {rows} x {cols} cannot be divided over {} x {} warpgroups",
                    over[0], over[1]
                ),
                "each warpgroup must have a multiple of 64 rows, and 8 to 256 columns in steps of 8",
            );
        }
        if acc.lanes(acc.own_cols()) > 256 {
            return fail_help(
                MISMATCH,
                format!(
                    "a thread would hold {} elements of a tile of {rows} x {cols}",
                    acc.lanes(acc.own_cols())
                ),
                "a thread has 255 registers: divide the tile over more warpgroups, or use a smaller tile",
            );
        }
        Ok(self.given.clone())
    }

    fn is_accumulator(&self, acc: Value) -> Result<Accumulator, TypeError> {
        match self.k.ty(acc).view() {
            TypeRef::Accumulator(acc) => Ok(acc),
            other => fail(MISMATCH, format!("`{}` needs an accumulator, found {other}", self.name)),
        }
    }

    pub(crate) fn mma(&self, a: Value, b: Value, acc: Value) -> Rule<L> {
        let acc_ty = self.is_accumulator(acc)?;
        let held = match self.k.ty(a).view() {
            TypeRef::Vector(elem, lanes) => Some((elem, held_depth(elem, lanes, acc_ty)?)),
            _ => None,
        };
        let x = if held.is_some() { None } else { Some(self.tile(a)?) };
        let y = self.tile(b)?;
        if let Some(t) = x.iter().chain([&y]).find(|t| t.space != Space::Shared) {
            return fail(WRONG_SPACE, format!("`mma` multiplies tiles in shared memory, not {}", t.space));
        }
        let elem = held.map(|(elem, _)| elem).or_else(|| x.as_ref().map(|x| x.elem)).unwrap_or(y.elem);
        if !sum_types(elem, y.elem).contains(&acc_ty.elem) {
            return fail_help(
                NO_SUCH_OP,
                format!(
                    "there is no matrix product of {elem} and {} that is accumulated in {}",
                    y.elem, acc_ty.elem
                ),
                "products of bf16, f16, f32 (as tf32) and fp8 are accumulated in f32, those of f16 and \
                fp8 also in f16, and those of 8-bit integers in i32",
            );
        }
        let extents = |t: &TensorType| {
            let of = |mode| t.layout.mode(mode).and_then(|m| m.size().as_const());
            of(0).zip(of(1)).filter(|_| t.layout.rank() == 2)
        };
        let (m, n) = (i64::from(acc_ty.rows), i64::from(acc_ty.cols));
        let of_a = x.as_ref().map_or(held.map(|(_, depth)| (m, depth)), |x| extents(x));
        let depth = of_a.filter(|(rows, _)| *rows == m).map(|(_, depth)| depth);
        if depth.is_none() || extents(&y) != depth.map(|depth| (n, depth)) {
            let a = x.map_or_else(|| format!("{m} x {}", depth.unwrap_or(0)), |x| x.layout.to_string());
            return fail_help(
                MISMATCH,
                format!("`mma` of {a} and {} to {m} x {n}", y.layout),
                format!("the tiles must have static modes ({m}, K) and ({n}, K)"),
            );
        }
        Ok(self.k.ty(acc).clone())
    }

    pub(crate) fn mma_wait(&self, acc: Value) -> Rule<L> {
        self.is_accumulator(acc).map(|_| self.k.ty(acc).clone())
    }

    pub(crate) fn accumulator_read(&self, acc: Value, first: u32, cols: u32) -> Rule<L> {
        let acc = self.is_accumulator(acc)?;
        let end = first.checked_add(cols);
        let fits = first.is_multiple_of(8)
            && cols > 0
            && cols.is_multiple_of(8)
            && end.is_some_and(|e| e <= acc.cols);
        if !fits || acc.over[1] > 1 && cols != acc.cols {
            return fail_help(
                MISMATCH,
                format!("columns {first} to {} of {}", u64::from(first) + u64::from(cols), acc.cols),
                "columns are read in steps of 8, and all at once if they are divided over warpgroups",
            );
        }
        Ok(L::Type::lanes_of(acc.elem, acc.lanes(cols / acc.over[1].max(1))))
    }

    pub(crate) fn accumulator_of(&self, value: Value) -> Rule<L> {
        let made = self.accumulator()?;
        let TypeRef::Accumulator(tile) = made.view() else { return Ok(made) };
        let (have, want) = (self.k.ty(value), L::Type::lanes_of(tile.elem, tile.lanes(tile.own_cols())));
        match *have == want {
            true => Ok(made),
            false => {
                fail(MISMATCH, format!("`{}` of {have}, and a thread holds {want} of {made}", self.name))
            }
        }
    }

    pub(crate) fn registers(&self, acc: Value) -> Rule<L> {
        match self.k.ty(acc).view() {
            TypeRef::Vector(Scalar::F32 | Scalar::I32, _) => Ok(self.k.ty(acc).clone()),
            other => fail(MISMATCH, format!("expected the registers of an accumulator, found {other}")),
        }
    }

    pub(crate) fn operands(&self, a: Value) -> Rule<L> {
        match self.k.ty(a).view() {
            TypeRef::Vector(Scalar::I32, _) => Ok(self.k.ty(a).clone()),
            other => fail(MISMATCH, format!("expected registers of 32 bits, found {other}")),
        }
    }

    pub(crate) fn wgmma_wait(&self, acc: Value, held: &[Value]) -> Rule<L> {
        held.iter().try_for_each(|v| self.operands(*v).map(drop))?;
        self.registers(acc)
    }

    /// The type of an accumulator's registers that do not come from other registers.
    pub(crate) fn unset(&self) -> Rule<L> {
        match self.given.view() {
            TypeRef::Vector(Scalar::F32 | Scalar::I32, _) => Ok(self.given.clone()),
            other => fail(MISMATCH, format!("expected the registers of an accumulator, found {other}")),
        }
    }

    /// Checks the registers of an accumulator, whose type depends on the type of the sums.
    fn sums(&self, acc: Value, sum: Scalar) -> Rule<L> {
        let held = if sum == Scalar::F32 { Scalar::F32 } else { Scalar::I32 };
        match self.k.ty(acc).view() {
            TypeRef::Vector(elem, _) if elem == held => self.registers(acc),
            other => fail(MISMATCH, format!("sums of type {sum} are held in {held}, not in {other}")),
        }
    }

    pub(crate) fn wgmma(
        &self,
        (acc, sum): (Value, Scalar),
        first: u32,
        [a, b]: [Value; 2],
        n: u32,
        adds: Option<Value>,
    ) -> Rule<L> {
        adds.map_or(Ok(()), |adds| self.is_scalar(adds, Scalar::Bool, "condition"))?;
        if !matches!(self.k.ty(a).view(), TypeRef::Vector(Scalar::I32, 4)) {
            self.is_scalar(a, Scalar::I64, "matrix descriptor")?;
        }
        self.is_scalar(b, Scalar::I64, "matrix descriptor")?;
        let lanes = self.k.ty(acc).lanes().unwrap_or(0);
        if !(8..=256).contains(&n)
            || !n.is_multiple_of(8)
            || first.checked_add(n / 2 / per_register(sum)).is_none_or(|end| end > lanes)
        {
            return fail(MISMATCH, format!("{n} columns at register {first} of {lanes}"));
        }
        self.sums(acc, sum)
    }
}

/// The rules of matrix products of warps.
impl<L: Level> Typing<'_, L> {
    pub(crate) fn ldmatrix(&self, ptr: Value, count: u32) -> Rule<L> {
        self.in_shared(ptr)?;
        if ![1, 2, 4].contains(&count) {
            return fail(MISMATCH, format!("1, 2 or 4 matrices are loaded, not {count}"));
        }
        Ok(L::Type::lanes_of(Scalar::I32, count))
    }

    pub(crate) fn stmatrix(&self, ptr: Value, value: Value) -> Rule<L> {
        self.in_shared(ptr)?;
        match self.k.ty(value).view() {
            TypeRef::Scalar(Scalar::I32) | TypeRef::Vector(Scalar::I32, 2 | 4) => self.unit(),
            other => fail(MISMATCH, format!("1, 2 or 4 registers of matrices are stored, not {other}")),
        }
    }

    pub(crate) fn mma_sync(&self, operands: [Value; 2], (acc, sum): (Value, Scalar)) -> Rule<L> {
        for (v, registers) in operands.into_iter().zip([4, 2]) {
            match self.k.ty(v).view() {
                TypeRef::Vector(Scalar::I32, n) if n == registers => {}
                other => return fail(MISMATCH, format!("expected {registers} registers, found {other}")),
            }
        }
        match self.k.ty(acc).lanes() {
            Some(n) if n == 4 / per_register(sum) => self.sums(acc, sum),
            _ => {
                fail(MISMATCH, format!("expected four elements of an accumulator, found {}", self.k.ty(acc)))
            }
        }
    }
}

/// The number of columns of a tile A in registers. A thread holds `lanes` elements of it in the
/// order of an accumulator's elements, and the product is added to `acc`.
fn held_depth(elem: Scalar, lanes: u32, acc: Accumulator) -> Result<i64, TypeError> {
    let blocks = acc.rows / (ATOM_ROWS as u32).saturating_mul(acc.over[0]).max(1);
    let depth = lanes.saturating_mul(2) / blocks.max(1);
    let slice = SLICE_BYTES as u32 / elem.bytes().max(1);
    if depth == 0 || !depth.is_multiple_of(slice) {
        return fail_help(
            MISMATCH,
            format!("`mma` cannot take {depth} columns of {elem} from registers"),
            format!("one instruction multiplies {slice} columns of A: use a multiple of {slice}"),
        );
    }
    Ok(i64::from(depth))
}

/// The types in which products of two types are accumulated.
fn sum_types(a: Scalar, b: Scalar) -> &'static [Scalar] {
    let byte = |s: Scalar| matches!(s, Scalar::I8 | Scalar::U8);
    match (a, b) {
        (Scalar::BF16, Scalar::BF16) | (Scalar::F32, Scalar::F32) => &[Scalar::F32],
        (Scalar::F16, Scalar::F16) => &[Scalar::F32, Scalar::F16],
        (a, b) if a.is_fp8() && b.is_fp8() => &[Scalar::F32, Scalar::F16],
        (a, b) if byte(a) && byte(b) => &[Scalar::I32],
        _ => &[],
    }
}

/// The number of sums of a type that a register of 32 bits holds.
pub fn per_register(sum: Scalar) -> u32 {
    if sum == Scalar::F16 { 2 } else { 1 }
}

/// The rules of barriers in shared memory and of single boxes.
impl<L: Level> Typing<'_, L> {
    fn in_shared(&self, ptr: Value) -> Result<(), TypeError> {
        match self.k.ty(ptr).view() {
            TypeRef::Pointer(Space::Shared) => Ok(()),
            other => fail(MISMATCH, format!("expected an address in shared memory, found {other}")),
        }
    }

    pub(crate) fn shared_address(&self, ptr: Value) -> Rule<L> {
        self.in_shared(ptr).and_then(|()| self.scalar(Scalar::U32))
    }

    pub(crate) fn mbarrier(&self, ptr: Value) -> Rule<L> {
        self.in_shared(ptr).and_then(|()| self.unit())
    }

    pub(crate) fn mbar_arrive(&self, ptr: Value) -> Rule<L> {
        match self.k.ty(ptr).view() {
            TypeRef::Pointer(Space::Cluster) => self.unit(),
            _ => self.mbarrier(ptr),
        }
    }

    pub(crate) fn mbar_test(&self, ptr: Value, parity: Value) -> Rule<L> {
        self.is_scalar(parity, Scalar::I32, "parity")?;
        self.in_shared(ptr).and_then(|()| self.scalar(Scalar::Bool))
    }

    pub(crate) fn tma_box(&self, shared: Value, map: Value, at: &[Value], mbar: Option<Value>) -> Rule<L> {
        self.in_shared(shared)?;
        mbar.map_or(Ok(()), |mbar| self.in_shared(mbar))?;
        self.map_fence(map)?;
        if !(1..=MAP_DIMS).contains(&at.len()) {
            return fail(BAD_MAP, format!("a box of {} dimensions", at.len()));
        }
        at.iter().try_for_each(|v| self.is_scalar(*v, Scalar::I32, "coordinate"))?;
        self.unit()
    }

    /// Checks a copy of bytes between shared memory and other memory.
    pub(crate) fn bulk_bytes(&self, shared: Value, _: Value, mbar: Value) -> Rule<L> {
        self.in_shared(shared)?;
        match self.k.ty(mbar).view() {
            TypeRef::Pointer(Space::Shared | Space::Cluster) => self.unit(),
            other => fail(MISMATCH, format!("expected the address of a barrier, found {other}")),
        }
    }

    pub(crate) fn map_fence(&self, map: Value) -> Rule<L> {
        match self.k.ty(map).view() {
            TypeRef::Pointer(Space::Global) => self.unit(),
            other => fail(MISMATCH, format!("expected the address of a tensor map, found {other}")),
        }
    }

    /// Checks a reduction of `cp.reduce.async.bulk.tensor` (PTX ISA).
    pub(crate) fn tma_reduction(&self, op: Option<RedOp>) -> Result<(), TypeError> {
        match op {
            Some(RedOp::Mul) => fail(MISMATCH, "memory does not support the reduction `mul`"),
            _ => Ok(()),
        }
    }
}

/// The ranks of the CTAs of a cluster that differ from the CTA of rank 0 only in these dimensions
/// (x is bit 0), as bits.
pub fn line(cluster: [u32; 3], dims: u32) -> u32 {
    let extent = |d: usize| if dims >> d & 1 == 1 { cluster[d] } else { 1 };
    let mut ranks = 0;
    for z in 0..extent(2) {
        for y in 0..extent(1) {
            for x in 0..extent(0) {
                ranks |= 1u32.checked_shl(x + cluster[0] * (y + cluster[1] * z)).unwrap_or(0);
            }
        }
    }
    ranks
}
