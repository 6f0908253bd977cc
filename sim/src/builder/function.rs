//! One function under construction: scopes, registers, labels.

use super::{Issue, ModuleBuilder, issue};
use crate::codes;
use crate::exec::access::Space;
use crate::exec::code::Constant;
use crate::exec::{Op, Reg, Src};
use rustc_hash::FxHashMap;

/// The largest number of registers of a function.
const MAX_REGISTERS: u64 = 1 << 20;

/// The effect of one instruction on registers (numbered in the order of first use) and on control
/// flow.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// The index of its first operation.
    pub pc: u32,
    pub uses: Vec<u32>,
    pub defs: Vec<u32>,
    /// Whether it has a guard. Then its definitions may not happen and its jump may not be taken.
    pub guarded: bool,
    /// The labels that it may jump to.
    pub jumps: Vec<u32>,
    /// Whether control never continues with the next step.
    pub ends: bool,
    /// Whether pending operations that use registers have ended after this step.
    pub settles: bool,
}

/// The kind of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    Pred,
    Bits(u32),
}

/// The entity that a name refers to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entity {
    /// A register. Predicates have slots of their own.
    Reg {
        slot: Reg,
        width: Width,
    },
    /// A range `%r<count>`, whose members get slots at their first use.
    Range {
        width: Width,
        count: u64,
    },
    /// An entity in the frame: a local variable, a call parameter, or a parameter of a device
    /// function.
    Frame {
        offset: u64,
        bytes: u64,
    },
    /// A parameter of the kernel.
    EntryParam {
        offset: u64,
    },
    /// A variable of the module.
    Symbol(usize),
    Label(u32),
    /// A `.branchtargets` list.
    Targets(u32),
}

pub(crate) struct FunctionBuilder<'a> {
    pub m: ModuleBuilder<'a>,
    pub index: usize,
    /// Whether the function is a kernel, which ends the thread when it ends.
    pub is_entry: bool,
    pub scopes: Vec<FxHashMap<&'a str, Entity>>,
    pub registers: u32,
    pub predicates: u32,
    pub frame_bytes: u64,
    pub targets: Vec<Vec<u32>>,
    /// Operations that run before the instruction being decoded, to compute its operands.
    pub before: Vec<Op>,
    pub sink: Option<Reg>,
    pub loc: u32,
    /// Slots by register number; empty while the numbers themselves serve as slots.
    pub slots: Vec<Reg>,
    /// The steps of the instruction being decoded and of those before it.
    pub step: Step,
    pub steps: Vec<Step>,
    /// Registers (in the second run, their slots) that pending operations use after their
    /// instruction.
    pub held: Vec<u32>,
}

impl<'a> FunctionBuilder<'a> {
    pub(crate) fn slot(&mut self, width: Width) -> Reg {
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

    /// Notes that an operation which the instruction begins uses a register until an instruction
    /// that [`settles`](Self::settles).
    pub(crate) fn holds(&mut self, r: Reg) {
        if self.slots.is_empty() {
            self.held.push(r.0);
        }
    }

    /// Notes that no operation that uses registers is pending after the instruction.
    pub(crate) fn settles(&mut self) {
        self.step.settles = true;
    }

    /// Held registers that the instruction uses.
    pub(crate) fn held_here(&self) -> Vec<Reg> {
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

    /// Notes that control never passes to the instruction after this one.
    pub(crate) fn ends_here(&mut self) {
        self.step.ends = true;
    }

    /// Looks up a name. Members of register ranges get their slots here.
    pub(crate) fn lookup(&mut self, name: &'a str) -> Result<Entity, Issue> {
        for depth in (0..self.scopes.len()).rev() {
            if let Some(&e) = self.scopes[depth].get(name) {
                return Ok(e);
            }
            if let Some(width) = self.in_range(depth, name) {
                if u64::from(self.registers) + u64::from(self.predicates) > MAX_REGISTERS {
                    return issue(
                        codes::TOO_LARGE,
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
        issue(codes::BAD_NAME, format!("`{name}` is not declared"), help)
    }

    /// The width of `name` if it is a member `prefix<n>` of a range of this scope.
    pub(crate) fn in_range(&self, depth: usize, name: &str) -> Option<Width> {
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

    /// Allocates a register for one operand, written and read within the instruction.
    pub(crate) fn temporary(&mut self) -> Reg {
        let r = self.slot(Width::Bits(64));
        self.writes(r);
        r
    }

    /// Returns the register that `_` writes to.
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

    /// Returns the address of a module variable in its state space.
    pub(crate) fn symbol(&mut self, variable: usize, offset: i64) -> Src {
        self.m.uses[self.index].0.push(variable);
        Src::constant(self.m.constant(Constant::Symbol { variable, offset }))
    }

    pub(crate) fn symbol_space(&self, variable: usize) -> Space {
        self.m.variables[variable].space
    }

    /// Returns the labels of a `.branchtargets` list.
    pub(crate) fn branch_targets(&self, id: u32) -> &[u32] {
        &self.targets[id as usize]
    }

    /// Looks up a function of the module by name and records a call of it.
    pub(crate) fn callee(&mut self, name: &str) -> Result<usize, Issue> {
        match self.m.function_names.get(name) {
            Some(&i) => {
                self.m.uses[self.index].1.push(i);
                Ok(i)
            }
            None if self.m.declared.contains(name) => issue(
                codes::NOT_SIMULATED,
                format!("`{name}` is an external function that the simulator does not implement"),
                "vprintf, __assertfail and the NVSHMEM functions of docs/ptx-instructions.md are; link other functions into \
                 the module",
            ),
            None => issue(codes::BAD_NAME, format!("function `{name}` is not declared"), ""),
        }
    }

    pub(crate) fn module(&mut self) -> &mut ModuleBuilder<'a> {
        &mut self.m
    }
}
