//! The typing rules of the ops, which the builder and the verifier share. The table of the ops says
//! which rule each op has. The rules of NVSHMEM's operations are in [`remote`](crate::remote).

use crate::diag::Code;
use crate::kernel::{Kernel, LocalId, Value};
use crate::level::{Head, Level};
use crate::names::{BinOp, NumberKind, RedOp, Scalar, Space, UnOp};
use crate::op::Constant;
use crate::remote::Remote;
use crate::types::{TensorType, TypeRef, ValueType};
use std::borrow::Cow;
use std::sync::Arc;

/// The maximum number of elements that one op moves into a thread's registers.
pub const MAX_LANES: u32 = 1024;

/// A type error: the code of its family, what is wrong, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TypeError {
    /// The stable code of the error.
    pub code: Code,
    /// One line that says what is wrong.
    pub message: String,
    /// Advice for the user, if there is any.
    pub help: Option<String>,
}

/// An operand or result has a wrong type.
pub const MISMATCH: Code = Code(200);
/// The element type does not have this op.
pub const NO_SUCH_OP: Code = Code(201);
/// A tensor is in a memory space that the op cannot access.
pub const WRONG_SPACE: Code = Code(202);
/// A tensor does not have a compile-time constant number of elements, but must.
pub const NOT_STATIC: Code = Code(203);
/// A literal is outside the range of its type.
pub const LITERAL: Code = Code(204);

/// The type of an op's result, or the reason why there is none.
type Rule<L> = Result<<L as Level>::Type, TypeError>;

pub(crate) fn fail<T>(code: Code, message: impl Into<String>) -> Result<T, TypeError> {
    Err(TypeError { code, message: message.into(), help: None })
}

pub(crate) fn fail_help<T>(
    code: Code,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Result<T, TypeError> {
    Err(TypeError { code, message: message.into(), help: Some(help.into()) })
}

/// The input of the rules: the kernel that an op is in, the type it was given, and its name.
pub struct Typing<'k, L: Level> {
    pub(crate) k: &'k Kernel<L>,
    pub(crate) given: &'k L::Type,
    pub(crate) name: Cow<'static, str>,
}

impl<L: Level> Typing<'_, L> {
    fn ty(&self, v: Value) -> &L::Type {
        self.k.ty(v)
    }

    /// The level's type of that kind.
    pub(crate) fn make(&self, ty: TypeRef<'_>) -> Rule<L> {
        L::Type::of(ty)
            .map_or_else(|| fail(MISMATCH, format!("there is no {ty} at the {} level", L::NAME)), Ok)
    }

    fn same(&self, v: Value, want: &L::Type, what: &str) -> Result<(), TypeError> {
        let have = self.ty(v);
        if have == want { Ok(()) } else { fail(MISMATCH, format!("{what}: expected {want}, found {have}")) }
    }

    pub(crate) fn is_scalar(&self, v: Value, s: Scalar, what: &str) -> Result<(), TypeError> {
        self.same(v, &L::Type::scalar(s), what)
    }

    /// The element type of a scalar or vector.
    fn elem(&self, v: Value) -> Result<Scalar, TypeError> {
        match self.ty(v).view() {
            TypeRef::Scalar(s) | TypeRef::Vector(s, _) => Ok(s),
            other => fail(MISMATCH, format!("expected a number or a vector, found {other}")),
        }
    }

    pub(crate) fn unit(&self) -> Rule<L> {
        Ok(L::Type::unit())
    }

    pub(crate) fn scalar(&self, s: Scalar) -> Rule<L> {
        Ok(L::Type::scalar(s))
    }

    pub(crate) fn pointer(&self, space: Space) -> Rule<L> {
        self.make(TypeRef::Pointer(space))
    }

    pub(crate) fn remote(&self) -> Remote<'_, L> {
        Remote { k: self.k, name: &self.name }
    }
}

