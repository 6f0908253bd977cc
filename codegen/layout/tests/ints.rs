//! Tests of symbolic integers: simplification never changes a value, and every stated property of a
//! value holds.

use proptest::prelude::*;
use weft_layout::{Int, Node, Poison, Var, parse_int};

/// An expression as it was written, which is evaluated without any simplification.
#[derive(Debug, Clone)]
enum Expr {
    Const(i64),
    Var(usize),
    Op(&'static str, Box<Expr>, Box<Expr>),
}

/// Variables of several kinds, with values that each can have.
fn vars() -> Vec<(Var, Vec<i64>)> {
    let var = |id, name: &str, div, min, max| Var { id, name: name.into(), div, min, max };
    vec![
        (var(0, "A", 1, 1, None), vec![1, 2, 3, 7, 8, 100, 1001]),
        (var(1, "B", 8, 1, None), vec![8, 16, 24, 1024]),
        (var(2, "C", 1, 0, Some(5)), vec![0, 1, 2, 3, 4, 5]),
        (var(3, "D", 3, -12, Some(12)), vec![-12, -9, -3, 0, 3, 12]),
        (var(4, "E", 4, 1, Some(64)), vec![4, 8, 12, 60, 64]),
    ]
}

const OPS: [&str; 10] = ["+", "-", "*", "/", "^/", "%", "min", "max", "and", "xor"];

fn expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        3 => (-9i64..33).prop_map(Expr::Const),
        1 => prop_oneof![Just(8), Just(16), Just(64), Just(-8)].prop_map(Expr::Const),
        6 => (0usize..5).prop_map(Expr::Var),
    ];
    leaf.prop_recursive(5, 40, 2, |inner| {
        (proptest::sample::select(&OPS[..]), inner.clone(), inner)
            .prop_map(|(op, a, b)| Expr::Op(op, Box::new(a), Box::new(b)))
    })
}

fn quotient(a: i128, b: i128) -> Option<i128> {
    (b != 0).then(|| a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0) * if b < 0 { 1 } else { 0 })
}

fn value(e: &Expr, env: &[i64]) -> Option<i128> {
    Some(match e {
        Expr::Const(v) => (*v).into(),
        Expr::Var(i) => env[*i].into(),
        Expr::Op(op, a, b) => {
            let (a, b) = (value(a, env)?, value(b, env)?);
            if a.abs() > 1 << 60 || b.abs() > 1 << 60 {
                return None;
            }
            match *op {
                "+" => a + b,
                "-" => a - b,
                "*" => a * b,
                "/" => quotient(a, b)?,
                "^/" => -quotient(-a, b)?,
                "%" => a - quotient(a, b)? * b,
                "min" => a.min(b),
                "max" => a.max(b),
                "and" => a & b,
                _ => a ^ b,
            }
        }
    })
}

fn build(e: &Expr, vars: &[(Var, Vec<i64>)]) -> Int {
    match e {
        Expr::Const(v) => Int::from(*v),
        Expr::Var(i) => Int::var(vars[*i].0.clone()),
        Expr::Op(op, a, b) => {
            let (a, b) = (build(a, vars), build(b, vars));
            match *op {
                "+" => a + b,
                "-" => a - b,
                "*" => a * b,
                "/" => a.floor_div(&b),
                "^/" => a.ceil_div(&b),
                "%" => a.rem(&b),
                "min" => a.min(&b),
                "max" => a.max(&b),
                "and" => a.bit_and(&b),
                _ => a.bit_xor(&b),
            }
        }
    }
}

/// Evaluates the nodes one by one, as a code generator does.
fn evaluate(i: &Int, env: &[i64]) -> Option<i128> {
    let both = |a: &Int, b: &Int| Some((evaluate(a, env)?, evaluate(b, env)?));
    Some(match i.node() {
        Node::Const(v) => v.into(),
        Node::Var(v) => env[v.id as usize].into(),
        Node::Add(list) => list.iter().map(|t| evaluate(t, env)).sum::<Option<i128>>()?,
        Node::Mul(list) => list.iter().map(|t| evaluate(t, env)).product::<Option<i128>>()?,
        Node::FloorDiv(a, b) => both(a, b).and_then(|(a, b)| quotient(a, b))?,
        Node::CeilDiv(a, b) => both(a, b).and_then(|(a, b)| Some(-quotient(-a, b)?))?,
        Node::Rem(a, b) => both(a, b).and_then(|(a, b)| Some(a - quotient(a, b)? * b))?,
        Node::Min(a, b) => both(a, b).map(|(a, b)| a.min(b))?,
        Node::Max(a, b) => both(a, b).map(|(a, b)| a.max(b))?,
        Node::And(a, b) => both(a, b).map(|(a, b)| a & b)?,
        Node::Xor(a, b) => both(a, b).map(|(a, b)| a ^ b)?,
        Node::Poison(_) => return None,
    })
}

