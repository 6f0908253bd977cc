//! Modules, kernels and blocks of the IR.

use crate::arena::{Arena, handle};
use crate::diag::Span;
use crate::head::{Param, TensorHead};
use crate::level::{Head, Level, Mixed, Tensor};
use crate::names::{Scalar, Sreg};
use crate::op::{Arith, Constant, Operation, Team, Thread, Tile, Var as VarOp, View};
use crate::types::{TypeRef, ValueType};
use std::sync::Arc;
use weft_layout::{Int, Var};

handle! {
    /// An instruction, and the value that it computes.
    Value, "%"
}
handle! {
    /// A local variable.
    LocalId, "$"
}

/// A team, identified by the kernel parameter that passes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TeamRef(pub u32);

impl TeamRef {
    /// The team of all PEs (`NVSHMEM_TEAM_WORLD`), which is not passed by a parameter.
    pub const WORLD: TeamRef = TeamRef(weft_abi::WORLD);
}

/// The variable that a loop defines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Induction(pub Value);

/// An instruction of a kernel: an op and the type of its result.
#[derive(Clone, PartialEq, Debug)]
pub struct Inst<L: Level> {
    /// The operation, with its operands.
    pub op: L::Op,
    /// The type of the result.
    pub ty: L::Type,
    /// The source text of the instruction.
    pub span: Span,
}

/// A list of instructions in the order in which they run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Block(pub Vec<Value>);

/// A variable of a thread that can be assigned.
#[derive(Clone, PartialEq, Debug)]
pub struct Local<L: Level> {
    /// The name of the variable in the text.
    pub name: Arc<str>,
    /// The type of the variable: a scalar, vector or pointer.
    pub ty: L::Type,
}

/// A kernel: one entry point of the compiled code.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel<L: Level = Tensor> {
    /// The name of the kernel, which is a PTX identifier.
    pub name: Arc<str>,
    /// The number of threads per CTA (x, y, z).
    pub block: [u32; 3],
    /// The number of CTAs per cluster (x, y, z), which is 1 without clusters.
    pub cluster: [u32; 3],
    /// The parameters and the other attributes of kernels of this level.
    pub head: L::Head,
    /// The local variables of the kernel's threads.
    pub locals: Arena<LocalId, Local<L>>,
    /// All instructions, including those of nested blocks.
    pub insts: Arena<Value, Inst<L>>,
    /// The block that the kernel runs.
    pub body: Block,
    /// The source text of the kernel's head.
    pub span: Span,
}

/// Kernels that are compiled together.
#[derive(Clone, PartialEq, Debug)]
pub struct Module<L: Level = Tensor> {
    /// The file names, indexed by [`Span::file`].
    pub files: Vec<Arc<str>>,
    /// The kernels of the module.
    pub kernels: Vec<Kernel<L>>,
}

impl<L: Level> Default for Module<L> {
    fn default() -> Self {
        Module { files: Vec::new(), kernels: Vec::new() }
    }
}

