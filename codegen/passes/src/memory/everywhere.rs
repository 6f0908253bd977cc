//! In-switch operations without the switch: the same meaning by accesses to every PE's own address.
//!
//! A reduction reads the PEs in rank order, the same on all of them, so that all get the same bits; it converts to the
//! accumulator's type, reduces there (fp8, which has no arithmetic, in f16), and rounds to the element's type once.
//! Ordered accesses are relaxed ones and a fence.

use super::direct::plain_widths;
use super::fragment::Fragment;
use super::moves::{Read, Write, nested};
use super::place::{Place, elements_on};
use super::{Memory, peer_address, plain_name};
use crate::edit::{Action, Editor, Emit};
use crate::hidden;
use crate::memory::direct::reject_product;
use crate::memory::switch::{illegal, isa_form};
use crate::report::Instr;
use weft_ir::builder::Built;
use weft_ir::diag::Span;
use weft_ir::{CmpOp, Int, Op, ParamKind, RedOp, Scalar, Scope, Sem, TeamRef, Type, Value};
use weft_isa::Instr as Instruction;

/// Vector registers of loads that may be on their way at once.
const IN_FLIGHT: usize = 16;
/// Most PEs whose loads are issued together.
const PES_IN_FLIGHT: usize = 4;

/// A place on every PE of a team, and what is done there.
pub(super) struct Every<'a> {
    pub place: &'a Place,
    pub team: TeamRef,
    pub op: &'a Op,
}

impl Every<'_> {
    /// The table of addresses, and the number of PEs.
    fn team(&self, m: &mut Memory<'_>, e: &mut Editor) -> Built<(Value, Int)> {
        let table = m.table(e, self.place, self.team)?;
        let index = hidden::param(e.b.kernel_mut(), ParamKind::NPes { team: self.team.0 });
        let n = e.prologue(|b| b.emit(Op::Param { index }))?;
        Ok((table, e.b.symbol(n)?))
    }

    fn elem(&self) -> Scalar {
        self.place.ty.elem
    }

    /// The address of the place's first element on PE `pe`.
    fn pointer(&self, e: &mut Editor, table: Value, pe: &Int) -> Built<Value> {
        let root = peer_address(&mut e.b, table, pe)?;
        self.place.pointer(&mut e.b, root)
    }

    /// `body` for every PE, `together` of them at once.
    fn each_pe(
        &self,
        e: &mut Editor,
        n: &Int,
        together: usize,
        unroll: u32,
        body: &mut dyn FnMut(&mut Editor, &[Int]) -> Built<()>,
    ) -> Built<()> {
        let by = i64::try_from(together).unwrap_or(1);
        let whole = n.floor_div(&Int::from(by)) * by;
        for (lo, hi, step) in [(Int::ZERO, whole.clone(), by), (whole, n.clone(), 1)] {
            if lo == hi {
                continue;
            }
            let range = [e.b.index(lo)?, e.b.index(hi)?, e.b.i64(step)?];
            let var = e.b.loop_var(0, i64::MAX, step);
            let first = e.b.symbol(var)?;
            let pes: Vec<Int> = (0..step).map(|j| &first + j).collect();
            let block = nested(e, |e| body(e, &pes))?;
            e.b.rounds(var, range, unroll, block)?;
        }
        Ok(())
    }
}

