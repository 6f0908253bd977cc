//! Signals, and waits for symmetric variables.

use super::table::{Family, Param, Size, WAIT, row};
use super::{Call, Step, Waiting};
use crate::check::AccessKind;
use crate::exec::Fault;
use crate::exec::access::{Space, from_le};
use crate::exec::remote::CMP;
use crate::exec::remote::notes::Completed;
use crate::exec::remote::wire::Change;
use crate::types::Ty;

const IVARS: Param = ("ivars", Size::Long);
const COUNT: Param = ("count", Size::Long);
const INDICES: Param = ("indices", Size::Long);
const STATUS: Param = ("status", Size::Long);
const COMPARISON: Param = ("cmp", Size::Int);
const VALUE: Param = ("value", Size::Value);
const VALUES: Param = ("values", Size::Long);

pub(super) static SIGNALS: Family = Family {
    title: "Signals",
    meaning: "A signal is a symmetric `uint64_t`. `signal_op` is 9 (set) or 10 (add).",
    rows: &[
        row(
            "signal_op",
            &[("signal", Size::Long), ("value", Size::Long), ("signal_op", Size::Int), ("pe", Size::Int)],
            signal_op,
        )
        .thread()
        .extension(),
        row("signal_fetch", &[("signal", Size::Long)], fetch).thread().returns(Size::Long),
        row("signal_wait_until", &[("signal", Size::Long), COMPARISON, ("value", Size::Long)], |c| {
            let [signal, cmp, value, ..] = c.args;
            let set =
                Set { ivars: signal, count: 1, status: 0, cmp, values: Values::One(value), ty: Ty::B64 };
            match set.all(c, true)? {
                Step::Done(_) => fetch(c),
                wait => Ok(wait),
            }
        })
        .thread()
        .returns(Size::Long),
    ],
};

pub(super) static WAITS: Family = Family {
    title: "Waiting and testing",
    meaning: "These functions work on the caller's own symmetric variables. `cmp` is 0 (=), 1 (!=), 2 (>), 3 (<=),\n\
              4 (<) or 5 (>=). Elements whose `status` is not 0 are left out, and `status` can be null. If several\n\
              elements compare true, `any` returns the first one after a position that advances with every call.",
    rows: &[
        row("{T}_wait_until", &[("ivar", Size::Long), COMPARISON, VALUE], |c| {
            let [ivar, cmp, value, ..] = c.args;
            Set::single(c, ivar, cmp, value).all(c, true)
        })
        .types(WAIT)
        .thread(),
        row("{T}_wait_until_all", &[IVARS, COUNT, STATUS, COMPARISON, VALUE], |c| {
            Set::plain(c, false).all(c, true)
        })
        .types(WAIT)
        .thread(),
        row("{T}_wait_until_any", &[IVARS, COUNT, STATUS, COMPARISON, VALUE], |c| {
            Set::plain(c, false).any(c, true)
        })
        .types(WAIT)
        .thread()
        .returns(Size::Long),
        row("{T}_wait_until_some", &[IVARS, COUNT, INDICES, STATUS, COMPARISON, VALUE], |c| {
            Set::indexed(c, false).some(c, true)
        })
        .types(WAIT)
        .thread()
        .returns(Size::Long),
        row("{T}_wait_until_all_vector", &[IVARS, COUNT, STATUS, COMPARISON, VALUES], |c| {
            Set::plain(c, true).all(c, true)
        })
        .types(WAIT)
        .thread(),
        row("{T}_wait_until_any_vector", &[IVARS, COUNT, STATUS, COMPARISON, VALUES], |c| {
            Set::plain(c, true).any(c, true)
        })
        .types(WAIT)
        .thread()
        .returns(Size::Long),
        row("{T}_wait_until_some_vector", &[IVARS, COUNT, INDICES, STATUS, COMPARISON, VALUES], |c| {
            Set::indexed(c, true).some(c, true)
        })
        .types(WAIT)
        .thread()
        .returns(Size::Long),
        row("{T}_test", &[("ivar", Size::Long), COMPARISON, VALUE], |c| {
            let [ivar, cmp, value, ..] = c.args;
            Set::single(c, ivar, cmp, value).all(c, false)
        })
        .types(WAIT)
        .thread()
        .returns(Size::Int),
        row("{T}_test_all", &[IVARS, COUNT, STATUS, COMPARISON, VALUE], |c| {
            Set::plain(c, false).all(c, false)
        })
        .types(WAIT)
        .thread()
        .returns(Size::Int),
        row("{T}_test_any", &[IVARS, COUNT, STATUS, COMPARISON, VALUE], |c| {
            Set::plain(c, false).any(c, false)
        })
        .types(WAIT)
        .thread()
        .returns(Size::Long),
        row("{T}_test_some", &[IVARS, COUNT, INDICES, STATUS, COMPARISON, VALUE], |c| {
            Set::indexed(c, false).some(c, false)
        })
        .types(WAIT)
        .thread()
        .returns(Size::Long),
        row("{T}_test_all_vector", &[IVARS, COUNT, STATUS, COMPARISON, VALUES], |c| {
            Set::plain(c, true).all(c, false)
        })
        .types(WAIT)
        .thread()
        .returns(Size::Int),
        row("{T}_test_any_vector", &[IVARS, COUNT, STATUS, COMPARISON, VALUES], |c| {
            Set::plain(c, true).any(c, false)
        })
        .types(WAIT)
        .thread()
        .returns(Size::Long),
        row("{T}_test_some_vector", &[IVARS, COUNT, INDICES, STATUS, COMPARISON, VALUES], |c| {
            Set::indexed(c, true).some(c, false)
        })
        .types(WAIT)
        .thread()
        .returns(Size::Long),
    ],
};

