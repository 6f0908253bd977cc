//! [`ComposedLayout`]: a layout followed by an offset and a swizzle.

use std::fmt::{self, Display, Formatter};

use crate::algebra::coalesce::flat;
use crate::algebra::partition::{Cut, Side, cut, thread_tile};
use crate::coord::{Coord, dice};
use crate::error::{Mode, invalid};
use crate::{Int, IntTuple, Layout, LayoutError, Result, Swizzle, Tiler};

/// `swizzle o offset o layout`: adds a fixed offset to the layout's offset, then swizzles the sum.
///
/// The inner layout defines the domain. A function of layouts that works on the domain alone
/// (divisions, products, modes, coalesce) carries over through [`ComposedLayout::map`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ComposedLayout {
    swizzle: Swizzle,
    offset: Int,
    layout: Layout,
}

/// A slice of a swizzled layout. It is plain if the slice reaches only bits that the swizzle does
/// not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnyLayout {
    /// A layout without a swizzle.
    Plain(Layout),
    /// The slice is still swizzled.
    Composed(ComposedLayout),
}

impl ComposedLayout {
    /// Creates `swizzle o offset o layout`.
    ///
    /// # Errors
    /// Fails if the offset has no value.
    pub fn new(swizzle: Swizzle, offset: Int, layout: Layout) -> Result<ComposedLayout> {
        match offset.poison() {
            Some(poison) => Err(LayoutError::Arithmetic { function: "composition", poison }),
            None => Ok(ComposedLayout { swizzle, offset, layout }),
        }
    }

    /// The outer function, which permutes offsets.
    pub fn swizzle(&self) -> Swizzle {
        self.swizzle
    }

    /// The offset that is added to the layout's offset before swizzling.
    pub fn offset(&self) -> &Int {
        &self.offset
    }

    /// The inner layout, which maps coordinates to offsets.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Applies `f` to the inner layout, and keeps the swizzle and the offset.
    ///
    /// # Errors
    /// Fails where `f` fails.
    pub fn map(&self, f: impl FnOnce(&Layout) -> Result<Layout>) -> Result<ComposedLayout> {
        Ok(ComposedLayout { swizzle: self.swizzle, offset: self.offset.clone(), layout: f(&self.layout)? })
    }

    /// The offset of `coord`: `swizzle(offset + layout(coord))`.
    ///
    /// # Errors
    /// Fails if `coord` is not weakly congruent with the inner layout.
    pub fn crd2idx(&self, coord: &IntTuple) -> Result<Int> {
        let index = self.swizzle.apply(&(&self.offset + self.layout.crd2idx(coord)?));
        match index.poison() {
            Some(poison) => Err(LayoutError::Arithmetic { function: "crd2idx", poison }),
            None => Ok(index),
        }
    }

    /// A layout that undoes this one from the right, as far as the inner layout has one.
    ///
    /// Post: `self(result(i)) == i` for all i in the size of the result.
    ///
    /// # Errors
    /// Fails if the offset is not 0, or if the inverse moves the swizzle's bits apart.
    pub fn right_inverse(&self) -> Result<AnyLayout> {
        self.without_offset("right_inverse")?;
        let inverse = self.layout.right_inverse()?;
        // The swizzle must map the indices of the inverse onto themselves. Otherwise both layouts
        // must continue alike.
        let (y, z) = (self.swizzle.source_mask(), self.swizzle.target_mask());
        let block = Int::from(1i64 << (64 - z.leading_zeros()));
        let idle = y == 0 || inverse.size().is_le(&Int::from(y & y.wrapping_neg()));
        let goes_on = flat(&self.layout).last().is_some_and(|(s, _)| !s.is(1))
            && flat(&self.layout.coalesce()?).last().is_some_and(|(s, d)| s * d == inverse.size());
        match swizzle_after(&inverse, self.swizzle) {
            Ok(result) if idle || goes_on || inverse.size().is_divisible_by(&block) => Ok(result),
            Err(error) => Err(error),
            Ok(_) => invalid(
                "right_inverse",
                format!(
                    "{} moves offsets past the {} that {} has an inverse for",
                    self.swizzle,
                    inverse.size(),
                    self.layout
                ),
            ),
        }
    }

