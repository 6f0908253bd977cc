//! The lowering of arithmetic on scalars and vectors.

use super::{Lower, Lowered};
use crate::codes::NO_FUNCTION;
use crate::raw::{Cast, FloatIs, IntIs, Val};
use weft_ir::names::NumberKind;
use weft_ir::{Arith, BinOp, CmpOp, Scalar, UnOp, ValueType};

/// The functions of f32 that are one PTX instruction, with their NVVM intrinsics.
const APPROXIMATE: [(UnOp, &str); 5] = [
    (UnOp::Rsqrt, "llvm.nvvm.rsqrt.approx.f"),
    (UnOp::Exp2, "llvm.nvvm.ex2.approx.ftz"),
    (UnOp::Log2, "llvm.nvvm.lg2.approx.f"),
    (UnOp::Sin, "llvm.nvvm.sin.approx.f"),
    (UnOp::Cos, "llvm.nvvm.cos.approx.f"),
];

impl<'c> Lower<'_, 'c> {
    pub(super) fn arithmetic(&self, op: &Arith) -> Lowered<Val<'c>> {
        let to = self.ty(&self.inst.ty)?;
        match op {
            Arith::Const { value } => self.literal(*value),
            Arith::Unary { op, a } => self.unary(*op, self.elem(*a), self.val(*a)?),
            Arith::Binary { op, a, b } => self.binary(*op, self.elem(*a), self.val(*a)?, self.val(*b)?),
            Arith::Fma { a, b, c } => {
                let (a, b, c) = (self.val(*a)?, self.val(*b)?, self.val(*c)?);
                self.intrinsic("llvm.fma", &[a.ty()], &[a, b, c])
            }
            Arith::Compare { op, a, b } => Ok(self.compare(*op, self.elem(*a), self.val(*a)?, self.val(*b)?)),
            Arith::Select { c, a, b } => Ok(self.ir.select(self.val(*c)?, self.val(*a)?, self.val(*b)?)),
            Arith::Convert { a } => {
                let elem = self.inst.ty.elem().unwrap_or(Scalar::Bool);
                self.convert(self.val(*a)?, self.elem(*a), elem)
            }
            Arith::Bitcast { a } => self.half_of_bits(self.ir.bitcast(self.val(*a)?, to)),
            Arith::Splat { a } => {
                let a = self.val(*a)?;
                Ok(if to.lanes().is_some() { self.ir.splat(a, to) } else { a })
            }
            Arith::Concat { parts } => self.concat(parts, to),
            Arith::Slice { a, first } => Ok(self.slice(self.val(*a)?, *first, to)),
            Arith::Extract { a, lane } => {
                let a = self.val(*a)?;
                Ok(self.ir.extract_element(a, self.lane_index(a, *lane)?))
            }
            Arith::Insert { a, lane, elem } => {
                let a = self.val(*a)?;
                Ok(self.ir.insert_element(a, self.val(*elem)?, self.lane_index(a, *lane)?))
            }
        }
    }

    fn unary(&self, op: UnOp, s: Scalar, a: Val<'c>) -> Lowered<Val<'c>> {
        let ir = self.ir;
        let one = |name: &str| self.intrinsic(name, &[a.ty()], &[a]);
        match op {
            UnOp::Neg if s.is_float() => Ok(ir.fneg(a)),
            UnOp::Neg => Ok(ir.neg(a)),
            UnOp::Not => Ok(ir.not(a)),
            UnOp::Abs if s.is_float() => one("llvm.fabs"),
            // The absolute value of the least integer is itself.
            UnOp::Abs => self.intrinsic("llvm.abs", &[a.ty()], &[a, ir.constant(ir.int(1), 0)]),
            UnOp::Sqrt => one("llvm.sqrt"),
            UnOp::Floor => one("llvm.floor"),
            UnOp::Ceil => one("llvm.ceil"),
            UnOp::Round => one("llvm.roundeven"),
            UnOp::Rsqrt if s == Scalar::F64 => Ok(ir.fdiv(ir.real(a.ty(), 1.0), one("llvm.sqrt")?)),
            _ if s == Scalar::F64 => Err(self
                .error(NO_FUNCTION, format!("f64 `{op}` does not exist without libdevice"))
                .help("convert to f32 first: `.to<f32>()`")),
            UnOp::Exp => self.in_f32(s, a, |a| {
                let scaled = ir.fmul(a, ir.real(a.ty(), std::f64::consts::LOG2_E));
                self.approximate(UnOp::Exp2, scaled)
            }),
            UnOp::Log => self.in_f32(s, a, |a| {
                let log2 = self.approximate(UnOp::Log2, a)?;
                Ok(ir.fmul(log2, ir.real(a.ty(), std::f64::consts::LN_2)))
            }),
            UnOp::Rsqrt | UnOp::Exp2 | UnOp::Log2 | UnOp::Tanh | UnOp::Sin | UnOp::Cos => {
                self.in_f32(s, a, |a| self.approximate(op, a))
            }
        }
    }

    /// Computes in f32 and rounds once.
    fn in_f32(&self, s: Scalar, a: Val<'c>, f: impl FnOnce(Val<'c>) -> Lowered<Val<'c>>) -> Lowered<Val<'c>> {
        let wide = self.with_elem(a.ty(), self.ir.scalar(Scalar::F32));
        if s == Scalar::F32 {
            return f(a);
        }
        let result = f(self.ir.cast(Cast::LLVMFPExt, a, wide))?;
        Ok(self.ir.cast(Cast::LLVMFPTrunc, result, a.ty()))
    }

    /// Emits one PTX instruction for each lane.
    fn approximate(&self, op: UnOp, a: Val<'c>) -> Lowered<Val<'c>> {
        if op == UnOp::Tanh {
            let tanh = self.intrinsic("llvm.tanh", &[a.ty()], &[a])?;
            self.ir.may_approximate(tanh);
            return Ok(tanh);
        }
        let Some((_, name)) = APPROXIMATE.iter().find(|(known, _)| *known == op) else {
            return Err(self.bug(op.name()));
        };
        let f32 = self.ir.scalar(Scalar::F32);
        // Only the newer intrinsics are overloaded.
        let types = if name.ends_with(".f") { &[][..] } else { &[f32][..] };
        self.each_lane(a, a.ty(), |lane| self.intrinsic(name, types, &[lane]))
    }

    fn binary(&self, op: BinOp, s: Scalar, a: Val<'c>, b: Val<'c>) -> Lowered<Val<'c>> {
        let ir = self.ir;
        let two = |name: &str| self.intrinsic(name, &[a.ty()], &[a, b]);
        Ok(match (op, s.kind()) {
            (BinOp::Add, NumberKind::Float) => ir.fadd(a, b),
            (BinOp::Sub, NumberKind::Float) => ir.fsub(a, b),
            (BinOp::Mul, NumberKind::Float) => ir.fmul(a, b),
            (BinOp::Div, NumberKind::Float) => ir.fdiv(a, b),
            (BinOp::Min, NumberKind::Float) => two("llvm.minimumnum")?,
            (BinOp::Max, NumberKind::Float) => two("llvm.maximumnum")?,
            (BinOp::Add, _) => ir.add(a, b),
            (BinOp::Sub, _) => ir.sub(a, b),
            (BinOp::Mul, _) => ir.mul(a, b),
            (BinOp::Div | BinOp::Rem, NumberKind::Signed) => self.signed_division(op, a, b),
            (BinOp::Div | BinOp::Rem, _) => self.unsigned_division(op, a, b),
            (BinOp::Min, NumberKind::Signed) => two("llvm.smin")?,
            (BinOp::Max, NumberKind::Signed) => two("llvm.smax")?,
            (BinOp::Min, _) => two("llvm.umin")?,
            (BinOp::Max, _) => two("llvm.umax")?,
            (BinOp::And, _) => ir.and(a, b),
            (BinOp::Or, _) => ir.or(a, b),
            (BinOp::Xor, _) => ir.xor(a, b),
            (BinOp::Shl | BinOp::Shr, kind) => self.shift(op, kind, s.bits(), a, b)?,
        })
    }

    /// Divides so that `x / 0 = -1` and `x % 0 = x`. Then `a = q * b + r` always holds.
    fn unsigned_division(&self, op: BinOp, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        let ir = self.ir;
        let (zero, one) = (ir.zero(b.ty()), ir.constant(b.ty(), 1));
        let by_zero = ir.icmp(IntIs::LLVMIntEQ, b, zero);
        let divisor = ir.select(by_zero, one, b);
        match op {
            BinOp::Div => ir.select(by_zero, ir.constant(b.ty(), -1), ir.udiv(a, divisor)),
            _ => ir.select(by_zero, a, ir.urem(a, divisor)),
        }
    }

    /// Does what [`Self::unsigned_division`] does. In addition, the least integer divided by -1 is
    /// itself, with remainder 0.
    fn signed_division(&self, op: BinOp, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        let ir = self.ir;
        let (zero, one, minus) = (ir.zero(b.ty()), ir.constant(b.ty(), 1), ir.constant(b.ty(), -1));
        let by_zero = ir.icmp(IntIs::LLVMIntEQ, b, zero);
        let by_minus = ir.icmp(IntIs::LLVMIntEQ, b, minus);
        let divisor = ir.select(ir.or(by_zero, by_minus), one, b);
        match op {
            BinOp::Div => {
                let quotient = ir.select(by_minus, ir.neg(a), ir.sdiv(a, divisor));
                ir.select(by_zero, minus, quotient)
            }
            _ => ir.select(by_zero, a, ir.srem(a, divisor)),
        }
    }

    /// Shifts by an unsigned count, which can be the width or more.
    fn shift(&self, op: BinOp, kind: NumberKind, bits: u32, a: Val<'c>, b: Val<'c>) -> Lowered<Val<'c>> {
        let ir = self.ir;
        let last = ir.constant(b.ty(), i64::from(bits) - 1);
        let count = self.intrinsic("llvm.umin", &[b.ty()], &[b, last])?;
        if (op, kind) == (BinOp::Shr, NumberKind::Signed) {
            return Ok(ir.ashr(a, count));
        }
        let shifted = if op == BinOp::Shl { ir.shl(a, count) } else { ir.lshr(a, count) };
        let within = ir.icmp(IntIs::LLVMIntULE, b, last);
        Ok(ir.select(within, shifted, ir.zero(a.ty())))
    }

    pub(super) fn compare(&self, op: CmpOp, s: Scalar, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        use FloatIs::*;
        use IntIs::*;
        let (float, signed, unsigned) = match op {
            CmpOp::Eq => (LLVMRealOEQ, LLVMIntEQ, LLVMIntEQ),
            CmpOp::Ne => (LLVMRealUNE, LLVMIntNE, LLVMIntNE),
            CmpOp::Lt => (LLVMRealOLT, LLVMIntSLT, LLVMIntULT),
            CmpOp::Le => (LLVMRealOLE, LLVMIntSLE, LLVMIntULE),
            CmpOp::Gt => (LLVMRealOGT, LLVMIntSGT, LLVMIntUGT),
            CmpOp::Ge => (LLVMRealOGE, LLVMIntSGE, LLVMIntUGE),
        };
        match s.kind() {
            NumberKind::Float => self.ir.fcmp(float, a, b),
            NumberKind::Signed => self.ir.icmp(signed, a, b),
            _ => self.ir.icmp(unsigned, a, b),
        }
    }
}
