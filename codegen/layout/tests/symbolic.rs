//! Tests of layouts with symbolic extents: results hold for every value that the variables can
//! have.
#![allow(clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use std::collections::BTreeSet;
use support::*;
use weft_layout::{Int, IntTuple, Layout, LayoutError, Tiler, Value, Var, eval, eval_with};

/// Extents with what is known of them, and values that they can have.
fn vars() -> Vec<(Var, Vec<i64>)> {
    let var = |id, name: &str, div, min| Var { id, name: name.into(), div, min, max: None };
    vec![
        (var(0, "N", 1, 1), vec![1, 2, 3, 5, 8, 17]),
        (var(1, "M", 8, 1), vec![8, 16, 24, 40]),
        (var(2, "K", 4, 8), vec![8, 12, 16, 20]),
        (var(3, "P", 1, 1), vec![1, 2, 4, 7]),
    ]
}

fn resolve(name: &str) -> Option<Int> {
    vars().into_iter().find(|(v, _)| &*v.name == name).map(|(v, _)| Int::var(v))
}

fn bind(l: &Layout, env: &[i64]) -> Layout {
    l.subst(&mut |v| Some(env[v.id as usize].into())).unwrap()
}

/// An extent: a constant, a variable, or a small product or quotient of one.
fn extent() -> impl Strategy<Value = Int> {
    let texts =
        vec!["1", "2", "4", "8", "3", "N", "M", "K", "P", "M/8", "K/2", "N*2", "M*N", "ceil_div(N,4)", "K+4"];
    proptest::sample::select(texts).prop_map(|t| weft_layout::parse_int(t, &mut resolve).unwrap())
}

/// A compact layout of symbolic extents with modes in any order. Some have a gap or a stride of 0.
fn layout() -> impl Strategy<Value = Layout> {
    (proptest::collection::vec(extent(), 1..4), any::<u64>()).prop_flat_map(|(extents, seed)| {
        let order = Just((0..extents.len()).collect::<Vec<_>>()).prop_shuffle();
        (Just(extents), order, Just(seed)).prop_map(|(extents, order, seed)| {
            let (mut step, mut stride) = (Int::ONE, vec![Int::ZERO; extents.len()]);
            for (k, i) in order.into_iter().enumerate() {
                if seed >> k & 15 == 0 {
                    continue;
                }
                stride[i] = step.clone();
                step = step * &extents[i] * if seed >> (20 + k) & 7 == 0 { 2 } else { 1 };
            }
            Layout::new(IntTuple::tuple(extents), IntTuple::tuple(stride)).unwrap()
        })
    })
}

fn env() -> impl Strategy<Value = Vec<i64>> {
    vars().into_iter().map(|(_, v)| proptest::sample::select(v)).collect::<Vec<_>>()
}

/// Whether the layout is small enough to enumerate.
fn small(l: &Layout) -> bool {
    size(l) <= 4096
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn coalesce_holds_for_all_values(l in layout(), env in env()) {
        let (r, l) = (bind(&l.coalesce().unwrap(), &env), bind(&l, &env));
        prop_assume!(small(&l));
        prop_assert_eq!(offsets(&r), offsets(&l));
    }

    #[test]
    fn composition_holds_for_all_values(a in layout(), b in layout(), env in env()) {
        if let Ok(r) = a.composition(&b) {
            let (a, b, r) = (bind(&a, &env), bind(&b, &env), bind(&r, &env));
            prop_assume!(small(&b));
            for i in 0..size(&b) {
                prop_assert_eq!(at(&r, i), at(&a, at(&b, i)), "{} o {} => {} at {}", a, b, r, i);
            }
        }
    }

    #[test]
    fn tiles_of_a_mode_compose(a in layout(), s in extent(), env in env()) {
        if let Ok(r) = a.compose(&Tiler::Int(s.clone())) {
            let r = bind(&r, &env);
            prop_assume!(small(&r));
            let a = bind(&a, &env);
            for i in 0..size(&r) {
                prop_assert_eq!(at(&r, i), at(&a, i));
            }
        }
    }

    #[test]
    fn complement_holds_for_all_values(l in layout(), n in extent(), env in env()) {
        if let Ok(r) = l.complement(&n.clone().into()) {
            let n = Layout::new(n, 1).unwrap();
            let (l, r, n) = (bind(&l, &env), bind(&r, &env), size(&bind(&n, &env)));
            prop_assume!(small(&l) && small(&r) && size(&l) * size(&r) <= 20_000);
            prop_assert!(offsets(&r).windows(2).all(|w| w[0] < w[1]), "{} => {}", l, r);
            let both = join(vec![l.filter().unwrap(), r]);
            prop_assert!(int(&both.cosize()) >= n);
            let all = offsets(&both);
            prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{}", both);
        }
    }

    #[test]
    fn inverses_hold_for_all_values(l in layout(), env in env()) {
        let right = bind(&l.right_inverse().unwrap(), &env);
        let left = l.left_inverse().map(|r| bind(&r, &env));
        let l = bind(&l, &env);
        prop_assume!(small(&l));
        for i in 0..size(&right) {
            prop_assert_eq!(at(&l, at(&right, i)), i, "{} and {}", l, right);
        }
        if let Ok(left) = left {
            for i in 0..size(&l) {
                prop_assert_eq!(at(&l, at(&left, at(&l, i))), at(&l, i), "{} and {}", l, left);
            }
        }
    }

    #[test]
    fn divisions_lose_nothing_for_any_value(l in layout(), tile in extent(), env in env()) {
        if let Ok(r) = l.logical_divide(&Tiler::Int(tile.clone())) {
            let (r, l) = (bind(&r, &env), bind(&l, &env));
            prop_assume!(small(&l) && size(&r) < 100_000);
            let all: BTreeSet<i64> = offsets(&r).into_iter().collect();
            prop_assert!(offsets(&l).iter().all(|o| all.contains(o)), "{} => {}", l, r);
        }
    }

    #[test]
    fn max_common_vector_holds_for_all_values(a in layout(), b in layout(), env in env()) {
        // The vector can be provable where the layout, a composition, is not.
        if let (Ok(n), Ok(r)) = (a.max_common_vector(&b), a.max_common_layout(&b)) {
            let n = size(&bind(&Layout::new(n, 1).unwrap(), &env));
            let (a, b, r) = (bind(&a, &env), bind(&b, &env), bind(&r, &env));
            prop_assume!(n <= 4096);
            for i in 0..n {
                prop_assert_eq!((at(&a, at(&r, i)), at(&b, at(&r, i))), (i, i), "{} {} => {}", a, b, r);
            }
        }
    }

    #[test]
    fn text_parses_back(l in layout()) {
        let text = l.to_string();
        prop_assert_eq!(weft_layout::parse_layout(&text, &mut resolve), Ok(l), "{}", text);
    }
}