    /// A layout that undoes this one from the left.
    ///
    /// Post: `self(result(self(i))) == self(i)` for all i in the size of this layout.
    ///
    /// # Errors
    /// Fails if the offset is not 0, or if the inverse moves the swizzle's bits apart.
    pub fn left_inverse(&self) -> Result<AnyLayout> {
        self.without_offset("left_inverse")?;
        swizzle_after(&self.layout.left_inverse()?, self.swizzle)
    }

    fn without_offset(&self, function: &'static str) -> Result<()> {
        if self.offset.is(0) {
            return Ok(());
        }
        invalid(function, format!("{self} has an offset, so its inverse is not a swizzle of a layout"))
    }

    /// The composition `lhs ∘ self`, which applies `lhs` last.
    ///
    /// Post: `result(c) == lhs(self(c))`.
    ///
    /// # Errors
    /// Fails if the offset is not 0, or if `lhs` moves the swizzle's bits apart.
    pub fn composition_after(&self, lhs: &Layout) -> Result<AnyLayout> {
        self.without_offset("composition")?;
        match swizzle_below(lhs, self.swizzle, &lhs.size().max(&self.layout.cosize()))? {
            AnyLayout::Plain(l) => l.composition(&self.layout).map(AnyLayout::Plain),
            AnyLayout::Composed(c) => c.map(|l| l.composition(&self.layout)).map(AnyLayout::Composed),
        }
    }

    /// The layout in units of `n` elements. See [`Layout::upcast`].
    ///
    /// # Errors
    /// Fails where [`Layout::upcast`] fails, if `n` is not a power of two, or if it does not divide the
    /// offset.
    pub fn upcast(&self, n: i64) -> Result<ComposedLayout> {
        let swizzle = self.swizzle.upcast(n)?;
        let by = Int::from(n);
        if !self.offset.is_divisible_by(&by) {
            let (function, mode, value) = ("upcast", Mode::default(), self.offset.clone());
            return Err(LayoutError::NotDivisible { function, mode, value, by });
        }
        ComposedLayout::new(swizzle, self.offset.floor_div(&by), self.layout.upcast(n)?)
    }

    /// The layout in units of a `n`-th of an element. See [`Layout::downcast`].
    ///
    /// # Errors
    /// Fails where [`Layout::downcast`] fails, or if `n` is not a power of two.
    pub fn downcast(&self, n: i64) -> Result<ComposedLayout> {
        ComposedLayout::new(self.swizzle.downcast(n)?, &self.offset * n, self.layout.downcast(n)?)
    }

    /// The layout of the same memory read as elements of `to` bits instead of `from` bits.
    ///
    /// # Errors
    /// Fails where [`ComposedLayout::upcast`] or [`ComposedLayout::downcast`] fails.
    pub fn recast(&self, from: i64, to: i64) -> Result<ComposedLayout> {
        let (up, down) = crate::algebra::recast::ratio("recast", from, to)?;
        let coarse = if up == 1 { self.clone() } else { self.upcast(up)? };
        if down == 1 { Ok(coarse) } else { coarse.downcast(down) }
    }

    /// See [`Layout::max_common_vector`]. A swizzle keeps runs of `2^base` elements together.
    ///
    /// # Errors
    /// Fails where [`Layout::max_common_vector`] fails.
    pub fn max_common_vector(&self, other: &Layout) -> Result<Int> {
        Ok(self.layout.max_common_vector(other)?.min(&self.run()))
    }

    /// See [`Layout::max_common_vector`]. Two equal swizzles do not affect the result.
    ///
    /// # Errors
    /// Fails where [`Layout::max_common_vector`] fails.
    pub fn max_common_vector_composed(&self, other: &ComposedLayout) -> Result<Int> {
        let plain = self.layout.max_common_vector(&other.layout)?;
        let equal = self.swizzle == other.swizzle;
        Ok(if equal { plain } else { plain.min(&self.run()).min(&other.run()) })
    }

