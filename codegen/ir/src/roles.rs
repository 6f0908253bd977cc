//! The rules of roles, which are groups of warps of a CTA that run code of their own.

use crate::diag::{Code, Diagnostic};
use crate::kernel::{Block, Kernel};
use crate::level::{Level, Tensor};
use crate::names::Group;
use crate::op::{Control, Operation};
use crate::types::{TypeRef, ValueType};

/// Roles that do not fit the CTA, its registers, or each other.
pub const BAD_ROLES: Code = Code(244);

/// The number of threads of a warp.
pub const WARP: u32 = 32;
/// The number of threads of a warpgroup, the unit in which registers are assigned.
pub const WARPGROUP: u32 = 128;
/// The maximum number of threads of a CTA.
pub const MAX_THREADS: u32 = 1024;
/// The maximum number of roles. Each role uses one of the 16 barriers of a CTA (PTX ISA, barrier),
/// and the CTA uses one too.
pub const MAX_ROLES: usize = 15;
/// The number of registers of a multiprocessor (CUDA C++ Programming Guide, Compute Capabilities).
pub const REGISTERS: u32 = 65_536;

/// The number of registers with which a thread of a CTA of `threads` threads starts.
pub fn registers_at_start(threads: u32) -> u32 {
    (REGISTERS / threads.max(1) / 8 * 8).min(255)
}

/// Reports what is wrong with a kernel's roles.
pub(crate) fn check<L: Level>(k: &Kernel<L>, found: &mut Vec<Diagnostic>) {
    let mut check = Check { k, next: 0, registers: 0, has_roles: false, found };
    check.block(&k.body, true);
    if !check.has_roles {
        check.accumulators(&k.body, "the kernel", registers_at_start(k.threads()));
    }
    let (asked, threads) = (check.registers, k.threads());
    if asked > REGISTERS {
        let message = format!("the roles of {threads} threads need {asked} registers together");
        found.push(
            Diagnostic::error(BAD_ROLES, k.span, message)
                .help(format!("a CTA has {REGISTERS}: threads times `regs`, added up over warpgroups")),
        );
    }
}

struct Check<'a, L: Level> {
    k: &'a Kernel<L>,
    /// The index of the thread after the last role.
    next: u32,
    registers: u32,
    has_roles: bool,
    found: &'a mut Vec<Diagnostic>,
}

impl<L: Level> Check<'_, L> {
    /// Reports operations of all threads of a cluster, which a role cannot execute alone. (A pass
    /// adds the barrier at the end of a kernel with roles to each of them.)
    fn clusters(&mut self, block: &Block, role: &str) {
        for &v in &block.0 {
            let Some(inst) = self.k.insts.get(v) else { continue };
            if inst.op.group() == Some(Group::Cluster) {
                let message = format!(
                    "{} in role `{role}`: every thread of the cluster must reach it",
                    inst.op.quoted_name()
                );
                self.found
                    .push(Diagnostic::error(BAD_ROLES, inst.span, message).help("move it before the roles"));
            }
            inst.op.blocks().into_iter().for_each(|b| self.clusters(b, role));
        }
    }

    /// Reports the first accumulator in a block that does not fit into `registers` registers per
    /// thread.
    fn accumulators(&mut self, block: &Block, who: &str, registers: u32) -> bool {
        block.0.iter().any(|v| {
            let Some(inst) = self.k.insts.get(*v) else { return false };
            let held = match inst.ty.view() {
                TypeRef::Accumulator(tile) => tile.lanes(tile.own_cols()),
                _ => 0,
            };
            if held < registers {
                return inst.op.blocks().into_iter().any(|b| self.accumulators(b, who, registers));
            }
            let message = format!(
                "a thread of {who} has {registers} registers, but its part of the accumulator needs {held}"
            );
            self.found.push(Diagnostic::error(BAD_ROLES, inst.span, message).help(
                "divide the accumulator over more warpgroups, use a smaller tile, or give the role more \
                 `regs`",
            ));
            true
        })
    }

    /// Checks a block. `may` says whether it can contain roles.
    fn block(&mut self, block: &Block, may: bool) {
        let mut behind = false;
        for &v in &block.0 {
            let Some(inst) = self.k.insts.get(v) else { continue };
            let mut bad = |message: String, help: &str| {
                self.found.push(Diagnostic::error(BAD_ROLES, inst.span, message).help(help));
            };
            let Some(Control::Role { name, first, threads, regs, body }) = inst.op.control() else {
                if behind {
                    bad("there is code after a role".into(), "move it before the roles, or into one of them");
                    return;
                }
                inst.op.blocks().into_iter().for_each(|b| self.block(b, false));
                continue;
            };
            behind = true;
            self.has_roles = true;
            let end = first.checked_add(*threads).unwrap_or(u32::MAX);
            if !may {
                bad("a role is nested in other code".into(), "roles must be the last statements of a kernel");
            } else if threads % WARP != 0 || *threads == 0 || first % WARP != 0 || end > self.k.threads() {
                bad(
                    format!("threads {first} to {end} of a CTA of {}", self.k.threads()),
                    "a role must consist of whole warps of the CTA",
                );
            } else if *first < self.next {
                bad(
                    format!("thread {first} is in two roles"),
                    "roles must be disjoint and in the order of their threads",
                );
            } else if *regs != 0 && (!(24..=256).contains(regs) || regs % 8 != 0) {
                bad(
                    format!("a role cannot have {regs} registers per thread"),
                    "a thread can have 24 to 256 registers, in steps of 8",
                );
            } else if *regs != 0 && (first % WARPGROUP != 0 || threads % WARPGROUP != 0) {
                bad(
                    format!("{regs} registers for a part of a warpgroup"),
                    "all 128 threads of a warpgroup must have the same number of registers",
                );
            }
            self.registers = self.registers.saturating_add(regs.saturating_mul(*threads));
            if !name.is_empty() && L::NAME == Tensor::NAME {
                self.clusters(body, name);
                let registers = if *regs == 0 { registers_at_start(self.k.threads()) } else { *regs };
                self.accumulators(body, &format!("role `{name}`"), registers);
            }
            if name.is_empty() {
                self.next = *first;
                self.block(body, may);
            } else {
                self.block(body, false);
            }
            self.next = end;
        }
    }
}