/// The rules of arithmetic.
impl<L: Level> Typing<'_, L> {
    pub(crate) fn constant(&self, value: Constant) -> Rule<L> {
        let TypeRef::Scalar(s) = self.given.view() else {
            return fail(MISMATCH, format!("a literal must be a scalar, not {}", self.given));
        };
        let fits = match (value, s.kind()) {
            (Constant::Bool(_), NumberKind::Bool) | (Constant::Float(_), NumberKind::Float) => true,
            (Constant::Int(n), NumberKind::Signed) => {
                s.bits() == 64 || n.unsigned_abs() <= 1 << (s.bits() - 1)
            }
            (Constant::Int(n), NumberKind::Unsigned) => s.bits() == 64 || (n >= 0 && n < 1 << s.bits()),
            _ => false,
        };
        if fits { Ok(self.given.clone()) } else { fail(LITERAL, format!("{value:?} is not a value of {s}")) }
    }

    pub(crate) fn unary(&self, op: UnOp, a: Value) -> Rule<L> {
        let s = self.elem(a)?;
        let ok = match op {
            UnOp::Neg | UnOp::Abs => s.is_float() || s.kind() == NumberKind::Signed,
            UnOp::Not => s.is_int() || s == Scalar::Bool,
            _ => s.is_float(),
        };
        self.has(ok && !s.is_fp8(), op.name(), s).map(|()| self.ty(a).clone())
    }

    pub(crate) fn binary(&self, op: BinOp, a: Value, b: Value) -> Rule<L> {
        use BinOp as B;
        self.same(b, self.ty(a), "right operand")?;
        let s = self.elem(a)?;
        let ok = match op {
            B::Add | B::Sub | B::Mul | B::Div | B::Min | B::Max => s != Scalar::Bool,
            B::Rem | B::Shl | B::Shr => s.is_int(),
            B::And | B::Or | B::Xor => s.is_int() || s == Scalar::Bool,
        };
        self.has(ok && !s.is_fp8(), op.name(), s).map(|()| self.ty(a).clone())
    }

    pub(crate) fn fma(&self, a: Value, b: Value, c: Value) -> Rule<L> {
        self.same(b, self.ty(a), "second factor")?;
        self.same(c, self.ty(a), "summand")?;
        let s = self.elem(a)?;
        self.has(s.is_float() && !s.is_fp8(), "fma", s).map(|()| self.ty(a).clone())
    }

    pub(crate) fn compare(&self, a: Value, b: Value) -> Rule<L> {
        self.same(b, self.ty(a), "right operand")?;
        let s = self.elem(a)?;
        self.has(!s.is_fp8(), "compare", s).map(|()| self.ty(a).with_elem(Scalar::Bool))
    }

    pub(crate) fn select(&self, c: Value, a: Value, b: Value) -> Rule<L> {
        self.same(b, self.ty(a), "second choice")?;
        self.elem(a)?;
        let c = self.ty(c);
        if *c == L::Type::scalar(Scalar::Bool) || *c == self.ty(a).with_elem(Scalar::Bool) {
            Ok(self.ty(a).clone())
        } else {
            fail(MISMATCH, format!("condition: expected bool, found {c}"))
        }
    }

    fn has(&self, ok: bool, op: &str, s: Scalar) -> Result<(), TypeError> {
        /// The operators that the source text writes as signs.
        const SIGNS: [(&str, &str); 5] =
            [("rem", "%"), ("shl", "<<"), ("shr", ">>"), ("neg", "-"), ("not", "!")];
        let op = SIGNS.iter().find(|(name, _)| *name == op).map_or(op, |(_, sign)| sign);
        if ok {
            Ok(())
        } else if s.is_fp8() {
            fail_help(
                NO_SUCH_OP,
                format!("`{op}` does not exist for {s}"),
                "fp8 is a storage type: convert first, `.to<f32>()`",
            )
        } else {
            fail(NO_SUCH_OP, format!("`{op}` does not exist for {s}"))
        }
    }
}