    /// See [`Layout::max_common_layout`]. A swizzle keeps runs of `2^base` elements together.
    ///
    /// # Errors
    /// Fails where [`Layout::max_common_layout`] fails.
    pub fn max_common_layout(&self, other: &Layout) -> Result<Layout> {
        let common = self.layout.max_common_layout(other)?;
        let run = self.run();
        if common.size().is_le(&run) { Ok(common) } else { common.compose(&Tiler::Int(run)) }
    }

    fn run(&self) -> Int {
        Int::from(1i64 << self.swizzle.base())
    }

    /// The largest n that [`ComposedLayout::upcast`] accepts without losing bits of the swizzle.
    ///
    /// # Errors
    /// Fails where [`Layout::max_alignment`] fails.
    pub fn max_alignment(&self) -> Result<Int> {
        let of_layout = self.layout.max_alignment()?.as_const().unwrap_or(1);
        let shared =
            crate::int::gcd(crate::int::gcd(of_layout, self.offset.divisor()), 1 << self.swizzle.base());
        Ok(shared.into())
    }

    /// The sublayout of the modes for which `coord` has a `_`, and an offset to add to it. It
    /// decays to a plain layout if the swizzle combines no two of its bits and the coordinate is
    /// constant.
    ///
    /// Post: `result(c) + offset == self(coord with c for its _s)`.
    ///
    /// # Errors
    /// Fails if `coord` is not weakly congruent with the layout.
    pub fn slice_and_offset(&self, coord: &Coord) -> Result<(AnyLayout, Int)> {
        if let Some(decayed) = self.decay(coord) {
            return Ok(decayed);
        }
        let (layout, offset) = self.layout.slice_and_offset(coord)?;
        let sliced = ComposedLayout::new(self.swizzle, &self.offset + offset, layout)?;
        Ok((AnyLayout::Composed(sliced), Int::ZERO))
    }

    /// CuTe's slice of a swizzled layout. The part of the coordinate outside the swizzled bits
    /// becomes a plain offset. The swizzle is dropped if it has no effect on the slice. The result
    /// is `None` if the layout does not permit this.
    fn decay(&self, coord: &Coord) -> Option<(AnyLayout, Int)> {
        fn all_kept(c: &Coord) -> bool {
            match c {
                Coord::Int(_) => false,
                Coord::All => true,
                Coord::Tuple(t) => t.iter().all(all_kept),
            }
        }
        if all_kept(coord) || self.offset.as_const().is_none() || self.swizzle.bits() == 0 {
            return None;
        }
        let (sw, fields) = (self.swizzle, SwizzleFields::new(self.swizzle));
        let (only, anti) = (fields.projection(true).ok()?, fields.projection(false).ok()?);
        let sliced = self.layout.slice(coord).ok()?;
        let diced = self.layout.dice(coord).ok()?;
        let consumed = dice(coord, coord).ok()?.origin();
        let swizzled = only.composition(&diced).ok()?.crd2idx(&consumed).ok()?;
        let passed = anti.composition(&diced).ok()?.crd2idx(&consumed).ok()?;
        let (mine, swizzled, passing) = (self.offset.as_const()?, swizzled.as_const()?, passed.as_const()?);
        // A sum is a bitwise or only if no two terms share a bit.
        let mut used = disjoint(mine, swizzled).and_then(|u| disjoint(u, passing))?;
        for (s, d) in flat(&sliced) {
            used = disjoint(used, bits_of(&s, &d)?)?;
        }
        let offset = mine | swizzled;
        let reach = only.composition(&sliced).ok()?;
        let active = flat(&reach).iter().try_fold(0, |bits, (s, d)| Some(bits | bits_of(s, d)?))?;
        if active & !sw.apply(&active.into()).as_const()? != 0 {
            let rest = ComposedLayout::new(sw, offset.into(), sliced).ok()?;
            return Some((AnyLayout::Composed(rest), passed));
        }
        let plain = fields.linear_at(offset).ok()?.composition(&sliced).ok()?;
        Some((AnyLayout::Plain(plain), sw.apply(&offset.into()) + passed))
    }

