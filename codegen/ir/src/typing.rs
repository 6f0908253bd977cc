//! The typing rule of each op, one place for the builder and the verifier.

use crate::diag::Code;
use crate::kernel::{Kernel, Value};
use crate::names::{Kind, RedOp, Scalar, Space, UnOp};
use crate::op::{Constant, Op};
use crate::types::Type;
use std::sync::Arc;

/// Most elements that one op moves into a thread's registers.
pub const MAX_LANES: u32 = 1024;

/// A type error: the code of its family, what is wrong, what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeError {
    /// Stable code.
    pub code: Code,
    /// One line.
    pub message: String,
    /// What to do, if there is something to say.
    pub help: Option<String>,
}

/// Operand or result of a wrong type.
pub const MISMATCH: Code = Code(200);
/// An op that its element type does not have.
pub const NO_SUCH_OP: Code = Code(201);
/// A tensor in a memory space the op cannot reach.
pub const WRONG_SPACE: Code = Code(202);
/// A tensor whose number of elements is not a compile-time constant where it must be.
pub const NOT_STATIC: Code = Code(203);
/// A literal outside its type.
pub const LITERAL: Code = Code(204);

type Rule = Result<Type, TypeError>;

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

/// The type of an op's result. `given` is the type the op was made with: ops such as `convert` and `view`
/// take it as their own, after checking that it fits; the others ignore it.
pub fn result_type(k: &Kernel, op: &Op, given: &Type) -> Rule {
    if let Some(rule) = crate::remote::result_type(k, op) {
        return rule;
    }
    let rule = Typing { k, given };
    match op {
        Op::Const { value } => rule.constant(*value),
        Op::Index { .. } | Op::LoopVar { .. } => Ok(Type::Scalar(Scalar::I64)),
        Op::Special { .. } | Op::MyPe { .. } | Op::NPes { .. } => Ok(Type::Scalar(Scalar::I32)),
        Op::Param { index } => match k.params.get(*index as usize) {
            Some(p) => Ok(p.ty.clone()),
            None => fail(MISMATCH, format!("the kernel has no parameter {index}")),
        },
        Op::Unary { .. } | Op::Binary { .. } | Op::Fma { .. } | Op::Compare { .. } | Op::Select { .. } => {
            rule.arithmetic(op)
        }
        Op::Convert { .. } | Op::Bitcast { .. } | Op::Splat { .. } | Op::Concat { .. } | Op::Slice { .. } => {
            rule.reshape(op)
        }
        Op::Extract { a, lane } => rule.lane(*a, *lane).map(Type::Scalar),
        Op::Insert { a, lane, elem } => {
            let s = rule.lane(*a, *lane)?;
            rule.same(*elem, &Type::Scalar(s), "inserted lane").map(|()| k.ty(*a).clone())
        }
        Op::View { .. } | Op::Multicast { .. } | Op::Peer { .. } | Op::SharedAlloc { .. } => rule.tensor(op),
        Op::Load { .. } | Op::Store { .. } | Op::LdReduce { .. } | Op::McStore { .. } | Op::McRed { .. } => {
            rule.memory(op)
        }
        Op::Red { .. } | Op::Atomic { .. } | Op::AtomicCas { .. } => rule.memory(op),
        Op::Reduce { value, op, .. } => {
            let s = rule.elem(*value)?;
            rule.reduction(*op, s).map(|()| k.ty(*value).clone())
        }
        Op::Shuffle { value, lane, .. } => {
            rule.same(*lane, &Type::Scalar(Scalar::I32), "lane")?;
            rule.elem(*value).map(|_| k.ty(*value).clone())
        }
        Op::TeamBarrier { sync, .. } => rule.same(*sync, &Type::Barrier, "counters").map(|()| Type::Unit),
        Op::If { cond, .. } | Op::While { cond, .. } => {
            rule.same(*cond, &Type::Scalar(Scalar::Bool), "condition").map(|()| Type::Unit)
        }
        Op::For { lo, hi, step, .. } => {
            for v in [lo, hi, step] {
                rule.same(*v, &Type::Scalar(Scalar::I64), "bound of a loop")?;
            }
            Ok(Type::Unit)
        }
        Op::LocalGet { local } => match k.locals.get(*local) {
            Some(l) => Ok(l.ty.clone()),
            None => fail(MISMATCH, format!("there is no local {local}")),
        },
        Op::LocalSet { local, value } => match k.locals.get(*local) {
            Some(l) => rule.same(*value, &l.ty, "assigned value").map(|()| Type::Unit),
            None => fail(MISMATCH, format!("there is no local {local}")),
        },
        Op::PtrAdd { ptr, bytes } => {
            rule.same(*bytes, &Type::Scalar(Scalar::I64), "byte offset")?;
            // A tensor or barrier stands for the address of its first byte.
            match (k.ty(*ptr).space(), k.ty(*ptr)) {
                (Some(space), _) => Ok(Type::Pointer(space)),
                (_, Type::Barrier) => Ok(Type::Pointer(Space::Symmetric)),
                (_, other) => fail(MISMATCH, format!("expected a pointer, found {other}")),
            }
        }
        Op::IntToPtr { a } => {
            rule.same(*a, &Type::Scalar(Scalar::I64), "address")?;
            match given {
                Type::Pointer(_) => Ok(given.clone()),
                other => fail(MISMATCH, format!("an address is a pointer, not {other}")),
            }
        }
        Op::Print { args, .. } => {
            for a in args {
                if k.ty(*a).lanes() != Some(1) {
                    return fail(MISMATCH, format!("print takes scalars, found {}", k.ty(*a)));
                }
            }
            Ok(Type::Unit)
        }
        Op::Call { args, .. } => rule.call(args),
        // Fences, barriers, and the remote operations, which have had their rule.
        _ => Ok(Type::Unit),
    }
}

