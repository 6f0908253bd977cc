//! In-switch operations: loads that reduce over a team, and stores and reductions on all of its
//! members.
//!
//! The rows are the legal combinations of operation, type, vector and accumulator. `ld_reduce`
//! processes the members in the team's order; without `.acc` every step is rounded to the element
//! type.

use super::classes::SCOPE;
use super::reduce::combine;
use super::site::{Address, Issue, Site, issue};
use super::{Class, Family, row};
use crate::check::AccessKind;
use crate::codes;
use crate::exec::access::{Space, from_le, put_le};
use crate::exec::{Context, Fault, Flow, Op, Operation, Reg, Src, access_fault, fault};
use crate::model::lanes;
use crate::num::Combine;
use crate::num::float::Style;
use crate::num::{F16, F32, Format, Rounding};
use crate::order::Order;
use crate::types::Ty;

const GLOBAL: Class = ("ss", &["global"]);
const LD: Class = ("sem", &["weak", "relaxed", "acquire"]);
const ST: Class = ("sem", &["weak", "relaxed", "release"]);
const RED: Class = ("sem", &["relaxed", "release"]);
const SC: Class = ("scope", SCOPE);
const ADD_INT: Class = ("type", &["u32", "s32", "u64"]);
const MINMAX_INT: Class = ("type", &["u32", "s32", "u64", "s64"]);
const BITS: Class = ("type", &["b32", "b64"]);
const ST_INT: Class = ("type", &["b32", "b64", "u32", "u64", "s32", "s64"]);
const OP_MINMAX: Class = ("op", &["min", "max"]);
const OP_BITS: Class = ("op", &["and", "or", "xor"]);
const OP_FLOAT: Class = ("op", &["add", "min", "max"]);
const HALF: Class = ("type", &["f16", "bf16"]);
const PACKED: Class = ("type", &["f16x2", "bf16x2"]);
const FP8: Class = ("type", &["e4m3", "e5m2"]);
const FP8X2: Class = ("type", &["e4m3x2", "e5m2x2"]);
const FP8X4: Class = ("type", &["e4m3x4", "e5m2x4"]);
const V24: Class = ("vec", &["v2", "v4"]);
const V48: Class = ("vec", &["v4", "v8"]);
const V248: Class = ("vec", &["v2", "v4", "v8"]);

