//! The lowering of loads, stores and atomics at one address.
//!
//! LLVM prints strong loads, stores and compare-and-swaps up to 64 bits in the right form. Other
//! strong accesses to global memory come from the tables of `weft-isa`. Shared memory has neither
//! vectors of strong accesses nor tables. There, lanes are accessed one by one, with fences around
//! the accesses that LLVM prints as relaxed.

use super::switch::InstructionRequest;
use super::{Lower, Lowered, from_memory};
use crate::codes::NO_ACCESS;
use crate::raw::{Cast, Order, Rmw, Val};
use weft_ir::diag::Diagnostic;
use weft_ir::machine::{Op, Type};
use weft_ir::names::NumberKind;
use weft_ir::{Memory, RedOp, Scalar, Scope, Sem, Space, Value, ValueType};
use weft_isa::Instr;

/// The value that one access moves.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub elem: Scalar,
    pub lanes: u32,
    pub bytes: u32,
}

impl<'c> Lower<'_, 'c> {
    pub(super) fn memory(&mut self, op: &Memory) -> Lowered<Option<Val<'c>>> {
        match *op {
            Memory::Load { ptr, sem, scope } => self.load(ptr, Order { sem, scope }).map(Some),
            Memory::Store { ptr, value, sem, scope } => {
                self.store(ptr, value, Order { sem, scope }).map(|()| None)
            }
            Memory::LdReduce { ptr, op, acc, sem, scope } => {
                let access = self.access(&self.inst.ty)?;
                let order = Order { sem, scope };
                let wanted = InstructionRequest {
                    instr: Instr::LdReduce,
                    op: Some(op),
                    acc: Some(acc),
                    access,
                    order,
                };
                self.instruction(wanted, self.val(ptr)?, None)
            }
            Memory::McStore { ptr, value, sem, scope } => {
                let access = self.access(self.k.ty(value))?;
                let wanted = InstructionRequest {
                    instr: Instr::St,
                    op: None,
                    acc: None,
                    access,
                    order: Order { sem, scope },
                };
                self.instruction(wanted, self.val(ptr)?, Some(self.val(value)?))
            }
            Memory::McRed { ptr, value, op, sem, scope } => {
                let access = self.access(self.k.ty(value))?;
                let order = Order { sem, scope };
                let wanted = InstructionRequest { instr: Instr::Red, op: Some(op), acc: None, access, order };
                self.instruction(wanted, self.val(ptr)?, Some(self.val(value)?))
            }
            Memory::Red { ptr, value, op, sem, scope } => {
                let (at, space) = self.place(ptr)?;
                let (access, data) = (self.access(self.k.ty(value))?, self.val(value)?);
                let order = Order { sem, scope };
                if space.is_shared() {
                    for lane in self.ir.lanes(data) {
                        self.shared_rmw(Some(op), access.elem, at, lane, order)?;
                    }
                    return Ok(None);
                }
                let wanted =
                    InstructionRequest { instr: Instr::GlobalRed, op: Some(op), acc: None, access, order };
                self.instruction(wanted, at, Some(data))
            }
            Memory::Atomic { ptr, value, op, sem, scope } => {
                let (at, space) = self.place(ptr)?;
                let (access, data) = (self.access(self.k.ty(value))?, self.val(value)?);
                let order = Order { sem, scope };
                if space.is_shared() {
                    return self.shared_rmw(op, access.elem, at, data, order).map(Some);
                }
                let wanted = InstructionRequest { instr: Instr::GlobalAtom, op, acc: None, access, order };
                self.instruction(wanted, at, Some(data))
            }
            Memory::AtomicCas { ptr, expected, value, sem, scope } => {
                let at = self.val(ptr)?;
                let access = self.access(self.k.ty(value))?;
                if access.lanes != 1 || access.bytes < 4 {
                    return Err(self.no_access(
                        "compare and swap",
                        access.elem,
                        "use a type of 32 or 64 bits",
                    ));
                }
                let (expected, value) = (self.val(expected)?, self.val(value)?);
                let int = self.ir.int(access.elem.bits());
                let (old, new) = (self.ir.bitcast(expected, int), self.ir.bitcast(value, int));
                let found = self.ir.cmpxchg(at, old, new, Order { sem, scope });
                Ok(Some(self.ir.bitcast(found, value.ty())))
            }
        }
    }

    /// The address of an access, and its space.
    fn place(&self, ptr: Value) -> Lowered<(Val<'c>, Space)> {
        Ok((self.val(ptr)?, self.k.ty(ptr).space().unwrap_or(Space::Global)))
    }

    /// The value that an access moves, which has a power of two of bytes, at most 16.
    fn access(&self, ty: &Type) -> Lowered<Access> {
        let (elem, lanes) = ty.elem().zip(ty.lanes()).ok_or_else(|| self.bug("an access of no number"))?;
        Ok(Access { elem, lanes, bytes: lanes.saturating_mul(elem.bytes()) })
    }

    pub(super) fn no_access(&self, what: &str, elem: Scalar, help: &str) -> Diagnostic {
        self.error(NO_ACCESS, format!("{what} of {elem} does not exist here")).help(help)
    }

    /// The type that a value has in memory.
    fn memory_ty(&self, access: Access) -> crate::raw::Ty<'c> {
        let elem = match access.elem {
            Scalar::Bool => self.ir.int(8),
            s => self.ir.scalar(s),
        };
        match self.inst_is_vector(access) {
            true => self.ir.vector(elem, access.lanes),
            false => elem,
        }
    }

    /// Whether the value of the current instruction is a vector, even with a single lane.
    fn inst_is_vector(&self, access: Access) -> bool {
        let stored =
            if let Op::Memory(Memory::Store { value, .. }) = &self.inst.op { Some(value) } else { None };
        let ty = stored.map_or(&self.inst.ty, |v| self.k.ty(*v));
        access.lanes > 1 || matches!(ty, Type::Vector(..))
    }

    fn load(&mut self, ptr: Value, order: Order) -> Lowered<Val<'c>> {
        let ir = self.ir;
        let (at, space) = self.place(ptr)?;
        let access = self.access(&self.inst.ty)?;
        let ty = self.memory_ty(access);
        let value = match (order.sem, access.bytes) {
            (Sem::Weak, bytes) => self.half_of_bits(ir.load(ty, at, bytes))?,
            (_, 16) if !space.is_shared() => {
                let wanted =
                    InstructionRequest { instr: Instr::GlobalLd, op: None, acc: None, access, order };
                let result = self.instruction(wanted, at, None)?;
                return result.ok_or_else(|| self.bug("a load of nothing"));
            }
            (_, 16) => {
                let words = [0, 8].map(|by| {
                    let word = ir.load(ir.int(64), ir.offset(at, ir.constant(ir.int(64), by)), 8);
                    ir.strong(word, order);
                    word
                });
                ir.bitcast(ir.pack(&words, ir.vector(ir.int(64), 2)), ty)
            }
            (_, bytes) => {
                let word = ir.load(ir.int(bytes * 8), at, bytes);
                ir.strong(word, order);
                ir.bitcast(word, ty)
            }
        };
        Ok(from_memory(ir, value, access.elem))
    }

    fn store(&mut self, ptr: Value, value: Value, order: Order) -> Lowered<()> {
        let ir = self.ir;
        let (at, space) = self.place(ptr)?;
        let access = self.access(self.k.ty(value))?;
        let data = ir.cast(Cast::LLVMZExt, self.val(value)?, self.memory_ty(access));
        match (order.sem, access.bytes) {
            (Sem::Weak, bytes) => {
                ir.store(data, at, bytes);
            }
            (_, 16) if !space.is_shared() => {
                let wanted =
                    InstructionRequest { instr: Instr::GlobalSt, op: None, acc: None, access, order };
                self.instruction(wanted, at, Some(data))?;
            }
            (_, 16) => {
                let words = ir.bitcast(data, ir.vector(ir.int(64), 2));
                for (word, by) in ir.lanes(words).into_iter().zip([0, 8]) {
                    let at = ir.offset(at, ir.constant(ir.int(64), by));
                    ir.strong(ir.store(word, at, 8), order);
                }
            }
            (_, bytes) => {
                let word = ir.bitcast(data, ir.int(bytes * 8));
                ir.strong(ir.store(word, at, bytes), order);
            }
        }
        Ok(())
    }

    /// Emits a read-modify-write of shared memory. Without an op it exchanges.
    fn shared_rmw(
        &self,
        op: Option<RedOp>,
        elem: Scalar,
        at: Val<'c>,
        value: Val<'c>,
        order: Order,
    ) -> Lowered<Val<'c>> {
        use Rmw::*;
        let ir = self.ir;
        let wide = elem.bits() >= 32;
        let rmw = match (op, elem.kind()) {
            (None, NumberKind::Float) if wide => LLVMAtomicRMWBinOpXchg,
            (Some(RedOp::Add), NumberKind::Float) if !elem.is_fp8() => LLVMAtomicRMWBinOpFAdd,
            (Some(_), NumberKind::Float) | (_, NumberKind::Bool) => {
                let help = "for floats, shared memory has add and exchange; for bool, it has no atomics";
                return Err(self.no_access("atomic", elem, help));
            }
            _ if !wide => {
                return Err(self.no_access("atomic", elem, "shared memory has atomics of 32 and 64 bits"));
            }
            (None, _) => LLVMAtomicRMWBinOpXchg,
            (Some(RedOp::Add), _) => LLVMAtomicRMWBinOpAdd,
            (Some(RedOp::And), _) => LLVMAtomicRMWBinOpAnd,
            (Some(RedOp::Or), _) => LLVMAtomicRMWBinOpOr,
            (Some(RedOp::Xor), _) => LLVMAtomicRMWBinOpXor,
            (Some(RedOp::Min), NumberKind::Signed) => LLVMAtomicRMWBinOpMin,
            (Some(RedOp::Max), NumberKind::Signed) => LLVMAtomicRMWBinOpMax,
            (Some(RedOp::Min), _) => LLVMAtomicRMWBinOpUMin,
            (Some(RedOp::Max), _) => LLVMAtomicRMWBinOpUMax,
            (Some(RedOp::Mul), _) => {
                return Err(self.no_access("atomic product", elem, "load, multiply and store"));
            }
        };
        if value.ty().lanes().is_some() {
            return Err(self.bug("an atomic on a vector"));
        }
        let Order { sem, scope } = order;
        if matches!(sem, Sem::Release | Sem::AcqRel) {
            ir.fence(Order { sem: Sem::Release, scope });
        }
        let old = ir.rmw(rmw, at, value);
        if matches!(sem, Sem::Acquire | Sem::AcqRel) {
            ir.fence(Order { sem: Sem::Acquire, scope });
        }
        Ok(old)
    }
}

/// The scopes and orders of the IR, in the words of the tables.
pub(super) fn isa_order(order: Order) -> Option<(weft_isa::Sem, Option<weft_isa::Scope>)> {
    let sem = match order.sem {
        Sem::Weak => return Some((weft_isa::Sem::Weak, None)),
        Sem::Relaxed => weft_isa::Sem::Relaxed,
        Sem::Acquire => weft_isa::Sem::Acquire,
        Sem::Release => weft_isa::Sem::Release,
        Sem::AcqRel => weft_isa::Sem::AcqRel,
        Sem::SeqCst => return None,
    };
    let scope = match order.scope {
        Scope::Cta => weft_isa::Scope::Cta,
        Scope::Cluster => weft_isa::Scope::Cluster,
        Scope::Gpu => weft_isa::Scope::Gpu,
        Scope::Sys => weft_isa::Scope::Sys,
    };
    Some((sem, Some(scope)))
}
