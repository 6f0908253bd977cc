//! Modules, kernels, blocks.

use crate::arena::{Arena, handle};
use crate::diag::Span;
use crate::names::{Scalar, Sreg};
use crate::op::{Constant, Op};
use crate::types::Type;
use std::sync::Arc;
use weft_abi::Hidden;
use weft_layout::{Int, Var};

handle! {
    /// An instruction, and the value it gives.
    Value, "%"
}
handle! {
    /// A local variable.
    LocalId, "$"
}

/// A team, by the kernel parameter that brings it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TeamRef(pub u32);

impl TeamRef {
    /// All PEs (`NVSHMEM_TEAM_WORLD`): no parameter brings it.
    pub const WORLD: TeamRef = TeamRef(weft_abi::WORLD);
}

/// The variable that a loop defines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Induction(pub Value);

/// An instruction.
#[derive(Clone, PartialEq, Debug)]
pub struct Inst {
    /// What it does.
    pub op: Op,
    /// What it gives.
    pub ty: Type,
    /// The text it comes from.
    pub span: Span,
}

/// Instructions in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Block(pub Vec<Value>);

/// A variable of a thread that can be assigned.
#[derive(Clone, PartialEq, Debug)]
pub struct Local {
    /// Its name in the text.
    pub name: Arc<str>,
    /// Scalar, vector or pointer.
    pub ty: Type,
}

/// A run-time parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// Its name in the text.
    pub name: Arc<str>,
    /// Its type.
    pub ty: Type,
    /// Who fills it in.
    pub kind: ParamKind,
    /// What is known of an integer parameter: it is a positive multiple of this; 0 where nothing is.
    pub div: i64,
    /// The text it comes from.
    pub span: Span,
}

/// Who fills a parameter in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParamKind {
    /// The caller.
    User,
    /// The launch.
    Hidden(Hidden),
}

/// An entry point.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Its name: a PTX identifier.
    pub name: Arc<str>,
    /// Run-time parameters.
    pub params: Vec<Param>,
    /// Threads a CTA (x, y, z).
    pub block: [u32; 3],
    /// CTAs, if the kernel says so, in terms of its integer parameters; else the launcher decides.
    pub grid: Option<[Int; 3]>,
    /// Parameters whose elements the host or other kernels signal while this one waits.
    pub signaled: Vec<u32>,
    /// Local variables.
    pub locals: Arena<LocalId, Local>,
    /// All instructions.
    pub insts: Arena<Value, Inst>,
    /// The code.
    pub body: Block,
    /// The text of its head.
    pub span: Span,
}

/// Kernels compiled together.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Module {
    /// File names, by [`Span::file`].
    pub files: Vec<Arc<str>>,
    /// Entry points.
    pub kernels: Vec<Kernel>,
}

impl Kernel {
    /// A kernel without code, of 1 thread a CTA.
    pub fn new(name: impl Into<Arc<str>>) -> Kernel {
        Kernel {
            name: name.into(),
            params: Vec::new(),
            block: [1, 1, 1],
            grid: None,
            signaled: Vec::new(),
            locals: Arena::default(),
            insts: Arena::default(),
            body: Block::default(),
            span: Span::NONE,
        }
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        &self.insts[value].ty
    }

    /// The op behind a value.
    pub fn op(&self, value: Value) -> &Op {
        &self.insts[value].op
    }

    /// An integer value as a symbol that layouts can be made of, with what its definition says of its range.
    /// `None` for anything but an `i32` or `i64`.
    pub fn symbol(&self, value: Value) -> Option<weft_layout::Int> {
        if !matches!(self.ty(value), Type::Scalar(Scalar::I32 | Scalar::I64)) {
            return None;
        }
        let open = |min| (min, None, 1);
        let (min, max, div) = match self.op(value) {
            Op::Const { value: Constant::Int(n) } => return Some(Int::from(*n)),
            Op::Index { expr } => return Some(expr.clone()),
            Op::Param { index } => match self.params.get(*index as usize) {
                Some(Param { kind: ParamKind::Hidden(Hidden::MyPe { .. }), .. }) => open(0),
                Some(Param { div: 0, .. }) => open(i64::MIN),
                param => (1, None, param.map_or(1, |p| p.div)),
            },
            Op::NPes { .. } => open(1),
            Op::MyPe { .. } => open(0),
            Op::LoopVar { min, max, div } => (*min, (*max != i64::MAX).then_some(*max), *div),
            Op::Special { reg, dim } => {
                let threads = i64::from(self.block[*dim as usize]);
                match reg {
                    Sreg::ThreadIdx => (0, Some(threads - 1), 1),
                    Sreg::BlockDim => return Some(Int::from(threads)),
                    Sreg::LaneIdx => (0, Some(31), 1),
                    Sreg::BlockIdx => {
                        let ctas = self.grid.as_ref().and_then(|grid| grid[*dim as usize].as_const());
                        (0, ctas.map(|n| n.max(1) - 1), 1)
                    }
                    Sreg::GridDim => open(1),
                }
            }
            _ => open(i64::MIN),
        };
        let (min, max) = match self.ty(value) {
            Type::Scalar(Scalar::I32) => (min.max(i32::MIN.into()), max.or(Some(i32::MAX.into()))),
            _ => (min, max),
        };
        Some(Int::var(Var { id: value.0, name: value.to_string().into(), div: div.max(1), min, max }))
    }

    /// Threads a CTA.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Calls `visit` with every instruction that stands in a block, in order, outer before inner.
    pub fn walk(&self, visit: &mut dyn FnMut(Value, &Inst)) {
        fn go(k: &Kernel, block: &Block, visit: &mut dyn FnMut(Value, &Inst)) {
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
