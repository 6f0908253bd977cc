//! Decodes one function: scopes, registers, labels and instructions.

use super::MAX_VARIABLE;
use super::allocate::allocate;
use super::layout::{Size, size_of};
use crate::builder::{Entity, FunctionBuilder, ModuleBuilder, Step, Width};
use crate::codes;
use crate::error::PtxError;
use crate::exec::code::Inst;
use crate::exec::{Pred, Reg};
use crate::isa;
use crate::isa::site::Site;
use crate::isa::tensor::wgmma::before_use;
use crate::ptx::ast::{self, Offset, Statement};
use crate::ptx::error_at;
use crate::types::Ty;
use rustc_hash::FxHashMap;

/// The largest number of registers of one declaration, and of a function.
const MAX_REGISTERS: u64 = 1 << 20;

/// Decodes function `index` twice: first to learn which registers are live at the same time, then
/// with shared slots.
pub(super) fn build<'a>(
    m: ModuleBuilder<'a>,
    index: usize,
    f: &ast::Function<'a>,
) -> Result<ModuleBuilder<'a>, PtxError> {
    let mark = m.mark();
    let mut first = FunctionBuilder::run(m, index, f, Vec::new(), Vec::new())?;
    for step in first.steps.iter_mut().filter(|s| s.settles) {
        step.uses.extend(&first.held);
    }
    let (slots, count) = allocate(&first.steps, first.registers, &first.m.labels);
    let mut m = first.m;
    m.rewind(&mark, index);
    let mut held: Vec<u32> = first.held.iter().map(|&r| slots[r as usize].0).collect();
    held.sort_unstable();
    held.dedup();
    let b = FunctionBuilder::run(m, index, f, slots, held)?;
    let mut m = b.m;
    let code = &mut m.functions[index];
    code.entry = mark.entry();
    code.registers = count;
    code.predicates = b.predicates;
    code.frame_bytes = b.frame_bytes.next_multiple_of(16);
    Ok(m)
}

struct Instruction {
    opcode: &'static str,
    at: Offset,
}

impl<'a> FunctionBuilder<'a> {
    /// Decodes the function with these slots for its registers; without slots, the registers are
    /// numbered.
    fn run(
        m: ModuleBuilder<'a>,
        index: usize,
        f: &ast::Function<'a>,
        slots: Vec<Reg>,
        held: Vec<u32>,
    ) -> Result<Self, PtxError> {
        let mut b = FunctionBuilder {
            index,
            is_entry: f.is_entry,
            scopes: vec![FxHashMap::default()],
            registers: 0,
            predicates: Pred::RESERVED,
            frame_bytes: m.functions[index].frame_bytes,
            targets: Vec::new(),
            before: Vec::new(),
            sink: None,
            loc: 0,
            slots,
            step: Step::default(),
            steps: Vec::new(),
            held,
            m,
        };
        b.parameters(f)?;
        b.block(f.body.as_deref().unwrap_or(&[]))?;
        // Control that reaches the end of the text returns.
        b.implicit(Instruction { opcode: "ret", at: f.at })?;
        Ok(b)
    }

    fn parameters(&mut self, f: &ast::Function<'a>) -> Result<(), PtxError> {
        if f.is_entry {
            let mut end = 0_u64;
            for p in &f.params {
                let Size { bytes, align, .. } = size_of(self.m.text, p)?;
                let offset = end.next_multiple_of(align);
                end = offset + bytes;
                self.define(p.at, p.name, Entity::EntryParam { offset })?;
            }
            return Ok(());
        }
        let code = &self.m.functions[self.index];
        let places: Vec<(u64, u64)> = code.params.iter().chain(&code.returns).copied().collect();
        for (p, (offset, bytes)) in f.params.iter().chain(&f.returns).zip(places) {
            self.define(p.at, p.name, Entity::Frame { offset, bytes })?;
        }
        Ok(())
    }

    fn define(&mut self, at: Offset, name: &'a str, entity: Entity) -> Result<(), PtxError> {
        let scope = match self.scopes.last_mut() {
            Some(s) => s,
            None => return Ok(()),
        };
        // `_` names parameters that are never referred to.
        if name != "_" && scope.insert(name, entity).is_some() {
            return Err(self.m.name_error(at, format!("`{name}` is declared twice in this block")));
        }
        Ok(())
    }

