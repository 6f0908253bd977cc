//! One function under construction: scopes, registers, labels.

use super::{Issue, ModuleBuilder, issue};
use crate::codes;
use crate::exec::access::Space;
use crate::exec::code::Constant;
use crate::exec::{Op, Reg, Src};
use rustc_hash::FxHashMap;

/// Most registers of a function.
const MAX_REGISTERS: u64 = 1 << 20;

/// What one instruction does to registers (numbered as they were first named) and to control.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// Index of its first operation.
    pub pc: u32,
    pub uses: Vec<u32>,
    pub defs: Vec<u32>,
    /// Under a guard: its definitions may not happen and its jump may not be taken.
    pub guarded: bool,
    /// Labels it may jump to.
    pub jumps: Vec<u32>,
    /// Whether control never goes on to the next step.
    pub ends: bool,
    /// Operations under way that use registers have ended behind it.
    pub settles: bool,
}

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
    pub m: ModuleBuilder<'a>,
    pub index: usize,
    /// Whether it is a kernel, whose end is the thread's.
    pub is_entry: bool,
    pub scopes: Vec<FxHashMap<&'a str, Entity>>,
    pub registers: u32,
    pub predicates: u32,
    pub frame_bytes: u64,
    pub targets: Vec<Vec<u32>>,
    /// Operations to run before the instruction being decoded: operands that need computing.
    pub before: Vec<Op>,
    pub sink: Option<Reg>,
    pub loc: u32,
    /// Slots by number of register; empty while the numbers serve as slots.
    pub slots: Vec<Reg>,
    /// What the instruction being decoded does, and those before it.
    pub step: Step,
    pub steps: Vec<Step>,
    /// Registers (in the second run, their slots) that operations under way use behind their instruction.
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

    /// Width of `name` as a member `prefix<n>` of a range of this scope.
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
                codes::NOT_SIMULATED,
                format!("`{name}` is external and not known to the simulator"),
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