fn resolve(name: &str) -> Option<Int> {
    vars().into_iter().find(|(v, _)| &*v.name == name).map(|(v, _)| Int::var(v))
}

/// An expression, and values of its variables.
fn case() -> impl Strategy<Value = (Expr, Vec<i64>)> {
    let values: Vec<_> = vars().into_iter().map(|(_, v)| proptest::sample::select(v)).collect();
    (expr(), values)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn simplification_keeps_the_value((e, env) in case()) {
        let int = build(&e, &vars());
        if let (Some(expected), None) = (value(&e, &env), int.poison()) {
            prop_assert_eq!(evaluate(&int, &env), Some(expected), "{}", int);
            let bound = int.subst(&mut |v| Some(Int::from(env[v.id as usize])));
            prop_assert_eq!(bound.as_const().map(i128::from), Some(expected), "{}", int);
        }
    }

    #[test]
    fn claims_hold((e, env) in case()) {
        let int = build(&e, &vars());
        if let (Some(v), None) = (value(&e, &env), int.poison()) {
            prop_assert!(v >= i128::from(int.lower_bound()), "{} is {}, below {}", int, v, int.lower_bound());
            if let Some(hi) = int.upper_bound() {
                prop_assert!(v <= i128::from(hi), "{} is {}, above {}", int, v, hi);
            }
            match int.divisor() {
                0 => prop_assert_eq!(v, 0),
                d => prop_assert_eq!(v % i128::from(d), 0, "{} is {}, not a multiple of {}", int, v, d),
            }
        }
    }

    #[test]
    fn comparisons_hold((a, env) in case(), b in expr()) {
        let (x, y) = (build(&a, &vars()), build(&b, &vars()));
        if let (Some(v), Some(w), None, None) = (value(&a, &env), value(&b, &env), x.poison(), y.poison()) {
            prop_assert!(!x.is_le(&y) || v <= w, "{} <= {} but {} > {}", x, y, v, w);
            prop_assert!(!x.is_lt(&y) || v < w, "{} < {} but {} >= {}", x, y, v, w);
            prop_assert!(!x.is_divisible_by(&y) || w == 0 || v % w == 0, "{} does not divide {}", y, x);
            prop_assert!(x != y || v == w);
        }
    }

    #[test]
    fn text_parses_back(e in expr()) {
        let int = build(&e, &vars());
        if int.poison().is_none() {
            let text = int.to_string();
            prop_assert_eq!(parse_int(&text, &mut resolve), Ok(int), "{}", text);
        }
    }
}

fn sym(name: &str, div: i64) -> Int {
    Int::var(Var { id: 9, name: name.into(), div, min: 1, max: None })
}

#[test]
fn products_and_quotients_cancel() {
    let (n, n8, k) = (sym("N", 1), sym("N8", 8), sym("K", 1));
    let shows = |i: Int, text: &str| assert_eq!(i.to_string(), text);
    shows((&n * 4).floor_div(&4.into()), "N");
    shows((&n * &k).floor_div(&k), "N");
    shows((&n * &k + 3).floor_div(&(&k * 1)), "N+3/K");
    shows((&n * 4 + 3).floor_div(&4.into()), "N");
    shows((&n * &k).ceil_div(&k), "N");
    shows(n.ceil_div(&512.into()), "ceil_div(N,512)");
    shows((&n + 511).floor_div(&512.into()), "ceil_div(N,512)");
    shows(n8.ceil_div(&8.into()), "N8/8");
    shows(n8.floor_div(&8.into()) * 8, "N8");
    shows(n8.floor_div(&2.into()).floor_div(&4.into()), "N8/8");
    shows(n8.floor_div(&8.into()) * 32, "N8*4");
    shows((&n8 * 3 + 5).rem(&8.into()), "5");
    shows(&n * 2 - &n - &n, "0");
    shows((&n + 1) * (&n - 1), "N*N-1");
    shows(n8.min(&8.into()), "8");
    shows(n.min(&(&n + 1)), "N");
    shows(n.floor_div(&n), "1");
    shows((&n + &k).floor_div(&(&n + &k)), "1");
    assert!(n8.is_divisible_by(&4.into()) && !n8.is_divisible_by(&16.into()));
    assert!((&n * &k).is_divisible_by(&k));
    assert_eq!(n8.lower_bound(), 8);
}