    fn block(&mut self, statements: &[Statement<'a>]) -> Result<(), PtxError> {
        for s in statements {
            match s {
                Statement::Label { at, name } => {
                    let id = self.m.labels.len() as u32;
                    self.m.labels.push(u32::MAX);
                    self.define(*at, name, Entity::Label(id))?;
                }
                Statement::Targets { at, name, .. } => {
                    let id = self.targets.len() as u32;
                    self.targets.push(Vec::new());
                    self.define(*at, name, Entity::Targets(id))?;
                }
                _ => {}
            }
        }
        for s in statements {
            if let Statement::Targets { at, name, targets } = s {
                let mut ids = Vec::new();
                for t in targets {
                    match self.lookup(t) {
                        Ok(Entity::Label(id)) => ids.push(id),
                        _ => {
                            return Err(self
                                .m
                                .name_error(*at, format!("`{t}` is not a label of this function")));
                        }
                    }
                }
                if let Ok(Entity::Targets(id)) = self.lookup(name) {
                    self.targets[id as usize] = ids;
                }
            }
        }
        for s in statements {
            self.statement(s)?;
        }
        Ok(())
    }

    fn statement(&mut self, s: &Statement<'a>) -> Result<(), PtxError> {
        match s {
            Statement::Block(inner) => {
                self.scopes.push(FxHashMap::default());
                self.block(inner)?;
                self.scopes.pop();
                Ok(())
            }
            Statement::Reg { at, ty, name, count } => self.declare_register(*at, ty, name, *count),
            Statement::Var(v) => self.declare_variable(v),
            Statement::Label { name, .. } => {
                if let Ok(Entity::Label(id)) = self.lookup(name) {
                    self.m.labels[id as usize] = self.m.insts.len() as u32;
                }
                Ok(())
            }
            Statement::Targets { .. } | Statement::Prototype => Ok(()),
            Statement::Loc(loc) => {
                self.m.locs.push(*loc);
                self.loc = self.m.locs.len() as u32;
                Ok(())
            }
            Statement::Inst(inst) => self.instruction(inst),
        }
    }

    fn declare_register(
        &mut self,
        at: Offset,
        ty: &str,
        name: &'a str,
        count: Option<u64>,
    ) -> Result<(), PtxError> {
        let width = match (ty, Ty::parse(ty)) {
            ("pred", _) => Width::Pred,
            (_, Some(t)) => Width::Bits(t.width()),
            _ => {
                let help = "declare registers with .pred or with a type of 8, 16, 32 or 64 bits";
                return Err(error_at(
                    self.m.text,
                    at,
                    codes::NOT_SIMULATED,
                    format!("registers of type `.{ty}` are not supported"),
                    help,
                ));
            }
        };
        match count {
            Some(n) if n > MAX_REGISTERS => {
                let message = format!("a declaration has {n} registers; the limit is {MAX_REGISTERS}");
                Err(error_at(self.m.text, at, codes::TOO_LARGE, message, ""))
            }
            Some(count) => self.define(at, name, Entity::Range { width, count }),
            None => {
                let slot = self.slot(width);
                self.define(at, name, Entity::Reg { slot, width })
            }
        }
    }

    fn declare_variable(&mut self, v: &ast::Variable<'a>) -> Result<(), PtxError> {
        if !matches!(v.space, "local" | "param") {
            let index = self.m.declare(v)?;
            self.m.variables[index].name = format!("{}.{}", self.m.functions[self.index].name, v.name);
            self.define(v.at, v.name, Entity::Symbol(index))?;
            return super::layout::initialise(&mut self.m, index, v);
        }
        let Size { bytes, align, .. } = size_of(self.m.text, v)?;
        let offset = self.frame_bytes.next_multiple_of(align);
        self.frame_bytes = offset + bytes;
        if self.frame_bytes > MAX_VARIABLE {
            return Err(error_at(
                self.m.text,
                v.at,
                codes::TOO_LARGE,
                "too many bytes of local variables",
                "",
            ));
        }
        self.define(v.at, v.name, Entity::Frame { offset, bytes })
    }

    fn instruction(&mut self, inst: &ast::Instruction<'a>) -> Result<(), PtxError> {
        let pc = self.m.insts.len() as u32;
        self.step = Step { pc, guarded: inst.guard.is_some(), ..Step::default() };
        let op = isa::find(inst.opcode, &inst.modifiers, &inst.operands)
            .and_then(|(form, picks)| {
                let mut site = Site { opcode: inst.opcode, operands: &inst.operands, picks, f: self };
                (form.row.build)(&mut site)
            })
            .map_err(|e| self.m.error(inst.at, e))?;
        let guard = match inst.guard {
            None => None,
            Some(g) => match self.lookup(g.name).map_err(|e| self.m.error(inst.at, e))? {
                Entity::Reg { slot, width: Width::Pred } => {
                    Some((Pred(slot.0), if g.negated { u32::MAX } else { 0 }))
                }
                _ => return Err(self.m.name_error(inst.at, format!("`{}` is not a predicate", g.name))),
            },
        };
        if !self.slots.is_empty() && !self.held.is_empty() && inst.opcode != "wgmma" {
            let held = self.held_here();
            if !held.is_empty() {
                self.before.push(before_use(held, inst.opcode == "mov"));
            }
        }
        let line = self.m.line(inst.at);
        let mnemonic = self.m.mnemonic(isa::mnemonic(inst.opcode, &inst.modifiers));
        let hidden = if self.before.is_empty() { 0 } else { self.m.mnemonic("(operand)".to_string()) };
        for op in std::mem::take(&mut self.before) {
            self.m.insts.push(Inst { op, guard, line, loc: self.loc, mnemonic: hidden });
        }
        self.m.insts.push(Inst { op, guard, line, loc: self.loc, mnemonic });
        if self.slots.is_empty() {
            self.steps.push(std::mem::take(&mut self.step));
        }
        Ok(())
    }

    /// Adds an instruction that the text does not contain.
    fn implicit(&mut self, i: Instruction) -> Result<(), PtxError> {
        let inst = ast::Instruction {
            at: i.at,
            guard: None,
            opcode: i.opcode,
            modifiers: Vec::new(),
            operands: Vec::new(),
        };
        self.instruction(&inst)
    }
}
