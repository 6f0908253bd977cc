//! What a transfer's two sides have in common: the modes of both layouts and of all bounds, taken apart to common
//! extents and put together again to the largest pieces that are consecutive on both sides.
//!
//! For contiguous sides of different sizes the smaller counts. Else coordinates pair the elements, mode 0 fastest.

use crate::codes::{BAD_BOUND, OTHER_SHAPES};
use crate::index::poison;
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::remote::is_contiguous;
use weft_ir::{Int, Layout, TensorType};

/// One mode of both sides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mode {
    pub extent: Int,
    /// Elements from one of its coordinates to the next, on both sides.
    pub dst: Int,
    pub src: Int,
    /// The positions of each limit.
    pub positions: Vec<Int>,
}

/// `start + positions < limit`, or the element does not exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Limit {
    pub limit: Int,
    pub start: Int,
}

/// Both sides of a transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    /// Bytes of an element.
    pub elem: u32,
    /// Provable alignment of both first elements, in bytes.
    pub align: u32,
    /// The elements of a piece.
    pub run: Mode,
    /// A piece is consecutive on both sides; else each side has its stride.
    pub contiguous: bool,
    /// The modes that lead from piece to piece.
    pub rest: Vec<Mode>,
    /// What is not proven of the bounds.
    pub limits: Vec<Limit>,
}

/// A piece: elements from the sides' first ones to its own, and its first element's positions.
pub(super) struct At {
    pub dst: Int,
    pub src: Int,
    pub positions: Vec<Int>,
}

/// Extents and strides, extents of 1 left out.
type Modes = Vec<(Int, Int)>;

impl Mode {
    /// Whether `next` goes on where this one ends.
    fn goes_on(&self, next: &Mode) -> bool {
        let scaled = |a: &Int, b: &Int| a * &self.extent == *b;
        scaled(&self.dst, &next.dst)
            && scaled(&self.src, &next.src)
            && self.positions.iter().zip(&next.positions).all(|(a, b)| scaled(a, b))
    }

    /// With all modes of `rest` that go on with it.
    fn grow(&mut self, rest: &mut Vec<Mode>) {
        while let Some(i) = rest.iter().position(|m| self.goes_on(m)) {
            self.extent = &self.extent * rest.remove(i).extent;
        }
    }
}

impl Pair {
    /// Pairs two tensors of one element type.
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

    /// How many pieces there are.
    pub fn pieces(&self) -> Int {
        self.rest.iter().fold(Int::ONE, |n, m| n * &m.extent)
    }

    /// The piece of that index.
    pub fn at(&self, index: &Int) -> At {
        let start = self.limits.iter().map(|l| l.start.clone()).collect();
        let mut at = At { dst: Int::ZERO, src: Int::ZERO, positions: start };
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

    /// How many elements of a piece exist: the first ones.
    pub fn count(&self, at: &At) -> Int {
        let mut count = self.run.extent.clone();
        for ((limit, start), step) in self.limits.iter().zip(&at.positions).zip(&self.run.positions) {
            let left = &limit.limit - start;
            let here = if step.is(0) { left * &self.run.extent } else { left.ceil_div(step) };
            count = count.min(&here);
        }
        if self.limits.is_empty() { count } else { count.max(&Int::ZERO) }
    }

    /// For each limit, the greatest position and the limit; `None` where one is not known.
    pub fn tops(&self) -> Option<Vec<(Int, Int)>> {
        let modes: Vec<Mode> = std::iter::once(&self.run).chain(&self.rest).cloned().collect();
        let tops = self.limits.iter().enumerate();
        tops.map(|(i, l)| Some((top(&modes, i, l)?, l.limit.clone()))).collect()
    }
}

/// Sides that are contiguous each, with bounds that follow: one mode, of the smaller size.
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

/// The modes of all layouts, last ones first, taken apart to common extents; `None` where they have none.
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

/// The greatest position, if no mode counts down.
fn top(modes: &[Mode], limit: usize, l: &Limit) -> Option<Int> {
    modes.iter().try_fold(l.start.clone(), |top, m| {
        let step = m.positions.get(limit)?;
        (step.lower_bound() >= 0).then(|| top + (&m.extent - 1) * step)
    })
}

/// The mode of a piece, whether that is consecutive, and the others.
fn arrange(mut modes: Vec<Mode>, limits: usize) -> (Mode, bool, Vec<Mode>) {
    let single = Mode { extent: Int::ONE, dst: Int::ONE, src: Int::ONE, positions: vec![Int::ZERO; limits] };
    // Of a piece the first elements exist, if its positions grow.
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
    let message = format!("the shapes of both sides have no common parts: {} and {}", dst.layout, src.layout);
    Diagnostic::error(OTHER_SHAPES, span, message)
        .help("give both sides one shape; of contiguous sides the smaller one counts")
}
