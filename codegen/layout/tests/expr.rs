//! Tests of the expression language: what it parses, what it prints, and what it rejects.
#![allow(clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use weft_layout::{Int, Value, Var, eval, eval_with, functions, parse_int, parse_layout};

fn show(text: &str) -> String {
    eval(text).map_or_else(|e| format!("error: {e}"), |v| v.to_string())
}

/// Calls that use every function at least once. Those from CuTe's documentation have the answers it
/// gives.
const EXAMPLES: &[(&str, &str)] = &[
    ("composition((4,(2,2)):(1,(8,4)),(2,4):(4,1))", "(2,4):(8,1)"),
    ("composition((6,2):(8,2),(4,3):(3,1))", "((2,2),3):((24,2),8)"),
    ("composition((10,2):(16,4),(5,4):(1,5))", "(5,(2,2)):(16,(80,4))"),
    ("composition((12,(4,8)):(59,(13,1)),<3:4,8:2>)", "(3,(2,4)):(236,(26,1))"),
    ("composition((12,(4,8)):(59,(13,1)),(3,8))", "(3,(4,2)):(59,(13,1))"),
    ("coalesce((2,(1,6)):(1,(6,2)))", "12:1"),
    ("coalesce((2,(1,6)):(1,(6,2)),(1,1))", "(2,6):(1,2)"),
    ("complement(4:1,24)", "6:4"),
    ("complement(6:4,24)", "4:1"),
    ("complement((4,6):(1,4),24)", "1:0"),
    ("complement(4:2,24)", "(2,3):(1,8)"),
    ("complement((2,4):(1,6),24)", "3:2"),
    ("complement((2,2):(1,6),24)", "(3,2):(2,12)"),
    ("logical_divide((4,2,3):(2,1,8),4:2)", "((2,2),(2,3)):((4,1),(2,8))"),
    (
        "logical_divide((9,(4,8)):(59,(13,1)),<3:3,(2,4):(1,8)>)",
        "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))",
    ),
    (
        "zipped_divide((9,(4,8)):(59,(13,1)),<3:3,(2,4):(1,8)>)",
        "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))",
    ),
    ("tiled_divide((9,(4,8)):(59,(13,1)),<3:3,(2,4):(1,8)>)", "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))"),
    ("flat_divide((9,(4,8)):(59,(13,1)),<3:3,(2,4):(1,8)>)", "(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))"),
    ("tile_unzip(((2,3),(4,5)),(1,1))", "((2,4),(3,5)):((1,6),(2,24))"),
    ("logical_product((2,2):(4,1),6:1)", "((2,2),(2,3)):((4,1),(2,8))"),
    ("logical_product((2,2):(4,1),(4,2):(2,1))", "((2,2),(4,2)):((4,1),(8,2))"),
    ("zipped_product((2,5):(5,1),<3:5,4:6>)", "((2,5),(3,4)):((5,1),(10,30))"),
    ("tiled_product(4:1,(2,3))", "error"),
    ("tiled_product((4):(1),<(2,3):(3,1)>)", "((4),((2,3))):((1),((12,4)))"),
    ("flat_product(4:1,(2,3):(3,1))", "(4,2,3):(1,12,4)"),
    ("blocked_product((2,5):(5,1),(3,4):(1,3))", "((2,3),(5,4)):((5,10),(1,30))"),
    ("raked_product((2,5):(5,1),(3,4):(1,3))", "((3,2),(4,5)):((10,5),(30,1))"),
    ("tile_to_shape((2,3):(3,1),(4,6))", "((2,2),(3,2)):((3,6),(1,12))"),
    ("right_inverse((4,8):(8,1))", "(8,4):(4,1)"),
    ("left_inverse((4,8):(16,1))", "(16,4):(4,1)"),
    ("nullspace((2,2,2):(1,0,2))", "2:2"),
    ("max_common_layout((4,8):(1,4),(4,8):(1,4))", "32:1"),
    ("max_common_vector((4,8):(1,8),(4,8):(1,4))", "4"),
    ("domain_distribute((15,14),6)", "(3,2):(1,15)"),
    ("filter((2,4):(0,1))", "4:1"),
    ("filter_zeros((2,4):(0,1))", "(1,4):(0,1)"),
    ("with_shape(8:2,(4,2))", "(4,2):(2,8)"),
    ("upcast<4>((8,8):(8,1))", "(8,2):(2,1)"),
    ("downcast<4>((8,8):(8,1))", "(8,32):(32,1)"),
    ("recast<16,32>((8,8):(8,1))", "(8,4):(4,1)"),
    ("recast<16,32>(Sw<3,3,3>)", "Sw<3,2,3>"),
    ("max_alignment((8,8):(8,1))", "64"),
    ("make_swizzle(0b0,1)", "error"),
    ("make_swizzle(448,56)", "Sw<3,3,3>"),
    ("size<1>((4,(8,2)))", "16"),
    ("size((4,(8,2)):(1,(4,32)),1,0)", "8"),
    ("cosize((4,8):(8,1))", "32"),
    ("rank((4,(8,2)))", "2"),
    ("depth((4,(8,2)))", "2"),
    ("shape((4,8):(8,1))", "(4,8)"),
    ("stride<0>((4,8):(8,1))", "8"),
    ("layout<1>((4,8):(8,1))", "8:1"),
    ("get<1,0>((4,(8,2)):(1,(4,32)))", "8:4"),
    ("take<1,3>((2,3,4):(1,2,6))", "(3,4):(2,6)"),
    ("select<2,0>((2,3,4):(1,2,6))", "(4,2):(6,1)"),
    ("group<0,2>((2,3,4):(1,2,6))", "((2,3),4):((1,2),6)"),
    ("flatten(((2,3),4):((1,2),6))", "(2,3,4):(1,2,6)"),
    ("unflatten((2,3,4),((1,1),1))", "((2,3),4)"),
    ("append<3>((2,3):(1,2))", "(2,3,1):(1,2,0)"),
    ("append((2,3):(1,2),4:6)", "(2,3,4):(1,2,6)"),
    ("prepend<3>(4:1)", "(1,1,4):(0,0,1)"),
    ("prepend((2,3),7)", "(7,2,3)"),
    ("replace<0>((2,3):(1,2),8:4)", "(8,3):(4,2)"),
    ("zip((2,3),(4,5))", "((2,4),(3,5))"),
    ("congruent((2,3),(4,5))", "true"),
    ("weakly_congruent((2,3),(4,(5,1)))", "true"),
    ("compatible((4,6),(4,(2,3)))", "true"),
    ("product((2,(3,4)))", "24"),
    ("product_each((2,(3,4)))", "(2,12)"),
    ("make_layout((3,4),LayoutRight)", "(3,4):(4,1)"),
    ("make_layout((3,4),(1,3))", "(3,4):(1,3)"),
    ("make_layout(3:1,4:3)", "(3,4):(1,3)"),
    ("make_ordered_layout((2,2,2,2),(0,2,3,1))", "(2,2,2,2):(1,4,8,2)"),
    ("make_layout_like((2,2,2,2):(0,2,4,1))", "(2,2,2,2):(0,2,4,1)"),
    ("make_fragment_like((4,8):(8,1))", "(4,(8)):(1,(4))"),
    ("crd2idx((1,2),(4,8):(8,1))", "10"),
    ("crd2idx((1,2),(4,8))", "9"),
    ("crd2idx((1,2),(4,8),(8,1))", "10"),
    ("idx2crd(7,(2,(2,4)))", "(1,(1,1))"),
    ("idx2crd(10,(4,8):(8,1))", "(1,2)"),
    ("crd2crd((1,2),(4,8),(8,4))", "(1,2)"),
    ("crd2crd((1,2,3),(4,8),(8,4))", "error"),
    ("crd2crd(9,(4,8),(8,4))", "(1,1)"),
    ("slice((_,2),(4,8):(8,1))", "(4):(8)"),
    ("dice((_,2),(4,8):(8,1))", "(8):(1)"),
    ("slice_and_offset((_,2),(4,8):(8,1))", "((4):(8),2)"),
    ("inner_partition((16,16):(16,1),(8,8),(1,0))", "(8,8):(16,1)"),
    ("outer_partition((16,16):(16,1),(8,8),(1,0))", "(2,2):(128,8)"),
    ("local_tile((16,16):(16,1),(8,8),(1,_))", "(8,8,2):(16,1,8)"),
    ("local_tile((16,64):(64,1),(8,32,4),(1,2,_),(1,_,1))", "(8,4,16):(64,1,4)"),
    ("local_partition((16,64):(1,16),(2,16),5)", "(8,4):(2,256)"),
    ("make_tiled_copy((4,8):(8,1),(2,2):(2,1))", "((8,16),((8,4),(2,2)):((16,2),(8,1)))"),
    ("layout_tv((32,8):(8,1),(1,4):(4,1))", "((8,32),4):((128,1),32)"),
    ("partition_S((4,8):(8,1),(1,4),(16,64):(64,1),3,4)", "((4,1),4,2):((1,0),256,32)"),
    ("partition_D((4,8):(8,1),(1,4),(16,64):(64,1),3,2)", "((2,2),4,2):((1,2),256,32)"),
    ("get_hier_coord((4,(2,4)):(8,(4,1)),14)", "(1,(1,2))"),
    ("get_flat_coord((4,(2,4)):(8,(4,1)),14)", "(1,5)"),
    ("get_1d_coord((4,(2,4)):(8,(4,1)),14)", "21"),
    ("evenly_divides((8,12),(4,3))", "true"),
    ("evenly_divides((8,12),<4:2,5:1>)", "false"),
    ("shape_div((4,5,6),40)", "(1,1,3)"),
    ("shape_div(6,4)", "error"),
    ("ceil_div(7,2)", "4"),
    ("ceil_div((7,5),(2,3))", "(4,2)"),
    ("ceil_div((4,5,6),40)", "(1,1,3)"),
    ("min(3,2,5)", "2"),
    ("max(3,2,5)", "5"),
    ("abs(-3)", "3"),
    ("round_up(5,4)", "8"),
    ("and(12,10)", "8"),
    ("xor(12,10)", "6"),
];

