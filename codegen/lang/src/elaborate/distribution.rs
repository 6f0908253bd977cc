//! Tensors that are the same for all threads of a CTA and whose elements are distributed over the
//! threads. The distribution goes along the mode whose elements are contiguous in memory, and is
//! the same in tensors that are combined.

use super::tensor::reversed;
use super::value::{Distribution, Fragment, Order, Tensor, Turns, Val};
use super::{Elab, Result};
use crate::codes::meaning::{MISMATCH, NOT_HELD};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::typing::MAX_LANES;
use weft_ir::{Group, Int, Layout, Space, Together};

impl Elab<'_> {
    /// The part that this thread has of a tensor which is the same for all threads of the CTA, and
    /// its distribution.
    pub(super) fn distribute(&mut self, t: Tensor, span: Span) -> Result<(Tensor, Turns)> {
        let ty = self.tensor_type_of(t);
        let threads = i64::from(self.b.kernel().threads());
        let Some(total) = ty.layout.size().as_const() else {
            return Err(Diagnostic::error(NOT_HELD, span, format!("the number of elements of {} is known only at run time", ty.layout))
                .help("partition it over `threads<block>()` and loop over the steps, or make the extent a compile-time parameter"));
        };
        if total > threads * i64::from(MAX_LANES) {
            let message = format!("{total} elements over {threads} threads are more than {MAX_LANES} each");
            return Err(Diagnostic::error(NOT_HELD, span, message).help("loop over parts of it"));
        }
        // This is the widest vector of which every thread gets one. The shape of a tile can require
        // a narrower vector.
        let widest = [8, 4, 2, 1].into_iter().find(|v| v * threads <= total).unwrap_or(1);
        if follows_rows(&ty.layout) {
            for vector in [8, 4, 2, 1].into_iter().filter(|v| *v <= widest) {
                let turns = Turns { total, vector, by_rows: true };
                if let Ok(part) = self.distribute_as(t, turns, span) {
                    return Ok((part, turns));
                }
            }
        }
        let mut turns = Turns { total, vector: widest, by_rows: false };
        loop {
            match self.distribute_as(t, turns, span) {
                Err(_) if turns.vector > 1 => turns.vector /= 2,
                other => return other.map(|part| (part, turns)),
            }
        }
    }

    /// The part that this thread has of a tensor with the given distribution.
    pub(super) fn distribute_as(&mut self, t: Tensor, turns: Turns, span: Span) -> Result<Tensor> {
        self.b.emit(Together::Converge { group: Group::Block })?;
        let all = self.threads(false)?;
        let t = if turns.by_rows { self.relayout(t, span, reversed)? } else { t };
        self.partition_as_it_is(t, &all, Some(turns.vector), span)
    }

    /// Whether a tensor can have this distribution: it is the same for all threads and has the same
    /// number of elements.
    pub(super) fn has(&self, t: Tensor, turns: Turns) -> bool {
        !t.private && !t.element && self.tensor_type_of(t).layout.size().is(turns.total)
    }

    /// Whether the threads of the CTA read a tensor together.
    pub(super) fn is_read_together(&self, t: Tensor) -> bool {
        !t.private && !t.element && self.tensor_type_of(t).space != Space::Multicast
    }

    /// Reads a tensor's elements into registers with the given distribution.
    pub(super) fn load_as(&mut self, t: Tensor, turns: Turns, span: Span) -> Result<Fragment> {
        let part = self.distribute_as(t, turns, span)?;
        self.b.at(span);
        let value = self.b.load(part.value)?;
        Ok(self.fragment(part, value, Some(Distribution::Evenly(turns))))
    }

    /// Reads two tensors that are combined with one distribution: that of the first, or else that
    /// of the second. Other values do not change.
    pub(super) fn both_read(&mut self, a: Val, b: Val, span: Span) -> Result<(Val, Val)> {
        let (x, y) = match (&a, &b) {
            (Val::Tensor(x), Val::Tensor(y)) if self.is_read_together(*x) && self.is_read_together(*y) => {
                (*x, *y)
            }
            _ => return Ok((a, b)),
        };
        let (_, first) = self.distribute(x, span)?;
        let (_, second) = self.distribute(y, span)?;
        if first.total != second.total {
            return Ok((a, b));
        }
        let turns = if self.distribute_as(y, first, span).is_ok() { first } else { second };
        Ok((Val::Fragment(self.load_as(x, turns, span)?), Val::Fragment(self.load_as(y, turns, span)?)))
    }

    /// The value that is written to a tensor. A tensor is read with the distribution of the tensor
    /// that is written. Other values do not change.
    pub(super) fn read_for(&mut self, to: Tensor, val: Val, span: Span) -> Result<Val> {
        let Val::Tensor(from) = val else { return Ok(val) };
        if to.private || to.element || !self.is_read_together(from) {
            return Ok(val);
        }
        let (_, turns) = self.distribute(to, span)?;
        if !self.has(from, turns) || self.distribute_as(from, turns, span).is_err() {
            return Ok(val);
        }
        self.load_as(from, turns, span).map(Val::Fragment)
    }

    /// Checks that a value has the same distribution as the value that it replaces.
    pub(super) fn same_distribution(&self, new: &Val, old: Option<&Fragment>, span: Span) -> Result<()> {
        if let (Val::Fragment(new), Some(old)) = (new, old) {
            same_order(new.order, old.order, span)?;
        }
        match (new, old) {
            (
                Val::Fragment(Fragment { distribution: Some(new), .. }),
                Some(Fragment { distribution: Some(old), .. }),
            ) if new != old => Err(Diagnostic::error(
                MISMATCH,
                span,
                "these elements are distributed over the CTA in another way",
            )
            .help("read the tensor with the distribution of the other elements: `load(x, like = y)`")),
            _ => Ok(()),
        }
    }
}

/// Checks that `partition` distributed the combined elements in one order.
pub(super) fn same_order(a: Option<Order>, b: Option<Order>, span: Span) -> Result<()> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => Err(Diagnostic::error(
            MISMATCH,
            span,
            "`partition` distributed one of these tensors along its rows, and the other along its columns",
        )
        .help(
            "different elements would be combined: give both tensors the same contiguous mode, or copy \
             the whole tensors, which have the same distribution",
        )),
        _ => Ok(()),
    }
}

/// Whether the elements of the last mode are contiguous in memory, and those of the first are not.
fn follows_rows(l: &Layout) -> bool {
    rows_of(l).is_some()
}

/// The order along rows, if the elements of the last mode are contiguous in memory and those of the
/// first mode with more than one element are not.
pub(super) fn rows_of(l: &Layout) -> Option<Order> {
    let l = unwrapped(l);
    let last = l.mode(l.rank().checked_sub(1)?)?;
    if first_stride(&l)?.is(1) || !first_stride(&last)?.is(1) {
        return None;
    }
    let modes = (0..l.rank()).filter_map(|i| l.mode(i)).filter(|m| !m.size().is(1)).count();
    Some(Order::LastMode { modes, last: last.size().as_const() })
}

/// The stride of the first mode that has more than one element.
fn first_stride(l: &Layout) -> Option<Int> {
    let (shape, stride) = (l.shape().leaves(), l.stride().leaves());
    shape.into_iter().zip(stride).find(|(n, _)| !n.is(1)).map(|(_, stride)| stride.clone())
}

/// The layout without the tuples of one element around its modes.
pub(super) fn unwrapped(l: &Layout) -> Layout {
    match l.mode(0) {
        Some(mode) if l.rank() == 1 && l.shape().as_tuple().is_some() => unwrapped(&mode),
        _ => l.clone(),
    }
}
