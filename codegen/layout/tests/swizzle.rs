//! Tests of swizzles, swizzled layouts, partitions and tiled copies.
#![allow(clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use support::*;
use weft_layout::{
    AnyLayout, ComposedLayout, Coord, CopyAtom, Int, IntTuple, Layout, Side, Swizzle, TiledCopy, Tiler,
    swizzle_after, swizzled,
};

fn swizzle() -> impl Strategy<Value = Swizzle> {
    (0u32..4, 0u32..4, 0i32..3, any::<bool>()).prop_map(|(bits, base, more, up)| {
        let shift = bits as i32 + more;
        Swizzle::new(bits, base, if up { shift } else { -shift }).unwrap()
    })
}

/// Shapes of powers of two that are compact from either side.
fn powers() -> impl Strategy<Value = Layout> {
    (proptest::collection::vec(0u32..5, 1..4), any::<bool>()).prop_map(|(logs, left)| {
        let shape = IntTuple::tuple(logs.into_iter().map(|l| 1i64 << l));
        if left { Layout::col_major(shape) } else { Layout::row_major(shape) }.unwrap()
    })
}

/// The swizzle computed by its definition on bits.
fn reference(s: Swizzle, x: i64) -> i64 {
    let bits = (1i64 << s.bits()) - 1;
    let (low, high) = (s.base(), s.base() + s.shift().unsigned_abs());
    if s.shift() >= 0 { x ^ ((x >> high & bits) << low) } else { x ^ ((x >> low & bits) << high) }
}

fn composed_at(l: &AnyLayout, i: i64) -> i64 {
    match l {
        AnyLayout::Plain(l) => at(l, i),
        AnyLayout::Composed(c) => reference(c.swizzle(), int(c.offset()) + at(c.layout(), i)),
    }
}

fn size_of(l: &AnyLayout) -> i64 {
    match l {
        AnyLayout::Plain(l) => size(l),
        AnyLayout::Composed(c) => size(c.layout()),
    }
}

