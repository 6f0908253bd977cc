//! Atomic operations and reductions on one PE's memory.

use super::classes::SCOPE;
use super::reduce::{combine_global, combine_shared};
use super::site::{Address, Issue, Site, issue};
use super::{Class, Family, row};
use crate::check::AccessKind;
use crate::codes;
use crate::exec::access::{Space, from_le, put_le};
use crate::exec::{Context, Fault, Flow, Op, Operation, Reg, Src};
use crate::memory::Window;
use crate::model::lanes;
use crate::num::Combine;
use crate::num::mask;
use crate::order::Order;

const SPACE: Class = ("ss", &["global", "shared", "shared::cta", "shared::cluster"]);
const GLOBAL: Class = ("ss", &["global"]);
const SEM: Class = ("sem", &["relaxed", "acquire", "release", "acq_rel"]);
const RED_SEM: Class = ("sem", &["relaxed", "release"]);
const SC: Class = ("scope", SCOPE);
const ADD: Class = ("type", &["u32", "u64", "s32", "f32", "f64"]);
const MINMAX: Class = ("type", &["u32", "u64", "s32", "s64"]);
const BITS: Class = ("type", &["b32", "b64"]);
const HALF: Class = ("type", &["f16", "f16x2", "bf16", "bf16x2"]);
const HALF_VEC: Class = ("type", &["f16", "bf16"]);
const PACKED: Class = ("type", &["f16x2", "bf16x2"]);
const OP_MINMAX: Class = ("op", &["min", "max"]);
const OP_BITS: Class = ("op", &["and", "or", "xor"]);
const OP_WRAP: Class = ("op", &["inc", "dec"]);
const OP_FLOAT: Class = ("op", &["add", "min", "max"]);
const V248: Class = ("vec", &["v2", "v4", "v8"]);
const V24: Class = ("vec", &["v2", "v4"]);

pub(super) static FAMILY: Family = Family {
    title: "Atomics and reductions",
    section: "9.7.13.5, 9.7.13.6",
    rows: &[
        row(
            "atom{.sem}{.scope}{.ss}.add{.L2::cache_hint}.type",
            "d, [a], b{, policy}",
            &[SEM, SC, SPACE, ADD],
            atom,
        ),
        row(
            "atom{.sem}{.scope}{.ss}.op{.L2::cache_hint}.type",
            "d, [a], b{, policy}",
            &[SEM, SC, SPACE, OP_MINMAX, MINMAX],
            atom,
        ),
        row(
            "atom{.sem}{.scope}{.ss}.op{.L2::cache_hint}.type",
            "d, [a], b{, policy}",
            &[SEM, SC, SPACE, OP_BITS, BITS],
            atom,
        ),
        row(
            "atom{.sem}{.scope}{.ss}.op{.L2::cache_hint}.u32",
            "d, [a], b{, policy}",
            &[SEM, SC, SPACE, OP_WRAP],
            atom,
        ),
        row(
            "atom{.sem}{.scope}{.ss}.exch{.L2::cache_hint}.type",
            "d, [a], b{, policy}",
            &[SEM, SC, SPACE, ("type", &["b32", "b64"])],
            atom,
        ),
        row(
            "atom{.sem}{.scope}{.ss}.cas.type",
            "d, [a], b, c",
            &[SEM, SC, SPACE, ("type", &["b16", "b32", "b64"])],
            atom,
        ),
        row(
            "atom{.sem}{.scope}{.ss}.add.noftz{.L2::cache_hint}.type",
            "d, [a], b{, policy}",
            &[SEM, SC, SPACE, HALF],
            atom,
        ),
        row(
            "atom{.sem}{.scope}{.ss}.add{.L2::cache_hint}.vec.f32",
            "d, [a], b{, policy}",
            &[SEM, SC, GLOBAL, V24],
            atom,
        ),
        row(
            "atom{.sem}{.scope}{.ss}.op.noftz{.L2::cache_hint}.vec.type",
            "d, [a], b{, policy}",
            &[SEM, SC, GLOBAL, OP_FLOAT, V248, HALF_VEC],
            atom,
        ),
        row(
            "atom{.sem}{.scope}{.ss}.op.noftz{.L2::cache_hint}.vec.type",
            "d, [a], b{, policy}",
            &[SEM, SC, GLOBAL, OP_FLOAT, V24, PACKED],
            atom,
        ),
        row(
            "red{.sem}{.scope}{.ss}.add{.L2::cache_hint}.type",
            "[a], b{, policy}",
            &[RED_SEM, SC, SPACE, ADD],
            red,
        ),
        row(
            "red{.sem}{.scope}{.ss}.op{.L2::cache_hint}.type",
            "[a], b{, policy}",
            &[RED_SEM, SC, SPACE, OP_MINMAX, MINMAX],
            red,
        ),
        row(
            "red{.sem}{.scope}{.ss}.op{.L2::cache_hint}.type",
            "[a], b{, policy}",
            &[RED_SEM, SC, SPACE, OP_BITS, BITS],
            red,
        ),
        row(
            "red{.sem}{.scope}{.ss}.op{.L2::cache_hint}.u32",
            "[a], b{, policy}",
            &[RED_SEM, SC, SPACE, OP_WRAP],
            red,
        ),
        row(
            "red{.sem}{.scope}{.ss}.add.noftz{.L2::cache_hint}.type",
            "[a], b{, policy}",
            &[RED_SEM, SC, SPACE, HALF],
            red,
        ),
        row(
            "red{.sem}{.scope}{.ss}.add{.L2::cache_hint}.vec.f32",
            "[a], b{, policy}",
            &[RED_SEM, SC, GLOBAL, V24],
            red,
        ),
        row(
            "red{.sem}{.scope}{.ss}.op.noftz{.L2::cache_hint}.vec.type",
            "[a], b{, policy}",
            &[RED_SEM, SC, GLOBAL, OP_FLOAT, V248, HALF_VEC],
            red,
        ),
        row(
            "red{.sem}{.scope}{.ss}.op.noftz{.L2::cache_hint}.vec.type",
            "[a], b{, policy}",
            &[RED_SEM, SC, GLOBAL, OP_FLOAT, V24, PACKED],
            red,
        ),
    ],
};

