//! Strategies for random layouts, and layouts as plain functions.
#![allow(dead_code, clippy::unwrap_used)]

use proptest::prelude::*;
use weft_layout::{Int, IntTuple, Layout, Modes};

pub fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        max_global_rejects: 200_000,
        ..ProptestConfig::default()
    }
}

/// Shapes of a few levels, some with extents of 1.
pub fn shape() -> impl Strategy<Value = IntTuple> {
    let extent = prop_oneof![Just(1i64), Just(2), Just(2), Just(3), Just(4), Just(5), Just(6), Just(8)];
    let leaf = extent.prop_map(IntTuple::from);
    leaf.prop_recursive(3, 6, 3, |inner| proptest::collection::vec(inner, 1..4).prop_map(IntTuple::Tuple))
        .prop_filter("at most 1024 elements", |s| s.product().as_const().is_some_and(|n| n <= 1024))
}

/// Nests `flat` as `shape` nests.
pub fn nest(shape: &IntTuple, flat: Vec<i64>) -> IntTuple {
    IntTuple::tuple(flat).unflatten(shape).unwrap()
}

/// Layouts with strides of any kind: 0, negative, overlapping.
pub fn wild() -> impl Strategy<Value = Layout> {
    let stride = prop_oneof![
        Just(0i64),
        Just(1),
        Just(1),
        Just(2),
        Just(3),
        Just(4),
        Just(6),
        Just(8),
        Just(12),
        Just(16),
        Just(-1),
        Just(-4),
    ];
    shape().prop_flat_map(move |s| {
        let n = s.leaves().len();
        (Just(s), proptest::collection::vec(stride.clone(), n))
            .prop_map(|(s, d)| Layout::new(s.clone(), nest(&s, d)).unwrap())
    })
}

/// Injective layouts with modes in any order, some of them with gaps.
pub fn injective() -> impl Strategy<Value = Layout> {
    shape().prop_flat_map(|s| {
        let n = s.leaves().len();
        let order = Just((0..n).collect::<Vec<_>>()).prop_shuffle();
        let gaps = proptest::collection::vec(prop_oneof![4 => Just(1i64), 1 => Just(2), 1 => Just(3)], n);
        (Just(s), order, gaps).prop_map(|(s, order, gaps)| {
            let extents: Vec<i64> = s.leaves().iter().map(|e| e.as_const().unwrap()).collect();
            let (mut step, mut stride) = (1, vec![0; extents.len()]);
            for i in order {
                stride[i] = step;
                step *= extents[i] * gaps[i];
            }
            Layout::new(s.clone(), nest(&s, stride)).unwrap()
        })
    })
}

/// Compact layouts, which are bijections with modes in any order.
pub fn compact() -> impl Strategy<Value = Layout> {
    injective().prop_map(|l| Layout::ordered(l.shape().clone(), l.stride()).unwrap())
}

pub fn any_layout() -> impl Strategy<Value = Layout> {
    prop_oneof![wild(), injective(), injective(), compact()]
}

pub fn int(i: &Int) -> i64 {
    i.as_const().unwrap()
}

pub fn size(l: &Layout) -> i64 {
    int(&l.size())
}

/// The layout at an index, computed from its leaves alone.
pub fn at(l: &Layout, index: i64) -> i64 {
    let (shapes, strides) = (l.shape().leaves(), l.stride().leaves());
    let (mut rest, mut sum) = (index, 0);
    for (i, (s, d)) in shapes.iter().zip(&strides).enumerate() {
        let last = i + 1 == shapes.len();
        let here = if last { rest } else { rest % int(s) };
        rest = if last { 0 } else { rest / int(s) };
        sum += here * int(d);
    }
    sum
}

pub fn offsets(l: &Layout) -> Vec<i64> {
    (0..size(l)).map(|i| at(l, i)).collect()
}

pub fn sorted(mut v: Vec<i64>) -> Vec<i64> {
    v.sort_unstable();
    v
}

/// The modes of a layout as a list, for joining with `Modes::from_modes`.
pub fn join(modes: Vec<Layout>) -> Layout {
    Layout::from_modes(modes)
}
