//! The typing rules of NVSHMEM's operations, and properties of its functions.

use crate::diag::Code;
use crate::kernel::{Kernel, Value};
use crate::level::Level;
use crate::names::{AmoOp, RedOp, Scalar, Space, WaitFor};
use crate::types::{TensorType, TypeRef, ValueType};
use crate::typing::{MISMATCH, NO_SUCH_OP, TypeError, WRONG_SPACE, fail, fail_help};
use weft_layout::{Int, Layout};

/// The remote side of an operation is not in the symmetric heap.
pub const NOT_SYMMETRIC: Code = Code(220);
/// The element types of the two sides differ.
pub const OTHER_DTYPE: Code = Code(221);
/// The shapes of the two sides differ, or a tensor that must have one element has more.
pub const OTHER_SHAPE: Code = Code(222);
/// The signal is not a single symmetric `u64`.
pub const BAD_SIGNAL: Code = Code(223);
/// The arguments of an operation of a warp or block differ between threads.
pub const NOT_SAME: Code = Code(224);

type Rule<L> = Result<<L as Level>::Type, TypeError>;

/// Whether the elements are contiguous from the first one.
pub fn is_contiguous(layout: &Layout) -> bool {
    let Ok(flat) = layout.coalesce() else { return false };
    let (shape, stride) = (flat.shape(), flat.stride());
    flat.size().as_const() == Some(1) || (shape.as_int().is_some() && stride.as_int() == Some(&Int::ONE))
}

/// Whether a function of NVSHMEM only returns ranks or addresses, so that it gives every caller the
/// same result for the same arguments.
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

/// The typing rules of NVSHMEM's operations.
pub(crate) struct Remote<'k, L: Level> {
    pub k: &'k Kernel<L>,
    pub name: &'k str,
}