fn compares(cmp: u64, ty: Ty, a: u64, b: u64) -> bool {
    let order = if ty.signed() { ty.extend(a).cmp(&ty.extend(b)) } else { a.cmp(&b) };
    match cmp {
        0 => order.is_eq(),
        1 => order.is_ne(),
        2 => order.is_gt(),
        3 => order.is_le(),
        4 => order.is_lt(),
        _ => order.is_ge(),
    }
}

/// Returns the heap offset of a signal.
pub(super) fn object(c: &Call<'_, '_>, addr: u64) -> Result<u64, Fault> {
    c.aligned("signal", addr, 8)?;
    c.cx.memory.symmetric(c.my_pe(), addr, 8).map_err(|e| c.access_fault("signal", e))
}

pub(super) fn change(c: &Call<'_, '_>, op: u64) -> Result<Change, Fault> {
    match op {
        9 => Ok(Change::Set),
        10 => Ok(Change::Add),
        n => {
            let message = format_args!("`signal_op` is {}, which is not an operation", n as u32 as i32);
            Err(c.fault(message, "use NVSHMEM_SIGNAL_SET (9) or NVSHMEM_SIGNAL_ADD (10)"))
        }
    }
}

fn signal_op(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let [signal, value, op, pe, ..] = c.args;
    let to = c.pe(pe)?;
    let (at, change, from) = (object(c, signal)?, change(c, op)?, c.my_pe());
    c.completes(Completed::Source);
    let landing = c.landing(false);
    c.cx.remote.wire.update(c.cx.memory, (from, to), (at, 8), value, change, landing);
    Ok(Step::Done(0))
}

fn fetch(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let at = object(c, c.args[0])?;
    c.watch_strong(AccessKind::Read, c.cx.memory.heap(c.my_pe(), at), 8);
    let value = from_le(c.cx.memory.at(c.cx.memory.heap(c.my_pe(), at), 8));
    c.repeats = c.cx.note_read(Space::Global, c.args[0], value, 8);
    Ok(Step::Done(value))
}

/// The values that elements are compared with.
enum Values {
    One(u64),
    /// A local array with one value for each element.
    Array(u64),
}

/// The elements of a wait or test.
struct Set {
    ivars: u64,
    count: u64,
    status: u64,
    cmp: u64,
    values: Values,
    ty: Ty,
}

impl Set {
    fn single(c: &Call<'_, '_>, ivars: u64, cmp: u64, value: u64) -> Set {
        Set { ivars, count: 1, status: 0, cmp, values: Values::One(value), ty: c.f.ty }
    }

    /// Parses the arguments `ivars, count, status, cmp, value`.
    fn plain(c: &Call<'_, '_>, vector: bool) -> Set {
        let [ivars, count, status, cmp, value, ..] = c.args;
        let values = if vector { Values::Array(value) } else { Values::One(value) };
        Set { ivars, count, status, cmp, values, ty: c.f.ty }
    }

    /// Parses the arguments `ivars, count, indices, status, cmp, value`.
    fn indexed(c: &Call<'_, '_>, vector: bool) -> Set {
        let [ivars, count, _, status, cmp, value, ..] = c.args;
        let values = if vector { Values::Array(value) } else { Values::One(value) };
        Set { ivars, count, status, cmp, values, ty: c.f.ty }
    }

