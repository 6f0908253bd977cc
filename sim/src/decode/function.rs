//! One function: scopes, registers, labels, instructions.

use super::allocate::{Step, allocate};
use super::layout::{Size, size_of};
use super::{MAX_VARIABLE, ModuleBuilder};
use crate::error::PtxError;
use crate::exec::access::Space;
use crate::exec::code::{Constant, Inst};
use crate::exec::{Op, Pred, Reg, Src};
use crate::isa;
use crate::isa::site::{Issue, Site, issue};
use crate::isa::tensor::wgmma::before_use;
use crate::ptx::ast::{self, Offset, Statement};
use crate::ptx::error_at;
use crate::types::Ty;
use rustc_hash::FxHashMap;

/// Most registers of one declaration, and of a function.
const MAX_REGISTERS: u64 = 1 << 20;

/// Kind of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    Pred,
    Bits(u32),
}

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entity {
    /// Predicates count their own slots.
    Reg {
        slot: Reg,
        width: Width,
    },
    /// `%r<count>`: members get slots when first named.
    Range {
        width: Width,
        count: u64,
    },
    /// In the frame: local variables, call parameters, parameters of device functions.
    Frame {
        offset: u64,
        bytes: u64,
    },
    /// Parameter of the kernel.
    EntryParam {
        offset: u64,
    },
    /// Variable of the module.
    Symbol(usize),
    Label(u32),
    /// `.branchtargets`
    Targets(u32),
}

pub(crate) struct FunctionBuilder<'a> {
    m: ModuleBuilder<'a>,
    index: usize,
    scopes: Vec<FxHashMap<&'a str, Entity>>,
    registers: u32,
    predicates: u32,
    frame_bytes: u64,
    targets: Vec<Vec<u32>>,
    /// Operations to run before the instruction being decoded: operands that need computing.
    before: Vec<Op>,
    sink: Option<Reg>,
    loc: u32,
    /// Slots by number of register; empty while the numbers serve as slots.
    slots: Vec<Reg>,
    /// What the instruction being decoded does, and those before it.
    step: Step,
    steps: Vec<Step>,
    /// Registers (in the second run, their slots) that operations under way use behind their instruction.
    held: Vec<u32>,
}

