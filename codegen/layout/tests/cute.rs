//! CuTe's own answers: `cute/answers.txt` holds what CuTe C++ prints for some thousands of static expressions, or `!`
//! where a static assertion of CuTe fails. `cute/generate.py` makes the file.

use std::collections::BTreeSet;
use weft_layout::{Int, Value, eval};

/// Expressions that CuTe compiles though its answer is none, by what is wrong with it: there we answer with an error,
/// and with the magnitude in the last.
const NOT_FOLLOWED: &[(&str, &str)] = &[
    ("composition(((3),(6),6,2):((72),(12),2,1),(2,4):(1,2))", "not the composition: 2 does not divide 3"),
    ("composition(((4),6,4):((1),16,4),(4,4,2,3):(3,24,12,1))", "not the composition: 3 does not divide 4"),
    ("composition((8,6,1):(6,1,1),6:3)", "not the composition: 3 does not divide 8"),
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

#[test]
fn answers_are_those_of_cute() {
    let text = include_str!("cute/answers.txt");
    let exempt: BTreeSet<&str> = NOT_FOLLOWED.iter().map(|(e, _)| *e).collect();
    let (mut wrong, mut same, mut refused, mut met) = (Vec::new(), 0, 0, 0);
    for line in text.lines() {
        let (expr, answer) = line.split_once(" => ").unwrap();
        match (eval(expr), answer) {
            (got, _) if exempt.contains(expr) => {
                assert!(got.map_or(true, |v| v.to_string() != answer), "{expr} is followed after all");
                met += 1;
            }
            (Err(_), "!") => refused += 1,
            (Ok(value), _) if value.to_string() == answer => same += 1,
            (got, _) => wrong
                .push(format!("{line}\n      but {}", got.map_or_else(|e| e.to_string(), |v| v.to_string()))),
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), text.lines().count(), wrong.join("\n"));
    assert_eq!(met, NOT_FOLLOWED.len());
    // The file is all there.
    assert!(same > 3000 && refused > 100, "{same} same, {refused} refused");
}

/// What the exemptions above say of CuTe's compositions: they are not the compositions.
#[test]
fn compositions_not_followed_are_wrong() {
    let text = include_str!("cute/answers.txt");
    let mut checked = 0;
    for (expr, _) in NOT_FOLLOWED.iter().filter(|(e, _)| e.starts_with("composition(")) {
        let answer = text.lines().find_map(|l| l.strip_prefix(expr)?.strip_prefix(" => ")).unwrap();
        let arguments = expr.strip_prefix("composition").unwrap();
        // The two arguments, as one tiler of two layouts.
        let Ok(Value::Tiler(weft_layout::Tiler::Tuple(pair))) = eval(arguments) else {
            panic!("{arguments}")
        };
        let [weft_layout::Tiler::Layout(a), weft_layout::Tiler::Layout(b)] = pair.as_slice() else {
            panic!()
        };
        let Ok(Value::Layout(r)) = eval(answer) else { panic!("{answer}") };
        let at =
            |l: &weft_layout::Layout, i: i64| l.crd2idx(&Int::from(i).into()).unwrap().as_const().unwrap();
        let size = b.size().as_const().unwrap();
        assert!((0..size).any(|i| at(&r, i) != at(a, at(b, i))), "{expr} => {answer} is right");
        checked += 1;
    }
    assert_eq!(checked, 3);
}