    /// The elements that take part: index, value, and value to compare with.
    fn elements(&self, c: &mut Call<'_, '_>) -> Result<Vec<(u64, u64, u64)>, Fault> {
        if self.cmp >= CMP.len() as u64 {
            let message = format_args!("`cmp` is {}", self.cmp as u32 as i32);
            return Err(c.fault(message, "use a comparison from NVSHMEM_CMP_EQ (0) to NVSHMEM_CMP_GE (5)"));
        }
        let size = self.ty.bytes();
        let what = c.f.row.params.first().map_or("ivars", |(name, _)| name);
        c.aligned(what, self.ivars, size)?;
        let bytes = self.count.saturating_mul(size as u64);
        if self.count == 0 {
            return Ok(Vec::new());
        }
        let at = c.cx.memory.symmetric(c.my_pe(), self.ivars, bytes).map_err(|e| c.access_fault(what, e))?;
        let spot = c.cx.memory.heap(c.my_pe(), at);
        c.watch_strong(AccessKind::Read, spot, bytes as usize);
        let now: Vec<u64> = c.cx.memory.at(spot, bytes as usize).chunks_exact(size).map(from_le).collect();
        let status = match self.status {
            0 => Vec::new(),
            at => c.load("status", at, self.count * 4)?,
        };
        let values = match self.values {
            Values::One(_) => Vec::new(),
            Values::Array(at) => c.load("values", at, bytes)?,
        };
        let takes_part = |i: usize| status.get(4 * i..4 * i + 4).is_none_or(|s| s.iter().all(|b| *b == 0));
        let value = |i: usize| match self.values {
            Values::One(v) => v & crate::num::mask(self.ty.width()),
            Values::Array(_) => values.get(i * size..(i + 1) * size).map_or(0, from_le),
        };
        let all = now.into_iter().enumerate().filter(|(i, _)| takes_part(*i));
        Ok(all.map(|(i, now)| (i as u64, now, value(i))).collect())
    }

    /// Reports the values that a test has read to the detection of progress.
    fn note(&self, c: &mut Call<'_, '_>, first: u64) {
        c.repeats = c.cx.note_read(Space::Global, self.ivars, first, self.ty.bytes());
    }

    fn waiting(&self, index: u64, count: u64, value: u64) -> Step {
        let addr = self.ivars + index * self.ty.bytes() as u64;
        Step::Wait(Waiting::Memory { addr, count, ty: self.ty, cmp: self.cmp as i32, value })
    }

    fn all(&self, c: &mut Call<'_, '_>, waits: bool) -> Result<Step, Fault> {
        let elements = self.elements(c)?;
        let missing = elements.iter().find(|&&(_, now, v)| !compares(self.cmp, self.ty, now, v));
        Ok(match missing {
            Some(&(index, _, value)) if waits => self.waiting(index, 1, value),
            _ => {
                self.note(c, elements.first().map_or(0, |e| e.1));
                Step::Done(u64::from(missing.is_none()))
            }
        })
    }

    fn any(&self, c: &mut Call<'_, '_>, waits: bool) -> Result<Step, Fault> {
        let elements = self.elements(c)?;
        let found: Vec<u64> = elements
            .iter()
            .filter(|&&(_, now, v)| compares(self.cmp, self.ty, now, v))
            .map(|e| e.0)
            .collect();
        if found.is_empty() && waits && !elements.is_empty() {
            return Ok(self.waiting(0, self.count, elements.first().map_or(0, |e| e.2)));
        }
        self.note(c, elements.first().map_or(0, |e| e.1));
        if found.is_empty() {
            return Ok(Step::Done(u64::MAX));
        }
        // The search begins at an index that moves on, as in NVSHMEM for fairness.
        let start = c.cx.remote.next_start() % self.count;
        let chosen = found.iter().find(|&&i| i >= start).or(found.first());
        Ok(Step::Done(chosen.copied().unwrap_or(u64::MAX)))
    }

    fn some(&self, c: &mut Call<'_, '_>, waits: bool) -> Result<Step, Fault> {
        let elements = self.elements(c)?;
        let found: Vec<u64> = elements
            .iter()
            .filter(|&&(_, now, v)| compares(self.cmp, self.ty, now, v))
            .map(|e| e.0)
            .collect();
        if found.is_empty() && waits && !elements.is_empty() {
            return Ok(self.waiting(0, self.count, elements.first().map_or(0, |e| e.2)));
        }
        self.note(c, elements.first().map_or(0, |e| e.1));
        let indices = c.args[2];
        let data: Vec<u8> = found.iter().flat_map(|i| i.to_le_bytes()).collect();
        c.store("indices", indices, &data)?;
        Ok(Step::Done(found.len() as u64))
    }
}