/// A coordinate into each mode of `shape`, with `_` where the bit is set.
fn coord(shape: &IntTuple, holes: u8, index: i64) -> Coord {
    let parts = shape.as_modes().iter().enumerate().map(|(k, s)| match holes >> k & 1 {
        1 => Coord::All,
        _ => Coord::Int((index % int(&s.product())).into()),
    });
    Coord::Tuple(parts.collect())
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn apply_is_an_involution_by_definition(s in swizzle(), x in 0i64..100_000) {
        let y = s.apply(&x.into());
        prop_assert_eq!(int(&y), reference(s, x));
        prop_assert_eq!(s.apply(&y), Int::from(x));
        // A symbolic offset gives the same swizzled value.
        let var = Int::var(weft_layout::Var { min: 0, ..weft_layout::Var::extent(0, "i") });
        let symbolic = s.apply(&var).subst(&mut |_| Some(x.into()));
        prop_assert_eq!(symbolic, y);
    }

    #[test]
    fn periods_repeat_the_permutation(s in swizzle(), x in 0i64..100_000, n in 0i64..100) {
        let far = s.apply(&(x + n * s.period()).into());
        prop_assert_eq!(int(&far), reference(s, x) + n * s.period());
    }

    #[test]
    fn masks_make_the_swizzle(s in swizzle()) {
        if s.bits() > 0 {
            prop_assert_eq!(Swizzle::from_masks(s.source_mask(), s.target_mask()), Ok(s));
        }
    }

    #[test]
    fn swizzles_compose(a in swizzle(), b in swizzle(), x in 0i64..10_000) {
        if let Ok(c) = a.composition(b) {
            prop_assert_eq!(reference(c, x), reference(a, reference(b, x)), "{} {} {}", a, b, c);
        }
    }

    #[test]
    fn recast_scales_the_swizzle(s in swizzle(), log in 0u32..4, x in 0i64..4096) {
        let n = 1i64 << log;
        prop_assert_eq!(reference(s.downcast(n).unwrap(), x * n), reference(s, x) * n);
        if log <= s.base() {
            prop_assert_eq!(reference(s.upcast(n).unwrap(), x) * n, reference(s, x * n));
        }
        prop_assert_eq!(s.downcast(n).unwrap().recast(8, 8 * n).unwrap(), s);
        prop_assert!(s.upcast(3).is_err());
    }

    #[test]
    fn composed_layouts_recast(s in swizzle(), l in powers(), log in 0u32..3) {
        let n = 1i64 << log;
        let c = ComposedLayout::new(s, Int::ZERO, l.clone()).unwrap();
        if let (Ok(fine), true) = (c.downcast(n), log <= s.base()) {
            prop_assert_eq!(fine.upcast(n).unwrap().swizzle(), s);
        }
    }

    #[test]
    fn inverses_of_swizzled_layouts(s in swizzle(), l in powers()) {
        let c = ComposedLayout::new(s, Int::ZERO, l.clone()).unwrap();
        let whole = AnyLayout::Composed(c.clone());
        if let Ok(r) = c.right_inverse() {
            for i in 0..size_of(&r) {
                prop_assert_eq!(composed_at(&whole, composed_at(&r, i)), i, "{} and {}", c, r);
            }
        }
        if let Ok(r) = c.left_inverse() {
            for i in 0..size(&l) {
                prop_assert_eq!(composed_at(&r, composed_at(&whole, i)), i, "{} and {}", c, r);
            }
        }
        prop_assert!(ComposedLayout::new(s, 8.into(), l).unwrap().right_inverse().is_err());
    }

    #[test]
    fn layout_after_swizzle(s in swizzle(), l in powers()) {
        // The swizzle must stay within the layout's domain.
        if let Ok(r) = swizzle_after(&l, s) && (s.source_mask() | s.target_mask()) < size(&l) {
            for i in 0..size(&l) {
                prop_assert_eq!(composed_at(&r, i), at(&l, reference(s, i)), "{} o {} = {}", l, s, r);
            }
        }
    }

    #[test]
    fn layout_after_swizzled_layout(a in powers(), s in swizzle(), l in powers()) {
        let c = ComposedLayout::new(s, Int::ZERO, l.clone()).unwrap();
        if let Ok(r) = c.composition_after(&a) {
            for i in 0..size(&l) {
                prop_assert_eq!(composed_at(&r, i), at(&a, reference(s, at(&l, i))), "{} o {} = {}", a, c, r);
            }
        }
    }

    #[test]
    fn slices_of_swizzled_layouts(s in swizzle(), l in powers(), holes: u8, index in 0i64..999, offset in 0i64..64) {
        let c = ComposedLayout::new(s, offset.into(), l.clone()).unwrap();
        let coord = coord(l.shape(), holes, index);
        let (slice, begin) = c.slice_and_offset(&coord).unwrap();
        let (plain, at_0) = l.slice_and_offset(&coord).unwrap();
        for i in 0..size(&plain) {
            let expected = reference(s, offset + int(&at_0) + at(&plain, i));
            prop_assert_eq!(composed_at(&slice, i) + int(&begin), expected, "{} at {} is {} + {}", c, coord, slice, begin);
        }
    }

    #[test]
    fn common_vectors_stop_at_the_swizzle(s in swizzle(), l in powers()) {
        let c = ComposedLayout::new(s, Int::ZERO, l.clone()).unwrap();
        let n = int(&c.max_common_vector(&l).unwrap());
        prop_assert!(n <= 1 << s.base());
        let inverse = l.right_inverse().unwrap();
        for i in 0..n {
            prop_assert_eq!(reference(s, at(&l, at(&inverse, i))), i);
        }
        prop_assert_eq!(c.max_common_vector_composed(&c).unwrap(), l.size());
        prop_assert_eq!(c.max_common_layout(&l).unwrap().size(), n.into());
    }

    #[test]
    fn tiles_partition(l in compact(), n in 1i64..6) {
        let tiler = Tiler::Int(n.into());
        if let Ok(divided) = l.zipped_divide(&tiler) {
            let rest = int(&divided.mode(1).unwrap().size());
            let mut inside = Vec::new();
            for c in 0..rest {
                let (part, begin) = l.inner_partition(&tiler, &c.into()).unwrap();
                inside.extend(offsets(&part).into_iter().map(|o| o + int(&begin)));
            }
            let mut outside = Vec::new();
            for c in 0..n {
                let (part, begin) = l.outer_partition(&tiler, &c.into()).unwrap();
                outside.extend(offsets(&part).into_iter().map(|o| o + int(&begin)));
            }
            prop_assert_eq!(sorted(inside), sorted(offsets(&divided)));
            prop_assert_eq!(sorted(outside), sorted(offsets(&divided)));
        }
    }

    #[test]
    fn threads_partition(
        threads in (0u32..3, 0u32..3), more in (1i64..4, 1i64..4), left: bool, s in swizzle(),
    ) {
        let shape = IntTuple::tuple([1i64 << threads.0, 1 << threads.1]);
        let threads = if left { Layout::col_major(shape) } else { Layout::row_major(shape) }.unwrap();
        let extents = [0, 1].map(|k| int(&threads.mode(k).unwrap().size()) * if k == 0 { more.0 } else { more.1 });
        let data = Layout::col_major(IntTuple::tuple(extents)).unwrap();
        let composed = ComposedLayout::new(s, Int::ZERO, data.clone()).unwrap();
        let (mut all, mut swizzled) = (Vec::new(), Vec::new());
        for i in 0..size(&threads) {
            let (part, begin) = data.local_partition(&threads, &i.into(), None).unwrap();
            all.extend(offsets(&part).into_iter().map(|o| o + int(&begin)));
            let (part, begin) = composed.local_partition(&threads, &i.into()).unwrap();
            swizzled.extend((0..size_of(&part)).map(|k| composed_at(&part, k) + int(&begin)));
        }
        prop_assert_eq!(sorted(all.clone()), sorted(offsets(&data)));
        prop_assert_eq!(sorted(swizzled), sorted(all.into_iter().map(|o| reference(s, o)).collect()));
    }

    #[test]
    fn tiled_copies_partition(
        logs in proptest::collection::vec(0u32..3, 4), left in any::<(bool, bool)>(), atom in 0u32..3, by in (1i64..3, 1i64..3),
    ) {
        let major = |shape: IntTuple, left| if left { Layout::col_major(shape) } else { Layout::row_major(shape) }.unwrap();
        let two = |i: usize| IntTuple::tuple([1i64 << logs[i], 1 << logs[i + 1]]);
        let (threads, values) = (major(two(0), left.0), major(two(2), left.1));
        let made = TiledCopy::make(CopyAtom::universal(1 << atom).unwrap(), &threads, &values);
        if 1 << atom > size(&values) {
            prop_assert!(made.is_err());
            return Ok(());
        }
        let copy = made.unwrap();
        let tile = int(&(threads.size() * values.size()));
        prop_assert_eq!(sorted(offsets(copy.layout_tv())), (0..tile).collect::<Vec<_>>());
        prop_assert_eq!(copy.tiler().shape().unwrap().product(), tile.into());
        // The values of a thread are a block, so threads and values reproduce their own layouts.
        let extents = [0, 1].map(|k| 1 << (logs[k] + logs[k + 2]));
        let data = Layout::col_major(IntTuple::tuple([extents[0] * by.0, extents[1] * by.1])).unwrap();
        for side in [Side::Source, Side::Destination] {
            let mut all = Vec::new();
            for t in 0..size(&threads) {
                let (part, begin) = copy.partition(side, &t.into(), &data).unwrap();
                prop_assert_eq!(part.mode(0).unwrap().size(), values.size());
                all.extend(offsets(&part).into_iter().map(|o| o + int(&begin)));
            }
            prop_assert_eq!(sorted(all), sorted(offsets(&data)));
            let end = copy.end_layout_tv(side).unwrap();
            prop_assert_eq!(sorted(offsets(&end)), (0..tile).collect::<Vec<_>>());
        }
    }
}