impl Read for Every<'_> {
    fn read(&self, m: &mut Memory<'_>, e: &mut Editor, pieces: &[(Int, u32)]) -> Built<Vec<Value>> {
        let &Op::LdReduce { op, acc, sem, scope, .. } = self.op else {
            return Err(super::place::no_address(Span::NONE, &Type::Unit));
        };
        let (elem, acc) = (self.elem(), if acc.is_fp8() { Scalar::F16 } else { acc });
        let (table, n) = self.team(m, e)?;
        let mut sums = Vec::new();
        for (_, lanes) in pieces {
            let ty = Type::lanes_of(acc, *lanes);
            let zero = e.b.zero(&ty)?;
            let sum = e.b.local("reduced", ty);
            e.b.set(sum, zero)?;
            sums.push(sum);
        }
        let load_sem = if sem == Sem::Weak { Sem::Weak } else { Sem::Relaxed };
        let together = (IN_FLIGHT / pieces.len().max(1)).clamp(1, PES_IN_FLIGHT);
        self.each_pe(e, &n, together, 1, &mut |e, pes| {
            let mut loaded = Vec::new();
            for pe in pes {
                let pointer = self.pointer(e, table, pe)?;
                for (at, lanes) in pieces {
                    let place = elements_on(&mut e.b, pointer, at, elem)?;
                    let load = Op::Load { place, sem: load_sem, scope };
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
            e.b.emit(Op::Fence { sem, scope })?;
        }
        let mut out = Vec::new();
        for sum in sums {
            let total = e.b.get(sum)?;
            out.push(e.b.convert(total, elem)?);
        }
        Ok(out)
    }
}

impl Write for Every<'_> {
    fn write(&self, m: &mut Memory<'_>, e: &mut Editor, pieces: &[(Int, Value)]) -> Built<()> {
        let elem = self.elem();
        let (table, n) = self.team(m, e)?;
        let (sem, scope) = order(self.op);
        let relaxed = match sem {
            Sem::Release => {
                e.b.emit(Op::Fence { sem, scope })?;
                Sem::Relaxed
            }
            sem => sem,
        };
        self.each_pe(e, &n, 1, PES_IN_FLIGHT as u32, &mut |e, pes| {
            let pointer = self.pointer(e, table, &pes[0])?;
            for (at, value) in pieces {
                let place = elements_on(&mut e.b, pointer, at, elem)?;
                let (value, sem) = (*value, relaxed);
                match self.op {
                    // A group of elements, where the switch would have reduced them together.
                    Op::McRed { op, .. } => {
                        for lane in 0..e.b.ty(value).lanes().unwrap_or(1) {
                            let place = elements_on(&mut e.b, place, &Int::from(lane), elem)?;
                            let value = e.b.slice(value, lane, 1)?;
                            e.b.emit(Op::Red { place, value, op: *op, sem, scope })?;
                        }
                    }
                    _ => {
                        e.b.emit(Op::Store { place, value, sem, scope })?;
                    }
                }
            }
            Ok(())
        })
    }
}

/// The order an op of the switch asks for.
fn order(op: &Op) -> (Sem, Scope) {
    match op {
        Op::LdReduce { sem, scope, .. } | Op::McStore { sem, scope, .. } | Op::McRed { sem, scope, .. } => {
            (*sem, *scope)
        }
        _ => (Sem::Relaxed, Scope::Sys),
    }
}

impl Memory<'_> {
    /// The unicast form of an op of the switch.
    pub(super) fn everywhere(
        &mut self,
        e: &mut Editor,
        v: Value,
        op: &Op,
        at: &Place,
        team: TeamRef,
        span: Span,
    ) -> Built<Action> {
        reject_product(op, span)?;
        let legal = match op {
            Op::McRed { op: red, sem, scope, .. } => {
                self.red_exists(*red, at.ty.elem, *sem, *scope, span)?;
                vec![1]
            }
            _ => plain_widths(at.ty.elem),
        };
        let f = Fragment::new(at, &legal, span)?;
        let bytes = f.width * f.elem.bytes();
        let instr = Instr { name: unicast_name(op, at.ty.elem, bytes), bytes, count: f.starts.len() as u32 };
        self.note(e, v, &f, vec![instr]);
        let every = Every { place: at, team, op };
        match op {
            Op::McStore { value, .. } | Op::McRed { value, .. } => {
                self.finish_write(e, &f, *value, &every, None, 1)
            }
            _ => self.finish_read(e, &f, &every, None, 1),
        }
    }

    /// Whether memory has a reduction of single elements.
    pub(super) fn red_exists(
        &self,
        op: RedOp,
        elem: Scalar,
        sem: Sem,
        scope: Scope,
        span: Span,
    ) -> Built<()> {
        let form = isa_form(Instruction::GlobalRed, Some(op), elem, sem, scope);
        let widths = weft_isa::widths(&form, self.options.target);
        if widths.iter().any(|w| w.elements == 1) {
            return Ok(());
        }
        Err(illegal(&form, self.options.target, span))
    }
}

/// What stands in the report for the unicast form of an op of the switch.
pub(super) fn unicast_name(op: &Op, elem: Scalar, bytes: u32) -> String {
    let (sem, scope) = order(op);
    let space = weft_ir::Space::Peer;
    match op {
        Op::LdReduce { .. } => {
            let sem = if sem == Sem::Acquire { Sem::Relaxed } else { sem };
            plain_name("ld", sem, scope, space, bytes)
        }
        Op::McRed { op, .. } => format!("red.{sem}.{scope}.global.{op}.{elem}"),
        _ => {
            let sem = if sem == Sem::Release { Sem::Relaxed } else { sem };
            plain_name("st", sem, scope, space, bytes)
        }
    }
}