    /// [`Layout::inner_partition`] of a swizzled layout.
    ///
    /// # Errors
    /// Fails where [`Layout::inner_partition`] fails.
    pub fn inner_partition(&self, tiler: &Tiler, coord: &Coord) -> Result<(AnyLayout, Int)> {
        self.partition(tiler, coord, Side::Rest)
    }

    /// [`Layout::outer_partition`] of a swizzled layout.
    ///
    /// # Errors
    /// Fails where [`Layout::outer_partition`] fails.
    pub fn outer_partition(&self, tiler: &Tiler, coord: &Coord) -> Result<(AnyLayout, Int)> {
        self.partition(tiler, coord, Side::Tile)
    }

    /// [`Layout::local_partition`] of a swizzled layout.
    ///
    /// # Errors
    /// Fails where [`Layout::local_partition`] fails.
    pub fn local_partition(&self, threads: &Layout, index: &Int) -> Result<(AnyLayout, Int)> {
        let (tiler, coord) = thread_tile(threads, index)?;
        self.outer_partition(&tiler, &coord)
    }

    fn partition(&self, tiler: &Tiler, coord: &Coord, side: Side) -> Result<(AnyLayout, Int)> {
        let Cut { tiled, coord } = cut(&self.layout, tiler, coord, side)?;
        self.map(|_| Ok(tiled))?.slice_and_offset(&coord)
    }
}

/// The bits that a mode of `extent` with `stride` can set, or `None` if it shares bits with others.
fn bits_of(extent: &Int, stride: &Int) -> Option<i64> {
    let (s, d) = (extent.as_const()?, stride.as_const()?);
    let span = u64::try_from(s).ok()?.checked_next_power_of_two()?;
    match d {
        0 => Some(0),
        1.. if d & (d - 1) == 0 => i64::try_from(span - 1).ok()?.checked_mul(d),
        _ => (s <= 1).then_some(0),
    }
}

/// The union of both sets of bits, or `None` if they have bits in common.
fn disjoint(a: i64, b: i64) -> Option<i64> {
    (a & b == 0 && a >= 0 && b >= 0).then_some(a | b)
}

/// `swizzle` after `layout`. The result is the layout itself if the swizzle moves nothing.
///
/// # Errors
/// Does not fail for a layout that has values.
pub fn swizzled(swizzle: Swizzle, layout: Layout) -> Result<AnyLayout> {
    if swizzle.bits() == 0 {
        return Ok(AnyLayout::Plain(layout));
    }
    ComposedLayout::new(swizzle, Int::ZERO, layout).map(AnyLayout::Composed)
}

/// `layout` after `swizzle`, expressed as another swizzle after the layout, which moves the images
/// of the bits.
///
/// Post: `result(i) == layout(swizzle(i))` for all i in the size of the layout.
///
/// # Errors
/// Fails if the layout is symbolic, or does not keep the moved bits together and apart from the
/// others.
pub fn swizzle_after(layout: &Layout, swizzle: Swizzle) -> Result<AnyLayout> {
    swizzle_below(layout, swizzle, &layout.size())
}