#[test]
fn examples_have_their_answers() {
    for (text, answer) in EXAMPLES {
        let got = show(text);
        match *answer {
            "error" => assert!(got.starts_with("error: "), "{text} is {got}"),
            _ => assert_eq!(got, *answer, "{text}"),
        }
    }
}

#[test]
fn the_table_lists_every_function_once() {
    let names: Vec<&str> = functions().map(|f| f.name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    for f in functions() {
        assert!(f.signature.starts_with(f.name), "{}", f.name);
        assert!(!f.doc.is_empty() && f.doc.len() < 100, "{}", f.name);
        let used = |text: &str| text.starts_with(f.name) && text[f.name.len()..].starts_with(['(', '<']);
        assert!(EXAMPLES.iter().any(|(text, _)| used(text)), "{} has no example", f.name);
    }
}

#[test]
fn syntax() {
    for (text, answer) in [
        ("(4,8)", "(4,8)"),
        (" ( 4 , 8 ) : ( 8 , 1 ) ", "(4,8):(8,1)"),
        ("8:1", "8:1"),
        ("(4):(1)", "(4):(1)"),
        ("()", "()"),
        ("():()", "():()"),
        ("(_4,_8):(_8,_1)", "(4,8):(8,1)"),
        ("(3):(-2)", "(3):(-2)"),
        ("--3", "3"),
        ("1+2*3-4/2%2", "7"),
        ("(1+2)*3", "9"),
        ("-7/2", "-4"),
        ("-7%2", "1"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("Sw<3,4,3>", "Sw<3,4,3>"),
        ("Swizzle<3,4,-3>", "Sw<3,4,-3>"),
        ("Sw<3,4,3> o 0 o (8,8):(1,8)", "Sw<3,4,3> o 0 o (8,8):(1,8)"),
        ("Sw<3,4,3> o (8,8)", "Sw<3,4,3> o 0 o (8,8):(1,8)"),
        ("20:2 o (5,4):(4,1)", "(5,4):(8,2)"),
        ("2:1 o 3:2 o 4:1", "4:2"),
        ("((4,8):(8,1))(1,2)", "10"),
        ("((4,8):(8,1))(9)", "10"),
        ("((4,8):(8,1))(_,2)", "(4):(8)"),
        ("L=(4,8):(8,1); L(1,2)", "10"),
        ("L=(4,8):(8,1); M=right_inverse(L); coalesce(composition(L,M),1)", "32:1"),
        ("Sw<3,0,3>(9)", "8"),
        ("[4:1,8:2]", "<4:1,8:2>"),
        ("<4:1,_>", "<4:1,_>"),
        ("(4:1,8:2)", "<4:1,8:2>"),
        ("(1,_)", "(1,_)"),
        ("_", "_"),
        ("N*4+3", "N*4+3"),
        ("(N+1)*2:1", "N*2+2:1"),
        ("N{div=8}/8*8", "N"),
        ("N{div=8,max=8}", "8"),
        ("%12*2", "%12*2"),
        ("%a % 4", "%a%4"),
        ("(_x,y_1)", "(_x,y_1)"),
        ("o", "o"),
        ("size", "size"),
    ] {
        assert_eq!(show(text), answer, "{text}");
    }
}

#[test]
fn errors_have_a_position_and_a_message() {
    for (text, position, says) in [
        ("", 0, "expected a number, a name"),
        ("(4,8", 4, "expected \",\" or \")\""),
        ("(4,8):", 6, "expected a number"),
        ("(4,8))", 5, "expected an operator or the end"),
        ("4 8", 2, "expected an operator or the end"),
        ("size()", 0, "does not take 0 arguments; expected size<I..>(L)"),
        ("size(4,-1)", 7, "-1 is not an index"),
        ("size(Sw<1,0,1>)", 5, "Sw<1,0,1> is a swizzle; expected a shape or a layout"),
        ("1+(4:1)", 2, "4:1 is a layout; expected an integer"),
        ("(2,3):(1)", 0, "L01 shape (2,3) and stride (1) are not congruent"),
        ("(-2):(1)", 0, "L03 mode 0 has extent -2"),
        ("foo(3)", 0, "there is no function foo; expected a layout"),
        ("compositon(8:1,4:1)", 0, "there is no function compositon; did you mean composition?"),
        ("(1+2)(3)", 0, "(3) is a tuple, which cannot be applied; expected a layout or a swizzle"),
        ("99999999999999999999", 0, "expected an integer of at most 64 bits"),
        ("9223372036854775808", 0, "expected an integer of at most 64 bits"),
        ("4/0", 0, "undefined"),
        ("9223372036854775807*2", 0, "overflow"),
        ("Sw<3,0,2>", 0, "|shift|"),
        ("Sw<3,0>", 0, "3 parameters"),
        ("N{foo=3}", 0, "foo=3 is not a fact about N; expected div="),
        ("(N{div=8},N{div=4})", 10, "declared twice"),
        ("N{min=4,max=3}", 0, "max below its min"),
        ("take<3>((1,2))", 0, "takes 2 indices, not 1"),
        ("get<7>((1,2))", 0, "L04 get: there is no mode 7 in (1,2), which has rank 2"),
        (
            "composition((4,2):(1,8),(2,2):(1,6))",
            0,
            "L05 composition: mode 1 of the right-hand side has stride 6",
        ),
        ("1 + composition(8:1,2:1)", 4, "2:1 is a layout; expected an integer"),
        ("@", 0, "unexpected '@'"),
        ("(1,é)", 3, "unexpected 'é'"),
    ] {
        let error = eval(text).expect_err(text);
        let message = error.to_string();
        assert!(message.contains(says), "{text}: {message}");
        assert_eq!(error.position, position, "{text}: {message}");
    }
}

#[test]
fn names_are_looked_up() {
    let mut resolve = |name: &str| match name {
        "N" => Some(Int::var(Var { div: 8, ..Var::extent(7, "N") })),
        "%12" => Some(Int::from(4)),
        _ => None,
    };
    assert_eq!(parse_layout("(N/8,%12):(%12,1)", &mut resolve).unwrap().to_string(), "(N/8,4):(4,1)");
    assert_eq!(parse_int("N/8*16", &mut resolve).unwrap().to_string(), "N*2");
    assert_eq!(parse_int("(N)", &mut resolve).unwrap().divisor(), 8);
    for (text, says) in [
        ("(M):(1)", "unknown name M"),
        ("(4,8)", "this is a tuple; expected a layout such as"),
        ("N{div=16}:1", "cannot be stated here"),
    ] {
        let message = parse_layout(text, &mut resolve).expect_err(text).to_string();
        assert!(message.contains(says), "{text}: {message}");
    }
    assert!(parse_int("(1,2)", &mut resolve).is_err());
    assert!(matches!(eval_with("coalesce((2,N))", &mut resolve), Ok(Value::Layout(_))));
}

/// The time within which a text must be answered or rejected, on a slow machine without
/// optimisation.
const PATIENCE: Duration = Duration::from_secs(8);

#[test]
fn deep_and_large_texts_are_evaluated_or_rejected_quickly() {
    let many = |s: &str, n: usize| s.repeat(n);
    let deep_layout = format!("{}4{}", many("(", 40), many(")", 40));
    let growing = |f: &str| format!("a=(2,3,4):(0,0,0); {} size(a)", many(&format!("a={f}; "), 30));
    for text in [
        many("(", 100_000),
        many("(", 30_000),
        many("-", 60_000) + "1",
        many("<", 60_000),
        many("[", 10_000) + &many("]", 10_000),
        many("size(", 5_000),
        many("1+", 30_000) + "1",
        many("N*", 20_000) + "N",
        many("N+", 20_000) + "N",
        many("ceil_div(", 40) + "N" + &many(",3)", 40),
        many("(1,", 10_000),
        format!("({})", vec!["2"; 30_000].join(",")),
        format!("coalesce(({}))", vec!["1"; 1000].join(",")),
        format!("complement(({0}):({0}),7)", vec!["1"; 1000].join(",")),
        many("L(1)", 10_000),
        many("8:1 o ", 10_000) + "8:1",
        deep_layout.clone(),
        format!("coalesce({deep_layout})"),
        growing("make_layout(a,a,a,a)"),
        growing("logical_product(a,a)"),
        growing("blocked_product(a,a)"),
        growing("append(a,a)"),
        growing("zip(a,a)"),
        "b=N; ".to_string() + &many("b=b*b+M; ", 300) + "b",
        "b=N; ".to_string() + &many("b=max(b,ceil_div(b*b+M,b+1)); ", 300) + "b",
        format!("c=({0}):({0}); {1} c", vec!["N"; 500].join(","), many("d=composition(c,c); ", 500)),
        "append<1000000000>(4:1)".into(),
        "append<9223372036854775807>(4:1)".into(),
        "Sw<9999999999,0,1>".into(),
        "upcast<0>(8:1)".into(),
        "upcast<-9223372036854775808>(8:-9223372036854775808)".into(),
        "downcast<9223372036854775807>((8,8):(1,8))".into(),
        "right_inverse((9223372036854775807,9223372036854775807):(1,9223372036854775807))".into(),
        "idx2crd(-9223372036854775808,(-1,3))".into(),
        "crd2idx(-9223372036854775808,(2,3):(-1,-1))".into(),
    ] {
        let begin = Instant::now();
        let shown = show(&text);
        let head: String = text.chars().take(60).collect();
        assert!(begin.elapsed() < PATIENCE, "{head}... took {:?}: {shown:.100}", begin.elapsed());
    }
    assert!(show(&many("(", 30_000)).contains("48 levels"));
    assert!(show(&many(" ", 100_000)).contains("over the limit"));
}

/// Random texts made of the tokens of the language.
fn soup() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> = functions().map(|f| f.name).collect();
    let token = prop_oneof![
        4 => proptest::sample::select(vec!["(", ")", ",", ":", "_", "<", ">", "[", "]", "-", "*", "/", "%", "+", " o ", "=", ";"])
            .prop_map(String::from),
        3 => (0i64..17).prop_map(|i| i.to_string()),
        1 => proptest::sample::select(vec!["N", "N{div=4}", "%1", "LayoutRight", "9223372036854775807", "Sw<2,0,3>", "é"])
            .prop_map(String::from),
        2 => proptest::sample::select(names).prop_map(String::from),
        2 => proptest::sample::select(vec!["(4,8):(8,1)", "(2,(3,4)):(1,(0,-6))", "8:1", "(4,N):(1,4)", "(_,2)", "<4:1,2:1>"])
            .prop_map(String::from),
    ];
    proptest::collection::vec(token, 0..24).prop_map(|t| t.concat())
}

/// Calls of functions with arguments of every kind.
fn call() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> = functions().map(|f| f.name).collect();
    let argument = proptest::sample::select(vec![
        "0",
        "1",
        "4",
        "-3",
        "N",
        "N{div=8}",
        "()",
        "(2)",
        "(4,8)",
        "(4,(2,2))",
        "(4,8):(8,1)",
        "(2,(3,4)):(1,(0,-6))",
        "8:1",
        "8:0",
        "1:0",
        "():()",
        "(4,N):(1,4)",
        "(N,M):(M,1)",
        "_",
        "(_,2)",
        "(1,_)",
        "<4:1,2:1>",
        "<2:1,_>",
        "Sw<2,0,3>",
        "Sw<3,3,3> o 0 o (8,64):(64,1)",
        "Sw<2,1,-3> o 5 o (4,N):(1,4)",
        "LayoutRight",
        "9223372036854775807",
        "(9223372036854775807,2):(1,-9223372036854775807)",
        "(0,4):(1,0)",
    ]);
    let template = proptest::sample::select(vec![
        "", "", "<0>", "<1>", "<1,0>", "<2>", "<0,2>", "<4>", "<16,32>", "<-1>",
    ]);
    (proptest::sample::select(names), template, proptest::collection::vec(argument, 0..5))
        .prop_map(|(name, template, args)| format!("{name}{template}({})", args.join(",")))
}