/// Checks that quotients combine with like terms of a sum and with coefficients that a remainder
/// reduced, as they do with the factors of products.
#[test]
fn sums_combine_with_quotients() {
    let shows = |i: Int, text: &str| {
        assert_eq!(i.to_string(), text);
        assert_eq!(parse_int(text, &mut resolve), Ok(i));
    };
    let [b, d] = ["B", "D"].map(|name| resolve(name).unwrap());
    let quarter = b.floor_div(&4.into());
    shows(&quarter - (&b * 14).floor_div(&8.into()), "-(B/2)*3");
    shows(&quarter + &quarter * 3, "B");
    shows((d.floor_div(&3.into()) * 7).rem(&4.into()), "D%4");
}

#[test]
fn undefined_results_are_poison() {
    let max = Int::from(i64::MAX);
    assert_eq!((&max + 1).poison(), Some(Poison::Overflow));
    assert_eq!((&max * 2).poison(), Some(Poison::Overflow));
    assert_eq!((-Int::from(i64::MIN)).poison(), Some(Poison::Overflow));
    assert_eq!(max.floor_div(&0.into()).poison(), Some(Poison::Undefined));
    assert_eq!(sym("N", 1).rem(&0.into()).poison(), Some(Poison::Undefined));
    assert_eq!(((&max + 1) * Int::ZERO).poison(), Some(Poison::Overflow));
    assert_eq!((&max + 1).to_string(), "overflow");
    assert_eq!((sym("N", 1) * i64::MAX * 2).poison(), Some(Poison::Overflow));
    // An expression that doubles at every step ends as poison, in bounded time and memory.
    let (mut x, n) = (sym("N", 1), sym("M", 1));
    for i in 0..200 {
        x = (&x * &n + i).max(&(&x + 3)).rem(&(&x * &x + 7));
    }
    assert_eq!(x.poison(), Some(Poison::TooComplex));
}

#[test]
fn extremes_do_not_panic() {
    let values = [i64::MIN, i64::MIN + 1, -1, 0, 1, 2, i64::MAX - 1, i64::MAX];
    let sides = || values.iter().map(|&v| Int::from(v)).chain([sym("N", 1), sym("N", 1) * 3 - 7]);
    for a in sides() {
        for b in sides() {
            let all =
                [&a + &b, &a - &b, &a * &b, a.floor_div(&b), a.ceil_div(&b), a.rem(&b), a.min(&b), a.max(&b)];
            for r in all.into_iter().chain([a.bit_and(&b), a.bit_xor(&b), a.abs()]) {
                let _ = (r.to_string(), r.divisor(), r.is_divisible_by(&a), r.is_le(&b));
            }
        }
    }
    let var = Var { id: 0, name: "V".into(), div: i64::MAX, min: i64::MIN, max: Some(i64::MAX) };
    let _ = Int::var(var) * 3 + 1;
}

#[test]
fn numbered_variables_are_in_the_order_of_their_numbers() {
    let var = |id: u32| Int::var(Var { id, name: format!("%{id}").into(), div: 1, min: 0, max: None });
    for (first, second) in [(9, 10), (99, 100), (2, 11)] {
        assert_eq!((var(second) * var(first)).to_string(), format!("%{first}*%{second}"));
        assert_eq!((var(second) + var(first)).to_string(), format!("%{first}+%{second}"));
    }
}

#[test]
fn the_least_coefficient_reads_back() {
    for text in [
        "A*(-9223372036854775808)",
        "A+B*(-9223372036854775808)",
        "-9223372036854775808",
        "-A*9223372036854775807",
    ] {
        let int = parse_int(text, &mut resolve).unwrap();
        assert_eq!(parse_int(&int.to_string(), &mut resolve).unwrap(), int, "{text} prints as {int}");
    }
}
