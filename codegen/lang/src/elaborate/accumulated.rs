//! Register tensors that are distributed over the threads as the accumulators of matrix products
//! are: how they combine with tensors in memory, and operations on their rows.

use super::arith::with;
use super::value::{Distribution, Fragment, Share, Tensor, Val};
use super::{Elab, Result};
use crate::codes::meaning::{BAD_INDEX, BAD_PARTITION, LAYOUT, MISMATCH, WRONG_KIND};
use weft_ir::builder::moved;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{
    Accumulator, Arith, BinOp, Bound, Group, Int, IntTuple, Layout, Scalar, ShuffleMode, Thread, Type, Value,
    ValueType,
};
use weft_layout::{ATOM_ROWS, Coord, LayoutError};

/// The number of consecutive threads that have elements of the same rows.
const QUAD: i64 = 4;

impl Elab<'_> {
    /// Reads columns of an accumulator as elements in registers.
    pub(super) fn accumulated(
        &mut self,
        (acc, ty): (Value, Accumulator),
        coords: &[(Val, Span)],
        span: Span,
    ) -> Result<Val> {
        let known = |n: &Int| n.as_const().and_then(|n| u32::try_from(n).ok());
        let range = match coords {
            [(Val::Whole, _)] | [(Val::Whole, _), (Val::Whole, _)] => Some((0, ty.cols)),
            [(Val::Whole, _), (Val::Range(lo, hi), _)] => {
                known(lo).zip(known(hi)).and_then(|(lo, hi)| Some((lo, hi.checked_sub(lo)?)))
            }
            _ => None,
        };
        let Some((first, cols)) = range else {
            return Err(Diagnostic::error(
                BAD_INDEX,
                span,
                "an accumulator can only be read by whole columns",
            )
            .help(
                "write `acc[_, _]`, or `acc[_, 0..64]` with a range that is known when the kernel is \
                 compiled",
            ));
        };
        let value = self.b.accumulator_read(acc, first, cols)?;
        self.tile_fragment(value, Share { rows: ty.rows, cols, over: ty.over }, span).map(Val::Fragment)
    }

    /// Makes an accumulator that begins with elements in registers.
    pub(super) fn begun_with(&mut self, x: &Val, span: Span) -> Result<Val> {
        let (f, share) = self.of_accumulator("accumulator", x, span)?;
        let elem = self.b.ty(f.value).elem().unwrap_or(Scalar::F32);
        let ty = Accumulator { elem, rows: share.rows, cols: share.cols, over: share.over };
        let value = self.b.accumulator_of(ty, f.value)?;
        Ok(Val::Accumulator(value, ty))
    }

    /// The elements of an accumulator, or the values of its rows, as the argument of a function.
    pub(super) fn of_accumulator(&self, name: &str, x: &Val, span: Span) -> Result<(Fragment, Share)> {
        match x {
            Val::Fragment(f @ Fragment { distribution: Some(Distribution::Accumulated(share)), .. }) => {
                Ok((f.clone(), *share))
            }
            other => Err(Diagnostic::error(
                WRONG_KIND,
                span,
                format!("`{name}` needs elements of an accumulator, found {}", self.describe(other)),
            )
            .help("pass `acc[_, _]`, or a value that is computed from it elementwise")),
        }
    }

    /// The register tensor with the elements that a thread has of a tile.
    pub(super) fn tile_fragment(&self, value: Value, share: Share, span: Span) -> Result<Fragment> {
        let bad = |x: LayoutError| Diagnostic::error(LAYOUT, span, x.to_string());
        let all = share.layout().map_err(bad)?;
        let shape = all.mode(0).unwrap_or_else(Layout::one).shape().clone();
        Ok(Fragment {
            value,
            shape,
            bounds: Vec::new(),
            distribution: Some(Distribution::Accumulated(share)),
            order: None,
        })
    }

    /// The part of a tile that this thread has if the tile is distributed as accumulators of matrix
    /// products are.
    fn accumulated_part(&mut self, t: Tensor, share: Share, span: Span) -> Result<Tensor> {
        let ty = self.tensor_type_of(t);
        let extent = |i: usize| ty.layout.mode(i).map(|m| m.size());
        let want: Vec<_> = if share.is_rows() { vec![share.rows] } else { vec![share.rows, share.cols] };
        let fits = |(i, n): (usize, &u32)| extent(i) == Some(i64::from(*n).into());
        if ty.layout.rank() != want.len() || !want.iter().enumerate().all(fits) {
            let message = format!("the elements of {} do not match {share} of an accumulator", ty.layout);
            let modes: Vec<_> = want.iter().map(u32::to_string).collect();
            return Err(Diagnostic::error(MISMATCH, span, message)
                .help(format!("use a tile of modes ({})", modes.join(", "))));
        }
        let bad = |x: LayoutError| Diagnostic::error(BAD_PARTITION, span, x.to_string());
        let all = share.layout().map_err(bad)?;
        let at = Coord::Tuple(vec![Coord::All, Coord::Int(self.threads(false)?.index)]);
        let divide = |l: &Layout| l.composition(&all)?.slice_and_offset(&at);
        let (layout, offset) = divide(&ty.layout).map_err(bad)?;
        let bounds = moved(&ty.bounds, divide).map_err(bad)?;
        let value = match share.is_rows() {
            true => self.b.view(t.value, offset, layout, bounds)?,
            false => self.b.distributed(t.value, offset, layout, bounds, share.over)?,
        };
        Ok(Tensor { value, private: true, element: false, order: None })
    }

    /// Reads a tensor with the distribution of an accumulator. If all columns are the same, there
    /// is one value for each row.
    pub(super) fn read_as(&mut self, t: Tensor, share: Share, span: Span) -> Result<Fragment> {
        let ty = self.tensor_type_of(t);
        let one_column = |l: &Layout| {
            l.mode(1).is_some_and(|m| m.stride().leaves().iter().all(|d| d.is(0)) && l.rank() == 2)
        };
        if !share.is_rows() && one_column(&ty.layout) && ty.bounds.iter().all(|b| one_column(&b.layout)) {
            let first = self.slice(t, &[(Val::Whole, span), (Val::Int(Int::ZERO), span)], span)?;
            return self.read_as(first, share.of_rows(), span);
        }
        let part = self.accumulated_part(t, share, span)?;
        self.b.converge(Group::Block)?;
        self.b.at(span);
        let value = self.b.load(part.value)?;
        Ok(self.fragment(part, value, Some(Distribution::Accumulated(share))))
    }

    /// The part of a tile that this thread writes. The first of the threads that have the value of
    /// a row writes it.
    pub(super) fn written_as(&mut self, t: Tensor, share: Share, span: Span) -> Result<Tensor> {
        let part = self.accumulated_part(t, share, span)?;
        if !share.is_rows() {
            return Ok(part);
        }
        let ty = self.tensor_type_of(part);
        let nowhere = ty.layout.stride().map(&mut |_| Int::ZERO);
        let nowhere = Layout::new(ty.layout.shape().clone(), nowhere)
            .map_err(|x| Diagnostic::error(LAYOUT, span, x.to_string()))?;
        let in_quad = self.threads(false)?.index.rem(&Int::from(QUAD));
        let mut bounds = ty.bounds.clone();
        bounds.push(Bound { limit: Int::from(1), offset: in_quad, layout: nowhere });
        let mut out = self.view(part, Int::ZERO, ty.layout.clone(), bounds)?;
        out.private = true;
        Ok(out)
    }

    /// Reads a tensor with the distribution of the elements in registers that it is combined with.
    /// Other values do not change.
    pub(super) fn dealt_as(&mut self, val: Val, other: &Val, span: Span) -> Result<Val> {
        match (&val, other) {
            (
                Val::Tensor(t),
                Val::Fragment(Fragment { distribution: Some(Distribution::Accumulated(share)), .. }),
            ) if !t.private && !t.element => self.read_as(*t, *share, span).map(Val::Fragment),
            (
                Val::Tensor(t),
                Val::Fragment(Fragment { distribution: Some(Distribution::Evenly(turns)), .. }),
            ) if self.is_read_together(*t) && self.has(*t, *turns) => {
                self.load_as(*t, *turns, span).map(Val::Fragment)
            }
            _ => Ok(val),
        }
    }

    /// Values of rows that are combined with the elements of a tile with these rows become a value
    /// for each element.
    pub(super) fn rows_alike(&mut self, val: Val, other: &Val, span: Span) -> Result<Val> {
        let share = |v: &Val| match v {
            Val::Fragment(Fragment { distribution: Some(Distribution::Accumulated(share)), .. }) => {
                Some(*share)
            }
            _ => None,
        };
        match (&val, share(&val), share(other)) {
            (Val::Fragment(f), Some(mine), Some(all)) if mine == all.of_rows() && !all.is_rows() => {
                self.spread(f, all, span).map(Val::Fragment)
            }
            _ => Ok(val),
        }
    }

    /// Does what [`rows_alike`](Self::rows_alike) does. In addition, a scalar becomes a value for
    /// each element of any register tensor.
    pub(super) fn alike(&mut self, val: Val, other: &Val, span: Span) -> Result<Val> {
        match (&val, other) {
            (Val::Runtime(x), Val::Fragment(f)) => {
                let elem = self.b.ty(*x).elem().unwrap_or(Scalar::Bool);
                let ty = self.b.ty(f.value).with_elem(elem);
                let value = self.b.splat(*x, &ty)?;
                Ok(with(Val::Fragment(Fragment { bounds: Vec::new(), ..f.clone() }), value))
            }
            _ => self.rows_alike(val, other, span),
        }
    }

    /// Turns one value for each row of a tile into a value for each element.
    fn spread(&mut self, f: &Fragment, share: Share, span: Span) -> Result<Fragment> {
        let rows = self.lanes_of(f.value)?;
        let lanes = share.own_cols() / 4 * (rows.len() as u32);
        let parts = (0..lanes).filter_map(|lane| rows.get(row_of(lane, share)).copied()).collect();
        let ty = Type::lanes_of(self.b.ty(f.value).elem().unwrap_or(Scalar::F32), lanes);
        let value = self.b.emit_as(Arith::Concat { parts }, ty)?;
        let mut out = self.tile_fragment(value, share, span)?;
        for b in &f.bounds {
            out.bounds.push(spread_bound(b, &out.shape, span)?);
        }
        Ok(out)
    }

    /// The elements of a vector as scalars.
    fn lanes_of(&mut self, value: Value) -> Result<Vec<Value>> {
        let ty = self.b.ty(value).clone();
        let elem = Type::Scalar(ty.elem().unwrap_or(Scalar::F32));
        (0..ty.lanes().unwrap_or(1))
            .map(|first| self.b.emit_as(Arith::Slice { a: value, first }, elem.clone()))
            .collect()
    }

    /// Reduces the elements of each row of a tile to one value, first in each thread and then over
    /// the threads that have elements of the row.
    pub(super) fn reduce_rows(&mut self, value: Value, share: Share, op: BinOp, span: Span) -> Result<Val> {
        if share.over[1] > 1 || share.is_rows() {
            return Err(Diagnostic::error(
                WRONG_KIND,
                span,
                format!("no warpgroup holds whole rows of {share} of an accumulator"),
            )
            .help("give whole rows to each warpgroup: `accumulator<f32>((128, 64), over = (2, 1))`"));
        }
        let elem = self.b.ty(value).elem().unwrap_or(Scalar::F32);
        if elem.bits() != 32 {
            return Err(Diagnostic::error(WRONG_KIND, span, format!("rows of {elem} cannot be reduced"))
                .help("convert them to a type of 32 bits: `.to<f32>()`"));
        }
        let rows = (share.rows / (ATOM_ROWS as u32 * share.over[0]) * 2) as usize;
        let mut of_row = vec![Vec::new(); rows];
        for (lane, v) in (0..).zip(self.lanes_of(value)?) {
            if let Some(of) = of_row.get_mut(row_of(lane, share)) {
                of.push(v);
            }
        }
        let mut parts = Vec::with_capacity(rows);
        for of in of_row {
            let Some(mut sum) = self.tree(of, op)? else { continue };
            for step in [1, 2] {
                let lane = self.b.int(Scalar::I32, step)?;
                let other = self.b.emit(Thread::Shuffle { value: sum, mode: ShuffleMode::Xor, lane })?;
                sum = self.b.binary(op, sum, other)?;
            }
            parts.push(sum);
        }
        let value = self.b.emit_as(Arith::Concat { parts }, Type::lanes_of(elem, rows as u32))?;
        self.tile_fragment(value, share.of_rows(), span).map(Val::Fragment)
    }

    /// Combines values pairwise. The result is `None` if there are no values.
    fn tree(&mut self, mut values: Vec<Value>, op: BinOp) -> Result<Option<Value>> {
        while values.len() > 1 {
            let mut next = Vec::with_capacity(values.len().div_ceil(2));
            for pair in values.chunks(2) {
                match pair {
                    [a, b] => next.push(self.b.binary(op, *a, *b)?),
                    one => next.extend(one),
                }
            }
            values = next;
        }
        Ok(values.first().copied())
    }
}

/// The index of the row of element `lane` among the rows in which a thread has elements.
pub(super) fn row_of(lane: u32, share: Share) -> usize {
    let of_block = share.own_cols() / 2;
    (lane / 2 % 2 + lane / of_block * 2) as usize
}

/// Turns a bound of values of rows into a bound of the elements, whose shape is (2, 2, groups of
/// columns, blocks of rows).
fn spread_bound(b: &Bound, shape: &IntTuple, span: Span) -> Result<Bound> {
    let bad = |x: LayoutError| Diagnostic::error(LAYOUT, span, x.to_string());
    let at = |i: i64| b.layout.crd2idx(&Int::from(i).into()).map_err(bad);
    let first = at(0)?;
    let next = at(1)? - first.clone();
    let block = if b.layout.size().is_le(&Int::from(2)) { Int::ZERO } else { at(2)? - first.clone() };
    let strides =
        IntTuple::Tuple([Int::ZERO, next, Int::ZERO, block].into_iter().map(IntTuple::Int).collect());
    let layout = Layout::new(shape.clone(), strides).map_err(bad)?;
    Ok(Bound { limit: b.limit.clone(), offset: &b.offset + first, layout })
}
