//! The lowering of asynchronous copies of boxes, and of the barriers in shared memory at which they
//! arrive.

use super::{Lower, Lowered};
use crate::raw::{Cast, GENERIC, SHARED_CLUSTER, Val};
use weft_ir::abi::MAP_BYTES;
use weft_ir::{Address, Async, Family, Operation, RedOp, Space, Value, ValueType};
use weft_isa::PtxVersion;

/// The version of PTX that introduced asynchronous copies, their barriers and fences. LLVM cannot
/// select them before it.
const ASYNC: PtxVersion = PtxVersion::new(8, 0);
/// The version of PTX that introduced fences of tensor maps.
const TENSOR_MAP: PtxVersion = PtxVersion::new(8, 3);
/// The family of targets for which ptxas turns a copy to the shared memory of the cluster into a
/// system call, unless it is evident that the CTA's own memory is meant. In code with such a call
/// it ignores `setmaxnreg` (C7506).
const CTA_ONLY: u16 = 120;

impl<'c> Lower<'_, 'c> {
    pub(super) fn tile(&mut self, op: &Async) -> Lowered<Option<Val<'c>>> {
        let ir = self.ir;
        self.needs.raise(ASYNC, self.inst.span, || format!("`{}`", op.mnemonic()))?;
        match op {
            Async::MbarInit { ptr, count } => {
                let count = ir.constant(ir.int(32), i64::from(*count));
                self.effect("llvm.nvvm.mbarrier.init.shared", &[self.val(*ptr)?, count])
            }
            Async::MbarFence {} => self.effect("llvm.nvvm.fence.mbarrier_init.release.cluster", &[]),
            Async::MbarArrive { ptr, scope } => {
                self.nothing_passes();
                let one = ir.constant(ir.int(32), 1);
                let there = self.k.ty(*ptr).space() == Some(Space::Cluster);
                let space = if there { "cluster" } else { "cta" };
                let name = format!("llvm.nvvm.mbarrier.arrive.scope.{scope}.space.{space}");
                self.effect(&name, &[self.val(*ptr)?, one])
            }
            Async::MbarExpect { ptr, bytes } => {
                let bytes = ir.constant(ir.int(32), i64::from(*bytes));
                let name = "llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta";
                self.effect(name, &[self.val(*ptr)?, bytes])
            }
            Async::MbarTest { ptr, parity, scope } => {
                let name = format!("llvm.nvvm.mbarrier.try.wait.parity.scope.{scope}.space.cta");
                let ended = self.intrinsic(&name, &[], &[self.val(*ptr)?, self.val(*parity)?])?;
                self.nothing_passes();
                Ok(Some(ended))
            }
            Async::MapFence { map } => {
                self.needs.raise(TENSOR_MAP, self.inst.span, || format!("`{}`", op.mnemonic()))?;
                let bytes = ir.constant(ir.int(32), i64::from(MAP_BYTES));
                let args = [self.map(*map)?, bytes];
                self.effect("llvm.nvvm.fence.proxy.tensormap_generic.acquire.sys", &args)
            }
            Async::TmaLoad { dst, map, at, mbar, ctas } => self.load_box((*dst, *map), at, *mbar, *ctas),
            Async::BulkLoad { .. } | Async::BulkStore { .. } => self.bulk(op),
            Async::TmaStore { src, map, at, op } => self.store_box(*src, *map, at, *op),
            Async::BulkCommit {} => self.effect("llvm.nvvm.cp.async.bulk.commit.group", &[]),
            Async::BulkWait { pending, read } => {
                let kind = if *read { ".read" } else { "" };
                let pending = ir.constant(ir.int(32), i64::from(*pending));
                self.effect(&format!("llvm.nvvm.cp.async.bulk.wait.group{kind}"), &[pending])?;
                self.nothing_passes();
                Ok(None)
            }
            Async::ProxyFence { global } => {
                self.nothing_passes();
                let memory = if *global { "global" } else { "shared_cta" };
                self.effect(&format!("llvm.nvvm.fence.proxy.async.{memory}"), &[])
            }
            Async::SharedAddress { ptr } => self.shared_address(*ptr).map(Some),
            Async::WgmmaFence {}
            | Async::WgmmaRegisters { .. }
            | Async::WgmmaUnset {}
            | Async::WgmmaZero {}
            | Async::Wgmma { .. }
            | Async::WgmmaCommit {}
            | Async::WgmmaWait { .. }
            | Async::LdMatrix { .. }
            | Async::StMatrix { .. }
            | Async::MmaSync { .. } => self.matrix(op),
        }
    }

    /// The address of an allocation, by assembly that contains its name, so that the computation is
    /// not moved.
    fn shared_address(&self, ptr: Value) -> Lowered<Val<'c>> {
        let (ir, at) = (self.ir, self.val(ptr)?);
        let word = ir.int(32);
        Ok(match self.k.op(ptr).address() {
            Some(Address::Shared { .. }) => ir.asm("mov.u32 $0, $1;", "=r,s", &[word], &[at]),
            _ => ir.cast(Cast::LLVMTrunc, ir.cast(Cast::LLVMPtrToInt, at, ir.int(64)), word),
        })
    }

    /// Prevents LLVM from moving accesses to memory across this place. LLVM assumes that these
    /// intrinsics access only their arguments.
    pub(super) fn nothing_passes(&self) {
        self.ir.asm("", "~{memory}", &[], &[]);
    }

    pub(super) fn effect(&self, name: &str, args: &[Val<'c>]) -> Lowered<Option<Val<'c>>> {
        self.intrinsic(name, &[], args).map(|_| None)
    }

    fn load_box(
        &self,
        (dst, map): (Value, Value),
        at: &[Value],
        mbar: Value,
        ctas: Option<Value>,
    ) -> Lowered<Option<Val<'c>>> {
        let ir = self.ir;
        let (policy, flag) = (ir.constant(ir.int(64), 0), ir.constant(ir.int(1), 0));
        let mut args = vec![self.val(dst)?, self.val(mbar)?, self.map(map)?];
        for v in at {
            args.push(self.val(*v)?);
        }
        if self.is_cta_only() && ctas.is_none() {
            args.extend([policy, flag]);
            let name = format!("llvm.nvvm.cp.async.bulk.tensor.g2s.cta.tile.{}d", at.len());
            return self.effect(&name, &args);
        }
        args[0] = ir.cast(Cast::LLVMAddrSpaceCast, args[0], ir.pointer(SHARED_CLUSTER));
        // There is no cache policy and any CTA of the cluster is possible (PTX ISA: cta_group,
        // which sm_90 does not have).
        let multicast = ir.constant(ir.int(1), i64::from(ctas.is_some()));
        let mask = ctas.map_or(Ok(ir.constant(ir.int(16), 0)), |ctas| self.mask(ctas))?;
        args.extend([mask, policy, multicast, flag, ir.constant(ir.int(32), 0)]);
        self.effect(&format!("llvm.nvvm.cp.async.bulk.tensor.g2s.tile.{}d", at.len()), &args)
    }

    /// Ranks of CTAs in the form of the instructions' operand.
    pub(super) fn mask(&self, ctas: Value) -> Lowered<Val<'c>> {
        Ok(self.ir.cast(Cast::LLVMTrunc, self.val(ctas)?, self.ir.int(16)))
    }

    /// Whether copies to the CTA's own memory must be written as such.
    pub(super) fn is_cta_only(&self) -> bool {
        self.target.family() == CTA_ONLY
    }

    fn store_box(&self, src: Value, map: Value, at: &[Value], op: Option<RedOp>) -> Lowered<Option<Val<'c>>> {
        let ir = self.ir;
        self.nothing_passes();
        let mut args = vec![self.val(src)?, self.map(map)?];
        for v in at {
            args.push(self.val(*v)?);
        }
        args.extend([ir.constant(ir.int(64), 0), ir.constant(ir.int(1), 0)]);
        let verb = op.map_or("s2g".into(), |op| format!("reduce.{}", op.name()));
        self.effect(&format!("llvm.nvvm.cp.async.bulk.tensor.{verb}.tile.{}d", at.len()), &args)
    }

    /// The address of a tensor map as a generic address, which the instructions take.
    fn map(&self, map: Value) -> Lowered<Val<'c>> {
        Ok(self.ir.cast(Cast::LLVMAddrSpaceCast, self.val(map)?, self.ir.pointer(GENERIC)))
    }
}