pub(super) static FAMILY: Family = Family {
    title: "multimem",
    section: "9.7.9.14",
    rows: &[
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.add.type",
            "d, [a]",
            &[LD, SC, GLOBAL, ADD_INT],
            ld_reduce,
        ),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.op.type",
            "d, [a]",
            &[LD, SC, GLOBAL, OP_MINMAX, MINMAX_INT],
            ld_reduce,
        ),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.op.type",
            "d, [a]",
            &[LD, SC, GLOBAL, OP_BITS, BITS],
            ld_reduce,
        ),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.add{.vec}.f32",
            "d, [a]",
            &[LD, SC, GLOBAL, V24],
            ld_reduce,
        ),
        row("multimem.ld_reduce{.sem}{.scope}{.ss}.add.f64", "d, [a]", &[LD, SC, GLOBAL], ld_reduce),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.op.vec.type",
            "d, [a]",
            &[LD, SC, GLOBAL, OP_FLOAT, V248, HALF],
            ld_reduce,
        ),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.op{.vec}.type",
            "d, [a]",
            &[LD, SC, GLOBAL, OP_FLOAT, V24, PACKED],
            ld_reduce,
        ),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.add.acc::f32.vec.type",
            "d, [a]",
            &[LD, SC, GLOBAL, V248, HALF],
            ld_reduce,
        ),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.add.acc::f32{.vec}.type",
            "d, [a]",
            &[LD, SC, GLOBAL, V24, PACKED],
            ld_reduce,
        ),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.op.vec.type",
            "d, [a]",
            &[LD, SC, GLOBAL, OP_FLOAT, V48, FP8],
            ld_reduce,
        ),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.op.vec.type",
            "d, [a]",
            &[LD, SC, GLOBAL, OP_FLOAT, V248, FP8X2],
            ld_reduce,
        ),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.op{.vec}.type",
            "d, [a]",
            &[LD, SC, GLOBAL, OP_FLOAT, V24, FP8X4],
            ld_reduce,
        ),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.add.acc::f16.vec.type",
            "d, [a]",
            &[LD, SC, GLOBAL, V48, FP8],
            ld_reduce,
        ),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.add.acc::f16.vec.type",
            "d, [a]",
            &[LD, SC, GLOBAL, V248, FP8X2],
            ld_reduce,
        ),
        row(
            "multimem.ld_reduce{.sem}{.scope}{.ss}.add.acc::f16{.vec}.type",
            "d, [a]",
            &[LD, SC, GLOBAL, V24, FP8X4],
            ld_reduce,
        ),
        row("multimem.st{.sem}{.scope}{.ss}.type", "[a], b", &[ST, SC, GLOBAL, ST_INT], store),
        row("multimem.st{.sem}{.scope}{.ss}{.vec}.f32", "[a], b", &[ST, SC, GLOBAL, V24], store),
        row("multimem.st{.sem}{.scope}{.ss}.f64", "[a], b", &[ST, SC, GLOBAL], store),
        row("multimem.st{.sem}{.scope}{.ss}.vec.type", "[a], b", &[ST, SC, GLOBAL, V248, HALF], store),
        row("multimem.st{.sem}{.scope}{.ss}{.vec}.type", "[a], b", &[ST, SC, GLOBAL, V24, PACKED], store),
        row("multimem.st{.sem}{.scope}{.ss}.vec.type", "[a], b", &[ST, SC, GLOBAL, V48, FP8], store),
        row("multimem.st{.sem}{.scope}{.ss}.vec.type", "[a], b", &[ST, SC, GLOBAL, V248, FP8X2], store),
        row("multimem.st{.sem}{.scope}{.ss}{.vec}.type", "[a], b", &[ST, SC, GLOBAL, V24, FP8X4], store),
        row("multimem.red{.sem}{.scope}{.ss}.add.type", "[a], b", &[RED, SC, GLOBAL, ADD_INT], red),
        row(
            "multimem.red{.sem}{.scope}{.ss}.op.type",
            "[a], b",
            &[RED, SC, GLOBAL, OP_MINMAX, MINMAX_INT],
            red,
        ),
        row("multimem.red{.sem}{.scope}{.ss}.op.type", "[a], b", &[RED, SC, GLOBAL, OP_BITS, BITS], red),
        row("multimem.red{.sem}{.scope}{.ss}.add{.vec}.f32", "[a], b", &[RED, SC, GLOBAL, V24], red),
        row("multimem.red{.sem}{.scope}{.ss}.add.f64", "[a], b", &[RED, SC, GLOBAL], red),
        row("multimem.red{.sem}{.scope}{.ss}.add.vec.type", "[a], b", &[RED, SC, GLOBAL, V248, HALF], red),
        row("multimem.red{.sem}{.scope}{.ss}.add{.vec}.type", "[a], b", &[RED, SC, GLOBAL, V24, PACKED], red),
    ],
};

/// The common parts of the three operations.
struct Operand {
    address: Address,
    ty: Ty,
    /// The size of an access in bytes.
    bytes: usize,
    order: Order,
}

/// Returns the element type, its count in a vector, and the address, and checks semantics and
/// scope.
fn place(s: &mut Site<'_, '_, '_>, address: usize) -> Result<(Operand, usize), Issue> {
    let scoped = matches!(s.get("sem"), Some("relaxed" | "acquire" | "release"));
    if scoped != s.has("scope") {
        let help = "give .relaxed, .acquire and .release a scope, and .weak none";
        return issue(
            codes::UNKNOWN_MODIFIER,
            "the semantics of this multimem instruction cannot be combined with its scope",
            help,
        );
    }
    let name = ["type", "f32", "f64"].into_iter().find(|n| s.has(n)).unwrap_or("type");
    let ty = s.ty(name)?;
    let count = s.vec_count();
    let bytes = ty.bytes() * count;
    if !matches!(bytes, 4 | 8 | 16) {
        return issue(
            codes::UNKNOWN_MODIFIER,
            format!("a multimem access has {bytes} bytes"),
            "use a type and vector of 4, 8 or 16 bytes",
        );
    }
    let (address, space) = s.address(address, s.space())?;
    if !matches!(space, Space::Global | Space::Generic) {
        return issue(codes::BAD_OPERANDS, "multimem instructions need global addresses", "");
    }
    Ok((Operand { address, ty, bytes, order: s.order() }, count))
}

