//! Splits the elements of one access into pieces that are consecutive and aligned, and computes how
//! many elements of a piece are within bounds.

use super::place::TensorAddress;
use crate::codes::{BAD_BOUND, NOT_STATIC};
use crate::edit::Emit;
use crate::index::poison;
use crate::report::{Cover, Narrow};
use rustc_hash::FxHashMap;
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::Builder;
use weft_ir::{BinOp, Int, Layout, Scalar, Value};

/// The elements of one access.
#[derive(Debug)]
pub(super) struct Fragment {
    /// The type of the elements.
    pub elem: Scalar,
    /// The number of all elements.
    pub lanes: u32,
    /// The number of elements per piece. They are consecutive in memory and in coordinate order,
    /// and aligned to their size.
    pub width: u32,
    /// The offset of each piece from the first element, in elements.
    pub starts: Vec<Int>,
    /// The bounds that are not proven to hold.
    limits: Vec<Limit>,
    /// The knowledge about the bounds.
    pub cover: Cover,
    /// The reason why the pieces are not wider.
    pub narrow: Option<Narrow>,
    /// The reason why the warps do not move whole matrices although the distribution would permit
    /// it.
    pub no_matrices: Option<String>,
}

/// A bound, evaluated for each piece.
#[derive(Debug)]
struct Limit {
    /// Positions below this limit exist.
    limit: Int,
    /// The position of each piece's first element.
    starts: Vec<Int>,
    /// The distance between the positions of a piece's neighbouring elements, which is not
    /// negative.
    step: i64,
    /// Positions that are all below the limit if and only if all elements exist.
    tops: Vec<Int>,
}

/// A flattened and coalesced layout with a static shape.
struct Modes(Vec<(i64, Int)>);

impl Modes {
    fn new(layout: &Layout, span: Span) -> Built<Modes> {
        let mut modes: Vec<(i64, Int)> = Vec::new();
        for (extent, stride) in layout.shape().leaves().into_iter().zip(layout.stride().leaves()) {
            let Some(extent) = extent.as_const() else {
                return Err(Diagnostic::error(
                    NOT_STATIC,
                    span,
                    format!("the extent {extent} of {layout} is known only at run time"),
                )
                .help("tile this mode by a constant and loop over the tiles"));
            };
            if let Some(p) = stride.poison() {
                return Err(poison(p, span));
            }
            match modes.last_mut() {
                _ if extent == 1 => {}
                Some((e, d)) if *stride == &*d * *e => *e = e.saturating_mul(extent),
                _ => modes.push((extent, stride.clone())),
            }
        }
        Ok(Modes(modes))
    }

    fn size(&self) -> i64 {
        self.0.iter().fold(1, |n, (e, _)| n.saturating_mul(*e))
    }

    /// The offset of element `index` in coordinate order.
    fn at(&self, mut index: i64) -> Int {
        let mut offset = Int::ZERO;
        for (extent, stride) in &self.0 {
            offset = offset + stride * (index % extent);
            index /= extent;
        }
        offset
    }

    /// The greatest offset, if no stride can be negative.
    fn top(&self) -> Option<Int> {
        let grows = self.0.iter().all(|(_, d)| d.lower_bound() >= 0);
        grows.then(|| self.0.iter().fold(Int::ZERO, |top, (e, d)| top + d * (e - 1)))
    }

    /// The distance between neighbours in every aligned group of `width` elements, if it is
    /// constant.
    fn step(&self, width: u32) -> Option<i64> {
        match self.0.first() {
            _ if width == 1 => Some(0),
            None => Some(0),
            Some((e, d)) if e % i64::from(width) == 0 => d.as_const(),
            Some(_) => None,
        }
    }
}

impl Fragment {
    /// Splits the elements of a place into pieces as wide as one of `legal` (in elements, widest
    /// first), or into single elements if none of them fits.
    pub fn new(place: &TensorAddress, legal: &[u32], span: Span) -> Built<Fragment> {
        let t = &place.ty;
        let modes = Modes::new(&t.layout, span)?;
        let size = modes.size();
        let bounds: Vec<_> = t
            .bounds
            .iter()
            .map(|b| Modes::new(&b.layout, span).map(|modes| (b, modes)))
            .collect::<Built<_>>()?;
        if let Some((b, _)) = bounds.iter().find(|(_, m)| m.size() != size) {
            let message = format!("the bound {} does not fit the view {}", b.layout, t.layout);
            return Err(Diagnostic::error(BAD_BOUND, span, message));
        }

        let mut narrow = None;
        let mut width = 1;
        for &w in legal {
            let refused = refuse(place, &modes, w)
                .or_else(|| bounds.iter().find(|(_, m)| m.step(w).is_none_or(|s| s < 0)).map(bound_refuses));
            if refused.is_none() {
                width = w;
                break;
            }
            narrow = refused;
        }
        if narrow.is_none() && width * t.elem.bytes() < 16 {
            narrow = Some(Narrow::Isa);
        }
        let firsts = || (0..size / i64::from(width)).map(|k| k * i64::from(width));
        let mut fragment = Fragment {
            elem: t.elem,
            lanes: u32::try_from(size).unwrap_or(u32::MAX),
            width,
            starts: firsts().map(|e| modes.at(e)).collect(),
            limits: Vec::new(),
            cover: Cover::All,
            narrow,
            no_matrices: None,
        };
        for (b, modes) in &bounds {
            for p in [&b.limit, &b.offset] {
                if let Some(p) = p.poison() {
                    return Err(poison(p, span));
                }
            }
            let top = modes.top().map(|top| &b.offset + top);
            if top.as_ref().is_some_and(|top| top.is_lt(&b.limit)) {
                continue;
            }
            let step = modes.step(width).unwrap_or(0);
            let starts: Vec<Int> = firsts().map(|e| &b.offset + modes.at(e)).collect();
            let last = step.saturating_mul(i64::from(width) - 1);
            let tops = top.map_or_else(|| starts.iter().map(|s| s + last).collect(), |top| vec![top]);
            fragment.limits.push(Limit { limit: b.limit.clone(), starts, step, tops });
        }
        fragment.cover = match fragment.limits.iter().all(|l| l.is_whole(width)) {
            _ if fragment.limits.is_empty() => Cover::All,
            true => Cover::Whole,
            false => Cover::Cut,
        };
        Ok(fragment)
    }

