//! Tests of the postcondition of each function of the algebra on random layouts.
#![allow(clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use std::collections::BTreeSet;
use support::*;
use weft_layout::{Int, IntTuple, Layout, LayoutError, Modes, Tiler};

/// A profile of `l` that has some of its modes, each as a whole.
fn profile(l: &Layout, keep: usize) -> IntTuple {
    IntTuple::tuple(vec![1i64; l.rank().min(keep.max(1))])
}

/// A layout that selects elements below `n`. Its modes are strided factors of n in any order, some
/// left out and some repeated.
fn selector(n: i64) -> impl Strategy<Value = Layout> {
    (proptest::collection::vec(0usize..6, 1..5), any::<u64>()).prop_map(move |(picks, seed)| {
        let (mut modes, mut step, mut rest) = (Vec::new(), 1, n);
        for pick in picks {
            let divisors: Vec<i64> = (1..=rest).filter(|d| rest % d == 0).collect();
            let s = divisors[pick % divisors.len()];
            modes.push((s, step));
            step *= s;
            rest /= s;
        }
        let mut kept: Vec<(i64, i64)> = modes
            .into_iter()
            .enumerate()
            .filter(|(i, _)| seed >> i & 1 == 0 || *i == 0)
            .map(|(_, m)| m)
            .collect();
        if seed >> 8 & 3 == 0 {
            kept.reverse();
        }
        if seed >> 10 & 7 == 0 {
            kept.push((2, 0));
        }
        let (s, d): (Vec<i64>, Vec<i64>) = kept.into_iter().unzip();
        Layout::new(IntTuple::tuple(s), IntTuple::tuple(d)).unwrap()
    })
}

fn with_selector(l: impl Strategy<Value = Layout>) -> impl Strategy<Value = (Layout, Layout)> {
    l.prop_flat_map(|a| (selector(size(&a)), Just(a))).prop_map(|(b, a)| (a, b))
}

