//! The lowering of special registers, and of the operations of groups of threads.

use super::{Lower, Lowered};
use crate::raw::{Cast, Order, Val};
use weft_ir::machine::Type;
use weft_ir::{Dim, Group, RedOp, ShuffleMode, Sreg, Thread, ValueType};

/// The number of lanes of a warp.
const WARP: u64 = 32;

impl<'c> Lower<'_, 'c> {
    pub(super) fn threads(&self, op: &Thread) -> Lowered<Option<Val<'c>>> {
        let ir = self.ir;
        let all = ir.constant(ir.int(32), -1);
        match *op {
            Thread::Special { reg, dim } => self.special(reg, dim).map(Some),
            Thread::Shuffle { value, mode, lane } => {
                self.shuffle(self.val(value)?, mode, self.val(lane)?, all).map(Some)
            }
            Thread::Vote { op, cond } => {
                let name = if op == RedOp::Or { "any" } else { "all" };
                let args = [all, self.val(cond)?];
                self.intrinsic(&format!("llvm.nvvm.vote.{name}.sync"), &[], &args).map(Some)
            }
            // A single thread is its own group.
            Thread::GroupBarrier { group: Group::Thread } => Ok(None),
            Thread::GroupBarrier { group: Group::Block } if let Some(role) = self.role => {
                let word = |n: u32| ir.constant(ir.int(32), i64::from(n));
                let name = "llvm.nvvm.barrier.cta.sync.aligned.count";
                self.intrinsic(name, &[], &[word(role.barrier), word(role.threads)]).map(|_| None)
            }
            Thread::GroupBarrier { group: Group::Block } => {
                let name = "llvm.nvvm.barrier.cta.sync.aligned.all";
                self.intrinsic(name, &[], &[ir.constant(ir.int(32), 0)]).map(|_| None)
            }
            Thread::GroupBarrier { group: Group::Warp } => {
                self.intrinsic("llvm.nvvm.bar.warp.sync", &[], &[all]).map(|_| None)
            }
            Thread::GroupBarrier { group: Group::Cluster } => {
                self.intrinsic("llvm.nvvm.barrier.cluster.arrive.aligned", &[], &[])?;
                self.intrinsic("llvm.nvvm.barrier.cluster.wait.aligned", &[], &[]).map(|_| None)
            }
            Thread::ClusterArrive {} => self.effect("llvm.nvvm.barrier.cluster.arrive.aligned", &[]),
            Thread::ClusterWait {} => self.effect("llvm.nvvm.barrier.cluster.wait.aligned", &[]),
            Thread::LaunchDependents {} => self.effect("llvm.nvvm.griddepcontrol.launch.dependents", &[]),
            Thread::WaitDependencies {} => {
                // LLVM assumes that the intrinsic accesses no memory.
                self.nothing_passes();
                self.effect("llvm.nvvm.griddepcontrol.wait", &[])?;
                self.nothing_passes();
                Ok(None)
            }
            Thread::Clock {} => self.intrinsic("llvm.nvvm.read.ptx.sreg.clock64", &[], &[]).map(Some),
            Thread::GlobalTime {} => {
                self.intrinsic("llvm.nvvm.read.ptx.sreg.globaltimer", &[], &[]).map(Some)
            }
            Thread::AsyncFence {} => {
                self.nothing_passes();
                self.effect("llvm.nvvm.fence.proxy.async.global", &[])
            }
            Thread::Fence { sem, scope } => {
                ir.fence(Order { sem, scope });
                Ok(None)
            }
        }
    }

    fn special(&self, reg: Sreg, dim: Dim) -> Lowered<Val<'c>> {
        let threads = u64::from(self.k.block[dim as usize]);
        if let Some(role) = self.role {
            let word = |n: u32| self.ir.constant(self.ir.int(32), i64::from(n));
            match (reg, dim) {
                (Sreg::ThreadIdx, Dim::X) => {
                    let thread = self.intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", &[], &[])?;
                    self.ir.in_range(thread, 32, role.first.into(), u64::from(role.first + role.threads));
                    return Ok(if role.first == 0 { thread } else { self.ir.sub(thread, word(role.first)) });
                }
                (Sreg::ThreadIdx, _) => return Ok(word(0)),
                (Sreg::BlockDim, Dim::X) => return Ok(word(role.threads)),
                (Sreg::BlockDim, _) => return Ok(word(1)),
                (Sreg::BlockIdx | Sreg::GridDim | Sreg::LaneIdx | Sreg::ClusterRank, _) => {}
            }
        }
        // The number of CTAs of a grid (CUDA: compute capability 9.0 and later).
        let ctas: u64 = if dim == Dim::X { (1 << 31) - 1 } else { 65_535 };
        let (name, lo, hi) = match reg {
            Sreg::BlockDim => {
                return Ok(self.ir.constant(self.ir.int(32), i64::from(self.k.block[dim as usize])));
            }
            Sreg::ThreadIdx if threads == 1 => return Ok(self.ir.zero(self.ir.int(32))),
            Sreg::ThreadIdx => ("tid", 0, threads),
            Sreg::BlockIdx => ("ctaid", 0, ctas),
            Sreg::GridDim => ("nctaid", 1, ctas + 1),
            Sreg::LaneIdx => ("laneid", 0, WARP),
            Sreg::ClusterRank => ("cluster.ctarank", 0, self.k.cluster_size().into()),
        };
        let name = match reg {
            Sreg::LaneIdx | Sreg::ClusterRank => format!("llvm.nvvm.read.ptx.sreg.{name}"),
            _ => format!("llvm.nvvm.read.ptx.sreg.{name}.{dim}"),
        };
        let value = self.intrinsic(&name, &[], &[])?;
        self.ir.in_range(value, 32, lo, hi);
        Ok(value)
    }

    /// Shuffles a value in pieces of 32 bits, which is what a shuffle moves.
    fn shuffle(&self, value: Val<'c>, mode: ShuffleMode, lane: Val<'c>, all: Val<'c>) -> Lowered<Val<'c>> {
        let ir = self.ir;
        // The last operand limits the lanes that can be read (PTX ISA, shfl.sync), here to the
        // whole warp.
        let (name, bound) = match mode {
            ShuffleMode::Idx => ("idx", 31),
            ShuffleMode::Up => ("up", 0),
            ShuffleMode::Down => ("down", 31),
            ShuffleMode::Xor => ("bfly", 31),
        };
        let name = format!("llvm.nvvm.shfl.sync.{name}.i32");
        let bound = ir.constant(ir.int(32), bound);
        let Some((elem, lanes)) = self.inst.ty.elem().zip(self.inst.ty.lanes()) else {
            return Err(self.bug("a shuffle of no number"));
        };
        let bits = if elem == weft_ir::Scalar::Bool { lanes } else { lanes.saturating_mul(elem.bits()) };
        let words = bits.div_ceil(32);
        let whole = ir.cast(Cast::LLVMZExt, ir.bitcast(value, ir.int(bits)), ir.int(words * 32));
        let pieces = ir.vector(ir.int(32), words);
        let moved = self.each_lane(ir.bitcast(whole, pieces), pieces, |word| {
            self.intrinsic(&name, &[], &[all, word, lane, bound])
        })?;
        let whole = ir.bitcast(moved, ir.int(words * 32));
        let narrow = ir.cast(Cast::LLVMTrunc, whole, ir.int(bits));
        Ok(ir.bitcast(narrow, self.ty(&Type::lanes_of(elem, lanes)).map(|_| value.ty())?))
    }
}
