//! Instructions that access memory.

use super::{Func, Ir, SHARED, SHARED_CLUSTER, Ty, Val};
use inkwell::llvm_sys::{LLVMAtomicOrdering, core};
use weft_ir::{Scope, Sem};

pub(crate) use inkwell::llvm_sys::LLVMAtomicRMWBinOp as Rmw;

/// The memory order and scope of a strong access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    pub sem: Sem,
    pub scope: Scope,
}

fn ordering(sem: Sem) -> LLVMAtomicOrdering {
    use LLVMAtomicOrdering as O;
    match sem {
        Sem::Weak => O::LLVMAtomicOrderingNotAtomic,
        Sem::Relaxed => O::LLVMAtomicOrderingMonotonic,
        Sem::Acquire => O::LLVMAtomicOrderingAcquire,
        Sem::Release => O::LLVMAtomicOrderingRelease,
        Sem::AcqRel => O::LLVMAtomicOrderingAcquireRelease,
        Sem::SeqCst => O::LLVMAtomicOrderingSequentiallyConsistent,
    }
}

impl<'c> Ir<'c> {
    fn scope(&self, scope: Scope) -> u32 {
        self.scopes[scope as usize]
    }

    /// Appends a load from an address that is aligned to `align` bytes.
    pub fn load(&self, ty: Ty<'c>, at: Val<'c>, align: u32) -> Val<'c> {
        // SAFETY: the handles are alive, and the operands have the types that the instruction takes.
        unsafe {
            let v = core::LLVMBuildLoad2(self.builder.as_mut_ptr(), ty.0, at.0, c"".as_ptr());
            core::LLVMSetAlignment(v, align);
            self.remember_place(v);
            self.val(v)
        }
    }

    /// Appends a store to an address that is aligned to `align` bytes.
    pub fn store(&self, value: Val<'c>, at: Val<'c>, align: u32) -> Val<'c> {
        // SAFETY: the handles are alive, and the operands have the types that the instruction takes.
        unsafe {
            let v = core::LLVMBuildStore(self.builder.as_mut_ptr(), value.0, at.0);
            core::LLVMSetAlignment(v, align);
            self.val(v)
        }
    }

    /// Makes a load or store strong. Its type must be an integer or float of at most 64 bits.
    pub fn strong(&self, access: Val<'c>, order: Order) {
        if order.sem != Sem::Weak {
            // SAFETY: `access` is an alive load or store, of a type that may be atomic, and the scope's number is
            // LLVM's.
            unsafe {
                core::LLVMSetOrdering(access.0, ordering(order.sem));
                core::LLVMSetAtomicSyncScopeID(access.0, self.scope(order.scope));
            }
        }
    }

    /// Appends a read-modify-write. LLVM 22 prints it as relaxed at GPU scope, whatever was
    /// requested, so it is suitable for shared memory only.
    pub fn rmw(&self, op: Rmw, at: Val<'c>, value: Val<'c>) -> Val<'c> {
        debug_assert!([SHARED, SHARED_CLUSTER].iter().any(|space| at.ty() == self.pointer(*space)));
        let (order, scope) = (ordering(Sem::Relaxed), self.scope(Scope::Gpu));
        let at = (self.builder.as_mut_ptr(), at.0);
        // SAFETY: the handles are alive, and the operands have the types that the instruction takes; the scope's
        // number is LLVM's.
        self.val(unsafe { core::LLVMBuildAtomicRMWSyncScope(at.0, op, at.1, value.0, order, scope) })
    }

    /// Appends a compare and swap of integers. Result: the old value.
    pub fn cmpxchg(&self, at: Val<'c>, expected: Val<'c>, value: Val<'c>, order: Order) -> Val<'c> {
        // The order of a failed swap is the strongest that LLVM permits, without release.
        let failure = match order.sem {
            Sem::Acquire | Sem::AcqRel => Sem::Acquire,
            _ => Sem::Relaxed,
        };
        // SAFETY: the handles are alive, and the operands have the types that the instruction takes; the scope's
        // number is LLVM's, and no release is asked of a failure.
        let pair = unsafe {
            core::LLVMBuildAtomicCmpXchgSyncScope(
                self.builder.as_mut_ptr(),
                at.0,
                expected.0,
                value.0,
                ordering(order.sem),
                ordering(failure),
                self.scope(order.scope),
            )
        };
        self.field(self.val(pair), 0)
    }

    pub fn fence(&self, order: Order) {
        let (at, scope) = (self.builder.as_mut_ptr(), self.scope(order.scope));
        // SAFETY: the builder is alive, the scope's number is LLVM's, and the name ends in NUL.
        unsafe { core::LLVMBuildFenceSyncScope(at, ordering(order.sem), scope, c"".as_ptr()) };
    }

    /// Appends a variable of the thread.
    pub fn alloca(&self, ty: Ty<'c>) -> Val<'c> {
        // SAFETY: the handles are alive, and the name ends in NUL.
        self.val(unsafe { core::LLVMBuildAlloca(self.builder.as_mut_ptr(), ty.0, c"".as_ptr()) })
    }

    /// Appends a variable of the thread at the function's entry, so that it exists once however
    /// often control reaches this code.
    pub fn alloca_at_entry(&self, f: Func<'c>, ty: Ty<'c>) -> Val<'c> {
        // SAFETY: the handles are alive, the function has an entry block, and `first` was compared with null.
        unsafe {
            let here = core::LLVMGetInsertBlock(self.builder.as_mut_ptr());
            let entry = core::LLVMGetEntryBasicBlock(f.value.0);
            let first = core::LLVMGetFirstInstruction(entry);
            if !first.is_null() {
                core::LLVMPositionBuilderBefore(self.builder.as_mut_ptr(), first);
            }
            let made = self.alloca(ty);
            core::LLVMPositionBuilderAtEnd(self.builder.as_mut_ptr(), here);
            made
        }
    }

    /// Appends a read of a variable of the thread, with its type's natural alignment.
    pub fn get(&self, ty: Ty<'c>, local: Val<'c>) -> Val<'c> {
        // SAFETY: the handles are alive, and the operands have the types that the instruction takes.
        self.val(unsafe { core::LLVMBuildLoad2(self.builder.as_mut_ptr(), ty.0, local.0, c"".as_ptr()) })
    }

    /// Appends a write of a variable of the thread.
    pub fn set(&self, value: Val<'c>, local: Val<'c>) {
        // SAFETY: the handles are alive, and the operands have the types that the instruction takes.
        unsafe { core::LLVMBuildStore(self.builder.as_mut_ptr(), value.0, local.0) };
    }

    /// Appends the computation of the address `bytes` bytes after `at`.
    pub fn offset(&self, at: Val<'c>, bytes: Val<'c>) -> Val<'c> {
        let mut index = bytes.0;
        let (b, i8) = (self.builder.as_mut_ptr(), self.int(8));
        // SAFETY: the handles are alive, and the operands have the types that the instruction takes; LLVM reads one
        // index.
        self.val(unsafe { core::LLVMBuildGEP2(b, i8.0, at.0, &mut index, 1, c"".as_ptr()) })
    }
}