#[test]
fn an_atom_with_its_own_source_and_destination() {
    // There are four threads. Thread t reads elements 2t and 2t+1 and writes t and t+4.
    let layout = |s: [i64; 2], d: [i64; 2]| Layout::new(IntTuple::tuple(s), IntTuple::tuple(d)).unwrap();
    let atom = CopyAtom {
        src: layout([4, 2], [2, 1]),
        dst: layout([4, 2], [1, 4]),
        reference: layout([4, 2], [1, 4]),
    };
    let copy = TiledCopy::new(atom, layout([4, 2], [1, 4]), Tiler::from(&IntTuple::tuple([8]))).unwrap();
    let data = Layout::col_major(IntTuple::tuple([16])).unwrap();
    let read = |t: i64, side| {
        let (part, begin) = copy.partition(side, &t.into(), &data).unwrap();
        sorted(offsets(&part).into_iter().map(|o| o + int(&begin)).collect())
    };
    assert_eq!(read(1, Side::Source), [2, 3, 10, 11]);
    assert_eq!(read(1, Side::Destination), [1, 5, 9, 13]);
}

#[test]
fn degenerate_swizzles() {
    assert!(Swizzle::new(3, 0, 2).is_err());
    assert!(Swizzle::new(u32::MAX, u32::MAX, i32::MIN).is_err());
    assert!(Swizzle::from_masks(0b1100, 0b101).is_err());
    assert!(Swizzle::from_masks(-1, -1).is_err());
    let l = Layout::col_major(8).unwrap();
    assert_eq!(swizzled(Swizzle::new(0, 4, 3).unwrap(), l.clone()), Ok(AnyLayout::Plain(l)));
}