proptest! {
    #![proptest_config(config(600))]

    #[test]
    fn crd2idx_is_the_inner_product(l in any_layout(), i in 0i64..2000) {
        prop_assert_eq!(int(&l.crd2idx(&i.into()).unwrap()), at(&l, i));
        let i = i % size(&l).max(1);
        let coord = weft_layout::idx2crd(&i.into(), l.shape()).unwrap();
        prop_assert!(coord.is_congruent(l.shape()));
        prop_assert_eq!(int(&l.crd2idx(&coord).unwrap()), at(&l, i));
        prop_assert_eq!(int(&weft_layout::crd2idx(&coord, l.shape()).unwrap()), i);
    }

    #[test]
    fn idx2crd_inverts_compact_layouts(l in compact(), i in 0i64..2000) {
        let i = i % size(&l);
        let coord = l.idx2crd(&i.into()).unwrap();
        prop_assert_eq!(int(&l.crd2idx(&coord).unwrap()), i);
        let flat = l.flat_coord(&i.into()).unwrap();
        prop_assert_eq!(flat.rank(), l.rank());
        prop_assert_eq!(int(&l.crd2idx(&flat).unwrap()), i);
        prop_assert_eq!(at(&l, int(&l.coord_1d(&i.into()).unwrap())), i);
    }

    #[test]
    fn cosize_bounds_the_offsets(l in injective()) {
        prop_assert_eq!(offsets(&l).into_iter().max().unwrap() + 1, int(&l.cosize()));
    }

    #[test]
    fn crd2crd_keeps_the_index(l in shape(), other in any::<bool>(), i in 0i64..2000) {
        let n = l.product();
        let i = i % int(&n);
        let coord = weft_layout::idx2crd(&i.into(), &l).unwrap();
        let to = if other { IntTuple::Int(n) } else { l.clone() };
        let moved = weft_layout::crd2crd(&coord, &l, &to).unwrap();
        prop_assert_eq!(int(&weft_layout::crd2idx(&moved, &to).unwrap()), i);
    }

    #[test]
    fn coalesce_keeps_the_function(l in any_layout()) {
        let r = l.coalesce().unwrap();
        prop_assert!(r.depth() <= 1);
        prop_assert_eq!(offsets(&r), offsets(&l));
        prop_assert_eq!(r.coalesce().unwrap(), r.clone());
        prop_assert!(r.shape().leaves().iter().all(|s| !s.is(1)) || r == Layout::one());
    }

    #[test]
    fn coalesce_by_keeps_the_profile(l in any_layout(), keep in 1usize..4) {
        let p = profile(&l, keep);
        let r = l.coalesce_by(&p).unwrap();
        prop_assert_eq!(r.rank(), l.rank());
        for i in 0..p.rank() {
            prop_assert_eq!(offsets(&r.mode(i).unwrap()), offsets(&l.mode(i).unwrap()));
            prop_assert!(r.mode(i).unwrap().depth() <= 1);
        }
        for i in p.rank()..l.rank() {
            prop_assert_eq!(r.mode(i), l.mode(i));
        }
    }

    #[test]
    fn filter_keeps_the_offsets(l in any_layout()) {
        let r = l.filter().unwrap();
        let set = |l: &Layout| offsets(l).into_iter().collect::<BTreeSet<_>>();
        prop_assert_eq!(set(&r), set(&l));
        prop_assert!(r == Layout::one() || r.stride().leaves().iter().all(|d| !d.is(0)));
        let z = l.filter_zeros();
        prop_assert!(z.shape().is_congruent(l.shape()));
        prop_assert_eq!(set(&z), set(&l));
    }

    #[test]
    fn composition_is_the_composition((a, b) in prop_oneof![
        4 => with_selector(any_layout()),
        1 => (any_layout(), any_layout()),
    ]) {
        if let Ok(r) = a.composition(&b) {
            prop_assert!(b.shape().is_compatible(r.shape()), "{} and {}", b, r);
            for i in 0..size(&b) {
                // Outside of a's domain a negative index has no digits of its own.
                if at(&b, i) >= 0 {
                    prop_assert_eq!(at(&r, i), at(&a, at(&b, i)), "{} o {} => {} at {}", a, b, r, i);
                }
            }
        }
    }

    #[test]
    fn composition_with_one_mode_or_of_selectors_is_defined((a, b) in with_selector(compact())) {
        // Any layout composes with a bijection of one mode.
        let one = Layout::new(a.size(), 3).unwrap();
        prop_assert!(one.composition(&b).is_ok());
        prop_assert_eq!(a.composition(&Layout::col_major(a.shape().clone()).unwrap()).map(|r| offsets(&r)), Ok(offsets(&a)));
    }

    #[test]
    fn composition_is_associative((a, b) in with_selector(compact()), c in 1i64..9) {
        let c = Layout::new(c.min(size(&b)), 1).unwrap();
        if let (Ok(ab), Ok(bc)) = (a.composition(&b), b.composition(&c))
            && let (Ok(x), Ok(y)) = (ab.composition(&c), a.composition(&bc))
        {
            prop_assert_eq!(offsets(&x), offsets(&y));
        }
    }

    #[test]
    fn compose_by_mode(l in any_layout(), n in 1usize..3) {
        let n = n.min(l.rank());
        let tilers: Vec<Tiler> = (0..n).map(|i| Tiler::Int(l.mode(i).unwrap().size())).collect();
        if l.shape().as_tuple().is_some() {
            let r = l.compose(&Tiler::Tuple(tilers)).unwrap();
            prop_assert_eq!(r.rank(), n);
            for i in 0..n {
                prop_assert_eq!(offsets(&r.mode(i).unwrap()), offsets(&l.mode(i).unwrap()));
            }
        }
    }

    #[test]
    fn with_shape_keeps_the_function(l in any_layout()) {
        let r = l.with_shape(&l.size().into()).unwrap();
        prop_assert_eq!(offsets(&r), offsets(&l));
    }

    #[test]
    fn complement_is_ordered_disjoint_and_fills(l in injective(), n in 1i64..300) {
        let r = l.complement(&n.into()).unwrap();
        let image: BTreeSet<i64> = offsets(&l).into_iter().collect();
        let list = offsets(&r);
        prop_assert!(list.windows(2).all(|w| w[0] < w[1]), "{}", r);
        prop_assert!(list.iter().skip(1).all(|o| !image.contains(o)), "{} and {}", l, r);
        let both = join(vec![l.clone(), r]);
        prop_assert!(int(&both.cosize()) >= n);
        let all = offsets(&both);
        prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "the repetitions overlap");
    }

    #[test]
    fn complement_of_overlapping_modes_is_an_error(l in wild()) {
        let filtered = l.filter().unwrap();
        let list = offsets(&filtered);
        let injective = list.iter().collect::<BTreeSet<_>>().len() == list.len();
        if let Ok(r) = l.complement_self() {
            prop_assert!(injective, "{} => {}", l, r);
        }
    }

    #[test]
    fn right_inverse_inverts(l in any_layout()) {
        let r = l.right_inverse().unwrap();
        for i in 0..size(&r) {
            prop_assert_eq!(at(&l, at(&r, i)), i, "{} and {}", l, r);
        }
    }

    #[test]
    fn right_inverse_of_a_bijection_is_its_inverse(l in compact()) {
        prop_assert_eq!(size(&l.right_inverse().unwrap()), size(&l));
    }

    #[test]
    fn left_inverse_inverts(l in any_layout()) {
        if let Ok(r) = l.left_inverse() {
            for i in 0..size(&l) {
                prop_assert_eq!(at(&l, at(&r, at(&l, i))), at(&l, i), "{} and {}", l, r);
            }
        }
    }

    #[test]
    fn left_inverse_of_injective_layouts_is_the_inverse(l in injective()) {
        let r = l.left_inverse().unwrap();
        for i in 0..size(&l) {
            prop_assert_eq!(at(&r, at(&l, i)), i, "{} and {}", l, r);
        }
    }

    #[test]
    fn nullspace_maps_to_0(l in any_layout()) {
        let r = l.nullspace().unwrap();
        prop_assert!(offsets(&r).into_iter().all(|i| at(&l, i) == 0), "{} and {}", l, r);
        prop_assert_eq!(size(&r), size(&l) / size(&l.filter().unwrap()));
    }

    #[test]
    fn max_common_is_common(a in compact(), b in compact()) {
        if let (Ok(r), Ok(n)) = (a.max_common_layout(&b), a.max_common_vector(&b)) {
            prop_assert_eq!(size(&r), int(&n));
            for i in 0..size(&r) {
                prop_assert_eq!((at(&a, at(&r, i)), at(&b, at(&r, i))), (i, i), "{} {} => {}", a, b, r);
            }
        }
        prop_assert_eq!(a.max_common_vector(&a), Ok(a.size()));
    }

    #[test]
    fn domain_distribute_divides(s in shape(), n in 1i64..40) {
        let r = Layout::domain_distribute(&s, &n.into()).unwrap();
        prop_assert_eq!(n % size(&r), 0);
        prop_assert!(offsets(&r).windows(2).all(|w| w[0] < w[1]));
        prop_assert!(offsets(&r).iter().all(|&i| i < int(&s.product())));
    }

    #[test]
    fn logical_divide_splits_and_loses_nothing((a, b) in with_selector(any_layout())) {
        if let Ok(r) = a.logical_divide(&b.clone().into()) {
            prop_assert_eq!(r.rank(), 2);
            let (tile, rest) = (r.mode(0).unwrap(), r.mode(1).unwrap());
            prop_assert!(b.shape().is_compatible(tile.shape()));
            // A tile of broadcast elements repeats them. All elements that it points to are present
            // nonetheless.
            let all: BTreeSet<i64> = offsets(&r).into_iter().collect();
            prop_assert!(offsets(&a).iter().all(|o| all.contains(o)), "{} / {} => {} loses some", a, b, r);
            let plain = b.filter().unwrap();
            if size(&plain) * size(&rest) == size(&a) && size(&plain) == size(&b) {
                prop_assert_eq!(sorted(offsets(&r)), sorted(offsets(&a)), "{} / {} => {}", a, b, r);
            }
        }
    }

    #[test]
    fn divisions_have_the_same_elements(l in any_layout(), n in 1i64..7, m in 1i64..7) {
        let tiler = match l.shape().rank() {
            0 | 1 => Tiler::Int(n.into()),
            _ => Tiler::Tuple(vec![Tiler::Int(n.into()), Tiler::Int(m.into())]),
        };
        if let Ok(logical) = l.logical_divide(&tiler) {
            let expected = sorted(offsets(&logical));
            let zipped = l.zipped_divide(&tiler).unwrap();
            prop_assert_eq!(zipped.rank(), 2);
            prop_assert_eq!(int(&zipped.mode(0).unwrap().size()), n * if l.rank() > 1 { m } else { 1 });
            for r in [zipped, l.tiled_divide(&tiler).unwrap(), l.flat_divide(&tiler).unwrap()] {
                prop_assert_eq!(sorted(offsets(&r)), expected.clone());
            }
        }
    }

    #[test]
    fn logical_product_repeats_the_block((a, b) in (injective(), compact())) {
        if size(&a) * size(&b) > 4096 { return Ok(()); }
        if let Ok(r) = a.logical_product(&b.clone().into()) {
            prop_assert_eq!(r.mode(0), Some(a.clone()));
            let copies = r.mode(1).unwrap();
            prop_assert!(b.shape().is_compatible(copies.shape()));
            let list = offsets(&r);
            prop_assert_eq!(list.iter().collect::<BTreeSet<_>>().len(), list.len(), "{} x {} => {}", a, b, r);
            // The repetitions follow the order of the tiler.
            let order = |l: &Layout| {
                let mut ids: Vec<i64> = (0..size(l)).collect();
                ids.sort_by_key(|&i| at(l, i));
                ids
            };
            prop_assert_eq!(order(&copies), order(&b));
            for p in [a.zipped_product(&b.clone().into()), a.tiled_product(&b.clone().into()), a.flat_product(&b.clone().into())] {
                prop_assert_eq!(sorted(offsets(&p.unwrap())), sorted(list.clone()));
            }
        }
    }

    #[test]
    fn blocked_and_raked_products_have_those_elements(a in compact(), b in compact()) {
        if size(&a) * size(&b) > 4096 { return Ok(()); }
        if let (Ok(blocked), Ok(raked)) = (a.blocked_product(&b), a.raked_product(&b)) {
            let rank = a.rank().max(b.rank());
            prop_assert_eq!((blocked.rank(), raked.rank()), (rank, rank));
            prop_assert_eq!(sorted(offsets(&blocked)), (0..size(&a) * size(&b)).collect::<Vec<_>>());
            prop_assert_eq!(sorted(offsets(&raked)), sorted(offsets(&blocked)));
        }
    }

    #[test]
    fn tile_to_shape_fills_the_shape(a in compact(), by in proptest::collection::vec(1i64..4, 4)) {
        let target = IntTuple::tuple((0..a.rank()).map(|i| a.mode(i).unwrap().size() * by[i % 4]));
        if int(&target.product()) > 4096 { return Ok(()); }
        if let Ok(r) = a.tile_to_shape(&target, None) {
            prop_assert!(target.is_compatible(r.shape()));
            prop_assert_eq!(sorted(offsets(&r)), (0..size(&r)).collect::<Vec<_>>());
        }
        let odd = IntTuple::tuple((0..a.rank()).map(|i| a.mode(i).unwrap().size() * by[i % 4] + 1));
        if size(&a) > 1 {
            let refused = matches!(a.tile_to_shape(&odd, None), Err(LayoutError::NotDivisible { .. }));
            prop_assert!(refused || (0..a.rank()).all(|i| int(&a.mode(i).unwrap().size()) == 1));
        }
    }

    #[test]
    fn upcast_counts_in_groups(l in injective(), n in proptest::sample::select(vec![1i64, 2, 3, 4, 6])) {
        if let Ok(r) = l.upcast(n) {
            prop_assert!(r.shape().is_congruent(l.shape()));
            // Every group that contains an element is in the result.
            let groups: BTreeSet<i64> = offsets(&r).into_iter().collect();
            let contiguous = l.shape().leaves().iter().zip(l.stride().leaves())
                .all(|(s, d)| int(d) % n == 0 || int(s) * int(d) % n == 0);
            if contiguous {
                prop_assert_eq!(groups, offsets(&l).into_iter().map(|o| o.div_euclid(n)).collect());
            }
        }
    }

    #[test]
    fn downcast_splits_elements(l in injective(), n in 1i64..5) {
        if let Ok(r) = l.downcast(n) {
            let parts: Vec<i64> = offsets(&l).into_iter().flat_map(|o| (0..n).map(move |k| o * n + k)).collect();
            let ones = l.stride().leaves().iter().filter(|d| d.is(1)).count();
            if ones == 1 {
                prop_assert_eq!(sorted(offsets(&r)), sorted(parts));
                let back = r.upcast(n).unwrap();
                prop_assert_eq!(offsets(&back), offsets(&l));
                prop_assert_eq!(l.recast(8 * n, 8).unwrap(), r);
            }
        } else {
            prop_assert!(!l.stride().leaves().iter().any(|d| d.is(1)));
        }
    }

    #[test]
    fn max_alignment_is_accepted(l in injective()) {
        if let Ok(n) = l.max_alignment() {
            let n = int(&n);
            prop_assert!(n >= 0);
            if n > 0 {
                prop_assert!(l.upcast(n).is_ok(), "{} by {}", l, n);
            }
        }
    }

    #[test]
    fn compact_layouts_are_bijections(s in shape()) {
        let n = int(&s.product());
        let left = Layout::col_major(s.clone()).unwrap();
        prop_assert_eq!(offsets(&left), (0..n).collect::<Vec<_>>());
        let right = Layout::row_major(s.clone()).unwrap();
        prop_assert_eq!(sorted(offsets(&right)), (0..n).collect::<Vec<_>>());
        for l in [left, right] {
            prop_assert_eq!(&l.make_layout_like().unwrap(), &l);
            let fragment = l.make_fragment_like().unwrap();
            prop_assert_eq!(sorted(offsets(&fragment)), (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn modes_are_rearranged(l in any_layout(), b in 0usize..4, e in 0usize..5) {
        prop_assert_eq!(l.flatten().unflatten(l.shape()).unwrap(), l.clone());
        match l.group(b, e) {
            Ok(g) => prop_assert_eq!(g.flatten().leaf_modes(), l.leaf_modes()),
            Err(_) => prop_assert!(b > e || e > l.rank()),
        }
        prop_assert_eq!(l.take(b, e).is_ok(), b <= e && e <= l.rank());
        prop_assert_eq!(l.append(Layout::one()).rank(), l.rank() + 1);
        prop_assert_eq!(l.prepend(Layout::one()).at(&[0]).unwrap(), Layout::one());
        let pair = join(vec![l.clone(), l.clone()]);
        let zipped = Modes::zip(&pair).unwrap();
        prop_assert_eq!(sorted(offsets(&zipped)), sorted(offsets(&pair)));
    }
}

#[test]
fn errors_name_the_mode_and_the_numbers() {
    let layout = |text: &str| weft_layout::parse_layout(text, &mut |_| None).unwrap();
    let message = |a: &str, b: &str| layout(a).composition(&layout(b)).unwrap_err().to_string();
    assert!(
        message("(4,2):(1,8)", "(2,2):(1,6)")
            .starts_with("composition: mode 1 of the right-hand side has stride 6")
    );
    assert!(message("(4,2):(1,8)", "(2,(1,2)):(1,(0,6))").contains("mode <1,1>"));
    assert!(message("(6,2):(8,2)", "9:1").contains("extent 9 with stride 1"));
    assert!(layout("(2,2):(2,3)").complement_self().unwrap_err().to_string().contains("stride 3"));
    let codes = [
        layout("(4,2):(1,8)").composition(&layout("2:6")).unwrap_err().code(),
        layout("(4,2):(1,8)").composition(&layout("3:3")).unwrap_err().code(),
        layout("(2,2):(2,3)").complement_self().unwrap_err().code(),
        Layout::new(Int::from(-1), 1).unwrap_err().code(),
    ];
    assert_eq!(codes, ["L05", "L06", "L08", "L03"]);
}
