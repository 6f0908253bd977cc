//! In-switch operations without the switch, which are done by accesses to every PE's own address.
//!
//! A reduction reads the PEs in rank order, which is the same on all of them, so that all get the
//! same bits. It converts to the accumulator's type, reduces there (fp8, which has no arithmetic,
//! in f16), and rounds to the element's type once. Ordered accesses are relaxed accesses with a
//! fence.

use super::direct::{Reductions, plain_widths, reject_product};
use super::fragment::Fragment;
use super::moves::{Read, Write};
use super::place::{TensorAddress, elements_on};
use super::{MemoryPass, plain_name};
use crate::edit::{Action, Editor, Emit, nested};
use crate::pointers::{AddressSource, Peers};
use crate::report::Instr;
use weft_ir::builder::Built;
use weft_ir::diag::Span;
use weft_ir::mixed::Type;
use weft_ir::{Access, CmpOp, Int, Memory, Scalar, Sem, TeamRef, Thread, Value, ValueType};

/// The maximum number of a thread's loads in flight. With 16 bytes each and 512 threads per SM,
/// these are 64 KiB, several times what the links need.
const IN_FLIGHT: usize = 8;
/// The maximum number of PEs whose loads are issued together, a power of 2.
const PES_IN_FLIGHT: usize = 8;

/// A place that exists on every PE of a team, and the access to it.
pub(super) struct EveryPe<'a> {
    pub place: &'a TensorAddress,
    pub team: TeamRef,
    pub op: &'a Access,
    /// The number of elements of a whole piece. Smaller pieces are tails, which are rare, so their
    /// code is small rather than fast.
    pub width: u32,
}

impl EveryPe<'_> {
    /// The number of PEs to access together, a power of 2.
    fn together(&self, pieces: usize, lanes: u32) -> usize {
        let tail = lanes < self.width;
        let max = (IN_FLIGHT / pieces.max(1)).clamp(1, PES_IN_FLIGHT);
        if tail { 1 } else { 1 << max.ilog2() }
    }

    /// The addresses of the place, and the number of PEs.
    fn team(&self, m: &mut MemoryPass<'_>, e: &mut Editor) -> Built<(Peers, Int)> {
        let (peers, source) = (m.peers(e, self.place, self.team)?, AddressSource::of(m.options));
        let n = e.prologue(|b| source.n_pes(b, self.team))?;
        Ok((peers, e.b.symbol(n)?))
    }

    fn elem(&self) -> Scalar {
        self.place.ty.elem
    }

    /// The address of the place's first element on PE `pe`.
    fn pointer(&self, e: &mut Editor, peers: Peers, pe: &Int) -> Built<Value> {
        let root = peers.address(&mut e.b, pe)?;
        self.place.pointer(&mut e.b, root)
    }

    /// Emits `body` for every PE: `together` of them at once, half as many of the remaining ones,
    /// and so on.
    fn each_pe(
        &self,
        e: &mut Editor,
        n: &Int,
        together: usize,
        body: &mut dyn FnMut(&mut Editor, &[Int]) -> Built<()>,
    ) -> Built<()> {
        let mut lo = Int::ZERO;
        for step in (0..=together.max(1).ilog2()).rev().map(|halves| 1i64 << halves) {
            let hi = n.floor_div(&Int::from(step)) * step;
            if lo == hi {
                continue;
            }
            let range = [e.b.index(lo)?, e.b.index(hi.clone())?, e.b.i64(step)?];
            lo = hi;
            let var = e.b.loop_var(0, i64::MAX, step);
            let first = e.b.symbol(var)?;
            let pes: Vec<Int> = (0..step).map(|j| &first + j).collect();
            let block = nested(e, |e| body(e, &pes))?;
            e.b.rounds(var, range, 1, block)?;
        }
        Ok(())
    }
}

