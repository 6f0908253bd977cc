//! Copies of consecutive bytes between shared memory and other memory. Each is one instruction that
//! thread 0 issues.

use super::place::{Route, TensorAddress, elements_on, found};
use super::tile::ctas;
use super::{Lowering, MemoryPass};
use crate::codes::BAD_RUN;
use crate::edit::{Action, Editor, Emit};
use crate::pipeline::by_first;
use crate::pointers::{AddressSource, Peers};
use crate::teams::linear;
use crate::tiles::{Bulk, Fact};
use weft_ir::builder::{Built, aligned};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::{Builder, Type};
use weft_ir::{
    Address, Async, Bridge, Int, Memory, RedOp, Scalar, Scope, Sem, Sreg, TeamRef, TensorType, Tile, Value,
};
use weft_isa::{Choice, Instr};

/// Addresses and sizes are multiples of this number of bytes (PTX ISA, cp.async.bulk).
const UNIT: u32 = 16;

impl MemoryPass<'_> {
    /// Lowers a copy of consecutive bytes.
    pub(super) fn bulk(&mut self, e: &mut Editor, op: &Tile, span: Span) -> Built<Action> {
        let (inside, outside) = match op {
            Tile::BulkLoad { dst, src, .. } => (dst, src),
            Tile::BulkStore { dst, src, .. } => (src, dst),
            _ => return Ok(Action::Keep),
        };
        let k = e.b.kernel();
        let inside = found(self.places.get(inside), k, *inside, span)?.clone();
        let outside = found(self.places.get(outside), k, *outside, span)?.clone();
        let bytes = self.bytes(&inside, &outside, span)?;
        let shared = e.b.emit(Bridge::AddressOf { base: inside.root })?;
        let shared = inside.pointer(&mut e.b, shared)?;
        let elem = inside.ty.elem;
        match *op {
            Tile::BulkLoad { pipe, dims, .. } => {
                let ctas = ctas(e, dims)?;
                self.report_copy(e, span, (bytes, false), &weft_isa::bulk_load(ctas.is_some()));
                let src = self.first(e, &outside)?;
                let load = Async::BulkLoad { dst: shared, src, bytes, mbar: pipe, ctas };
                by_first(&mut e.b, |b| b.emit(load).map(drop))?;
            }
            Tile::BulkStore { op, pipe: Some(full), .. } => {
                self.report_copy(e, span, (bytes, true), &choice(op, elem, "shared::cluster"));
                let (dst, mbar) = (self.first(e, &outside)?, self.there(e, &outside, full)?);
                let store = Async::BulkStore { dst, src: shared, bytes, elem, op, mbar: Some(mbar) };
                by_first(&mut e.b, |b| b.emit(store).map(drop))?;
            }
            Tile::BulkStore { op, pipe: None, .. } => {
                self.store_bulk(e, &outside, (shared, bytes, op), span)?;
            }
            _ => {}
        }
        Ok(Action::Drop)
    }

    /// Copies to global memory. A copy to all PEs of a team goes through the switch, or to the
    /// address of each PE.
    fn store_bulk(
        &mut self,
        e: &mut Editor,
        to: &TensorAddress,
        (src, bytes, op): (Value, u32, Option<RedOp>),
        span: Span,
    ) -> Built<()> {
        let elem = to.ty.elem;
        match (to.route, self.options.lowering) {
            (Route::Everywhere(team), Lowering::Unicast) => match op {
                Some(op) => {
                    self.report_bytes(
                        e,
                        span,
                        (bytes, true),
                        "red.relaxed.sys of each element, by the threads".into(),
                    );
                    self.reduce_each(e, to, team, (src, bytes / elem.bytes(), op))
                }
                None => {
                    self.report_copy(e, span, (bytes, true), &choice(op, elem, "global"));
                    self.store_each(e, to, team, (src, bytes))
                }
            },
            (route, _) => {
                match route {
                    Route::Everywhere(_) => {
                        let instr = if op.is_some() { Instr::CpReduceBulk } else { Instr::CpBulk };
                        self.report_bytes(e, span, (bytes, true), instr.name().to_owned());
                    }
                    _ => self.report_copy(e, span, (bytes, true), &choice(op, elem, "global")),
                }
                let dst = self.first(e, to)?;
                let store = Async::BulkStore { dst, src, bytes, elem, op, mbar: None };
                by_first(&mut e.b, |b| {
                    b.emit(store)?;
                    b.emit(Async::BulkCommit {}).map(drop)
                })
            }
        }
    }

    /// Copies to each PE of a team.
    fn store_each(
        &mut self,
        e: &mut Editor,
        to: &TensorAddress,
        team: TeamRef,
        (src, bytes): (Value, u32),
    ) -> Built<()> {
        let (peers, n) = self.members(e, to, team)?;
        let elem = to.ty.elem;
        by_first(&mut e.b, |b| {
            each(b, n, |b, pe| {
                let root = peers.address(b, pe)?;
                let dst = to.pointer(b, root)?;
                b.emit(Async::BulkStore { dst, src, bytes, elem, op: None, mbar: None }).map(drop)
            })?;
            b.emit(Async::BulkCommit {}).map(drop)
        })
    }

    /// Reduces elements into the memory of each PE of a team. All PEs can do so at the same time,
    /// and a bulk reduction is atomic only among the threads of one GPU (PTX ISA,
    /// cp.reduce.async.bulk). Therefore the threads reduce the elements.
    fn reduce_each(
        &mut self,
        e: &mut Editor,
        to: &TensorAddress,
        team: TeamRef,
        (src, elements, op): (Value, u32, RedOp),
    ) -> Built<()> {
        let (peers, n) = self.members(e, to, team)?;
        let elem = to.ty.elem;
        let b = &mut e.b;
        let thread = linear(b, Sreg::ThreadIdx)?;
        let range = [b.index(thread)?, b.i64(elements.into())?, b.i64(b.kernel().threads().into())?];
        let at = b.loop_var(0, i64::from(elements), 1);
        let body = b.nested(|b| {
            let at = b.symbol(at)?;
            let from = elements_on(b, src, &at, elem)?;
            let load = Memory::Load { ptr: from, sem: Sem::Weak, scope: Scope::Cta };
            let value = b.emit_as(load, Type::Scalar(elem))?;
            each(b, n, |b, pe| {
                let root = peers.address(b, pe)?;
                let first = to.pointer(b, root)?;
                let ptr = elements_on(b, first, &at, elem)?;
                let red = Memory::Red { ptr, value, op, sem: Sem::Relaxed, scope: Scope::Sys };
                b.emit(red).map(drop)
            })
        })?;
        b.rounds(at, range, 1, body)?;
        // An empty group is committed, because waits count groups and the other lowerings have a
        // group here.
        by_first(b, |b| b.emit(Async::BulkCommit {}).map(drop))
    }

    /// The addresses of a root on the PEs of a team, and their number.
    fn members(&mut self, e: &mut Editor, to: &TensorAddress, team: TeamRef) -> Built<(Peers, Value)> {
        let (peers, source) = (self.peers(e, to, team)?, AddressSource::of(self.options));
        Ok((peers, e.prologue(|b| source.n_pes(b, team))?))
    }

    /// The address of a barrier of this CTA's layout in another CTA.
    fn there(&mut self, e: &mut Editor, at: &TensorAddress, barrier: Value) -> Built<Value> {
        match at.cta {
            Some(cta) => e.b.emit(Address::InCta { ptr: barrier, cta }),
            None => Ok(barrier),
        }
    }

    fn report_copy(&mut self, e: &Editor, span: Span, what: (u32, bool), choice: &Option<Choice>) {
        let name = choice.as_ref().map_or_else(String::new, ToString::to_string);
        self.report_bytes(e, span, what, name);
    }

    fn report_bytes(&mut self, e: &Editor, span: Span, (bytes, out): (u32, bool), instr: String) {
        self.report.tile(&e.b.kernel().name, span, Fact::Bulk(Bulk { instr, bytes, out }));
    }

    /// The size of a copy in bytes, which must be possible for one instruction.
    fn bytes(&self, inside: &TensorAddress, outside: &TensorAddress, span: Span) -> Built<u32> {
        let bad = |why: String, help: &str| Diagnostic::error(BAD_RUN, span, why).help(help);
        let elements = consecutive(&inside.ty, &outside.ty).map_err(|why| {
            bad(why, "use a tile whose elements are contiguous in memory, or copy it with `tma`")
        })?;
        let bytes = elements.saturating_mul(inside.ty.elem.bytes());
        if bytes == 0 || !bytes.is_multiple_of(UNIT) {
            let why = format!("a bulk copy cannot move {bytes} bytes");
            return Err(bad(why, "it must move a multiple of 16 bytes: copy more elements, or fewer"));
        }
        for place in [inside, outside] {
            let has = aligned(place.root_align(), &place.offset, place.ty.elem.bytes()).max(place.align);
            if has < UNIT {
                let why = format!("one side of a bulk copy begins at a multiple of {has} bytes");
                let help = format!("both sides must begin at multiples of 16 bytes, but {}", place.limit());
                return Err(bad(why, &help));
            }
        }
        Ok(bytes)
    }
}

