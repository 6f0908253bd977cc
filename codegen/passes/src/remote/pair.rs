//! The common structure of a transfer's two sides: the modes of both layouts and of all bounds are
//! split to common extents, and joined again to the largest pieces that are consecutive on both
//! sides.
//!
//! If contiguous sides differ in size, the smaller size counts. Otherwise coordinates pair the
//! elements, mode 0 fastest.

use crate::codes::{BAD_BOUND, OTHER_SHAPES};
use crate::index::poison;
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::remote::is_contiguous;
use weft_ir::{Int, Layout, TensorType};

/// A mode that both sides have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mode {
    pub extent: Int,
    /// The stride of the mode on both sides, in elements.
    pub dst: Int,
    pub src: Int,
    /// The stride of the mode in the positions of each limit.
    pub positions: Vec<Int>,
}

/// A limit: an element exists only if `start + positions < limit`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Limit {
    pub limit: Int,
    pub start: Int,
}

/// Both sides of a transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    /// The size of an element in bytes.
    pub elem: u32,
    /// The provable alignment of both first elements in bytes.
    pub align: u32,
    /// The mode of the elements within a piece.
    pub run: Mode,
    /// Whether a piece is consecutive on both sides. Otherwise each side has its stride.
    pub contiguous: bool,
    /// The modes that lead from piece to piece.
    pub rest: Vec<Mode>,
    /// The bounds that are not proven.
    pub limits: Vec<Limit>,
}

/// A piece: the offsets of its first element on both sides, and the positions of this element.
pub(super) struct PiecePosition {
    pub dst: Int,
    pub src: Int,
    pub positions: Vec<Int>,
}

/// Extents and strides, without extents of 1.
type Modes = Vec<(Int, Int)>;

impl Mode {
    /// Whether `next` continues this mode.
    fn goes_on(&self, next: &Mode) -> bool {
        let scaled = |a: &Int, b: &Int| a * &self.extent == *b;
        scaled(&self.dst, &next.dst)
            && scaled(&self.src, &next.src)
            && self.positions.iter().zip(&next.positions).all(|(a, b)| scaled(a, b))
    }

    /// Joins all modes of `rest` that continue this mode.
    fn grow(&mut self, rest: &mut Vec<Mode>) {
        while let Some(i) = rest.iter().position(|m| self.goes_on(m)) {
            self.extent = &self.extent * rest.remove(i).extent;
        }
    }
}

impl Pair {
    /// Pairs two tensors with the same element type.
    pub fn new(dst: &TensorType, src: &TensorType, span: Span) -> Built<Pair> {
        let sides = [dst, src];
        let bounds: Vec<_> = sides.iter().flat_map(|t| &t.bounds).collect();
        let mut limits: Vec<Limit> =
            bounds.iter().map(|b| Limit { limit: b.limit.clone(), start: b.offset.clone() }).collect();
        for t in sides {
            if let Some(b) = t.bounds.iter().find(|b| b.layout.size() != t.layout.size()) {
                let message = format!("the bound {} does not fit the view {}", b.layout, t.layout);
                return Err(Diagnostic::error(BAD_BOUND, span, message));
            }
        }
        let layouts = || [&dst.layout, &src.layout].into_iter().chain(bounds.iter().map(|b| &b.layout));
        let unknown = layouts().flat_map(|l| [l.shape(), l.stride()]).flat_map(|t| t.leaves());
        let unknown = unknown.chain(limits.iter().flat_map(|l| [&l.limit, &l.start]));
        if let Some(p) = unknown.filter_map(Int::poison).next() {
            return Err(poison(p, span));
        }
        let modes = match lines(&dst.layout, &src.layout, bounds.iter().map(|b| &b.layout)) {
            Some(mode) => vec![mode],
            None => refine(layouts().map(modes_of).collect()).ok_or_else(|| unlike(dst, src, span))?,
        };
        let mut modes: Vec<Mode> = modes.into_iter().filter(|m| !m.extent.is(1)).collect();
        for i in (0..limits.len()).rev() {
            if top(&modes, i, &limits[i]).is_some_and(|top| top.is_lt(&limits[i].limit)) {
                limits.remove(i);
                modes.iter_mut().for_each(|m| drop(m.positions.remove(i)));
            }
        }
        let (run, contiguous, rest) = arrange(modes, limits.len());
        let (elem, align) = (dst.elem.bytes(), dst.align.min(src.align).max(1));
        Ok(Pair { elem, align, run, contiguous, rest, limits })
    }

    /// The number of pieces.
    pub fn pieces(&self) -> Int {
        self.rest.iter().fold(Int::ONE, |n, m| n * &m.extent)
    }

    /// The piece with this index.
    pub fn at(&self, index: &Int) -> PiecePosition {
        let start = self.limits.iter().map(|l| l.start.clone()).collect();
        let mut at = PiecePosition { dst: Int::ZERO, src: Int::ZERO, positions: start };
        let mut left = index.clone();
        for (i, m) in self.rest.iter().enumerate() {
            let last = i + 1 == self.rest.len();
            let c = if last { left.clone() } else { left.rem(&m.extent) };
            left = if last { Int::ZERO } else { left.floor_div(&m.extent) };
            at.dst = at.dst + &c * &m.dst;
            at.src = at.src + &c * &m.src;
            at.positions.iter_mut().zip(&m.positions).for_each(|(p, d)| *p = &*p + &c * d);
        }
        at
    }

