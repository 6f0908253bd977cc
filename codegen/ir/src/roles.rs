//! The rules of roles, which are groups of warps of a CTA that run code of their own.

use crate::diag::{Code, Diagnostic, Span};
use crate::kernel::{Block, Kernel};
use crate::level::{Level, Tensor};
use crate::names::Group;
use crate::op::{Control, Operation, Tile};
use crate::types::{Accumulator, TypeRef, ValueType};

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

/// The number of registers with which a thread of a CTA of `threads` threads starts. Registers are
/// given to a warp in steps of 8 per thread, and a multiprocessor divides warps over four parts, so
/// whole warpgroups count. ptxas chooses this number for a kernel whose roles state their registers.
pub fn registers_at_start(threads: u32) -> u32 {
    share(threads).min(255)
}

/// The number of registers of a CTA of `threads` threads. A role can have more registers than its
/// threads start with only if other roles give up as many.
pub fn registers_of_cta(threads: u32) -> u32 {
    share(threads).saturating_mul(whole(threads))
}

fn share(threads: u32) -> u32 {
    (REGISTERS / whole(threads) / 8 * 8).min(256)
}

fn whole(threads: u32) -> u32 {
    threads.max(1).div_ceil(WARPGROUP).saturating_mul(WARPGROUP)
}

/// Reports what is wrong with a kernel's roles.
pub(crate) fn check<L: Level>(k: &Kernel<L>, found: &mut Vec<Diagnostic>) {
    let mut check = Check { k, next: 0, requests: Vec::new(), has_roles: false, found };
    check.block(&k.body, true);
    if !check.has_roles {
        check.accumulators(&k.body, "the kernel", registers_at_start(k.threads()));
    }
    let requests = std::mem::take(&mut check.requests);
    found.extend(too_many(k, &requests));
}

/// The registers that roles ask for.
struct RegisterRequest {
    /// The roles, which share warpgroups if there is more than one.
    names: String,
    threads: u32,
    regs: u32,
    span: Span,
}

/// The error that the roles ask for more registers than the CTA has. On a GPU, a role then waits
/// forever for registers that no other role gives up.
fn too_many<L: Level>(k: &Kernel<L>, requests: &[RegisterRequest]) -> Option<Diagnostic> {
    let of = |role: &RegisterRequest| role.regs.saturating_mul(role.threads);
    let (threads, sum) = (k.threads(), requests.iter().fold(0u32, |sum, role| sum.saturating_add(of(role))));
    let (has, each) = (registers_of_cta(threads), share(threads));
    if sum <= has {
        return None;
    }
    let message = format!(
        "the roles ask for {sum} registers, but a CTA of {threads} threads starts with {has}, which is \
         {each} for each thread"
    );
    let error = requests.iter().fold(Diagnostic::error(BAD_ROLES, k.span, message), |error, role| {
        let RegisterRequest { names, threads, regs, span } = role;
        error.related(*span, format!("{names}: {threads} threads x {regs} registers = {}", of(role)))
    });
    let max = has / WARPGROUP;
    Some(error.help(format!(
        "use lower `regs`: those of all warpgroups, which are 128 threads each, can add up to {max}"
    )))
}

struct Check<'a, L: Level> {
    k: &'a Kernel<L>,
    /// The index of the thread after the last role.
    next: u32,
    requests: Vec<RegisterRequest>,
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

    /// Reports products in a role of `threads` threads whose accumulator is divided over other
    /// threads. An accumulator that is made before the roles is divided over all warpgroups.
    fn warpgroups(&mut self, block: &Block, role: &str, threads: u32) {
        for inst in block.0.iter().filter_map(|v| self.k.insts.get(*v)) {
            let acc = match inst.op.tile() {
                Some(Tile::Mma { acc, .. } | Tile::AccumulatorRead { acc, .. }) => self.k.ty(*acc).view(),
                _ => TypeRef::Unit,
            };
            if let TypeRef::Accumulator(Accumulator { over: [m, n], .. }) = acc
                && m.saturating_mul(n).saturating_mul(WARPGROUP) != threads
            {
                let message = format!(
                    "an accumulator that is divided over {m} x {n} warpgroups is used in role `{role}`, which has \
                     {threads} threads"
                );
                let error = Diagnostic::error(BAD_ROLES, inst.span, message);
                self.found.push(error.help("make the accumulator in the role"));
            }
            inst.op.blocks().into_iter().for_each(|b| self.warpgroups(b, role, threads));
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

    /// The name of a role in a message, or the names of the roles that share its warpgroups.
    fn names(&self, name: &str, body: &Block) -> String {
        let inner = body.0.iter().filter_map(|v| match self.k.insts.get(*v)?.op.control() {
            Some(Control::Role { name, .. }) => Some(format!("`{name}`")),
            _ => None,
        });
        if name.is_empty() { inner.collect::<Vec<_>>().join(", ") } else { format!("`{name}`") }
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
            if *regs != 0 {
                let names = self.names(name, body);
                self.requests.push(RegisterRequest {
                    names,
                    threads: *threads,
                    regs: *regs,
                    span: inst.span,
                });
            }
            if !name.is_empty() && L::NAME == Tensor::NAME {
                self.clusters(body, name);
                self.warpgroups(body, name, *threads);
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

#[cfg(test)]
mod tests {
    use super::{registers_at_start, registers_of_cta};

    /// Compares with the numbers that ptxas 13 reports for kernels of these sizes with `setmaxnreg`.
    #[test]
    fn a_cta_starts_with_whole_registers_of_warpgroups() {
        for (threads, each, all) in [
            (128, 255, 32_768),
            (160, 255, 65_536),
            (256, 255, 65_536),
            (288, 168, 64_512),
            (384, 168, 64_512),
            (512, 128, 65_536),
            (640, 96, 61_440),
            (768, 80, 61_440),
            (896, 72, 64_512),
            (1024, 64, 65_536),
        ] {
            assert_eq!((registers_at_start(threads), registers_of_cta(threads)), (each, all), "{threads}");
        }
    }
}