impl Read for EveryPe<'_> {
    fn read(&self, m: &mut MemoryPass<'_>, e: &mut Editor, pieces: &[(Int, u32)]) -> Built<Vec<Value>> {
        let &Access::LdReduce { op, acc, sem, scope, .. } = self.op else {
            return Err(super::place::no_address(Span::NONE, &Type::Unit));
        };
        let (elem, acc) = (self.elem(), if acc.is_fp8() { Scalar::F16 } else { acc });
        let (peers, n) = self.team(m, e)?;
        let mut sums = Vec::new();
        for (_, lanes) in pieces {
            let ty = Type::lanes_of(acc, *lanes);
            let zero = e.b.zero(&ty)?;
            let sum = e.b.local("reduced", ty);
            e.b.set(sum, zero)?;
            sums.push(sum);
        }
        let load_sem = if sem == Sem::Weak { Sem::Weak } else { Sem::Relaxed };
        let together = self.together(pieces.len(), pieces.first().map_or(1, |(_, lanes)| *lanes));
        self.each_pe(e, &n, together, &mut |e, pes| {
            let mut loaded = Vec::new();
            for pe in pes {
                let pointer = self.pointer(e, peers, pe)?;
                for (at, lanes) in pieces {
                    let ptr = elements_on(&mut e.b, pointer, at, elem)?;
                    let load = Memory::Load { ptr, sem: load_sem, scope };
                    loaded.push(e.b.emit_as(load, Type::lanes_of(elem, *lanes))?);
                }
            }
            // The first PE's values start the reduction.
            let (this, zero) = (e.b.index(pes[0].clone())?, e.b.i64(0)?);
            let first = e.b.compare(CmpOp::Eq, this, zero)?;
            for (piece, sum) in sums.iter().enumerate() {
                let mut total = e.b.get(*sum)?;
                for (j, values) in loaded.chunks(pieces.len()).enumerate() {
                    let value = e.b.convert(values[piece], acc)?;
                    total = match (j, e.b.combine(op, total, value)?) {
                        (0, sum) => e.b.select(first, value, sum)?,
                        (_, sum) => sum,
                    };
                }
                e.b.set(*sum, total)?;
            }
            Ok(())
        })?;
        if sem == Sem::Acquire {
            e.b.emit(Thread::Fence { sem, scope })?;
        }
        let mut out = Vec::new();
        for sum in sums {
            let total = e.b.get(sum)?;
            out.push(e.b.convert(total, elem)?);
        }
        Ok(out)
    }
}

impl Write for EveryPe<'_> {
    fn write(&self, m: &mut MemoryPass<'_>, e: &mut Editor, pieces: &[(Int, Value)]) -> Built<()> {
        let elem = self.elem();
        let (peers, n) = self.team(m, e)?;
        let (sem, scope) = self.op.ordering();
        let relaxed = match sem {
            Sem::Release => {
                e.b.emit(Thread::Fence { sem, scope })?;
                Sem::Relaxed
            }
            sem => sem,
        };
        let lanes = pieces.first().and_then(|(_, value)| e.b.ty(*value).lanes()).unwrap_or(1);
        let together = self.together(pieces.len(), lanes);
        self.each_pe(e, &n, together, &mut |e, pes| {
            // All addresses come first, because they may be loaded from a table.
            let mut pointers = Vec::new();
            for pe in pes {
                pointers.push(self.pointer(e, peers, pe)?);
            }
            for pointer in pointers {
                for (at, value) in pieces {
                    let ptr = elements_on(&mut e.b, pointer, at, elem)?;
                    let (value, sem) = (*value, relaxed);
                    e.b.emit(match self.op.reduction() {
                        Some(op) => Memory::Red { ptr, value, op, sem, scope },
                        None => Memory::Store { ptr, value, sem, scope },
                    })?;
                }
            }
            Ok(())
        })
    }
}

impl MemoryPass<'_> {
    /// Lowers an op of the switch to its unicast form.
    pub(super) fn everywhere(
        &mut self,
        e: &mut Editor,
        v: Value,
        op: &Access,
        at: &TensorAddress,
        team: TeamRef,
        span: Span,
    ) -> Built<Action> {
        reject_product(op, span)?;
        let every = |f: &Fragment| EveryPe { place: at, team, op, width: f.width };
        if let Access::McRed { value, .. } = op {
            let red = Reductions::new(self.options.target, op, at.ty.elem, span)?;
            let f = red.fragment(at, span)?;
            self.note(e, v, &f, red.instrs(&f));
            return self.finish_write(e, &f, *value, &every(&f), None, red.narrowest());
        }
        let f = Fragment::new(at, &plain_widths(at.ty.elem), span)?;
        let bytes = f.width * f.elem.bytes();
        let instr =
            Instr { name: unicast_name(op, bytes, f.elem.bytes()), bytes, count: f.starts.len() as u32 };
        self.note(e, v, &f, vec![instr]);
        match op.value() {
            Some(value) => self.finish_write(e, &f, value, &every(&f), None, 1),
            None => self.finish_read(e, &f, &every(&f), None, 1),
        }
    }
}

/// The name of the unicast form of a load or store of the switch in the report.
pub(super) fn unicast_name(op: &Access, bytes: u32, elem: u32) -> String {
    let (sem, scope) = op.ordering();
    let (verb, ordered) = if op.value().is_none() { ("ld", Sem::Acquire) } else { ("st", Sem::Release) };
    let sem = if sem == ordered { Sem::Relaxed } else { sem };
    plain_name(verb, sem, scope, weft_ir::Space::Peer, bytes, elem)
}