impl Operand {
    /// Team and heap offset of each active lane's access.
    fn locate(&self, cx: &Context<'_>, lane: usize, addr: u64) -> Result<(usize, usize), Fault> {
        let found =
            cx.memory.multicast(cx.at.pe, addr, self.bytes as u64).map_err(|e| access_fault(lane, e))?;
        if !addr.is_multiple_of(self.bytes as u64) {
            let place = cx.memory.describe(cx.at.pe, addr);
            let message = format!("the multimem access of {} bytes at {place} is not aligned", self.bytes);
            return Err(fault(
                codes::MISALIGNED,
                lane,
                message,
                "align the address to the size of the whole vector",
            ));
        }
        Ok(found)
    }

    /// The bits of an element of the access, and the number of elements.
    fn elements(&self) -> (u32, usize) {
        (self.ty.bits, self.bytes * 8 / self.ty.bits as usize)
    }
}

/// Element `i` of `bits` bits.
#[inline]
fn element(data: &[u8], bits: u32, i: usize) -> u64 {
    let n = bits as usize / 8;
    from_le(&data[i * n..(i + 1) * n])
}

#[inline]
fn set_element(data: &mut [u8], bits: u32, i: usize, v: u64) {
    let n = bits as usize / 8;
    put_le(&mut data[i * n..(i + 1) * n], v);
}

/// Accumulation in a wider format: conversions in and out around its sum.
struct Wide {
    element: Format,
    accumulator: Style,
}

impl Wide {
    fn enter(&self, v: u64) -> u64 {
        self.accumulator.format.encode(self.element.decode(v), Rounding::Nearest, false)
    }
    fn leave(&self, v: u64) -> u64 {
        self.element.encode(self.accumulator.format.decode(v), Rounding::Nearest, false)
    }
}

struct LdReduce {
    place: Operand,
    dst: Vec<Reg>,
    combine: Combine,
    wide: Option<Wide>,
}

fn ld_reduce(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (place, count) = place(s, 1)?;
    let dst = s.vector_dst(0, count, place.ty, false)?.into_iter().map(|d| d.0).collect();
    let op = s.get("op").unwrap_or("add");
    let accumulator = if s.has("acc::f32") {
        Some(F32)
    } else if s.has("acc::f16") {
        Some(F16)
    } else {
        None
    };
    let wide = match (accumulator, place.ty.format()) {
        (Some(a), Some(element)) => Some(Wide { element, accumulator: Style::new(a) }),
        _ => None,
    };
    let combine = combine(op, place.ty)?;
    Ok(Box::new(LdReduce { place, dst, combine, wide }))
}

impl Operation for LdReduce {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let addresses = self.place.address.lanes(cx);
        cx.watch_multicast(&addresses, self.place.bytes, AccessKind::Read, self.place.order);
        let (bits, count) = self.place.elements();
        let n = self.place.bytes;
        for lane in lanes(cx.active) {
            let (team, at) = self.place.locate(cx, lane, addresses[lane])?;
            cx.land_members(team, at, n);
            let memory = &*cx.memory;
            let mut members =
                memory.teams[team].members.iter().map(|&pe| &memory.buffers[2 * pe + 1][at..at + n]);
            let mut sums = [0; 16];
            for (i, sum) in sums.iter_mut().enumerate().take(count) {
                let v = members.clone().next().map_or(0, |m| element(m, bits, i));
                *sum = self.wide.as_ref().map_or(v, |w| w.enter(v));
            }
            members.next();
            for m in members {
                for (i, sum) in sums.iter_mut().enumerate().take(count) {
                    let v = element(m, bits, i);
                    *sum = match &self.wide {
                        None => (self.combine)(*sum, v),
                        Some(w) => w.accumulator.add(*sum, w.enter(v)),
                    };
                }
            }
            let mut out = [0; 16];
            for (i, &sum) in sums.iter().enumerate().take(count) {
                set_element(&mut out, bits, i, self.wide.as_ref().map_or(sum, |w| w.leave(sum)));
            }
            for (d, piece) in self.dst.iter().zip(out.chunks_exact(self.place.ty.bytes())) {
                cx.reg(*d)[lane] = from_le(piece);
            }
            cx.switch(team).ld_reduce += n as u64;
        }
        Ok(Flow::Next)
    }
}