/// Changes of shape and representation. The result is the given type if `ok` holds for its element
/// type and lanes.
impl<L: Level> Typing<'_, L> {
    fn shape(ty: &L::Type) -> Option<(Scalar, u32)> {
        ty.elem().zip(ty.lanes())
    }

    fn reshape(&self, mnemonic: &str, ok: impl FnOnce(Scalar, u32) -> bool) -> Rule<L> {
        let given = self.given;
        let Some((to, lanes)) = Self::shape(given) else {
            return fail(MISMATCH, format!("expected a scalar or vector type, found {given}"));
        };
        if lanes == 0 || lanes > MAX_LANES {
            return fail(MISMATCH, format!("a vector must have 1 to {MAX_LANES} lanes, not {lanes}"));
        }
        if ok(to, lanes) {
            Ok(given.clone())
        } else {
            fail(MISMATCH, format!("{mnemonic} cannot have the result {given}"))
        }
    }

    pub(crate) fn convert(&self, a: Value) -> Rule<L> {
        self.reshape("convert", |_, lanes| Self::shape(self.ty(a)).is_some_and(|(_, n)| n == lanes))
    }

    pub(crate) fn bitcast(&self, a: Value) -> Rule<L> {
        self.reshape("bitcast", |to, lanes| {
            Self::shape(self.ty(a)).is_some_and(|(s, n)| {
                s != Scalar::Bool && to != Scalar::Bool && s.bits() * n == to.bits() * lanes
            })
        })
    }

    pub(crate) fn splat(&self, a: Value) -> Rule<L> {
        self.reshape("splat", |to, _| *self.ty(a) == L::Type::scalar(to))
    }

    pub(crate) fn slice(&self, a: Value, first: u32) -> Rule<L> {
        self.reshape("slice", |to, lanes| {
            let end = first.checked_add(lanes);
            Self::shape(self.ty(a)).is_some_and(|(s, n)| s == to && end.is_some_and(|e| e <= n))
        })
    }

    pub(crate) fn concat(&self, parts: &[Value]) -> Rule<L> {
        self.reshape("concat", |to, lanes| {
            let sum = parts.iter().try_fold(0u32, |sum, p| match Self::shape(self.ty(*p)) {
                Some((s, n)) if s == to => sum.checked_add(n),
                _ => None,
            });
            sum == Some(lanes)
        })
    }

    fn lane(&self, a: Value, lane: Value) -> Result<Scalar, TypeError> {
        match (self.ty(a).view(), self.ty(lane).view()) {
            (TypeRef::Vector(s, _), TypeRef::Scalar(Scalar::I32 | Scalar::I64)) => Ok(s),
            (a, lane) => {
                fail(MISMATCH, format!("expected a vector and an integer lane, found {a} and {lane}"))
            }
        }
    }

    pub(crate) fn extract(&self, a: Value, lane: Value) -> Rule<L> {
        self.lane(a, lane).map(L::Type::scalar)
    }

    pub(crate) fn insert(&self, a: Value, lane: Value, elem: Value) -> Rule<L> {
        let s = self.lane(a, lane)?;
        self.is_scalar(elem, s, "inserted lane").map(|()| self.ty(a).clone())
    }
}

/// The rules of threads, variables, control flow and messages.
impl<L: Level> Typing<'_, L> {
    pub(crate) fn shuffle(&self, value: Value, lane: Value) -> Rule<L> {
        self.is_scalar(lane, Scalar::I32, "lane")?;
        self.elem(value).map(|_| self.ty(value).clone())
    }

    pub(crate) fn vote(&self, op: RedOp, cond: Value) -> Rule<L> {
        self.is_scalar(cond, Scalar::Bool, "condition")?;
        match op {
            RedOp::And | RedOp::Or => self.scalar(Scalar::Bool),
            _ => fail(MISMATCH, format!("op: expected and or or, found {op}")),
        }
    }

    pub(crate) fn reduce(&self, value: Value, op: RedOp) -> Rule<L> {
        let s = self.elem(value)?;
        self.reduction(op, s).map(|()| self.ty(value).clone())
    }

    pub(crate) fn team_barrier(&self, sync: Value) -> Rule<L> {
        match self.ty(sync).view() {
            TypeRef::Barrier => self.unit(),
            have => fail(MISMATCH, format!("counters: expected barrier, found {have}")),
        }
    }

    pub(crate) fn param(&self, index: u32) -> Rule<L> {
        match self.k.head.param(index) {
            Some(ty) => Ok(ty.clone()),
            None => fail(MISMATCH, format!("the kernel has no parameter {index}")),
        }
    }

    pub(crate) fn local_get(&self, local: LocalId) -> Rule<L> {
        match self.k.locals.get(local) {
            Some(l) => Ok(l.ty.clone()),
            None => fail(MISMATCH, format!("there is no local {local}")),
        }
    }

    pub(crate) fn local_set(&self, local: LocalId, value: Value) -> Rule<L> {
        let ty = self.local_get(local)?;
        self.same(value, &ty, "assigned value").and_then(|()| self.unit())
    }

    pub(crate) fn condition(&self, cond: Value) -> Rule<L> {
        self.is_scalar(cond, Scalar::Bool, "condition").and_then(|()| self.unit())
    }

    pub(crate) fn loop_bounds(&self, bounds: [Value; 3]) -> Rule<L> {
        for v in bounds {
            self.is_scalar(v, Scalar::I64, "bound of a loop")?;
        }
        self.unit()
    }

    pub(crate) fn print(&self, args: &[Value]) -> Rule<L> {
        match args.iter().find(|a| self.ty(**a).lanes() != Some(1)) {
            Some(a) => fail(MISMATCH, format!("print takes scalars, found {}", self.ty(*a))),
            None => self.unit(),
        }
    }
}

