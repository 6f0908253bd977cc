//! Moves the pieces of a fragment between registers and memory, under its bounds.

use super::MemoryPass;
use super::fragment::Fragment;
use crate::edit::{Editor, Emit, nested};
use crate::report::Cover;
use weft_ir::builder::Built;
use weft_ir::mixed::Type;
use weft_ir::{CmpOp, Control, Int, Scalar, Value, ValueType};

/// A way to read consecutive elements.
pub(super) trait Read {
    /// Reads pieces (offset from the fragment's first element, and lanes), all of them at once if
    /// possible.
    fn read(&self, m: &mut MemoryPass<'_>, e: &mut Editor, pieces: &[(Int, u32)]) -> Built<Vec<Value>>;
}

/// A way to write consecutive elements.
pub(super) trait Write {
    /// Writes values at offsets from the fragment's first element.
    fn write(&self, m: &mut MemoryPass<'_>, e: &mut Editor, pieces: &[(Int, Value)]) -> Built<()>;
}

/// A fragment that is read.
pub(super) struct Gather<'a> {
    pub fragment: &'a Fragment,
    /// The reads of pieces, and of groups of `narrowest` of their elements.
    pub wide: &'a dyn Read,
    /// The reads of single elements that are narrower than `wide` permits.
    pub single: &'a dyn Read,
    /// The least number of elements that `wide` reads.
    pub narrowest: u32,
}

impl Gather<'_> {
    /// Reads the fragment. Elements out of bounds are 0.
    pub fn emit(&self, m: &mut MemoryPass<'_>, e: &mut Editor) -> Built<Value> {
        let f = self.fragment;
        let Some(inside) = f.all_inside(&mut e.b)? else {
            let parts = self.wide.read(m, e, &f.pieces())?;
            return e.b.concat(parts);
        };
        let fragment = e.b.local("fragment", Type::lanes_of(f.elem, f.lanes));
        let then = nested(e, |e| {
            let parts = self.wide.read(m, e, &f.pieces())?;
            let all = e.b.concat(parts)?;
            e.b.set(fragment, all).map(drop)
        })?;
        let otherwise = nested(e, |e| {
            let parts = (0..f.starts.len()).map(|k| self.piece(m, e, k)).collect::<Built<_>>()?;
            let all = e.b.concat(parts)?;
            e.b.set(fragment, all).map(drop)
        })?;
        e.b.emit(Control::If { cond: inside, then, otherwise })?;
        e.b.get(fragment)
    }

    /// Reads a piece if not all elements of the fragment exist.
    fn piece(&self, m: &mut MemoryPass<'_>, e: &mut Editor, k: usize) -> Built<Value> {
        let f = self.fragment;
        let ty = Type::lanes_of(f.elem, f.width);
        let zero = e.b.zero(&ty)?;
        let alone = f.starts.len() == 1;
        if alone && f.cover != Cover::Cut {
            return Ok(zero);
        }
        let piece = e.b.local("piece", ty);
        let cut = nested(e, |e| {
            e.b.set(piece, zero)?;
            if f.cover == Cover::Cut { self.elements(m, e, k, piece) } else { Ok(()) }
        })?;
        if alone {
            cut.0.into_iter().for_each(|v| e.b.push(v));
            return e.b.get(piece);
        }
        let then = nested(e, |e| {
            let parts = self.wide.read(m, e, &[(f.starts[k].clone(), f.width)])?;
            let value = e.b.concat(parts)?;
            e.b.set(piece, value).map(drop)
        })?;
        match f.piece_inside(&mut e.b, k)? {
            Some(cond) => {
                e.b.emit(Control::If { cond, then, otherwise: cut })?;
            }
            None => then.0.into_iter().for_each(|v| e.b.push(v)),
        }
        e.b.get(piece)
    }

    /// Reads the existing elements of a cut piece in a loop.
    fn elements(
        &self,
        m: &mut MemoryPass<'_>,
        e: &mut Editor,
        k: usize,
        piece: weft_ir::LocalId,
    ) -> Built<()> {
        let f = self.fragment;
        for (by, range) in cuts(e, f, k, self.narrowest)? {
            let read = if by == self.narrowest { self.wide } else { self.single };
            each(e, f, range, by, &mut |e, at| {
                let parts = read.read(m, e, &[(&f.starts[k] + at * Int::from(by), by)])?;
                let new = e.b.concat(parts)?;
                let copies = e.b.concat(vec![new; (f.width / by) as usize])?;
                let here = is_group(e, f.width, by, at)?;
                let old = e.b.get(piece)?;
                let value = e.b.select(here, copies, old)?;
                e.b.set(piece, value).map(drop)
            })?;
        }
        Ok(())
    }
}

/// A fragment that is written.
pub(super) struct Scatter<'a> {
    pub fragment: &'a Fragment,
    /// The value, with one lane per element.
    pub value: Value,
    /// The writes of pieces, and of groups of `narrowest` of their elements.
    pub wide: &'a dyn Write,
    /// The writes of single elements that are narrower than `wide` permits.
    pub single: &'a dyn Write,
    /// The least number of elements that `wide` writes.
    pub narrowest: u32,
}