    /// The number of existing elements of a piece, which are its first ones.
    pub fn count(&self, at: &PiecePosition) -> Int {
        let mut count = self.run.extent.clone();
        for ((limit, start), step) in self.limits.iter().zip(&at.positions).zip(&self.run.positions) {
            let left = &limit.limit - start;
            let here = if step.is(0) { left * &self.run.extent } else { left.ceil_div(step) };
            count = count.min(&here);
        }
        if self.limits.is_empty() { count } else { count.max(&Int::ZERO) }
    }

    /// For each limit, the greatest position and the limit, or `None` if one is not known.
    pub fn tops(&self) -> Option<Vec<(Int, Int)>> {
        let modes: Vec<Mode> = std::iter::once(&self.run).chain(&self.rest).cloned().collect();
        let tops = self.limits.iter().enumerate();
        tops.map(|(i, l)| Some((top(&modes, i, l)?, l.limit.clone()))).collect()
    }
}

/// Pairs sides that are contiguous, with bounds that are too: one mode with the smaller size.
fn lines<'a>(dst: &Layout, src: &Layout, bounds: impl Iterator<Item = &'a Layout>) -> Option<Mode> {
    if !is_contiguous(dst) || !is_contiguous(src) {
        return None;
    }
    let step = |l: &Layout| {
        let flat = l.coalesce().ok()?;
        flat.shape().as_int()?;
        flat.stride().as_int().cloned()
    };
    let positions = bounds.map(step).collect::<Option<_>>()?;
    let extent = dst.size().min(&src.size());
    Some(Mode { extent, dst: Int::ONE, src: Int::ONE, positions })
}

fn modes_of(l: &Layout) -> Modes {
    let leaves = l.shape().leaves().into_iter().zip(l.stride().leaves());
    leaves.filter(|(e, _)| !e.is(1)).map(|(e, d)| (e.clone(), d.clone())).rev().collect()
}

/// Splits the modes of all layouts to common extents, beginning with the last ones. The result is
/// `None` if they have none.
fn refine(mut all: Vec<Modes>) -> Option<Vec<Mode>> {
    let mut out = Vec::new();
    while all.iter().any(|modes| !modes.is_empty()) {
        let heads: Vec<&(Int, Int)> = all.iter().map(|modes| modes.last()).collect::<Option<_>>()?;
        let divides = |e: &Int| heads.iter().all(|(h, _)| h == e || h.is_divisible_by(e));
        let extent = heads.iter().map(|(e, _)| e).find(|e| divides(e))?.clone();
        let mut strides = heads.iter().map(|(_, d)| d.clone());
        let (dst, src) = (strides.next()?, strides.next()?);
        out.push(Mode { extent: extent.clone(), dst, src, positions: strides.collect() });
        for modes in &mut all {
            let (e, d) = modes.pop()?;
            if e != extent {
                modes.push((e.floor_div(&extent), d * &extent));
            }
        }
    }
    Some(out)
}

/// The greatest position, if no mode has a negative stride.
fn top(modes: &[Mode], limit: usize, l: &Limit) -> Option<Int> {
    modes.iter().try_fold(l.start.clone(), |top, m| {
        let step = m.positions.get(limit)?;
        (step.lower_bound() >= 0).then(|| top + (&m.extent - 1) * step)
    })
}

/// The mode of a piece, whether it is consecutive, and the other modes.
fn arrange(mut modes: Vec<Mode>, limits: usize) -> (Mode, bool, Vec<Mode>) {
    let single = Mode { extent: Int::ONE, dst: Int::ONE, src: Int::ONE, positions: vec![Int::ZERO; limits] };
    // The existing elements of a piece are its first ones if its positions increase.
    let grows = |m: &Mode| m.positions.iter().all(|p| p.lower_bound() >= 0);
    let line = modes.iter().position(|m| m.dst.is(1) && m.src.is(1) && grows(m));
    let long = |m: &Mode| m.extent.as_const().unwrap_or(i64::MAX);
    let longest = || (0..modes.len()).filter(|i| grows(&modes[*i])).max_by_key(|i| long(&modes[*i]));
    let run = match line.or_else(longest) {
        Some(i) => {
            let mut run = modes.remove(i);
            run.grow(&mut modes);
            run
        }
        None => single,
    };
    let mut rest = Vec::new();
    while !modes.is_empty() {
        let mut m = modes.remove(0);
        m.grow(&mut modes);
        rest.push(m);
    }
    let contiguous = run.dst.is(1) && run.src.is(1);
    (run, contiguous, rest)
}

fn unlike(dst: &TensorType, src: &TensorType, span: Span) -> Diagnostic {
    let message =
        format!("the shapes of both sides have no common pieces: {} and {}", dst.layout, src.layout);
    Diagnostic::error(OTHER_SHAPES, span, message).help(
        "give both sides the same shape; contiguous sides can differ in size, and the smaller size counts",
    )
}