/// The rules of tensors.
impl<L: Level> Typing<'_, L> {
    pub(crate) fn symmetric(&self, base: Value, to: Space) -> Rule<L> {
        match self.ty(base).view() {
            TypeRef::Tensor(t) if t.space == Space::Symmetric => {
                self.make(TypeRef::Tensor(&Arc::new(TensorType { space: to, ..(**t).clone() })))
            }
            other => fail_help(
                WRONG_SPACE,
                format!("`{}` needs a symmetric tensor, found {other}", self.name),
                "only memory of the symmetric heap (`symm<...>`) exists on every PE",
            ),
        }
    }

    pub(crate) fn peer(&self, base: Value, pe: Value) -> Rule<L> {
        self.is_scalar(pe, Scalar::I32, "PE")?;
        self.symmetric(base, Space::Peer)
    }

    pub(crate) fn in_cta(&self, base: Value, cta: Value) -> Rule<L> {
        self.is_scalar(cta, Scalar::I32, "rank of a CTA")?;
        match self.ty(base).view() {
            TypeRef::Tensor(t) if t.space == Space::Shared => {
                self.make(TypeRef::Tensor(&Arc::new(TensorType { space: Space::Cluster, ..(**t).clone() })))
            }
            other => fail_help(
                WRONG_SPACE,
                format!("`{}` needs a tensor in shared memory, found {other}", self.name),
                "tensors that `shared<T>(layout)` makes exist in the other CTAs of the cluster too",
            ),
        }
    }

    pub(crate) fn view(&self, base: Value) -> Rule<L> {
        match (self.ty(base).view(), self.given.view()) {
            (TypeRef::Tensor(b), TypeRef::Tensor(t)) if b.elem == t.elem && b.space == t.space => {
                Ok(self.given.clone())
            }
            (b, t) => fail(MISMATCH, format!("{t} is not a view of {b}")),
        }
    }

    /// The type of the elements that a thread has of a tile which warpgroups divide.
    pub(crate) fn distributed(&self, base: Value, over: &[u32]) -> Rule<L> {
        let part = self.view(base)?;
        let modes = self.ty(base).tensor().map_or(0, |t| t.layout.rank());
        if modes != 2 || over.len() != 2 || over.contains(&0) {
            return fail(
                MISMATCH,
                format!("a tile of {modes} modes cannot be divided over {over:?} warpgroups"),
            );
        }
        Ok(part)
    }

    pub(crate) fn shared(&self) -> Rule<L> {
        match self.given.view() {
            TypeRef::Tensor(t) if t.space == Space::Shared && t.layout.cosize().as_const().is_some() => {
                Ok(self.given.clone())
            }
            other => fail(NOT_STATIC, format!("shared memory needs a static layout, found {other}")),
        }
    }

    pub(crate) fn load(&self, place: Value) -> Rule<L> {
        self.lanes_at(place, false)
    }

    pub(crate) fn store(&self, place: Value, value: Value, switch: bool) -> Rule<L> {
        self.elem_at(place, value, switch).and_then(|_| self.unit())
    }

    pub(crate) fn ld_reduce(&self, place: Value, op: RedOp, acc: Scalar) -> Rule<L> {
        let ty = self.lanes_at(place, true)?;
        self.accumulates(op, &ty, acc).map(|()| ty)
    }

    pub(crate) fn reduce_into(&self, place: Value, value: Value, op: RedOp, switch: bool) -> Rule<L> {
        let s = self.elem_at(place, value, switch)?;
        self.reduction(op, s).and_then(|()| self.unit())
    }

    pub(crate) fn atomic(&self, place: Value, value: Value, op: Option<RedOp>) -> Rule<L> {
        let s = self.elem_at(place, value, false)?;
        op.map_or(Ok(()), |op| self.reduction(op, s)).map(|()| self.ty(value).clone())
    }

    pub(crate) fn compare_and_swap(&self, place: Value, expected: Value, value: Value) -> Rule<L> {
        self.elem_at(place, value, false)?;
        self.same(expected, self.ty(value), "expected value").map(|()| self.ty(value).clone())
    }

    fn accumulates(&self, op: RedOp, ty: &L::Type, acc: Scalar) -> Result<(), TypeError> {
        let Some(s) = ty.elem() else { return fail(MISMATCH, format!("expected numbers, found {ty}")) };
        self.reduction(op, s)?;
        let wider = acc.is_float() && s.is_float() && acc.bits() > s.bits() && !acc.is_fp8();
        if acc == s || wider {
            return Ok(());
        }
        fail_help(
            NO_SUCH_OP,
            format!("`{s}` cannot be accumulated in `{acc}`"),
            "the accumulator must have the element type itself or a wider float type",
        )
    }

    /// The element type of a value that fits a tensor's elements.
    fn elem_at(&self, place: Value, value: Value, switch: bool) -> Result<Scalar, TypeError> {
        let want = self.lanes_at(place, switch)?;
        self.same(value, &want, "stored value")?;
        self.elem(value)
    }

    /// The type with as many lanes as a tensor has elements.
    fn lanes_at(&self, place: Value, switch: bool) -> Rule<L> {
        let TypeRef::Tensor(t) = self.ty(place).view() else {
            return fail(MISMATCH, format!("`{}` needs a tensor, found {}", self.name, self.ty(place)));
        };
        self.check_address(t.space, switch)?;
        match t.layout.size().as_const().and_then(|n| u32::try_from(n).ok()) {
            Some(n) if (1..=MAX_LANES).contains(&n) => Ok(L::Type::lanes_of(t.elem, n)),
            Some(n) => fail_help(
                NOT_STATIC,
                format!("a thread can move 1 to {MAX_LANES} elements at once, not {n}"),
                "partition the tensor over `threads()` and loop over the steps",
            ),
            None => fail_help(
                NOT_STATIC,
                format!("the number of elements of {} is known only at run time", t.layout),
                "partition the tensor over `threads()` and loop over the steps",
            ),
        }
    }

    /// Checks that the switch, and nothing else, accesses a multicast address.
    fn check_address(&self, space: Space, switch: bool) -> Result<(), TypeError> {
        if (space == Space::Multicast) == switch {
            return Ok(());
        }
        let (message, help) = if switch {
            ("needs a multicast address", "write `multicast(x, team)` to reach the switch")
        } else {
            ("cannot use a multicast address", "only ld_reduce, st and red can use it: see docs/multimem.md")
        };
        fail_help(WRONG_SPACE, format!("`{}` {message}, found {space} memory", self.name), help)
    }

    fn reduction(&self, op: RedOp, s: Scalar) -> Result<(), TypeError> {
        let ok = match op {
            RedOp::Add | RedOp::Mul | RedOp::Min | RedOp::Max => s != Scalar::Bool,
            RedOp::And | RedOp::Or | RedOp::Xor => s.is_int() || s == Scalar::Bool,
        };
        if ok { Ok(()) } else { fail(NO_SUCH_OP, format!("the reduction `{op}` does not exist for {s}")) }
    }
}