struct Typing<'k> {
    k: &'k Kernel,
    given: &'k Type,
}

impl Typing<'_> {
    fn same(&self, v: Value, want: &Type, what: &str) -> Result<(), TypeError> {
        let have = self.k.ty(v);
        if have == want { Ok(()) } else { fail(MISMATCH, format!("{what}: expected {want}, found {have}")) }
    }

    /// The element type of a scalar or vector.
    fn elem(&self, v: Value) -> Result<Scalar, TypeError> {
        match self.k.ty(v) {
            Type::Scalar(s) | Type::Vector(s, _) => Ok(*s),
            other => fail(MISMATCH, format!("expected a number or a vector, found {other}")),
        }
    }

    fn lane(&self, a: Value, lane: Value) -> Result<Scalar, TypeError> {
        match (self.k.ty(a), self.k.ty(lane)) {
            (Type::Vector(s, _), Type::Scalar(Scalar::I32 | Scalar::I64)) => Ok(*s),
            (a, lane) => {
                fail(MISMATCH, format!("expected a vector and an integer lane, found {a} and {lane}"))
            }
        }
    }

    /// A function takes and returns what C has in registers: 16-bit floats are structs there.
    fn call(&self, args: &[Value]) -> Rule {
        let passes = |ty: &Type| match ty {
            Type::Scalar(s) => s.is_int() || matches!(s, Scalar::F32 | Scalar::F64),
            Type::Pointer(space) => *space != Space::Register,
            _ => false,
        };
        let given = Some(self.given).filter(|ty| **ty != Type::Unit);
        match args.iter().map(|a| self.k.ty(*a)).chain(given).find(|ty| !passes(ty)) {
            None => Ok(self.given.clone()),
            Some(ty) => fail_help(
                MISMATCH,
                format!("a function cannot take or return {ty}"),
                "it takes pointers, integers, f32 and f64, and returns one of them or nothing",
            ),
        }
    }

    fn constant(&self, value: Constant) -> Rule {
        let Type::Scalar(s) = self.given else {
            return fail(MISMATCH, format!("a literal is a scalar, not {}", self.given));
        };
        let fits = match (value, s.kind()) {
            (Constant::Bool(_), Kind::Bool) | (Constant::Float(_), Kind::Float) => true,
            (Constant::Int(n), Kind::Signed) => s.bits() == 64 || n.unsigned_abs() <= 1 << (s.bits() - 1),
            (Constant::Int(n), Kind::Unsigned) => s.bits() == 64 || (n >= 0 && n < 1 << s.bits()),
            _ => false,
        };
        if fits { Ok(self.given.clone()) } else { fail(LITERAL, format!("{value:?} is no {s}")) }
    }

    fn arithmetic(&self, op: &Op) -> Rule {
        let k = self.k;
        match op {
            Op::Unary { op, a } => {
                let s = self.elem(*a)?;
                let ok = match op {
                    UnOp::Neg | UnOp::Abs => s.is_float() || s.kind() == Kind::Signed,
                    UnOp::Not => s.is_int() || s == Scalar::Bool,
                    _ => s.is_float(),
                };
                self.has(ok && !s.is_fp8(), op.name(), s).map(|()| k.ty(*a).clone())
            }
            Op::Binary { op, a, b } => {
                use crate::names::BinOp as B;
                self.same(*b, k.ty(*a), "right operand")?;
                let s = self.elem(*a)?;
                let ok = match op {
                    B::Add | B::Sub | B::Mul | B::Div | B::Min | B::Max => s != Scalar::Bool,
                    B::Rem | B::Shl | B::Shr => s.is_int(),
                    B::And | B::Or | B::Xor => s.is_int() || s == Scalar::Bool,
                };
                self.has(ok && !s.is_fp8(), op.name(), s).map(|()| k.ty(*a).clone())
            }
            Op::Fma { a, b, c } => {
                self.same(*b, k.ty(*a), "second factor")?;
                self.same(*c, k.ty(*a), "summand")?;
                let s = self.elem(*a)?;
                self.has(s.is_float() && !s.is_fp8(), "fma", s).map(|()| k.ty(*a).clone())
            }
            Op::Compare { a, b, .. } => {
                self.same(*b, k.ty(*a), "right operand")?;
                let s = self.elem(*a)?;
                self.has(!s.is_fp8(), "compare", s).map(|()| k.ty(*a).with_elem(Scalar::Bool))
            }
            Op::Select { c, a, b } => {
                self.same(*b, k.ty(*a), "second choice")?;
                self.elem(*a)?;
                let c = k.ty(*c);
                if *c == Type::Scalar(Scalar::Bool) || *c == k.ty(*a).with_elem(Scalar::Bool) {
                    Ok(k.ty(*a).clone())
                } else {
                    fail(MISMATCH, format!("condition: expected bool, found {c}"))
                }
            }
            _ => Ok(Type::Unit),
        }
    }

    fn has(&self, ok: bool, op: &str, s: Scalar) -> Result<(), TypeError> {
        // As the text writes them.
        const SIGNS: [(&str, &str); 5] =
            [("rem", "%"), ("shl", "<<"), ("shr", ">>"), ("neg", "-"), ("not", "!")];
        let op = SIGNS.iter().find(|(name, _)| *name == op).map_or(op, |(_, sign)| sign);
        if ok {
            Ok(())
        } else if s.is_fp8() {
            fail_help(
                NO_SUCH_OP,
                format!("there is no `{op}` on {s}"),
                "fp8 is a storage type: convert first, `.to<f32>()`",
            )
        } else {
            fail(NO_SUCH_OP, format!("there is no `{op}` on {s}"))
        }
    }

    fn reshape(&self, op: &Op) -> Rule {
        let (k, given) = (self.k, self.given);
        let shape = |ty: &Type| ty.elem().zip(ty.lanes());
        let Some((to, lanes)) = shape(given) else {
            return fail(MISMATCH, format!("expected a scalar or vector type, found {given}"));
        };
        if lanes == 0 || lanes > MAX_LANES {
            return fail(MISMATCH, format!("a vector has 1 to {MAX_LANES} lanes, not {lanes}"));
        }
        let ok = match op {
            Op::Convert { a } => shape(k.ty(*a)).is_some_and(|(_, n)| n == lanes),
            Op::Bitcast { a } => match shape(k.ty(*a)) {
                Some((s, n)) => s != Scalar::Bool && to != Scalar::Bool && s.bits() * n == to.bits() * lanes,
                None => matches!((k.ty(*a), to, lanes), (Type::Pointer(_), Scalar::I64, 1)),
            },
            Op::Splat { a } => *k.ty(*a) == Type::Scalar(to),
            Op::Slice { a, first } => shape(k.ty(*a))
                .is_some_and(|(s, n)| s == to && first.checked_add(lanes).is_some_and(|e| e <= n)),
            Op::Concat { parts } => {
                let sum = parts.iter().try_fold(0u32, |sum, p| match shape(k.ty(*p)) {
                    Some((s, n)) if s == to => sum.checked_add(n),
                    _ => None,
                });
                sum == Some(lanes)
            }
            _ => false,
        };
        if ok {
            Ok(given.clone())
        } else {
            fail(MISMATCH, format!("{} does not give {given}", op.mnemonic()))
        }
    }

    fn tensor(&self, op: &Op) -> Rule {
        let (k, given) = (self.k, self.given);
        let symmetric = |base: Value, to: Space| match k.ty(base) {
            Type::Tensor(t) if t.space == Space::Symmetric => {
                Ok(Type::Tensor(Arc::new(crate::types::TensorType { space: to, ..(**t).clone() })))
            }
            other => fail_help(
                WRONG_SPACE,
                format!("`{}` needs a symmetric tensor, found {other}", op.mnemonic()),
                "only memory of the symmetric heap (`symm<...>`) exists on every PE",
            ),
        };
        match op {
            Op::Multicast { base, .. } => symmetric(*base, Space::Multicast),
            Op::Peer { base, pe, .. } => {
                self.same(*pe, &Type::Scalar(Scalar::I32), "PE")?;
                symmetric(*base, Space::Peer)
            }
            Op::View { base, .. } => match (k.ty(*base), given) {
                (Type::Tensor(b), Type::Tensor(t)) if b.elem == t.elem && b.space == t.space => {
                    Ok(given.clone())
                }
                (b, t) => fail(MISMATCH, format!("{t} is no view of {b}")),
            },
            _ => match given {
                Type::Tensor(t) if t.space == Space::Shared && t.layout.cosize().as_const().is_some() => {
                    Ok(given.clone())
                }
                other => fail(NOT_STATIC, format!("shared memory needs a static layout, found {other}")),
            },
        }
    }

    fn memory(&self, op: &Op) -> Rule {
        let k = self.k;
        match op {
            Op::Load { place, .. } => {
                let ty = self.place(op, *place, false)?;
                Ok(ty)
            }
            Op::Store { place, value, .. } => self.place_of(op, *place, *value, false).map(|_| Type::Unit),
            Op::LdReduce { place, op: red, acc, .. } => {
                let ty = self.place(op, *place, true)?;
                let s = self.elem_of(&ty)?;
                self.reduction(*red, s)?;
                let wider = acc.is_float() && s.is_float() && acc.bits() > s.bits() && !acc.is_fp8();
                if *acc != s && !wider {
                    return fail_help(
                        NO_SUCH_OP,
                        format!("`{s}` is not accumulated in `{acc}`"),
                        "the accumulator is the element type itself, or a wider float",
                    );
                }
                Ok(ty)
            }
            Op::McStore { place, value, .. } => self.place_of(op, *place, *value, true).map(|_| Type::Unit),
            Op::McRed { place, value, op: red, .. } => {
                let s = self.place_of(op, *place, *value, true)?;
                self.reduction(*red, s).map(|()| Type::Unit)
            }
            Op::Red { place, value, op: red, .. } => {
                let s = self.place_of(op, *place, *value, false)?;
                self.reduction(*red, s).map(|()| Type::Unit)
            }
            Op::Atomic { place, value, op: red, .. } => {
                let s = self.place_of(op, *place, *value, false)?;
                if let Some(red) = red {
                    self.reduction(*red, s)?;
                }
                Ok(k.ty(*value).clone())
            }
            Op::AtomicCas { place, expected, value, .. } => {
                self.place_of(op, *place, *value, false)?;
                self.same(*expected, k.ty(*value), "expected value").map(|()| k.ty(*value).clone())
            }
            _ => Ok(Type::Unit),
        }
    }

    fn elem_of(&self, ty: &Type) -> Result<Scalar, TypeError> {
        ty.elem().map_or_else(|| fail(MISMATCH, format!("expected numbers, found {ty}")), Ok)
    }

    fn place_of(&self, op: &Op, place: Value, value: Value, switch: bool) -> Result<Scalar, TypeError> {
        let want = match self.k.ty(place) {
            Type::Pointer(_) => {
                self.place(op, place, switch)?;
                return self.elem(value);
            }
            _ => self.place(op, place, switch)?,
        };
        self.same(value, &want, "stored value")?;
        self.elem(value)
    }

    /// What a place holds: as many lanes as the tensor has elements; behind a pointer, the type given.
    fn place(&self, op: &Op, place: Value, switch: bool) -> Rule {
        let ty = self.k.ty(place);
        let Some(space) = ty.space() else {
            return fail(MISMATCH, format!("`{}` needs a tensor, found {ty}", op.mnemonic()));
        };
        if (space == Space::Multicast) != switch {
            let (message, help) = if switch {
                ("needs a multicast address", "write `multicast(x, team)` to reach the switch")
            } else {
                ("cannot use a multicast address", "only ld_reduce, st and red may: see docs/multimem.md")
            };
            return fail_help(
                WRONG_SPACE,
                format!("`{}` {message}, found {space} memory", op.mnemonic().trim_start_matches("mc_")),
                help,
            );
        }
        match ty {
            Type::Tensor(t) => match t.layout.size().as_const().and_then(|n| u32::try_from(n).ok()) {
                Some(n) if (1..=MAX_LANES).contains(&n) => Ok(Type::lanes_of(t.elem, n)),
                Some(n) => fail_help(
                    NOT_STATIC,
                    format!("a thread moves 1 to {MAX_LANES} elements at once, not {n}"),
                    "partition the tensor over `threads()` and loop over the steps",
                ),
                None => fail_help(
                    NOT_STATIC,
                    format!("how many elements {} has is known at run time only", t.layout),
                    "partition the tensor over `threads()` and loop over the steps",
                ),
            },
            _ => Ok(self.given.clone()),
        }
    }

    fn reduction(&self, op: RedOp, s: Scalar) -> Result<(), TypeError> {
        let ok = match op {
            RedOp::Add | RedOp::Mul | RedOp::Min | RedOp::Max => s != Scalar::Bool,
            RedOp::And | RedOp::Or | RedOp::Xor => s.is_int() || s == Scalar::Bool,
        };
        if ok { Ok(()) } else { fail(NO_SUCH_OP, format!("there is no reduction `{op}` on {s}")) }
    }
}
