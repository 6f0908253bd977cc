//! The step from tensors to the machine level: the remaining parameters, shared memory and their
//! addresses become pointers and numbers.
//!
//! The earlier passes leave no view, team, symbolic index or reduction. A tensor or barrier
//! parameter becomes the address that the entry point gets. A team disappears, because hidden
//! parameters provide what the code needs of it.

use rustc_hash::FxHashMap;
use weft_ir::arena::{Arena, Handle};
use weft_ir::diag::Diagnostic;
use weft_ir::{Address, Block, Bridge, Debug, Operation, Space, Together, Value, ValueType, Var, View};
use weft_ir::{Launch, LaunchParam, MachineParam, ParamKind, machine, mixed};

/// Brings a kernel to the machine level. `launch` describes the parameters that its caller passes.
pub(crate) fn settle(k: &mixed::Kernel, mut launch: Launch) -> Result<machine::Kernel, Vec<Diagnostic>> {
    let mut out = machine::Kernel::new(k.name.clone());
    out.block = k.block;
    out.cluster = k.cluster;
    out.span = k.span;
    let mut indices = FxHashMap::default();
    for (source, p) in (0u32..).zip(&k.head.params) {
        if let ParamKind::Hidden(hidden) = p.kind {
            launch
                .params
                .push(LaunchParam { name: p.name.clone(), kind: weft_abi::ParamKind::Hidden(hidden) });
        }
        let passed = launch.params.get(source as usize);
        // A team is not passed: hidden parameters provide what the code needs of it.
        let Some(ty) = passed.and_then(LaunchParam::passed) else { continue };
        let align = match passed.map(|p| &p.kind) {
            Some(weft_abi::ParamKind::Tensor { align, .. }) => *align,
            Some(weft_abi::ParamKind::Barrier) => 8,
            _ => 1,
        };
        indices.insert(source, out.head.params.len() as u32);
        out.head.params.push(MachineParam { name: p.name.clone(), ty, align, source, span: p.span });
    }
    out.head.launch = Some(launch);
    let mut settle = Settle { k, indices, renamed: FxHashMap::default(), errors: Vec::new() };
    settle.find_addresses(&k.body);
    for (_, local) in k.locals.iter() {
        match machine::Type::of(local.ty.view()) {
            Some(ty) => drop(out.locals.push(machine::Local { name: local.name.clone(), ty })),
            None => settle.errors.push(left(k.span, &format!("a variable of type {}", local.ty))),
        }
    }
    let mut missing = vec![false; k.insts.len()];
    let mut insts = Arena::default();
    for (v, inst) in k.insts.iter() {
        let made = settle.inst(inst);
        missing[v.index()] = made.is_none();
        // An instruction that is in no block was replaced earlier. A trap takes its number.
        insts.push(made.unwrap_or(machine::Inst {
            op: Debug::Trap {}.into(),
            ty: machine::Type::Unit,
            span: inst.span,
        }));
    }
    out.insts = insts;
    out.body = settle.block(&k.body);
    out.walk(&mut |v, inst| {
        if missing[v.index()] {
            settle.errors.push(left(inst.span, &format!("`{}`", k.op(v).mnemonic())));
        }
    });
    if settle.errors.is_empty() { Ok(out) } else { Err(settle.errors) }
}

/// The error for an op that an earlier pass should have replaced.
fn left(span: weft_ir::diag::Span, what: &str) -> Diagnostic {
    Diagnostic::error(crate::codes::NO_ADDRESS, span, format!("{what} does not exist at the machine level"))
}

struct Settle<'k> {
    k: &'k mixed::Kernel,
    /// For each parameter that is passed, its index at the machine level.
    indices: FxHashMap<u32, u32>,
    /// The values whose address is a parameter or allocation, which is itself an address here.
    renamed: FxHashMap<Value, Value>,
    errors: Vec<Diagnostic>,
}

impl Settle<'_> {
    fn find_addresses(&mut self, block: &Block) {
        for &v in &block.0 {
            let Some(inst) = self.k.insts.get(v) else { continue };
            if let mixed::Op::Bridge(Bridge::AddressOf { base }) = inst.op {
                self.renamed.insert(v, base);
            }
            inst.op.blocks().into_iter().for_each(|b| self.find_addresses(b));
        }
    }

    /// Whether an instruction disappears: the address of something, a team, or a place where
    /// threads must meet.
    fn goes(&self, inst: &mixed::Inst) -> bool {
        matches!(inst.op, mixed::Op::Bridge(_))
            || matches!(inst.op.together(), Some(Together::Converge { .. }))
            || inst.ty == mixed::Type::Team
    }

    fn block(&self, block: &Block) -> Block {
        let stays = |v: &&Value| self.k.insts.get(**v).is_some_and(|inst| !self.goes(inst));
        Block(block.0.iter().filter(stays).copied().collect())
    }

    /// The instruction at the machine level, or `None` if it does not exist there.
    fn inst(&self, inst: &mixed::Inst) -> Option<machine::Inst> {
        let span = inst.span;
        let ty = || machine::Type::of(inst.ty.view());
        let (mut op, ty): (machine::Op, _) = match &inst.op {
            mixed::Op::Arith(op) => (op.clone().into(), ty()?),
            mixed::Op::Thread(op) => (op.clone().into(), ty()?),
            mixed::Op::Var(Var::Param { index }) => {
                let index = *self.indices.get(index)?;
                let ty = machine::Type::of(match &inst.ty {
                    mixed::Type::Tensor(t) => weft_ir::TypeRef::Pointer(t.space),
                    mixed::Type::Barrier => weft_ir::TypeRef::Pointer(Space::Symmetric),
                    ty => ty.view(),
                })?;
                (Var::Param { index }.into(), ty)
            }
            mixed::Op::Var(op) => (op.clone().into(), ty()?),
            mixed::Op::Control(op) => {
                let mut op: machine::Op = op.clone().into();
                op.blocks_mut().into_iter().for_each(|b| *b = self.block(b));
                (op, ty()?)
            }
            mixed::Op::Debug(op) => (op.clone().into(), ty()?),
            mixed::Op::View(View::Shared { name }) => {
                let t = inst.ty.tensor()?;
                let elements = u64::try_from(t.layout.cosize().as_const()?).ok()?;
                let bytes = elements.saturating_mul(t.elem.bytes().into());
                let align = t.align.max(t.elem.bytes());
                (
                    Address::Shared { name: name.clone(), bytes, align }.into(),
                    machine::Type::Pointer(Space::Shared),
                )
            }
            mixed::Op::Address(op) => (op.clone().into(), ty()?),
            mixed::Op::Memory(op) => (op.clone().into(), ty()?),
            mixed::Op::Async(op) => (op.clone().into(), ty()?),
            mixed::Op::Call(op) => (op.clone().into(), ty()?),
            mixed::Op::View(_)
            | mixed::Op::Team(_)
            | mixed::Op::Access(_)
            | mixed::Op::Together(_)
            | mixed::Op::Tile(_)
            | mixed::Op::Remote(_)
            | mixed::Op::Bridge(_) => return None,
        };
        op.map_operands(&mut |x| self.renamed.get(&x).copied().unwrap_or(x));
        Some(machine::Inst { op, ty, span })
    }
}
