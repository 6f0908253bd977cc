//! Rules of the remote memory operations: types, who must take part, what the language calls them.

use crate::diag::Code;
use crate::kernel::{Kernel, TeamRef, Value};
use crate::names::{Group, RedOp, Scalar, Space, WaitFor};
use crate::op::Op;
use crate::types::{TensorType, Type};
use crate::typing::{MISMATCH, NO_SUCH_OP, TypeError, WRONG_SPACE, fail, fail_help};
use weft_layout::{Int, Layout};

/// The remote side of an operation is not in the symmetric heap.
pub const NOT_SYMMETRIC: Code = Code(220);
/// Element types of the two sides differ.
pub const OTHER_DTYPE: Code = Code(221);
/// Shapes of the two sides differ, or there is not one element where there must be.
pub const OTHER_SHAPE: Code = Code(222);
/// A signal that is not one symmetric `u64`.
pub const BAD_SIGNAL: Code = Code(223);
/// Arguments of an operation of a warp or block that differ by thread.
pub const NOT_SAME: Code = Code(224);

type Rule<T = Type> = Result<T, TypeError>;

/// The result of a remote memory operation; `None` for any other op.
pub(crate) fn result_type(k: &Kernel, op: &Op) -> Option<Rule> {
    let rule = Remote { k, name: name(op)? };
    Some(rule.result(op))
}

/// Elements one after the other, from the first.
pub fn is_contiguous(layout: &Layout) -> bool {
    let Ok(flat) = layout.coalesce() else { return false };
    let (shape, stride) = (flat.shape(), flat.stride());
    flat.size().as_const() == Some(1) || (shape.as_int().is_some() && stride.as_int() == Some(&Int::ONE))
}

/// What the language calls a remote memory operation; `None` for any other op.
pub fn name(op: &Op) -> Option<String> {
    let of = |name: &str, nbi: bool, group: Group| {
        let words = if group == Group::Thread { String::new() } else { format!("<{group}>") };
        format!("{name}{}{words}", if nbi { "_nbi" } else { "" })
    };
    Some(match op {
        Op::Put { nbi, group, .. } => of("put", *nbi, *group),
        Op::Get { nbi, group, .. } => of("get", *nbi, *group),
        Op::PutSignal { nbi, group, .. } => of("put_signal", *nbi, *group),
        Op::Wait { which, test, .. } => {
            let verb = if *test { "test" } else { "wait_until" };
            if *which == WaitFor::One { verb.into() } else { format!("{verb}_{which}") }
        }
        Op::Amo { op, .. } => format!("atomic_{op}"),
        Op::TeamSync { team, barrier, group } => {
            let verb = if *barrier { "barrier" } else { "sync" };
            of(&if *team == TeamRef::WORLD { format!("{verb}_all") } else { verb.into() }, false, *group)
        }
        Op::TeamReduce { scatter, group, .. } => {
            of(if *scatter { "reducescatter" } else { "reduce" }, false, *group)
        }
        Op::TeamMove { kind, group, .. } => of(kind.name(), false, *group),
        Op::PutValue { .. }
        | Op::GetValue { .. }
        | Op::SignalOp { .. }
        | Op::SignalWait { .. }
        | Op::SignalFetch { .. }
        | Op::RmaFence {}
        | Op::Quiet {}
        | Op::TranslatePe { .. } => op.mnemonic().into(),
        _ => return None,
    })
}

/// A function of NVSHMEM's that gives the same for the same arguments, whoever asks: ranks and addresses.
pub fn is_query(function: &str) -> bool {
    const QUERIES: [&str; 7] = [
        "nvshmem_my_pe",
        "nvshmem_n_pes",
        "nvshmem_team_my_pe",
        "nvshmem_team_n_pes",
        "nvshmem_team_translate_pe",
        "nvshmem_ptr",
        "nvshmemx_mc_ptr",
    ];
    QUERIES.contains(&function)
}