    /// The offset and the number of lanes of every piece.
    pub fn pieces(&self) -> Vec<(Int, u32)> {
        self.starts.iter().map(|at| (at.clone(), self.width)).collect()
    }

    /// The fragment without the pieces that repeat an earlier one, and the number of the piece
    /// that has the elements of each piece. Elements repeat along modes with a stride of 0.
    pub fn distinct(&self) -> (Fragment, Vec<usize>) {
        let mut seen = FxHashMap::default();
        let mut firsts = Vec::new();
        let numbers = (0..self.starts.len())
            .map(|k| {
                let positions: Vec<&Int> = self.limits.iter().map(|l| &l.starts[k]).collect();
                *seen.entry((&self.starts[k], positions)).or_insert_with(|| {
                    firsts.push(k);
                    firsts.len() - 1
                })
            })
            .collect();
        let of = |all: &[Int]| match all.len() == self.starts.len() {
            true => firsts.iter().map(|k| all[*k].clone()).collect(),
            false => all.to_vec(),
        };
        let limit = |l: &Limit| Limit {
            limit: l.limit.clone(),
            starts: of(&l.starts),
            step: l.step,
            tops: of(&l.tops),
        };
        let fragment = Fragment {
            elem: self.elem,
            lanes: u32::try_from(firsts.len()).unwrap_or(u32::MAX).saturating_mul(self.width),
            width: self.width,
            starts: of(&self.starts),
            limits: self.limits.iter().map(limit).collect(),
            cover: self.cover,
            narrow: self.narrow.clone(),
            no_matrices: self.no_matrices.clone(),
        };
        (fragment, numbers)
    }

    /// Whether every element exists, as a value, or `None` if that is proven.
    pub fn all_inside(&self, b: &mut Builder) -> Built<Option<Value>> {
        let mut tests = Vec::new();
        for l in &self.limits {
            for top in &l.tops {
                if !top.is_lt(&l.limit) {
                    tests.push(b.less(top, &l.limit)?);
                }
            }
        }
        b.all(tests)
    }

    /// Whether every element of a piece exists, as a value, or `None` if that is proven.
    pub fn piece_inside(&self, b: &mut Builder, piece: usize) -> Built<Option<Value>> {
        let mut tests = Vec::new();
        for l in &self.limits {
            let last = l.starts[piece].clone() + l.step.saturating_mul(i64::from(self.width) - 1);
            // If a piece exists as a whole or not at all, the test of its first element is
            // equivalent to that of its last, and is shared.
            let at = if l.is_whole(self.width) { &l.starts[piece] } else { &last };
            if !at.is_lt(&l.limit) {
                tests.push(b.less(at, &l.limit)?);
            }
        }
        b.all(tests)
    }

    /// The number of existing elements of a piece, which are its first ones.
    pub fn count(&self, b: &mut Builder, piece: usize) -> Built<Int> {
        let width = Int::from(self.width);
        let mut count = width.clone();
        for l in &self.limits {
            // Both sides are also computed for the test of the whole fragment.
            let (limit, start) = (b.index(l.limit.clone())?, b.index(l.starts[piece].clone())?);
            let left = b.binary(BinOp::Sub, limit, start)?;
            let left = b.symbol(left)?;
            let here = if l.step == 0 { left * &width } else { left.ceil_div(&Int::from(l.step)) };
            count = count.min(&here);
        }
        Ok(count.max(&Int::ZERO))
    }
}

impl Limit {
    /// Whether each piece exists as a whole or not at all: the limit and the pieces' positions are
    /// multiples of a number that is at least the span of a piece.
    fn is_whole(&self, width: u32) -> bool {
        let last = self.step.saturating_mul(i64::from(width) - 1);
        last == 0 || last < self.starts.iter().fold(self.limit.divisor(), |g, s| gcd(g, s.divisor()))
    }
}

/// The reason why memory does not permit pieces of `width` elements.
fn refuse(place: &TensorAddress, modes: &Modes, width: u32) -> Option<Narrow> {
    if width == 1 {
        return None;
    }
    let w = i64::from(width);
    let run = match modes.0.first() {
        Some((extent, stride)) if stride.is(1) => *extent,
        _ => 1,
    };
    if run == modes.size() && run < w {
        return Some(Narrow::Few);
    }
    if run % w != 0 {
        return Some(Narrow::Layout { run, layout: place.ty.layout.to_string() });
    }
    let bytes = width * place.ty.elem.bytes();
    if !place.align.is_multiple_of(bytes) {
        return Some(Narrow::Alignment { bytes: place.align, limit: place.limit() });
    }
    let odd = modes.0.iter().skip(1).find(|(_, d)| d.divisor() % w != 0)?;
    let aligned = odd.1.divisor().trailing_zeros().min(4);
    let limit = format!("stride {} of {}", odd.1, place.ty.layout);
    Some(Narrow::Alignment { bytes: place.ty.elem.bytes() << aligned, limit })
}

fn bound_refuses((b, _): &(&weft_ir::Bound, Modes)) -> Narrow {
    Narrow::Bound { layout: b.layout.to_string() }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