/// The rules of addresses.
impl<L: Level> Typing<'_, L> {
    fn space(&self, ptr: Value) -> Result<Space, TypeError> {
        match self.ty(ptr).view() {
            TypeRef::Pointer(space) => Ok(space),
            other => fail(MISMATCH, format!("expected a pointer, found {other}")),
        }
    }

    pub(crate) fn address_of(&self, base: Value) -> Rule<L> {
        match self.ty(base).view() {
            TypeRef::Tensor(t) => self.pointer(t.space),
            TypeRef::Barrier => self.pointer(Space::Symmetric),
            other => fail(MISMATCH, format!("expected a tensor or barrier, found {other}")),
        }
    }

    pub(crate) fn shared_at(&self, align: u32) -> Rule<L> {
        if !align.is_power_of_two() {
            return fail(MISMATCH, format!("an alignment must be a power of two, not {align}"));
        }
        self.pointer(Space::Shared)
    }

    pub(crate) fn ptr_add(&self, ptr: Value, bytes: Value) -> Rule<L> {
        self.is_scalar(bytes, Scalar::I64, "byte offset")?;
        self.space(ptr).and_then(|space| self.pointer(space))
    }

    pub(crate) fn map_to_cta(&self, ptr: Value, cta: Value) -> Rule<L> {
        self.is_scalar(cta, Scalar::I32, "rank of a CTA")?;
        match self.ty(ptr).view() {
            TypeRef::Pointer(Space::Shared) => self.pointer(Space::Cluster),
            other => fail(MISMATCH, format!("expected an address in shared memory, found {other}")),
        }
    }

    pub(crate) fn int_to_ptr(&self, a: Value) -> Rule<L> {
        self.is_scalar(a, Scalar::I64, "address")?;
        match self.given.view() {
            TypeRef::Pointer(_) => Ok(self.given.clone()),
            other => fail(MISMATCH, format!("an address must be a pointer, not {other}")),
        }
    }

    pub(crate) fn ptr_to_int(&self, a: Value) -> Rule<L> {
        self.space(a).and_then(|_| self.scalar(Scalar::I64))
    }

    /// Checks that one access can move a value of the type: a power of two of bytes, at most 16.
    fn moves(&self, ty: &L::Type) -> Result<Scalar, TypeError> {
        let bytes = ty.elem().zip(ty.lanes()).map(|(s, n)| (s, n.saturating_mul(s.bytes())));
        match bytes {
            Some((s, bytes)) if bytes.is_power_of_two() && bytes <= 16 => Ok(s),
            _ => fail_help(
                MISMATCH,
                format!("one access cannot move a {ty}"),
                "an access moves 1, 2, 4, 8 or 16 bytes of numbers",
            ),
        }
    }

    fn accessed(&self, ptr: Value, ty: &L::Type, switch: bool) -> Result<Scalar, TypeError> {
        self.check_address(self.space(ptr)?, switch)?;
        self.moves(ty)
    }

    pub(crate) fn read_at(&self, ptr: Value, switch: bool) -> Rule<L> {
        self.accessed(ptr, self.given, switch).map(|_| self.given.clone())
    }

    pub(crate) fn write_at(&self, ptr: Value, value: Value, switch: bool) -> Rule<L> {
        self.accessed(ptr, self.ty(value), switch).and_then(|_| self.unit())
    }

    pub(crate) fn ld_reduce_at(&self, ptr: Value, op: RedOp, acc: Scalar) -> Rule<L> {
        let ty = self.read_at(ptr, true)?;
        self.accumulates(op, &ty, acc).map(|()| ty)
    }

    /// Checks an atomic operation at an address. Result: the old value.
    pub(crate) fn reduce_at(&self, ptr: Value, value: Value, op: Option<RedOp>, switch: bool) -> Rule<L> {
        let s = self.accessed(ptr, self.ty(value), switch)?;
        op.map_or(Ok(()), |op| self.reduction(op, s)).map(|()| self.ty(value).clone())
    }

    pub(crate) fn compare_and_swap_at(&self, ptr: Value, expected: Value, value: Value) -> Rule<L> {
        self.accessed(ptr, self.ty(value), false)?;
        self.same(expected, self.ty(value), "expected value").map(|()| self.ty(value).clone())
    }

    /// Checks a call. A function takes and returns types that C has in registers. 16-bit floats are
    /// structs there.
    pub(crate) fn call(&self, args: &[Value]) -> Rule<L> {
        let passes = |ty: &L::Type| match ty.view() {
            TypeRef::Scalar(s) => s.is_int() || matches!(s, Scalar::F32 | Scalar::F64),
            TypeRef::Pointer(space) => space != Space::Register,
            TypeRef::Unit
            | TypeRef::Vector(..)
            | TypeRef::Tensor(_)
            | TypeRef::Team
            | TypeRef::Barrier
            | TypeRef::Pipeline(_)
            | TypeRef::Accumulator(_) => false,
        };
        let given = Some(self.given).filter(|ty| **ty != L::Type::unit());
        match args.iter().map(|a| self.ty(*a)).chain(given).find(|ty| !passes(ty)) {
            None => Ok(self.given.clone()),
            Some(ty) => fail_help(
                MISMATCH,
                format!("a function cannot take or return {ty}"),
                "it can take pointers, integers, f32 and f64, and return one of them or nothing",
            ),
        }
    }
}
