//! Coordinates of an accumulator's elements: integers that are known up to one number, which each
//! thread has for itself.
//!
//! They stay symbolic when integers are added to them. When they are compared, only the difference
//! of the numbers is computed. The other parts are constants of the instructions and need no
//! registers.

use super::accumulated::row_of;
use super::arith::cmp_op;
use super::value::{Fragment, Share, Val};
use super::{Elab, Result};
use crate::ast::BinOp as A;
use crate::codes::meaning::LAYOUT;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::roles::WARPGROUP;
use weft_ir::{Arith, BinOp, CmpOp, Int, Scalar, Type, Value, ValueType};
use weft_layout::{ATOM_ROWS, Coord, LayoutError};

/// The integers `base + each[i]` for elements that are distributed as those of an accumulator.
#[derive(Clone, Debug)]
pub struct Coordinates {
    share: Share,
    base: Int,
    each: Vec<i64>,
}

impl Coordinates {
    /// The distribution of the elements.
    pub(super) fn share(&self) -> Share {
        self.share
    }

    /// The number of elements that each thread has.
    pub(super) fn lanes(&self) -> u32 {
        self.each.len() as u32
    }
}

impl Elab<'_> {
    /// The row of each value of the rows.
    pub(super) fn row_coordinates(&mut self, share: Share, span: Span) -> Result<Val> {
        let share = share.of_rows();
        let bad = |x: LayoutError| Diagnostic::error(LAYOUT, span, x.to_string());
        let thread = Coord::Int(self.threads(false)?.index);
        let all = share.layout().map_err(bad)?;
        let (own, base) = all.slice_and_offset(&Coord::Tuple(vec![Coord::All, thread])).map_err(bad)?;
        let at = |i: i64| Ok(own.crd2idx(&Int::from(i).into()).map_err(bad)?.as_const().unwrap_or(0));
        let each = (0..own.size().as_const().unwrap_or(0)).map(at).collect::<Result<_>>()?;
        Ok(Val::Coordinates(Coordinates { share, base, each }))
    }

    /// The column of each element.
    pub(super) fn column_coordinates(&mut self, share: Share) -> Result<Val> {
        let thread = self.threads(false)?.index;
        let warpgroup = thread.floor_div(&Int::from(i64::from(WARPGROUP * share.over[0])));
        let own = i64::from(share.own_cols());
        let base = thread.rem(&Int::from(4)) * Int::from(2) + warpgroup * Int::from(own);
        let blocks = i64::from(share.rows / share.over[0]) / ATOM_ROWS;
        // There are two columns in each of two rows, followed by the next eight columns.
        let each = (0..own / 2 * blocks).map(|i| i % 2 + i % (own / 2) / 4 * 8).collect();
        Ok(Val::Coordinates(Coordinates { share, base, each }))
    }

    /// A sum, difference or comparison of coordinates with coordinates or integers. The result is
    /// `None` for other operands.
    pub(super) fn of_coordinates(&mut self, op: A, a: &Val, b: &Val) -> Result<Option<Val>> {
        let ((Val::Coordinates(_), _) | (_, Val::Coordinates(_))) = (a, b) else { return Ok(None) };
        let (Some(x), Some(y)) = (side(a), side(b)) else { return Ok(None) };
        match (op, cmp_op(op)) {
            (A::Add, _) => Ok(combined(&x, &y, 1).map(Val::Coordinates)),
            (A::Sub, _) => Ok(combined(&x, &y, -1).map(Val::Coordinates)),
            (_, Some(op)) => match combined(&x, &y, -1) {
                Some(difference) => self.compared(op, difference).map(Some),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Compares `base + each[i]` with 0.
    fn compared(&mut self, op: CmpOp, c: Coordinates) -> Result<Val> {
        // Values beyond all constants are equivalent, so 32 bits suffice.
        let max = 1 + c.each.iter().map(|n| n.abs()).max().unwrap_or(0);
        let limit = (-c.base).max(&Int::from(-max)).min(&Int::from(max));
        let limit = self.b.index(limit)?;
        let limit = self.b.convert(limit, Scalar::I32)?;
        let bit = |e: &mut Self, n: i64| {
            let n = e.b.int(Scalar::I32, n)?;
            e.b.compare(op, n, limit)
        };
        self.each(c.share, &c.each, Scalar::Bool, bit)
    }

    /// Turns coordinates into numbers. Other values do not change.
    pub(super) fn plain_numbers(&mut self, val: Val) -> Result<Val> {
        match val {
            Val::Coordinates(c) => self.numbers(&c),
            other => Ok(other),
        }
    }

    /// Turns coordinates into numbers of 32 bits.
    pub(super) fn numbers(&mut self, c: &Coordinates) -> Result<Val> {
        let base = self.b.index(c.base.clone())?;
        let base = self.b.convert(base, Scalar::I32)?;
        let sum = |e: &mut Self, n: i64| {
            let n = e.b.int(Scalar::I32, n)?;
            e.b.binary(BinOp::Add, base, n)
        };
        self.each(c.share, &c.each, Scalar::I32, sum)
    }

    fn each(
        &mut self,
        share: Share,
        each: &[i64],
        elem: Scalar,
        f: impl Fn(&mut Self, i64) -> Result<Value>,
    ) -> Result<Val> {
        let parts = each.iter().map(|n| f(self, *n)).collect::<Result<Vec<_>>>()?;
        let ty = Type::lanes_of(elem, each.len() as u32);
        let value = self.b.emit_as(Arith::Concat { parts }, ty)?;
        self.tile_fragment(value, share, Span::NONE).map(|f: Fragment| Val::Fragment(f))
    }
}

/// An operand: coordinates, or an integer that is added to all of them.
fn side(v: &Val) -> Option<(Option<Share>, Int, Vec<i64>)> {
    match v {
        Val::Coordinates(c) => Some((Some(c.share), c.base.clone(), c.each.clone())),
        Val::Int(n) => Some((None, n.clone(), vec![0])),
        _ => None,
    }
}

type OperandCoordinates = (Option<Share>, Int, Vec<i64>);

/// Computes `x + sign * y`. Coordinates of rows are repeated for the elements of a tile. The result
/// is `None` if the operands do not belong to one tile.
fn combined(x: &OperandCoordinates, y: &OperandCoordinates, sign: i64) -> Option<Coordinates> {
    let share = match (x.0, y.0) {
        (Some(a), Some(b)) if a == b || a.of_rows() == b => a,
        (Some(a), Some(b)) if a == b.of_rows() => b,
        (Some(a), None) | (None, Some(a)) => a,
        _ => return None,
    };
    let lanes = if x.0 == Some(share) { x.2.len() } else { y.2.len() };
    let at = |side: &OperandCoordinates, lane: usize| match side.0 {
        None => Some(0),
        Some(own) if own == share => side.2.get(lane).copied(),
        Some(_) => side.2.get(row_of(lane as u32, share)).copied(),
    };
    let each = (0..lanes).map(|i| Some(at(x, i)? + sign * at(y, i)?)).collect::<Option<_>>()?;
    Some(Coordinates { share, base: &x.1 + &y.1 * sign, each })
}