impl<L: Level> Remote<'_, L> {
    fn unit(&self) -> Rule<L> {
        Ok(L::Type::unit())
    }

    fn rank(&self, pe: Value) -> Result<(), TypeError> {
        self.scalar(pe, Scalar::I32, "PE")
    }

    pub fn put(&self, dst: Value, src: Value, pe: Value) -> Rule<L> {
        self.transfer(self.symmetric(dst, "destination")?, self.local(src, "source")?)?;
        self.rank(pe).and_then(|()| self.unit())
    }

    pub fn get(&self, dst: Value, src: Value, pe: Value) -> Rule<L> {
        self.transfer(self.local(dst, "destination")?, self.symmetric(src, "source")?)?;
        self.rank(pe).and_then(|()| self.unit())
    }

    pub fn put_signal(&self, [dst, src, signal]: [Value; 3], value: Value, pe: Value) -> Rule<L> {
        self.transfer(self.symmetric(dst, "destination")?, self.local(src, "source")?)?;
        self.signal_op(signal, value, pe)
    }

    pub fn put_value(&self, dst: Value, value: Value, pe: Value) -> Rule<L> {
        let s = self.element(dst, "destination")?;
        self.scalar(value, s, "value")?;
        self.rank(pe).and_then(|()| self.unit())
    }

    pub fn get_value(&self, src: Value, pe: Value) -> Rule<L> {
        self.rank(pe)?;
        self.element(src, "source").map(L::Type::scalar)
    }

    pub fn signal_op(&self, signal: Value, value: Value, pe: Value) -> Rule<L> {
        self.signal(signal)?;
        self.scalar(value, Scalar::U64, "signal's value")?;
        self.rank(pe).and_then(|()| self.unit())
    }

    pub fn signal_wait(&self, signal: Value, value: Value) -> Rule<L> {
        self.signal(signal)?;
        self.scalar(value, Scalar::U64, "value").map(|()| L::Type::scalar(Scalar::U64))
    }

    pub fn signal_fetch(&self, signal: Value) -> Rule<L> {
        self.signal(signal).map(|()| L::Type::scalar(Scalar::U64))
    }

    pub fn amo(&self, target: Value, op: AmoOp, operands: &[Value], pe: Value) -> Rule<L> {
        let s = self.element(target, "target")?;
        if !op.takes(s) {
            return fail_help(
                NO_SUCH_OP,
                format!("`{}` does not exist for {s}", self.name),
                "NVSHMEM has all atomics for i32, i64, u32 and u64. It has fetch, set, swap, add and \
                 fetch_add for f32 and f64, and add and fetch_add for f16",
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
        self.rank(pe)?;
        if op.fetches() { Ok(L::Type::scalar(s)) } else { self.unit() }
    }

    pub fn team_reduce(&self, dst: Value, src: Value, op: RedOp, scatter: bool) -> Rule<L> {
        let (to, from) = self.both(dst, src)?;
        self.reduction(op, to.elem)?;
        if scatter { self.unit() } else { self.same_size(to, from).and_then(|()| self.unit()) }
    }

    pub fn team_move(&self, dst: Value, src: Value, root: Option<Value>) -> Rule<L> {
        self.both(dst, src)?;
        root.map_or(Ok(()), |v| self.scalar(v, Scalar::I32, "root")).and_then(|()| self.unit())
    }

    /// The types of the result and the source of a collective.
    fn both(&self, dst: Value, src: Value) -> Result<(&TensorType, &TensorType), TypeError> {
        let (to, from) = (self.symmetric(dst, "result")?, self.symmetric(src, "source")?);
        self.dense(to, "result")?;
        self.dense(from, "source")?;
        self.same_elem(to, from)?;
        Ok((to, from))
    }

    pub fn translate_pe(&self, pe: Value) -> Rule<L> {
        self.rank(pe).map(|()| L::Type::scalar(Scalar::I32))
    }

    pub fn wait(
        &self,
        vars: Value,
        value: Value,
        (which, test): (WaitFor, bool),
        status: Option<Value>,
        indices: Option<Value>,
    ) -> Rule<L> {
        let t = self.symmetric(vars, "variable")?;
        // NVSHMEM's point-to-point synchronisation types are made of these types.
        if !(t.elem.is_int() && t.elem.bits() >= 16) {
            return fail_help(
                NO_SUCH_OP,
                format!("`{}` cannot wait on {}", self.name, t.elem),
                "it waits on integers of 16, 32 and 64 bits",
            );
        }
        if which == WaitFor::One {
            self.element(vars, "variable")?;
        }
        self.dense(t, "variables")?;
        for (list, elem) in [(Some(value), t.elem), (status, Scalar::I32), (indices, Scalar::U64)] {
            let Some(v) = list else { continue };
            match self.k.ty(v).view() {
                TypeRef::Tensor(l) if which != WaitFor::One => {
                    self.reachable(l, "list")?;
                    self.dense(l, "list")?;
                    if l.elem != elem {
                        let message = format!("`{}` takes a list of {elem}, found {}", self.name, l.elem);
                        return fail(OTHER_DTYPE, message);
                    }
                    self.same_size(l, t)?;
                }
                _ if v == value => self.scalar(v, elem, "value")?,
                other => {
                    return fail(MISMATCH, format!("`{}` takes a list of {elem}, found {other}", self.name));
                }
            }
        }
        if indices.is_some() != (which == WaitFor::Some) {
            return fail(
                MISMATCH,
                format!("`{}` has one list of indices, and at most one of status", self.name),
            );
        }
        Ok(match (which, test) {
            (WaitFor::One | WaitFor::All, false) => L::Type::unit(),
            (WaitFor::One | WaitFor::All, true) => L::Type::scalar(Scalar::Bool),
            (WaitFor::Any | WaitFor::Some, _) => L::Type::scalar(Scalar::I64),
        })
    }

    fn scalar(&self, v: Value, s: Scalar, what: &str) -> Result<(), TypeError> {
        let have = self.k.ty(v);
        if *have == L::Type::scalar(s) {
            return Ok(());
        }
        fail(MISMATCH, format!("{what} of `{}`: expected {s}, found {have}", self.name))
    }

    fn tensor(&self, v: Value, what: &str) -> Result<&TensorType, TypeError> {
        match self.k.ty(v).view() {
            TypeRef::Tensor(t) => Ok(t),
            other => fail(MISMATCH, format!("{what} of `{}`: expected a tensor, found {other}", self.name)),
        }
    }

    /// The type of a tensor that exists on every PE.
    fn symmetric(&self, v: Value, what: &str) -> Result<&TensorType, TypeError> {
        let t = self.tensor(v, what)?;
        if t.space == Space::Symmetric {
            return Ok(t);
        }
        let help = match t.space {
            Space::Peer | Space::Multicast => {
                "pass the symmetric tensor itself: the operation computes its address on the other PE"
            }
            _ => "only memory of the symmetric heap (`symm<...>`) exists on every PE",
        };
        fail_help(
            NOT_SYMMETRIC,
            format!("the {what} of `{}` is in {} memory, not in the symmetric heap", self.name, t.space),
            help,
        )
    }

    /// The type of a tensor of this PE that NVSHMEM reads or writes.
    fn local(&self, v: Value, what: &str) -> Result<&TensorType, TypeError> {
        let t = self.tensor(v, what)?;
        self.reachable(t, what).map(|()| t)
    }

    fn reachable(&self, t: &TensorType, what: &str) -> Result<(), TypeError> {
        if matches!(t.space, Space::Global | Space::Symmetric) {
            return Ok(());
        }
        fail_help(
            WRONG_SPACE,
            format!("the {what} of `{}` is {} memory", self.name, t.space),
            "it must be in global or symmetric memory of this GPU. To send registers or shared memory, \
             write them to `peer(x, pe)`",
        )
    }

    /// The type of the one element of a symmetric tensor.
    fn element(&self, v: Value, what: &str) -> Result<Scalar, TypeError> {
        let t = self.symmetric(v, what)?;
        match t.layout.size().as_const() {
            Some(1) => Ok(t.elem),
            _ => fail_help(
                OTHER_SHAPE,
                format!("the {what} of `{}` has {} elements, not one", self.name, t.layout.size()),
                "name one element, `x[i]`, or use `put` or `get` for many elements",
            ),
        }
    }

    fn signal(&self, v: Value) -> Result<(), TypeError> {
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

    fn transfer(&self, dst: &TensorType, src: &TensorType) -> Result<(), TypeError> {
        self.same_elem(dst, src)?;
        if is_contiguous(&dst.layout) && is_contiguous(&src.layout) {
            return Ok(());
        }
        self.same_size(dst, src)
    }

    fn same_elem(&self, a: &TensorType, b: &TensorType) -> Result<(), TypeError> {
        if a.elem == b.elem {
            return Ok(());
        }
        fail_help(
            OTHER_DTYPE,
            format!("`{}` moves {} to {}", self.name, b.elem, a.elem),
            "both sides must have the same element type: convert in the kernel, before or after",
        )
    }

    /// Checks that both sides have the same size if both sizes are known. The launcher checks the
    /// others.
    fn same_size(&self, a: &TensorType, b: &TensorType) -> Result<(), TypeError> {
        match (a.layout.size().as_const(), b.layout.size().as_const()) {
            (Some(m), Some(n)) if m != n => fail_help(
                OTHER_SHAPE,
                format!("`{}` has {n} elements on one side and {m} on the other", self.name),
                "both sides must have the same shape. For put and get, contiguous sides may differ in \
                 size, and the smaller size counts",
            ),
            _ => Ok(()),
        }
    }

    /// Checks that a tensor is contiguous, because NVSHMEM's collectives and lists have no strides.
    fn dense(&self, t: &TensorType, what: &str) -> Result<(), TypeError> {
        if is_contiguous(&t.layout) && t.bounds.is_empty() {
            return Ok(());
        }
        fail_help(
            OTHER_SHAPE,
            format!("the {what} of `{}` is not contiguous: {}", self.name, t.layout),
            "its elements must be consecutive in memory; the tile collectives of `weft::tile` accept any \
             layout",
        )
    }

    /// Checks a reduction of NVSHMEM: sum, prod, min and max of all types, and and, or and xor of
    /// integers.
    fn reduction(&self, op: RedOp, s: Scalar) -> Result<(), TypeError> {
        let bitwise = matches!(op, RedOp::And | RedOp::Or | RedOp::Xor);
        if s == Scalar::Bool || s.is_fp8() || (bitwise && !s.is_int()) {
            return fail(NO_SUCH_OP, format!("`{}` with `{op}` does not exist for {s}", self.name));
        }
        Ok(())
    }
}