#[test]
fn divisions_of_run_time_extents() {
    for (expr, answer) in [
        ("zipped_divide((N):(1),512)", "(512,ceil_div(N,512)):(1,512)"),
        ("zipped_divide((N):(1),(512))", "((512),(ceil_div(N,512))):((1),(512))"),
        ("zipped_divide((N):(1),P)", "(P,ceil_div(N,P)):(1,P)"),
        ("zipped_divide(N:1,ceil_div(N,P))", "(ceil_div(N,P),ceil_div(N,ceil_div(N,P))):(1,ceil_div(N,P))"),
        ("zipped_divide((M,N):(N,1),(8,4))", "((8,4),(M/8,ceil_div(N,4))):((N,1),(N*8,4))"),
        ("composition((M):(1),8:1)", "8:1"),
        ("composition((M,N):(N,1),8:1)", "8:N"),
        ("composition((M,N):(1,M),(M,N):(N,1))", "(M,N):(N,1)"),
        ("coalesce((4,N):(1,4))", "N*4:1"),
        ("coalesce((M,N):(1,M))", "M*N:1"),
        ("coalesce((M,N):(N,1))", "(M,N):(N,1)"),
        ("size((M,N))", "M*N"),
        ("cosize((M,N):(N,1))", "M*N"),
        ("logical_divide((N,M):(M,1),(_,8))", "(N,(8,M/8)):(M,(1,8))"),
        ("local_tile((M,N):(N,1),(8,4),(P,2))", "(8,4):(N,1)"),
        ("right_inverse((M,N):(N,1))", "(N,M):(M,1)"),
        ("max_common_vector((M,N):(1,M),(M,N):(1,M))", "M*N"),
        ("upcast<8>((M,N):(1,M))", "(M/8,N):(1,M/8)"),
        ("crd2idx((P,3),(M,N):(N,1))", "P*N+3"),
    ] {
        // Names are printed in the canonical order of the variables.
        let text = eval_with(expr, &mut resolve).map_or_else(|e| e.to_string(), |v| v.to_string());
        let sorted = |s: &str| {
            let mut c: Vec<char> = s.chars().collect();
            c.sort_unstable();
            c
        };
        assert_eq!(sorted(&text), sorted(answer), "{expr} is {text}, not {answer}");
    }
}

#[test]
fn unprovable_conditions_are_errors() {
    for expr in [
        "composition((N,M):(M,1),8:1)",
        "composition((4,N,P):(N*P,P,1),16:2)",
        "logical_divide((N,M):(M,1),8)",
        "complement((N,P):(1,P),64)",
        "upcast<4>((N,M):(P,1))",
        "left_inverse((N,M):(P,1))",
    ] {
        let error = eval_with(expr, &mut resolve).expect_err(expr).to_string();
        assert!(error.contains("L07") || error.contains("proven"), "{expr}: {error}");
    }
    let divisible = eval("composition((N{div=8},M):(M,1),8:1)").map(|v| v.to_string());
    assert_eq!(divisible.as_deref(), Ok("8:M"));
}

#[test]
fn overflow_is_an_error() {
    let big = i64::MAX / 2;
    let l = Layout::new(IntTuple::tuple([4, 4]), IntTuple::tuple([1, big])).unwrap();
    let refused = |r: Result<Layout, LayoutError>| matches!(r, Err(LayoutError::Arithmetic { .. }));
    assert!(refused(l.composition(&Layout::new(4, 16).unwrap())));
    assert!(refused(Layout::col_major(IntTuple::tuple([big, 2, 2, 2]))));
    assert!(refused(l.downcast(4)));
    assert!(l.crd2idx(&IntTuple::tuple([0, 3])).is_err());
    assert!(matches!(eval("size((4611686018427387904,2,2))"), Err(e) if e.to_string().contains("64-bit")));
    assert!(matches!(eval("(N):(1)"), Ok(Value::Layout(_))));
}
