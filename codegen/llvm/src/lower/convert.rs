//! The lowering of conversions between element types, and between scalars and vectors.

use super::{Lower, Lowered};
use crate::raw::{Cast, FloatIs, IntIs, Ty, Val};
use weft_ir::names::NumberKind;
use weft_ir::{Scalar, Value, ValueType};

impl<'c> Lower<'_, 'c> {
    /// A vector with the lanes of all parts, in order.
    pub(super) fn concat(&self, parts: &[Value], to: Ty<'c>) -> Lowered<Val<'c>> {
        let mut lanes = Vec::new();
        for part in parts {
            lanes.extend(self.ir.lanes(self.val(*part)?));
        }
        Ok(self.gather(&lanes, to))
    }

    /// Consecutive lanes of a vector from `first`.
    pub(super) fn slice(&self, a: Val<'c>, first: u32, to: Ty<'c>) -> Val<'c> {
        match (a.ty().lanes(), to.lanes()) {
            (None, _) => self.gather(&[a], to),
            (Some(_), None) => self.ir.lane(a, first),
            (Some(_), Some(n)) => self.ir.shuffle(a, &(first..first.saturating_add(n)).collect::<Vec<_>>()),
        }
    }

    /// A run-time lane index, limited to the last lane.
    pub(super) fn lane_index(&self, vector: Val<'c>, lane: Value) -> Lowered<Val<'c>> {
        let lane = self.val(lane)?;
        let last = i64::from(vector.ty().lanes().unwrap_or(1)) - 1;
        self.intrinsic("llvm.umin", &[lane.ty()], &[lane, self.ir.constant(lane.ty(), last)])
    }

    /// A scalar or vector with these lanes.
    fn gather(&self, lanes: &[Val<'c>], to: Ty<'c>) -> Val<'c> {
        match (to.lanes(), lanes) {
            (None, [one]) => *one,
            _ => self.ir.pack(lanes, to),
        }
    }

    /// The type with the same lanes and another element type.
    pub(super) fn with_elem(&self, ty: Ty<'c>, elem: Ty<'c>) -> Ty<'c> {
        ty.lanes().map_or(elem, |n| self.ir.vector(elem, n))
    }

    /// Applies `f` to every lane.
    pub(super) fn each_lane(
        &self,
        a: Val<'c>,
        to: Ty<'c>,
        mut f: impl FnMut(Val<'c>) -> Lowered<Val<'c>>,
    ) -> Lowered<Val<'c>> {
        let lanes = self.ir.lanes(a).into_iter().map(&mut f).collect::<Lowered<Vec<_>>>()?;
        Ok(self.gather(&lanes, to))
    }

    /// Lowers the conversion of [`Convert`](weft_ir::Arith::Convert).
    pub(super) fn convert(&self, a: Val<'c>, from: Scalar, to: Scalar) -> Lowered<Val<'c>> {
        let ir = self.ir;
        let ty = self.with_elem(a.ty(), ir.scalar(to));
        Ok(match (from.kind(), to.kind()) {
            _ if from == to => a,
            _ if from.is_fp8() => {
                let half = self.fp8_to_half(a, from)?;
                return self.convert(half, Scalar::F16, to);
            }
            _ if to.is_fp8() => return self.to_fp8(a, from, to),
            (NumberKind::Float, NumberKind::Bool) => ir.fcmp(FloatIs::LLVMRealUNE, a, ir.zero(a.ty())),
            (_, NumberKind::Bool) => ir.icmp(IntIs::LLVMIntNE, a, ir.zero(a.ty())),
            (NumberKind::Float, NumberKind::Float) => self.between_floats(a, from, to),
            (NumberKind::Float, _) => return self.to_int(a, from, to),
            (NumberKind::Signed, NumberKind::Float) => ir.cast(Cast::LLVMSIToFP, a, ty),
            (_, NumberKind::Float) => ir.cast(Cast::LLVMUIToFP, a, ty),
            _ if to.bits() < from.bits() => ir.cast(Cast::LLVMTrunc, a, ty),
            (NumberKind::Signed, _) => ir.cast(Cast::LLVMSExt, a, ty),
            _ => ir.cast(Cast::LLVMZExt, a, ty),
        })
    }

    /// Hides from LLVM that the bits of a value of f16 or bf16 could be those of the other type.
    ///
    /// LLVM 22 turns a comparison of such a value with zero into an `and` and an `icmp` of floats,
    /// which is no valid IR. It also does this if it finds out itself what was stored at the address
    /// of a load. The fence is no instruction of the machine, and stays out of kernels that have
    /// only one of the types.
    pub(super) fn half_of_bits(&self, a: Val<'c>) -> Lowered<Val<'c>> {
        let half = matches!(self.inst.ty.elem(), Some(Scalar::F16 | Scalar::BF16));
        if half && self.both_halves {
            self.intrinsic("llvm.arithmetic.fence", &[a.ty()], &[a])
        } else {
            Ok(a)
        }
    }

    fn between_floats(&self, a: Val<'c>, from: Scalar, to: Scalar) -> Val<'c> {
        let elem = |s| self.with_elem(a.ty(), self.ir.scalar(s));
        if from.bits() < to.bits() {
            self.ir.cast(Cast::LLVMFPExt, a, elem(to))
        } else if from.bits() > to.bits() {
            self.ir.cast(Cast::LLVMFPTrunc, a, elem(to))
        } else {
            // f16 and bf16 cannot hold each other's values, but f32 can hold both.
            let wide = self.ir.cast(Cast::LLVMFPExt, a, elem(Scalar::F32));
            self.ir.cast(Cast::LLVMFPTrunc, wide, elem(to))
        }
    }

    /// Converts to an integer towards zero with saturation. NaN gives 0.
    fn to_int(&self, a: Val<'c>, from: Scalar, to: Scalar) -> Lowered<Val<'c>> {
        let ir = self.ir;
        if from.bits() < 32 {
            let wide = ir.cast(Cast::LLVMFPExt, a, self.with_elem(a.ty(), ir.scalar(Scalar::F32)));
            return self.to_int(wide, Scalar::F32, to);
        }
        let (signed, wide) = (to.kind() == NumberKind::Signed, to.bits().max(32));
        let source = if from == Scalar::F64 { "d" } else { "f" };
        let dest = ["i", "ui", "ll", "ull"][usize::from(wide == 64) * 2 + usize::from(!signed)];
        let name = format!("llvm.nvvm.{source}2{dest}.rz");
        // PTX saturates, and turns NaN into 0 if both sides have 32 bits.
        let plain = (from, wide) == (Scalar::F32, 32);
        let int = ir.int(wide);
        let ty = self.with_elem(a.ty(), int);
        let converted = self.each_lane(a, ty, |lane| {
            let n = self.intrinsic(&name, &[], &[lane])?;
            if plain {
                return Ok(n);
            }
            Ok(ir.select(ir.fcmp(FloatIs::LLVMRealUNO, lane, lane), ir.zero(int), n))
        })?;
        if to.bits() == wide {
            return Ok(converted);
        }
        let clamped = self.clamp(converted, to)?;
        Ok(ir.cast(Cast::LLVMTrunc, clamped, self.with_elem(a.ty(), ir.scalar(to))))
    }

    /// Clamps to the range of a narrower integer of the same signedness.
    fn clamp(&self, a: Val<'c>, to: Scalar) -> Lowered<Val<'c>> {
        let limit = |n: i64| self.ir.constant(a.ty(), n);
        if to.kind() != NumberKind::Signed {
            return self.intrinsic("llvm.umin", &[a.ty()], &[a, limit((1 << to.bits()) - 1)]);
        }
        let half = 1i64 << (to.bits() - 1);
        let low = self.intrinsic("llvm.smax", &[a.ty()], &[a, limit(-half)])?;
        self.intrinsic("llvm.smin", &[a.ty()], &[low, limit(half - 1)])
    }
}