/// Emits `body` for each of `n` PEs.
fn each(b: &mut Builder, n: Value, body: impl FnOnce(&mut Builder, &Int) -> Built<()>) -> Built<()> {
    let range = [b.i64(0)?, b.convert(n, Scalar::I64)?, b.i64(1)?];
    let pe = b.loop_var(0, i64::from(i32::MAX), 1);
    let body = b.nested(|b| {
        let pe = b.symbol(pe)?;
        body(b, &pe)
    })?;
    b.rounds(pe, range, 1, body).map(drop)
}

/// The number of elements of a copy. The elements must be contiguous in both tensors, in the same
/// order. A tensor of one mode provides or receives the bytes of shared memory in the order in
/// which they lie there.
fn consecutive(inside: &TensorType, outside: &TensorType) -> Result<u32, String> {
    let bad = |x: weft_layout::LayoutError| x.to_string();
    let size = inside.layout.size();
    let dense = |t: &TensorType| t.layout.cosize() == size;
    let elements = size.as_const().and_then(|n| u32::try_from(n).ok());
    let elements = elements.ok_or("its size is not known when the kernel is compiled")?;
    for t in [inside, outside] {
        if !dense(t) {
            return Err(format!("the elements of {} are not contiguous in memory", t.layout));
        }
    }
    if outside.layout.coalesce().map_err(bad)?.stride().leaves().as_slice() == [&Int::from(1)] {
        return Ok(elements);
    }
    if inside.swizzle.is_some() {
        return Err(format!(
            "the tile in shared memory is swizzled, but {} has several modes: only a tensor of one mode \
             can be copied in the order of the bytes",
            outside.layout
        ));
    }
    let common = inside.layout.max_common_vector(&outside.layout).map_err(bad)?;
    match common == size {
        true => Ok(elements),
        false => {
            Err(format!("the elements of {} and {} are in different orders", inside.layout, outside.layout))
        }
    }
}

/// The instruction that copies out of shared memory, or reduces.
fn choice(op: Option<RedOp>, elem: Scalar, to: &str) -> Option<Choice> {
    match op {
        Some(op) => weft_isa::bulk_reduction(elem.name(), op.name(), to),
        None => weft_isa::bulk_store(to),
    }
}