/// Does what [`swizzle_after`] does, for all i below `bound`.
fn swizzle_below(layout: &Layout, swizzle: Swizzle, bound: &Int) -> Result<AnyLayout> {
    const NAME: &str = "composition";
    let constant = |i: &Int| {
        i.as_const().ok_or(LayoutError::NotConstant {
            function: NAME,
            mode: Mode::default(),
            value: i.clone(),
        })
    };
    let apart = || invalid(NAME, format!("{layout} moves the bits of {swizzle} apart, or onto others"));
    let modes = flat(&layout.coalesce()?);
    let inner = modes.split_last().map_or(&[][..], |(_, inner)| inner);
    for (s, _) in inner {
        let s = constant(s)?;
        if s & (s - 1) != 0 {
            return invalid(
                NAME,
                format!("extent {s} of {layout} is not a power of two, so {swizzle} cannot pass it"),
            );
        }
    }
    let image = |k: u32| constant(&layout.crd2idx(&(1i64 << k).into())?);
    // The bits that can be set below the bound, the bits that the swizzle reads, and, if it reads
    // any of them, the bits that it writes.
    let within = 64 - (constant(bound)?.max(1) - 1).leading_zeros();
    let (y, z) = (swizzle.source_mask(), swizzle.target_mask());
    let idle = y.trailing_zeros() >= within;
    let (mut used, mut moved) = (0i64, (0, 0));
    for k in 0..62 {
        let (reads, writes) = (y >> k & 1 == 1, z >> k & 1 == 1);
        if k >= within && !reads && !writes {
            continue;
        }
        let bit = image(k)?;
        moved = (if reads { moved.0 | bit } else { moved.0 }, if writes { moved.1 | bit } else { moved.1 });
        if k < within || reads || !idle {
            match disjoint(used, bit) {
                Some(both) => used = both,
                None => return apart(),
            }
        }
    }
    let outer = Swizzle::from_masks(moved.0, moved.1)?;
    // The bits must map one by one, in the same order.
    for k in 0..outer.bits() {
        let low = |mask: i64| mask.trailing_zeros() + k;
        if image(low(y))? != 1 << low(moved.0) || image(low(z))? != 1 << low(moved.1) {
            return apart();
        }
    }
    swizzled(outer, layout.clone())
}

/// The five fields of an offset under a swizzle: the base, the lower bits, the bits between, the
/// upper bits, and the rest.
struct SwizzleFields {
    swizzle: Swizzle,
    extents: [i64; 4],
}

impl SwizzleFields {
    fn new(swizzle: Swizzle) -> Self {
        let distance = swizzle.shift().unsigned_abs();
        let bits = 1 << swizzle.bits();
        SwizzleFields {
            swizzle,
            extents: [1 << swizzle.base(), bits, 1 << (distance - swizzle.bits()), bits],
        }
    }

    fn strides(&self) -> [i64; 5] {
        let mut strides = [1; 5];
        for i in 0..4 {
            strides[i + 1] = strides[i] * self.extents[i];
        }
        strides
    }

    /// The layout that keeps only the swizzled fields of an offset, or only the others.
    fn projection(&self, swizzled: bool) -> Result<Layout> {
        let strides = self.strides();
        let kept = |i: usize| if (i % 2 == 1) == swizzled { strides[i] } else { 0 };
        let extents = self.extents.into_iter().chain([1]);
        Layout::new(IntTuple::tuple(extents), IntTuple::tuple((0..5).map(kept)))
    }

    /// The swizzle as a layout around `offset`. Its strides say what a step along one bit adds
    /// while the bit that is combined with it stays.
    fn linear_at(&self, offset: i64) -> Result<Layout> {
        let lowest = |mask: i64| mask & mask.wrapping_neg();
        let (y, z) = (lowest(self.swizzle.source_mask()), lowest(self.swizzle.target_mask()));
        let along_z = |i: u32| if offset & (y << i) == 0 { z << i } else { -(z << i) };
        let along_y = |i: u32| if offset & (z << i) == 0 { (y + z) << i } else { (y - z) << i };
        let field = |is_z: bool| {
            let bits = 0..self.swizzle.bits();
            IntTuple::tuple(bits.map(|i| IntTuple::from(if is_z { along_z(i) } else { along_y(i) })))
        };
        let twos = || IntTuple::tuple((0..self.swizzle.bits()).map(|_| IntTuple::from(2)));
        let strides = self.strides();
        let shape = [self.extents[0].into(), twos(), self.extents[2].into(), twos(), 1.into()];
        let stride = [1.into(), field(z < y), strides[2].into(), field(z > y), strides[4].into()];
        Layout::new(IntTuple::tuple(shape), IntTuple::tuple(stride))
    }
}

impl Display for ComposedLayout {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} o {} o {}", self.swizzle, self.offset, self.layout)
    }
}

impl Display for AnyLayout {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            AnyLayout::Plain(l) => write!(f, "{l}"),
            AnyLayout::Composed(c) => write!(f, "{c}"),
        }
    }
}
