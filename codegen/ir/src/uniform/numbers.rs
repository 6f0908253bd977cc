//! Integers that depend on the thread alone, computed for every thread of the CTA.

use super::{Analysis, Varies, point};
use crate::kernel::Value;
use crate::level::Level;
use crate::names::{BinOp, CmpOp, NumberKind, Scalar, Sreg};
use crate::op::{Arith, Constant, Operation, Thread, View};
use crate::types::ValueType;
use std::rc::Rc;

impl<L: Level> Analysis<'_, L> {
    /// Whether a comparison depends on the thread alone, such as `thread_idx() < 32`, and is
    /// uniform in each warp.
    pub(super) fn is_warps_choice(&self, op: CmpOp, a: Value, b: Value) -> bool {
        let (Some(a), Some(b)) = (self.numbers(a), self.numbers(b)) else { return false };
        self.is_same_in_warps(|t| Some(op.holds(*a.get(t as usize)?, *b.get(t as usize)?)))
    }

    /// Whether a number depends on the thread alone and is uniform in each warp, or is the sum of
    /// such a number and numbers that are uniform in each warp.
    pub(super) fn is_warps_number(&self, v: Value) -> bool {
        let mut terms = Vec::new();
        self.terms(v, 1, &mut terms, 0);
        let mut own = vec![0i64; self.threads() as usize];
        for (v, sign) in terms {
            match self.numbers(v) {
                Some(numbers) => {
                    own.iter_mut()
                        .zip(&*numbers)
                        .for_each(|(sum, n)| *sum = sum.wrapping_add(n.wrapping_mul(sign)));
                }
                None if self.u.value(v) <= Varies::ByWarp => {}
                None => return false,
            }
        }
        self.is_same_in_warps(|t| own.get(t as usize))
    }

    /// Collects the terms of a sum, with their signs.
    fn terms(&self, v: Value, sign: i64, out: &mut Vec<(Value, i64)>, depth: u32) {
        /// The maximum depth of a sum that is split into terms.
        const MAX_DEPTH: u32 = 32;
        if let Some(Arith::Binary { op: op @ (BinOp::Add | BinOp::Sub), a, b }) = self.k.op(v).arith()
            && depth < MAX_DEPTH
        {
            self.terms(*a, sign, out, depth + 1);
            self.terms(*b, if *op == BinOp::Sub { -sign } else { sign }, out, depth + 1);
        } else {
            out.push((v, sign));
        }
    }

    /// The number of each thread of the CTA by its linear index, if it depends on nothing else.
    fn numbers(&self, v: Value) -> Option<Rc<Vec<i64>>> {
        if !self.is_own(v) {
            return None;
        }
        if let Some(known) = self.numbers.borrow().get(&v) {
            return known.clone();
        }
        // A value that is being computed has no entry. Valid kernels have no cycles, but the
        // verifier can analyse an invalid kernel.
        self.numbers.borrow_mut().insert(v, None);
        let found = self.compute(v).map(Rc::new);
        self.numbers.borrow_mut().insert(v, found.clone());
        found
    }

    fn compute(&self, v: Value) -> Option<Vec<i64>> {
        let inst = self.k.insts.get(v)?;
        let threads = i64::from(self.threads()).min(1024);
        let scalar =
            inst.ty.elem().filter(|s| inst.ty.lanes() == Some(1) && (s.is_int() || *s == Scalar::Bool))?;
        if let Some(Thread::Special { reg, dim }) = inst.op.thread() {
            let number = |t| match reg {
                Sreg::ThreadIdx => Some(point(self.cta, t)[*dim as usize]),
                Sreg::LaneIdx => Some(t % 32),
                Sreg::BlockDim => Some(i64::from(self.cta[*dim as usize])),
                Sreg::BlockIdx | Sreg::GridDim | Sreg::ClusterRank => None,
            };
            return (0..threads).map(number).collect();
        }
        if let Some(View::Index { expr }) = inst.op.view() {
            return (0..threads).map(|t| self.at_thread(expr, t)).collect();
        }
        let all =
            |f: &dyn Fn(usize) -> i64| Some((0..threads as usize).map(|t| wrap(scalar, f(t))).collect());
        match inst.op.arith()? {
            Arith::Const { value: Constant::Int(n) } => all(&|_| *n),
            Arith::Convert { a } | Arith::Bitcast { a } => {
                let a = self.numbers(*a)?;
                all(&|t| a[t])
            }
            Arith::Binary { op, a, b } => {
                let (a, b) = (self.numbers(*a)?, self.numbers(*b)?);
                let found: Option<Vec<i64>> =
                    (0..threads as usize).map(|t| combined(*op, scalar, a[t], b[t])).collect();
                found
            }
            Arith::Compare { op, a, b } => {
                let (a, b) = (self.numbers(*a)?, self.numbers(*b)?);
                all(&|t| i64::from(op.holds(a[t], b[t])))
            }
            Arith::Select { c, a, b } => {
                let (c, a, b) = (self.numbers(*c)?, self.numbers(*a)?, self.numbers(*b)?);
                all(&|t| if c[t] != 0 { a[t] } else { b[t] })
            }
            Arith::Const { .. }
            | Arith::Unary { .. }
            | Arith::Fma { .. }
            | Arith::Splat { .. }
            | Arith::Concat { .. }
            | Arith::Slice { .. }
            | Arith::Extract { .. }
            | Arith::Insert { .. } => None,
        }
    }
}

/// The bits of a number as a number of type `s`. (A `u64` beyond `i64` keeps its bits.)
fn wrap(s: Scalar, n: i64) -> i64 {
    match s {
        Scalar::Bool => i64::from(n != 0),
        Scalar::I8 => i64::from(n as i8),
        Scalar::U8 => i64::from(n as u8),
        Scalar::I16 => i64::from(n as i16),
        Scalar::U16 => i64::from(n as u16),
        Scalar::I32 => i64::from(n as i32),
        Scalar::U32 => i64::from(n as u32),
        _ => n,
    }
}

/// Computes `a op b` in type `s`, or `None` if the operation is not supported.
fn combined(op: BinOp, s: Scalar, a: i64, b: i64) -> Option<i64> {
    let natural = a >= 0 && b >= 0;
    let n = match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::Mul => a.wrapping_mul(b),
        BinOp::Div if natural && b > 0 => a / b,
        BinOp::Rem if natural && b > 0 => a % b,
        BinOp::Div | BinOp::Rem => return None,
        BinOp::Min if natural || s.kind() == NumberKind::Signed => a.min(b),
        BinOp::Max if natural || s.kind() == NumberKind::Signed => a.max(b),
        BinOp::Min | BinOp::Max => return None,
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl if (0..i64::from(s.bits())).contains(&b) => a.wrapping_shl(b as u32),
        BinOp::Shr if natural && b < 64 => a >> b,
        BinOp::Shl | BinOp::Shr => return None,
    };
    Some(wrap(s, n))
}