/// Decodes function `index`, twice: first to learn which registers live at the same time, then for good.
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
    /// Decodes the function with these slots for its registers, or, if there are none, numbers them.
    fn run(
        m: ModuleBuilder<'a>,
        index: usize,
        f: &ast::Function<'a>,
        slots: Vec<Reg>,
        held: Vec<u32>,
    ) -> Result<Self, PtxError> {
        let mut b = FunctionBuilder {
            index,
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
        // Running off the end returns.
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
                let help = "registers are .pred or of 8, 16, 32 or 64 bits";
                return Err(error_at(
                    self.m.text,
                    at,
                    "P007",
                    format!("registers of type `.{ty}` are not supported"),
                    help,
                ));
            }
        };
        match count {
            Some(n) if n > MAX_REGISTERS => {
                let message =
                    format!("{n} registers are more than the {MAX_REGISTERS} a declaration may have");
                Err(error_at(self.m.text, at, "P002", message, ""))
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
            return Err(error_at(self.m.text, v.at, "P002", "too many bytes of local variables", ""));
        }
        self.define(v.at, v.name, Entity::Frame { offset, bytes })
    }

    fn slot(&mut self, width: Width) -> Reg {
        if width == Width::Pred {
            self.predicates += 1;
            return Reg(self.predicates - 1);
        }
        let number = self.registers;
        self.registers += 1;
        self.slots.get(number as usize).copied().unwrap_or(Reg(number))
    }

    /// Notes that the instruction reads a register.
    pub(crate) fn reads(&mut self, r: Reg) {
        self.step.uses.push(r.0);
    }

    /// Notes that the instruction writes a register.
    pub(crate) fn writes(&mut self, r: Reg) {
        self.step.defs.push(r.0);
    }

    /// Notes that what the instruction begins uses a register until an instruction that [`settles`](Self::settles).
    pub(crate) fn holds(&mut self, r: Reg) {
        if self.slots.is_empty() {
            self.held.push(r.0);
        }
    }

    /// Notes that nothing that uses registers is under way behind the instruction.
    pub(crate) fn settles(&mut self) {
        self.step.settles = true;
    }

    /// Held registers that the instruction uses.
    fn held_here(&self) -> Vec<Reg> {
        let here = self.step.uses.iter().chain(&self.step.defs);
        let mut held: Vec<u32> = here.copied().filter(|r| self.held.binary_search(r).is_ok()).collect();
        held.sort_unstable();
        held.dedup();
        held.into_iter().map(Reg).collect()
    }

    /// Notes that the instruction may jump to a label.
    pub(crate) fn jumps_to(&mut self, label: u32) {
        self.step.jumps.push(label);
    }

    /// Notes that nothing follows the instruction.
    pub(crate) fn ends_here(&mut self) {
        self.step.ends = true;
    }

    /// What a name stands for here; members of register ranges get their slots now.
    pub(crate) fn lookup(&mut self, name: &'a str) -> Result<Entity, Issue> {
        for depth in (0..self.scopes.len()).rev() {
            if let Some(&e) = self.scopes[depth].get(name) {
                return Ok(e);
            }
            if let Some(width) = self.in_range(depth, name) {
                if u64::from(self.registers) + u64::from(self.predicates) > MAX_REGISTERS {
                    return issue(
                        "P002",
                        format!("the function uses more than {MAX_REGISTERS} registers"),
                        "",
                    );
                }
                let entity = Entity::Reg { slot: self.slot(width), width };
                self.scopes[depth].insert(name, entity);
                return Ok(entity);
            }
        }
        if let Some(&index) = self.m.variable_names.get(name) {
            return Ok(Entity::Symbol(index));
        }
        let help = if name.starts_with('%') { "declare it with .reg" } else { "" };
        issue("P006", format!("`{name}` is not declared"), help)
    }

    /// Width of `name` as a member `prefix<n>` of a range of this scope.
    fn in_range(&self, depth: usize, name: &str) -> Option<Width> {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        // The largest count has 7 digits.
        (1..=digits.min(7)).find_map(|n| {
            let (prefix, number) = name.split_at(name.len() - n);
            match self.scopes[depth].get(prefix) {
                Some(Entity::Range { width, count }) => {
                    let canonical = n == 1 || !number.starts_with('0');
                    (canonical && number.parse::<u64>().is_ok_and(|i| i < *count)).then_some(*width)
                }
                _ => None,
            }
        })
    }

    /// A register for one operand, written and read within the instruction.
    pub(crate) fn temporary(&mut self) -> Reg {
        let r = self.slot(Width::Bits(64));
        self.writes(r);
        r
    }

    /// The register behind `_`.
    pub(crate) fn sink(&mut self) -> Reg {
        let sink = match self.sink {
            Some(r) => r,
            None => {
                let r = self.slot(Width::Bits(64));
                self.sink = Some(r);
                r
            }
        };
        self.writes(sink);
        sink
    }

    /// Runs `op` before the instruction being decoded, under the same guard.
    pub(crate) fn prelude(&mut self, op: Op) {
        self.before.push(op);
    }

    pub(crate) fn constant(&mut self, value: u64) -> Src {
        Src::constant(self.m.constant(Constant::Value(value)))
    }

    /// Address of a module variable in its state space.
    pub(crate) fn symbol(&mut self, variable: usize, offset: i64) -> Src {
        self.m.uses[self.index].0.push(variable);
        Src::constant(self.m.constant(Constant::Symbol { variable, offset }))
    }

    pub(crate) fn symbol_space(&self, variable: usize) -> Space {
        self.m.variables[variable].space
    }

    /// Labels of a `.branchtargets` list.
    pub(crate) fn branch_targets(&self, id: u32) -> &[u32] {
        &self.targets[id as usize]
    }

    /// A function of the module by name, recorded as called.
    pub(crate) fn callee(&mut self, name: &str) -> Result<usize, Issue> {
        match self.m.function_names.get(name) {
            Some(&i) => {
                self.m.uses[self.index].1.push(i);
                Ok(i)
            }
            None if self.m.declared.contains(name) => issue(
                "P007",
                format!("`{name}` is external and not known to the simulator"),
                "vprintf, __assertfail and the NVSHMEM functions of docs/ptx-instructions.md are; link other functions into \
                 the module",
            ),
            None => issue("P006", format!("function `{name}` is not declared"), ""),
        }
    }

    pub(crate) fn module(&mut self) -> &mut ModuleBuilder<'a> {
        &mut self.m
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

    /// An instruction that the text does not have.
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