impl Context<'_> {
    /// Makes pending stores visible, as far as the CTA sees them, before the switch reads the
    /// copies of all members.
    fn land_members(&mut self, team: usize, at: usize, len: usize) {
        if self.memory.delayed.under_way == 0 {
            return;
        }
        for i in 0..self.memory.teams[team].members.len() {
            let spot = self.memory.heap(self.memory.teams[team].members[i], at as u64);
            self.memory.land_at(self.accessor(), spot, len);
        }
    }
}

/// A store on every member, or with `combine` a reduction.
struct Update {
    place: Operand,
    src: Vec<Src>,
    combine: Option<Combine>,
}

fn update(s: &mut Site<'_, '_, '_>, reduces: bool) -> Result<Op, Issue> {
    let (mut place, count) = place(s, 0)?;
    if reduces {
        place.order = s.atomic_order();
    }
    let src = s.vector_src(1, count, place.ty, false)?;
    let combine = if reduces { Some(combine(s.get("op").unwrap_or("add"), place.ty)?) } else { None };
    Ok(Box::new(Update { place, src, combine }))
}

fn store(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    update(s, false)
}

fn red(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    update(s, true)
}

impl Operation for Update {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let addresses = self.place.address.lanes(cx);
        let kind = if self.combine.is_some() { AccessKind::Update } else { AccessKind::Write };
        cx.watch_multicast(&addresses, self.place.bytes, kind, self.place.order);
        if let Some(scope) = self.place.order.strong.filter(|_| self.place.order.release) {
            cx.publish(scope);
        }
        let (bits, count) = self.place.elements();
        let delayable =
            self.combine.is_none() && !self.place.order.release && !cx.releases(&self.place.order);
        let (n, register) = (self.place.bytes, self.place.ty.bytes());
        for lane in lanes(cx.active) {
            let (team, at) = self.place.locate(cx, lane, addresses[lane])?;
            let mut data = [0; 16];
            for (src, piece) in self.src.iter().zip(data.chunks_exact_mut(register)) {
                put_le(piece, cx.src(*src)[lane]);
            }
            for i in 0..cx.memory.teams[team].members.len() {
                let pe = cx.memory.teams[team].members[i];
                cx.remote.wire.order(cx.memory, cx.at.pe, pe);
            }
            let by = cx.accessor();
            let memory = &mut *cx.memory;
            for i in 0..memory.teams[team].members.len() {
                let pe = memory.teams[team].members[i];
                let spot = memory.heap(pe, at as u64);
                // A store arrives at each member at a different time.
                if delayable && memory.delay(by, pe, spot, &data[..n]) {
                    continue;
                }
                memory.land_at(by, spot, n);
                memory.mark_written(2 * pe + 1, at, n);
                let target = &mut memory.buffers[2 * pe + 1][at..at + n];
                let mut new = data;
                if let Some(f) = &self.combine {
                    for i in 0..count {
                        set_element(&mut new, bits, i, f(element(target, bits, i), element(&data, bits, i)));
                    }
                }
                if *target != new[..n] {
                    target.copy_from_slice(&new[..n]);
                    memory.changes += 1;
                }
            }
            let counter = cx.switch(team);
            *(if self.combine.is_some() { &mut counter.red } else { &mut counter.st }) += n as u64;
        }
        Ok(Flow::Next)
    }
}