/// The new value, as a function of the old value and the operands.
enum Update {
    Combine { shared: Combine, global: Combine },
    CompareAndSwap { new: Src },
}

struct Atomic {
    space: Space,
    address: Address,
    /// The bits of an element; a register holds several elements of a packed type.
    element: u32,
    register: usize,
    bytes: usize,
    dst: Vec<Reg>,
    src: Vec<Src>,
    update: Update,
    order: Order,
}

fn atom(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    build(s, 1)
}

fn red(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    build(s, 0)
}

/// Builds the operation. The operands begin with the address at `first`; the destination, if any,
/// is before it.
fn build(s: &mut Site<'_, '_, '_>, first: usize) -> Result<Op, Issue> {
    let name = ["type", "u32", "f32"].into_iter().find(|n| s.has(n)).unwrap_or("type");
    let ty = s.ty(name)?;
    let count = s.vec_count();
    let bytes = ty.bytes() * count;
    if bytes > 16 {
        return issue(codes::UNKNOWN_MODIFIER, "a vector atomic updates at most 16 bytes", "");
    }
    let (address, space) = s.address(first, s.space())?;
    if space.is_shared() && s.has("L2::cache_hint") {
        return issue(codes::UNKNOWN_MODIFIER, "`.L2::cache_hint` applies to global addresses", "");
    }
    let dst = match first {
        0 => Vec::new(),
        _ => s.vector_dst(0, count, ty, false)?.into_iter().map(|d| d.0).collect(),
    };
    let src = s.vector_src(first + 1, count, ty, false)?;
    let update = if s.has("cas") {
        Update::CompareAndSwap { new: s.src(first + 2, ty)? }
    } else {
        s.cache_hint(first + 2)?;
        let op = ["op", "add", "exch"].into_iter().find_map(|n| s.get(n)).unwrap_or("");
        Update::Combine { shared: combine_shared(op, ty)?, global: combine_global(op, ty)? }
    };
    let order = s.atomic_order();
    Ok(Box::new(Atomic {
        space,
        address,
        element: ty.bits,
        register: ty.bytes(),
        bytes,
        dst,
        src,
        update,
        order,
    }))
}

impl Atomic {
    /// Returns the new bits of a register-sized piece.
    fn apply(&self, space: Space, old: u64, operand: u64, new: u64) -> u64 {
        match &self.update {
            Update::CompareAndSwap { .. } => {
                if old == operand {
                    new
                } else {
                    old
                }
            }
            Update::Combine { shared, global } => {
                let f = if space.is_shared() { shared } else { global };
                let m = mask(self.element);
                (0..self.register as u32 * 8 / self.element)
                    .map(|i| i * self.element)
                    .fold(0, |d, at| d | f(old >> at & m, operand >> at & m) << at)
            }
        }
    }
}

impl Operation for Atomic {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let addresses = self.address.lanes(cx);
        cx.watch(self.space, &addresses, self.bytes, AccessKind::Update, self.order);
        if let Some(scope) = self.order.strong.filter(|_| self.order.release) {
            cx.publish(scope);
        }
        let changes = cx.memory.changes;
        let mut w = Window::empty();
        let (mut old, mut new) = ([0; 16], [0; 16]);
        let mut first_old = None;
        for lane in lanes(cx.active) {
            let (space, addr) = cx.locate(self.space, addresses[lane], self.bytes, lane)?;
            let (old, new) = (&mut old[..self.bytes], &mut new[..self.bytes]);
            cx.land_own(space, addr, self.bytes, lane, &mut w)?;
            cx.read(space, addr, old, lane, &mut w)?;
            if self.dst.is_empty() && space == Space::Global {
                cx.memory.uncount_load(w.owner, cx.at.pe, self.bytes);
            }
            let swap = match self.update {
                Update::CompareAndSwap { new } => cx.src(new)[lane],
                Update::Combine { .. } => 0,
            };
            let pieces = old.chunks_exact(self.register).zip(new.chunks_exact_mut(self.register));
            for (i, (old, new)) in pieces.enumerate() {
                let before = from_le(old);
                let after = self.apply(space, before, cx.src(self.src[i])[lane], swap);
                put_le(new, after);
                first_old.get_or_insert(before);
                if let Some(d) = self.dst.get(i) {
                    cx.reg(*d)[lane] = before;
                }
            }
            cx.write(space, addr, new, lane, &mut w)?;
        }
        let first = cx.active.trailing_zeros() as usize;
        let repeated = cx.note_read(self.space, addresses[first], first_old.unwrap_or(0), self.register);
        // An atomic that changes nothing and reads the same value as before is a spin.
        Ok(if repeated && cx.memory.changes == changes { Flow::Yield } else { Flow::Next })
    }
}