/// Checks that each example of a code fails with that code.
#[test]
fn codes_have_examples() {
    for info in weft_layout::codes::CODES.iter().filter(|info| !info.example.is_empty()) {
        let found = show(info.example);
        assert!(found.contains(&format!(": {} ", info.code)), "{}: {found}", info.example);
    }
}

#[test]
fn a_negative_index_has_no_coordinate() {
    assert!(show("idx2crd(-1,(4,4))").ends_with("L11 idx2crd: the index is -1, but indices are 0 or more"));
    assert!(show("idx2crd((3,-2),(4,4))").contains("the index is -2"));
}

proptest! {
    #![proptest_config(support::config(4000))]

    #[test]
    fn nothing_panics(text in prop_oneof![soup(), any::<String>(), call()]) {
        let value = eval(&text);
        if let Ok(value) = &value {
            let _ = (value.table(), value.svg());
        }
        if let Err(e) = value {
            prop_assert!(e.position <= text.len());
            prop_assert!(text.is_char_boundary(e.position));
        }
    }

    #[test]
    fn values_parse_back(text in call()) {
        if let Ok(value) = eval(&text) {
            let shown = value.to_string();
            match &value {
                // A truth value and a list of results cannot be written in expressions, and a name
                // stands for itself only as it was declared.
                Value::Bool(_) | Value::List(_) => {}
                _ if text.contains("div") => {}
                // Names are numbered in the order in which they appear.
                _ if text.contains(['N', 'M']) => prop_assert_eq!(eval(&shown).map_or_else(|e| e.to_string(), |v| v.to_string()), shown),
                _ => prop_assert_eq!(eval(&shown).map_err(|e| e.to_string()), Ok(value), "{} of {}", shown, text),
            }
        }
    }
}