impl<L: Level> Kernel<L> {
    /// A kernel without code that has 1 thread per CTA.
    pub fn new(name: impl Into<Arc<str>>) -> Kernel<L> {
        Kernel {
            name: name.into(),
            block: [1, 1, 1],
            cluster: [1, 1, 1],
            head: L::Head::default(),
            locals: Arena::default(),
            insts: Arena::default(),
            body: Block::default(),
            span: Span::NONE,
        }
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &L::Type {
        &self.insts[value].ty
    }

    /// The op that computes a value.
    pub fn op(&self, value: Value) -> &L::Op {
        &self.insts[value].op
    }

    /// Calls `visit` with every value that an instruction uses (without those of nested blocks).
    /// These are the values in its fields and those in the layout and the bounds of its result.
    /// NVSHMEM's operations compute with the layouts of whole tensors, so the values in these
    /// layouts are visited too.
    pub fn operands(&self, inst: &Inst<L>, visit: &mut dyn FnMut(Value)) {
        let of_type = |ty: &L::Type, visit: &mut dyn FnMut(Value)| {
            if let TypeRef::Tensor(t) = ty.view() {
                t.vars(&mut |v| visit(Value(v.id)));
            }
        };
        let whole_tensors = inst.op.remote().is_some();
        inst.op.operands(&mut |x| {
            visit(x);
            if whole_tensors && let Some(inst) = self.insts.get(x) {
                of_type(&inst.ty, visit);
            }
        });
        of_type(&inst.ty, visit);
    }

    /// An integer value as a symbol for layouts, with the range that its definition gives it. The
    /// result is `None` for anything but an `i32` or `i64`.
    pub fn symbol(&self, value: Value) -> Option<Int> {
        let TypeRef::Scalar(scalar @ (Scalar::I32 | Scalar::I64)) = self.ty(value).view() else {
            return None;
        };
        let op = self.op(value);
        let open = |min| (min, None, 1);
        let (min, max, div) = if let Some(Arith::Const { value: Constant::Int(n) }) = op.arith() {
            return Some(Int::from(*n));
        } else if let Some(View::Index { expr }) = op.view() {
            return Some(expr.clone());
        } else if let Some(Thread::Special { reg, dim }) = op.thread() {
            match reg {
                Sreg::ThreadIdx => (0, Some(i64::from(self.block[*dim as usize]) - 1), 1),
                Sreg::BlockDim => return Some(Int::from(i64::from(self.block[*dim as usize]))),
                Sreg::LaneIdx => (0, Some(31), 1),
                Sreg::ClusterRank => (0, Some(i64::from(self.cluster_size()) - 1), 1),
                Sreg::BlockIdx => (0, self.head.ctas(*dim).map(|n| n.max(1) - 1), 1),
                // The grid consists of whole clusters.
                Sreg::GridDim => {
                    let ctas = i64::from(self.cluster[*dim as usize]);
                    (ctas, None, ctas)
                }
            }
        } else if let Some(VarOp::Param { index }) = op.var() {
            self.head.range(*index)
        } else if let Some(VarOp::LoopVar { min, max, div }) = op.var() {
            (*min, (*max != i64::MAX).then_some(*max), *div)
        } else if let Some(Tile::Acquire { pipe } | Tile::Await { pipe }) = op.tile() {
            match self.ty(*pipe).view() {
                TypeRef::Pipeline(stages) => (0, Some(i64::from(stages) - 1), 1),
                _ => open(0),
            }
        } else if let Some(team) = op.team() {
            open(i64::from(matches!(team, Team::NPes { .. })))
        } else {
            open(i64::MIN)
        };
        let (min, max) = match scalar {
            Scalar::I32 => (min.max(i32::MIN.into()), max.or(Some(i32::MAX.into()))),
            _ => (min, max),
        };
        Some(Int::var(Var { id: value.0, name: value.to_string().into(), div: div.max(1), min, max }))
    }

    /// The number of threads of a CTA.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// The number of CTAs of a cluster.
    pub fn cluster_size(&self) -> u32 {
        self.cluster.iter().product()
    }

    /// Calls `visit` with every instruction that is in a block, in order and outer before inner.
    pub fn walk(&self, visit: &mut dyn FnMut(Value, &Inst<L>)) {
        fn go<L: Level>(k: &Kernel<L>, block: &Block, visit: &mut dyn FnMut(Value, &Inst<L>)) {
            for &v in &block.0 {
                let Some(inst) = k.insts.get(v) else { continue };
                visit(v, inst);
                for inner in inst.op.blocks() {
                    go(k, inner, visit);
                }
            }
        }
        go(self, &self.body, visit);
    }
}

impl From<Module<Tensor>> for Module<Mixed> {
    /// The same kernels as a module that passes can lower.
    fn from(module: Module<Tensor>) -> Module<Mixed> {
        Module { files: module.files, kernels: module.kernels.into_iter().map(Kernel::from).collect() }
    }
}

impl From<Kernel<Tensor>> for Kernel<Mixed> {
    fn from(k: Kernel<Tensor>) -> Kernel<Mixed> {
        let inst = |i: Inst<Tensor>| Inst { op: i.op.into(), ty: i.ty.into(), span: i.span };
        let param = |p: Param<Tensor>| Param {
            name: p.name,
            ty: p.ty.into(),
            kind: p.kind,
            div: p.div,
            role: p.role,
            span: p.span,
        };
        let TensorHead { params, grid, signaled } = k.head;
        Kernel {
            name: k.name,
            block: k.block,
            cluster: k.cluster,
            head: TensorHead { params: params.into_iter().map(param).collect(), grid, signaled },
            locals: k.locals.map(|l| Local { name: l.name, ty: l.ty.into() }),
            insts: k.insts.map(inst),
            body: k.body,
            span: k.span,
        }
    }
}
