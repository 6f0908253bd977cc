//! Compares with CuTe. `cute/answers.txt` holds what CuTe C++ prints for some thousands of static
//! expressions, or `!` where a static assertion of CuTe fails. `cute/generate.py` makes the file.
#![allow(clippy::unwrap_used, clippy::panic)]

use weft_layout::{Int, Layout, Tiler, Value, eval};

/// Expressions that CuTe compiles although there is no right answer and that are errors here, by
/// what is wrong with CuTe's answer. The last list is an exception, where the answers differ in a
/// magnitude. Expressions that CuTe answers with a wrong function are not listed: see `is_wrong`.
const NOT_FOLLOWED: &[(&str, &str)] = &[
    ("complement(8:-1,8)", "a negative extent"),
    ("complement((8,6):(6,-1))", "a negative extent"),
    ("left_inverse((6,(1),(1)):(-4,(12),(-1)))", "a negative extent"),
    ("left_inverse((6,2):(12,-4))", "a negative extent"),
    ("left_inverse((2,6,2):(-4,0,12))", "a negative extent"),
    ("zipped_divide((3,3,8):(6,0,1),(6,12):(1,6))", "elements are lost: 2 does not divide 3"),
    (
        "zipped_divide((2,8,(2,8,6)):(48,1,(768,96,8)),(4,1):(192,768))",
        "elements are lost: 6 does not divide 8",
    ),
    ("zipped_product(3:-1,(2):(1))", "a negative extent"),
    ("tiled_product((6,2,2):(0,-1,2),4:1)", "a negative extent"),
    ("flat_product(2:-1,3:1)", "a negative extent"),
    ("max_alignment((2,8,(5),(6,8)):(-1,0,(2),(3,1)))", "a negative alignment"),
];

/// The value as a function, applied to an index.
fn at(value: &Value, index: i64) -> i64 {
    let layout = |l: &Layout, i: i64| l.crd2idx(&Int::from(i).into()).unwrap().as_const().unwrap();
    match value {
        Value::Layout(l) => layout(l, index),
        Value::Composed(c) => c.crd2idx(&Int::from(index).into()).unwrap().as_const().unwrap(),
        other => panic!("{other} is no function"),
    }
}

fn size(value: &Value) -> i64 {
    match value {
        Value::Layout(l) => l.size().as_const().unwrap(),
        Value::Composed(c) => c.layout().size().as_const().unwrap(),
        other => panic!("{other} has no size"),
    }
}

/// Whether CuTe's answer breaks the function's postcondition.
fn is_wrong(expr: &str, answer: &str) -> bool {
    let name = expr.split('(').next().unwrap();
    let (arguments, answer) = (&expr[name.len()..], eval(answer).unwrap());
    match name {
        "composition" => {
            // The two arguments parse as one tiler.
            let Value::Tiler(Tiler::Tuple(pair)) = eval(arguments).unwrap() else { return false };
            let [Tiler::Layout(a), Tiler::Layout(b)] = pair.as_slice() else { return false };
            let (a, b) = (Value::Layout(a.clone()), Value::Layout(b.clone()));
            (0..size(&b)).any(|i| at(&answer, i) != at(&a, at(&b, i)))
        }
        "right_inverse" => {
            let l = eval(arguments).unwrap();
            (0..size(&answer)).any(|i| at(&l, at(&answer, i)) != i)
        }
        "left_inverse" => {
            let l = eval(arguments).unwrap();
            (0..size(&l)).any(|i| at(&l, at(&answer, at(&l, i))) != at(&l, i))
        }
        _ => false,
    }
}

#[test]
fn answers_are_those_of_cute() {
    let text = include_str!("cute/answers.txt");
    let (mut differ, mut same, mut refused, mut wrong, mut met) = (Vec::new(), 0, 0, 0, 0);
    for line in text.lines() {
        let (expr, answer) = line.split_once(" => ").unwrap();
        let exempt = NOT_FOLLOWED.iter().any(|(e, _)| *e == expr);
        match (eval(expr), answer) {
            (Err(_), "!") => refused += 1,
            (Ok(value), _) if value.to_string() == answer => same += 1,
            (_, answer) if exempt && answer != "!" => met += 1,
            (Err(_), answer) if answer != "!" && is_wrong(expr, answer) => wrong += 1,
            (got, _) => differ
                .push(format!("{line}\n      but {}", got.map_or_else(|e| e.to_string(), |v| v.to_string()))),
        }
    }
    assert!(differ.is_empty(), "{} of {} differ:\n{}", differ.len(), text.lines().count(), differ.join("\n"));
    assert_eq!(met, NOT_FOLLOWED.len(), "an exemption is not needed");
    // The file is complete, and there are few exemptions.
    assert!(same > 3000 && refused > 100 && wrong < 30, "{same} same, {refused} refused, {wrong} wrong");
}