impl Scatter<'_> {
    /// Writes the elements that are within bounds.
    pub fn emit(&self, m: &mut MemoryPass<'_>, e: &mut Editor) -> Built<()> {
        let f = self.fragment;
        let Some(cond) = f.all_inside(&mut e.b)? else { return self.all(m, e) };
        let then = nested(e, |e| self.all(m, e))?;
        let otherwise = nested(e, |e| (0..f.starts.len()).try_for_each(|k| self.piece(m, e, k)))?;
        e.b.emit(Control::If { cond, then, otherwise }).map(drop)
    }

    fn part(&self, e: &mut Editor, k: usize) -> Built<Value> {
        let first = u32::try_from(k).unwrap_or(u32::MAX).saturating_mul(self.fragment.width);
        e.b.slice(self.value, first, self.fragment.width)
    }

    fn all(&self, m: &mut MemoryPass<'_>, e: &mut Editor) -> Built<()> {
        let mut pieces = Vec::with_capacity(self.fragment.starts.len());
        for (k, at) in self.fragment.starts.iter().enumerate() {
            pieces.push((at.clone(), self.part(e, k)?));
        }
        self.wide.write(m, e, &pieces)
    }

    fn piece(&self, m: &mut MemoryPass<'_>, e: &mut Editor, k: usize) -> Built<()> {
        let f = self.fragment;
        let alone = f.starts.len() == 1;
        let value = self.part(e, k)?;
        let cut = nested(e, |e| if f.cover == Cover::Cut { self.elements(m, e, k, value) } else { Ok(()) })?;
        if alone {
            cut.0.into_iter().for_each(|v| e.b.push(v));
            return Ok(());
        }
        let then = nested(e, |e| self.wide.write(m, e, &[(f.starts[k].clone(), value)]))?;
        match f.piece_inside(&mut e.b, k)? {
            Some(cond) => {
                e.b.emit(Control::If { cond, then, otherwise: cut })?;
            }
            None => then.0.into_iter().for_each(|v| e.b.push(v)),
        }
        Ok(())
    }

    fn elements(&self, m: &mut MemoryPass<'_>, e: &mut Editor, k: usize, value: Value) -> Built<()> {
        let f = self.fragment;
        for (by, range) in cuts(e, f, k, self.narrowest)? {
            let write = if by == self.narrowest { self.wide } else { self.single };
            each(e, f, range, by, &mut |e, at| {
                let mut group = e.b.slice(value, 0, by)?;
                for g in 1..f.width / by {
                    let other = e.b.slice(value, g * by, by)?;
                    let (this, number) = (e.b.index(at.clone())?, e.b.i64(g.into())?);
                    let here = e.b.compare(CmpOp::Eq, this, number)?;
                    group = e.b.select(here, other, group)?;
                }
                write.write(m, e, &[(&f.starts[k] + at * Int::from(by), group)])
            })?;
        }
        Ok(())
    }
}

/// The groups of existing elements of a cut piece: the elements per group, and the first and the
/// last group.
fn cuts(e: &mut Editor, f: &Fragment, k: usize, narrowest: u32) -> Built<Vec<(u32, [Int; 2])>> {
    let count = f.count(&mut e.b, k)?;
    Ok(match narrowest {
        n if n == 1 || n == f.width => vec![(1, [Int::ZERO, count])],
        n => {
            let groups = count.floor_div(&Int::from(n));
            vec![(n, [Int::ZERO, groups.clone()]), (1, [groups * Int::from(n), count])]
        }
    })
}

/// Emits a loop over groups of `by` elements of a piece.
fn each(
    e: &mut Editor,
    f: &Fragment,
    [lo, hi]: [Int; 2],
    by: u32,
    body: &mut dyn FnMut(&mut Editor, &Int) -> Built<()>,
) -> Built<()> {
    let range = [e.b.index(lo)?, e.b.index(hi)?, e.b.i64(1)?];
    let var = e.b.loop_var(0, i64::from(f.width / by) - 1, 1);
    let at = e.b.symbol(var)?;
    let body = nested(e, |e| body(e, &at))?;
    e.b.rounds(var, range, 1, body).map(drop)
}

/// For each lane of a piece, whether it is in group `at` of `by` lanes.
fn is_group(e: &mut Editor, width: u32, by: u32, at: &Int) -> Built<Value> {
    let mut groups = Vec::new();
    for lane in 0..width {
        groups.push(e.b.i32((lane / by).into())?);
    }
    let groups = e.b.concat(groups)?;
    let at = e.b.index(at.clone())?;
    let at = e.b.convert(at, Scalar::I32)?;
    let at = e.b.splat(at, &Type::lanes_of(Scalar::I32, width))?;
    e.b.compare(CmpOp::Eq, groups, at)
}
