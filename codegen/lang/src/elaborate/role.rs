//! Roles: groups of warps of a CTA, each with code and a number of registers of its own.

use super::{Elab, Result, fail};
use crate::ast::{self, Stmt, StmtKind};
use crate::codes::meaning::{BAD_ATTR, NOT_CONSTANT, WRONG_ARGS};
use weft_ir::Control;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::roles::{MAX_ROLES, MAX_THREADS, WARP, WARPGROUP};

/// The threads of a role in the CTA.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    first: u32,
    threads: u32,
    /// The number of registers of each thread, or 0 for the number that the launch gives.
    regs: u32,
}

/// Roles that share warpgroups. Registers are assigned to a warpgroup as a whole.
struct Share {
    plan: Plan,
    roles: std::ops::Range<usize>,
}

/// The number of statements before the first role.
fn before_roles(body: &ast::Block) -> usize {
    body.stmts.iter().position(|s| matches!(s.kind, StmtKind::Role { .. })).unwrap_or(body.stmts.len())
}

impl Elab<'_> {
    /// Places the roles of a kernel's body one after the other. Returns the number of threads of
    /// the CTA, or 0 if there is no role.
    pub(super) fn plan_roles(&mut self, body: &ast::Block) -> Result<u32> {
        let roles = &body.stmts[before_roles(body)..];
        let mut next = 0;
        for s in roles {
            let StmtKind::Role { name, args, .. } = &s.kind else {
                return Err(Diagnostic::error(BAD_ATTR, s.span, "only roles come after a role").help(
                    "move the code that all threads run before the first role, and the rest into a role",
                ));
            };
            let (threads, regs) = self.role_arguments(name, args)?;
            let whole = regs > 0 && threads.is_multiple_of(WARPGROUP);
            let last = self.roles.iter().rev().find(|plan: &&Plan| plan.threads > 0);
            let shares = last.is_some_and(|last| {
                regs > 0 && !whole && last.regs == regs && !last.threads.is_multiple_of(WARPGROUP)
            });
            // A role without threads is left out, so it begins no warpgroup.
            if threads > 0 && regs > 0 && !shares {
                next = u32::next_multiple_of(next, WARPGROUP);
            }
            self.roles.push(Plan { first: next, threads, regs });
            next += threads;
        }
        if let Some(s) = roles.first().filter(|_| body.value.is_some() || self.roles.len() > MAX_ROLES) {
            let message = format!("a kernel can have at most {MAX_ROLES} roles, and no code after them");
            return fail(BAD_ATTR, s.span, message);
        }
        if !roles.is_empty() && next == 0 {
            return fail(BAD_ATTR, roles[0].span, "no role of the kernel has threads");
        }
        let given = self.roles.iter().filter(|p| p.regs > 0).count();
        if given != 0 && given != self.roles.len() {
            return Err(Diagnostic::error(
                BAD_ATTR,
                roles[0].span,
                "some roles state their number of registers, and some do not",
            )
            .help("write `regs = n` for all roles or for none"));
        }
        Ok(if given > 0 { next.next_multiple_of(WARPGROUP) } else { next })
    }

    /// The numbers of threads and registers of a role.
    fn role_arguments(&mut self, name: &ast::Ident, args: &[ast::Arg]) -> Result<(u32, u32)> {
        let (mut threads, mut regs) = (None, 0);
        for arg in args {
            let at = arg.value.span;
            let n = self.int(&arg.value)?;
            let Some(n) = n.as_const().and_then(|n| u32::try_from(n).ok()) else {
                return Err(Diagnostic::error(
                    NOT_CONSTANT,
                    at,
                    format!("{n} is not known at the kernel's head"),
                )
                .help(
                    "compute the numbers of threads and registers from literals, constants and \
                         compile-time parameters",
                ));
            };
            match arg.name.as_ref().map(|n| &*n.name) {
                None if threads.is_none() => {
                    if n % WARP != 0 || n > MAX_THREADS {
                        return fail(
                            WRONG_ARGS,
                            at,
                            format!(
                                "a role must consist of whole warps, with up to {MAX_THREADS} threads, \
                                 not {n}"
                            ),
                        );
                    }
                    threads = Some(n);
                }
                Some("regs") => regs = n,
                _ => return fail(WRONG_ARGS, at, "write the number of threads, and optionally `regs = n`"),
            }
        }
        let missing = || {
            Diagnostic::error(WRONG_ARGS, name.span, "the role does not state its number of threads")
                .help(format!("role {name}(128, regs = 40) {{ ... }}"))
        };
        threads.map(|t| (t, regs)).ok_or_else(missing)
    }

    /// Elaborates a kernel's body: the code of all threads, followed by the roles.
    pub(super) fn body(&mut self, body: &ast::Block) -> Result<()> {
        let split = before_roles(body);
        self.scoped(|e| {
            if split == body.stmts.len() {
                return e.statements(&body.stmts, body.value.as_deref()).map(|_| ());
            }
            e.statements(&body.stmts[..split], None)?;
            e.shares().into_iter().try_for_each(|share| e.share(&share, &body.stmts[split..]))
        })
    }

    /// The roles that have threads, in groups that share warpgroups.
    fn shares(&self) -> Vec<Share> {
        let mut out: Vec<Share> = Vec::new();
        for (i, plan) in self.roles.iter().enumerate().filter(|(_, plan)| plan.threads > 0) {
            match out.last_mut() {
                Some(last) if plan.regs > 0 && plan.first % WARPGROUP != 0 => {
                    last.roles.end = i + 1;
                    last.plan.threads = plan.first + plan.threads - last.plan.first;
                }
                _ => out.push(Share { plan: *plan, roles: i..i + 1 }),
            }
        }
        for share in &mut out {
            if share.plan.regs > 0 {
                share.plan.threads = share.plan.threads.next_multiple_of(WARPGROUP);
            }
        }
        out
    }

    fn share(&mut self, share: &Share, stmts: &[Stmt]) -> Result<()> {
        let plans: Vec<_> = self.roles[share.roles.clone()].to_vec();
        let stmts = &stmts[share.roles.clone()];
        if let ([plan], [stmt]) = (&plans[..], stmts)
            && plan.threads == share.plan.threads
        {
            return self.role(stmt, *plan);
        }
        let (body, _) = self
            .nested(|e| stmts.iter().zip(&plans).try_for_each(|(s, p)| e.role(s, Plan { regs: 0, ..*p })))?;
        self.emit_role("", share.plan, body, stmts.first().map_or(Span::NONE, |s| s.span))
    }

    /// Elaborates a role, in which the CTA stands for the role. A role without threads is left out.
    fn role(&mut self, s: &Stmt, plan: Plan) -> Result<()> {
        let StmtKind::Role { name, body, .. } = &s.kind else { return Ok(()) };
        if plan.threads == 0 {
            return Ok(());
        }
        let block = std::mem::replace(&mut self.b.kernel_mut().block, [plan.threads, 1, 1]);
        let inner = self.nested(|e| e.block(body).map(|_| ()));
        self.b.kernel_mut().block = block;
        let (inner, _) = inner?;
        self.emit_role(&name.name, plan, inner, name.span)
    }

    fn emit_role(&mut self, name: &str, plan: Plan, body: weft_ir::Block, span: Span) -> Result<()> {
        let Plan { first, threads, regs } = plan;
        self.b.at(span);
        self.b.emit(Control::Role { name: name.into(), first, threads, regs, body }).map(|_| ())
    }
}