/// The threads that call it together, with the same arguments.
pub fn group(op: &Op) -> Option<Group> {
    match op {
        Op::Put { group, .. } | Op::Get { group, .. } | Op::PutSignal { group, .. } => Some(*group),
        Op::TeamSync { group, .. } | Op::TeamReduce { group, .. } | Op::TeamMove { group, .. } => {
            Some(*group)
        }
        _ => None,
    }
}

/// The team that ranks count in, or that takes part.
pub fn team(op: &Op) -> Option<TeamRef> {
    match op {
        Op::Put { team, .. } | Op::Get { team, .. } | Op::PutSignal { team, .. } => Some(*team),
        Op::PutValue { team, .. } | Op::GetValue { team, .. } => Some(*team),
        Op::SignalOp { team, .. } | Op::Amo { team, .. } => Some(*team),
        Op::TeamSync { team, .. } | Op::TeamReduce { team, .. } | Op::TeamMove { team, .. } => Some(*team),
        _ => None,
    }
}

struct Remote<'k> {
    k: &'k Kernel,
    name: String,
}

impl Remote<'_> {
    fn result(&self, op: &Op) -> Rule {
        let unit = Ok(Type::Unit);
        match op {
            Op::Put { dst, src, pe, .. } => {
                self.transfer(self.symmetric(*dst, "destination")?, self.local(*src, "source")?)?;
                self.scalar(*pe, Scalar::I32, "PE").and(unit)
            }
            Op::Get { dst, src, pe, .. } => {
                self.transfer(self.local(*dst, "destination")?, self.symmetric(*src, "source")?)?;
                self.scalar(*pe, Scalar::I32, "PE").and(unit)
            }
            Op::PutSignal { dst, src, signal, value, pe, .. } => {
                self.transfer(self.symmetric(*dst, "destination")?, self.local(*src, "source")?)?;
                self.signal(*signal)?;
                self.scalar(*value, Scalar::U64, "signal's value")?;
                self.scalar(*pe, Scalar::I32, "PE").and(unit)
            }
            Op::PutValue { dst, value, pe, .. } => {
                let s = self.element(*dst, "destination")?;
                self.scalar(*value, s, "value")?;
                self.scalar(*pe, Scalar::I32, "PE").and(unit)
            }
            Op::GetValue { src, pe, .. } => {
                self.scalar(*pe, Scalar::I32, "PE")?;
                self.element(*src, "source").map(Type::Scalar)
            }
            Op::SignalOp { signal, value, pe, .. } => {
                self.signal(*signal)?;
                self.scalar(*value, Scalar::U64, "signal's value")?;
                self.scalar(*pe, Scalar::I32, "PE").and(unit)
            }
            Op::SignalWait { signal, value, .. } => {
                self.signal(*signal)?;
                self.scalar(*value, Scalar::U64, "value").map(|()| Type::Scalar(Scalar::U64))
            }
            Op::SignalFetch { signal } => self.signal(*signal).map(|()| Type::Scalar(Scalar::U64)),
            Op::Wait { .. } => self.wait(op),
            Op::Amo { target, op, operands, pe, .. } => {
                let s = self.element(*target, "target")?;
                if !op.takes(s) {
                    return fail_help(
                        NO_SUCH_OP,
                        format!("there is no `{}` on {s}", self.name),
                        "NVSHMEM has atomics on i32, i64, u32 and u64; fetch, set, swap, add and fetch_add on f32 and f64, too; and the last two on f16",
                    );
                }
                if operands.len() != op.operands() {
                    return fail(
                        MISMATCH,
                        format!("`{}` takes {} values, found {}", self.name, op.operands(), operands.len()),
                    );
                }
                for v in operands {
                    self.scalar(*v, s, "value")?;
                }
                self.scalar(*pe, Scalar::I32, "PE")?;
                if op.fetches() { Ok(Type::Scalar(s)) } else { unit }
            }
            Op::TeamReduce { dst, src, op, scatter, .. } => {
                let (to, from) = (self.symmetric(*dst, "result")?, self.symmetric(*src, "source")?);
                self.dense(to, "result")?;
                self.dense(from, "source")?;
                self.same_elem(to, from)?;
                self.reduction(*op, to.elem)?;
                if *scatter { unit } else { self.same_size(to, from).and(unit) }
            }
            Op::TeamMove { dst, src, root, .. } => {
                let (to, from) = (self.symmetric(*dst, "result")?, self.symmetric(*src, "source")?);
                self.dense(to, "result")?;
                self.dense(from, "source")?;
                self.same_elem(to, from)?;
                for v in root {
                    self.scalar(*v, Scalar::I32, "root")?;
                }
                unit
            }
            Op::TranslatePe { pe, .. } => {
                self.scalar(*pe, Scalar::I32, "PE").map(|()| Type::Scalar(Scalar::I32))
            }
            _ => unit,
        }
    }

    fn wait(&self, op: &Op) -> Rule {
        let Op::Wait { vars, value, which, test, status, indices, .. } = op else { return Ok(Type::Unit) };
        let t = self.symmetric(*vars, "variable")?;
        // What NVSHMEM's point-to-point synchronisation types are made of.
        if !(t.elem.is_int() && t.elem.bits() >= 16) {
            return fail_help(
                NO_SUCH_OP,
                format!("`{}` does not wait on {}", self.name, t.elem),
                "it waits on integers of 16, 32 and 64 bits",
            );
        }
        if *which == WaitFor::One {
            self.element(*vars, "variable")?;
        }
        self.dense(t, "variables")?;
        let lists = [(std::slice::from_ref(value), t.elem), (status, Scalar::I32), (indices, Scalar::U64)];
        for (list, elem) in lists {
            for v in list {
                match self.k.ty(*v) {
                    Type::Tensor(l) if *which != WaitFor::One => {
                        self.reachable(l, "list")?;
                        self.dense(l, "list")?;
                        if l.elem != elem {
                            let message = format!("`{}` takes a list of {elem}, found {}", self.name, l.elem);
                            return fail(OTHER_DTYPE, message);
                        }
                        self.same_size(l, t)?;
                    }
                    _ if v == value => self.scalar(*v, elem, "value")?,
                    other => {
                        return fail(
                            MISMATCH,
                            format!("`{}` takes a list of {elem}, found {other}", self.name),
                        );
                    }
                }
            }
        }
        if status.len() > 1 || indices.len() != usize::from(*which == WaitFor::Some) {
            return fail(
                MISMATCH,
                format!("`{}` has one list of indices, and at most one of status", self.name),
            );
        }
        Ok(match (which, test) {
            (WaitFor::One | WaitFor::All, false) => Type::Unit,
            (WaitFor::One | WaitFor::All, true) => Type::Scalar(Scalar::Bool),
            (WaitFor::Any | WaitFor::Some, _) => Type::Scalar(Scalar::I64),
        })
    }

    fn scalar(&self, v: Value, s: Scalar, what: &str) -> Rule<()> {
        let have = self.k.ty(v);
        if *have == Type::Scalar(s) {
            return Ok(());
        }
        fail(MISMATCH, format!("{what} of `{}`: expected {s}, found {have}", self.name))
    }

    fn tensor(&self, v: Value, what: &str) -> Rule<&TensorType> {
        match self.k.ty(v) {
            Type::Tensor(t) => Ok(t),
            other => fail(MISMATCH, format!("{what} of `{}`: expected a tensor, found {other}", self.name)),
        }
    }

    /// A tensor that exists on every PE.
    fn symmetric(&self, v: Value, what: &str) -> Rule<&TensorType> {
        let t = self.tensor(v, what)?;
        if t.space == Space::Symmetric {
            return Ok(t);
        }
        let help = match t.space {
            Space::Peer | Space::Multicast => {
                "pass the symmetric tensor itself: the operation finds its place on the other PE"
            }
            _ => "only memory of the symmetric heap (`symm<...>`) exists on every PE",
        };
        fail_help(
            NOT_SYMMETRIC,
            format!("the {what} of `{}` is {} memory, not symmetric", self.name, t.space),
            help,
        )
    }

    /// A tensor of this PE that NVSHMEM reads and writes.
    fn local(&self, v: Value, what: &str) -> Rule<&TensorType> {
        let t = self.tensor(v, what)?;
        self.reachable(t, what).map(|()| t)
    }

    fn reachable(&self, t: &TensorType, what: &str) -> Rule<()> {
        if matches!(t.space, Space::Global | Space::Symmetric) {
            return Ok(());
        }
        fail_help(
            WRONG_SPACE,
            format!("the {what} of `{}` is {} memory", self.name, t.space),
            "it is memory of this GPU: global or symmetric. Registers and shared memory are written to `peer(x, pe)`",
        )
    }

    /// The type of the one element of a symmetric tensor.
    fn element(&self, v: Value, what: &str) -> Rule<Scalar> {
        let t = self.symmetric(v, what)?;
        match t.layout.size().as_const() {
            Some(1) => Ok(t.elem),
            _ => fail_help(
                OTHER_SHAPE,
                format!("the {what} of `{}` has {} elements, not one", self.name, t.layout.size()),
                "name the element, `x[i]`; `put` and `get` move many",
            ),
        }
    }

    fn signal(&self, v: Value) -> Rule<()> {
        let t = self.tensor(v, "signal")?;
        let why = if t.space != Space::Symmetric {
            format!("{} memory", t.space)
        } else if t.elem != Scalar::U64 {
            format!("a {}", t.elem)
        } else if t.layout.size().as_const() != Some(1) {
            format!("{} elements", t.layout.size())
        } else {
            return Ok(());
        };
        fail_help(
            BAD_SIGNAL,
            format!("the signal of `{}` is {why}", self.name),
            "a signal is one u64 of the symmetric heap: `sig: symm<u64, (1):(1)>`, passed as `sig[0]`",
        )
    }

    fn transfer(&self, dst: &TensorType, src: &TensorType) -> Rule<()> {
        self.same_elem(dst, src)?;
        if is_contiguous(&dst.layout) && is_contiguous(&src.layout) {
            return Ok(());
        }
        self.same_size(dst, src)
    }

    fn same_elem(&self, a: &TensorType, b: &TensorType) -> Rule<()> {
        if a.elem == b.elem {
            return Ok(());
        }
        fail_help(
            OTHER_DTYPE,
            format!("`{}` moves {} to {}", self.name, b.elem, a.elem),
            "both sides have one element type: convert in the kernel, before or after",
        )
    }

    /// Where both sizes are known; others are the launcher's to check.
    fn same_size(&self, a: &TensorType, b: &TensorType) -> Rule<()> {
        match (a.layout.size().as_const(), b.layout.size().as_const()) {
            (Some(m), Some(n)) if m != n => fail_help(
                OTHER_SHAPE,
                format!("`{}` has {n} elements on one side and {m} on the other", self.name),
                "the sides have equal shapes; only contiguous ones may differ in size for put and get, where the smaller counts",
            ),
            _ => Ok(()),
        }
    }

    /// NVSHMEM's collectives and lists see no strides.
    fn dense(&self, t: &TensorType, what: &str) -> Rule<()> {
        if is_contiguous(&t.layout) && t.bounds.is_empty() {
            return Ok(());
        }
        fail_help(
            OTHER_SHAPE,
            format!("the {what} of `{}` is not contiguous: {}", self.name, t.layout),
            "its elements follow one another in memory; the tile collectives of `weft::tile` take any layout",
        )
    }

    /// NVSHMEM's reductions: sum, prod, min, max of all, and, or, xor of integers.
    fn reduction(&self, op: RedOp, s: Scalar) -> Rule<()> {
        let bitwise = matches!(op, RedOp::And | RedOp::Or | RedOp::Xor);
        if s == Scalar::Bool || s.is_fp8() || (bitwise && !s.is_int()) {
            return fail(NO_SUCH_OP, format!("there is no `{}` with `{op}` on {s}", self.name));
        }
        Ok(())
    }
}
