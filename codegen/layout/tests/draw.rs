//! Tests of tables and SVG.
#![allow(clippy::unwrap_used)]

use weft_layout::{IntTuple, Layout, Value, eval, svg, svg_tv, table};

fn value(text: &str) -> Value {
    eval(text).unwrap()
}

#[test]
fn a_table_shows_every_offset() {
    let expected = "\
(4,(2,2)):(1,(8,4))
       0    1    2    3
    +----+----+----+----+
 0  |  0 |  8 |  4 | 12 |
    +----+----+----+----+
 1  |  1 |  9 |  5 | 13 |
    +----+----+----+----+
 2  |  2 | 10 |  6 | 14 |
    +----+----+----+----+
 3  |  3 | 11 |  7 | 15 |
    +----+----+----+----+
";
    let Value::Layout(layout) = value("(4,(2,2)):(1,(8,4))") else { panic!() };
    assert_eq!(table(&layout).unwrap(), expected);
    assert_eq!(value("(3):(2)").table().unwrap().lines().filter(|l| l.contains('|')).count(), 3);
    // Offsets 2 and 3 change places.
    let swizzled = value("Sw<1,0,1> o 0 o (2,2):(1,2)").table().unwrap();
    assert!(swizzled.contains(" 0  | 0 | 3 |") && swizzled.contains(" 1  | 1 | 2 |"), "{swizzled}");
}

#[test]
fn impossible_pictures_are_rejected() {
    for (text, why) in [
        ("(2,2,2)", "rank 3"),
        ("(1000,1000)", "limit"),
        ("(N,4):(4,1)", "constant"),
        ("(4,4):(N,1)", "constant"),
        ("true_value", "constant"),
        ("Sw<2,0,3>", "not a layout"),
        ("(4611686018427387904,8):(0,0)", "limit"),
    ] {
        for drawn in [value(text).table(), value(text).svg()] {
            let error = drawn.expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
    let tv = Layout::new(IntTuple::tuple([4, 4]), IntTuple::tuple([4, 1])).unwrap();
    assert!(svg_tv(&tv, &IntTuple::tuple([2, 2])).unwrap_err().to_string().contains("outside"));
    assert!(svg_tv(&Layout::one(), &IntTuple::tuple([2, 2])).is_err());
}

/// The text nodes and the fills of a picture, which must parse as XML.
fn read(picture: &str) -> (Vec<String>, Vec<String>) {
    let document = roxmltree::Document::parse(picture).unwrap();
    let root = document.root_element();
    assert_eq!(
        (root.tag_name().name(), root.tag_name().namespace()),
        ("svg", Some("http://www.w3.org/2000/svg"))
    );
    let view: Vec<f64> = root.attribute("viewBox").unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
    let nodes = || root.descendants();
    let number =
        |n: roxmltree::Node<'_, '_>, a: &str| n.attribute(a).map_or(0.0, |v| v.parse::<f64>().unwrap());
    for n in nodes().filter(|n| n.has_tag_name("rect") || n.has_tag_name("text")) {
        assert!(
            number(n, "x") + number(n, "width") <= view[2] && number(n, "y") + number(n, "height") <= view[3]
        );
    }
    let texts = nodes().filter(|n| n.has_tag_name("text")).map(|n| n.text().unwrap().to_string()).collect();
    let cells = nodes().filter(|n| n.attribute("class") == Some("cell"));
    (texts, cells.map(|n| n.attribute("fill").unwrap().to_string()).collect())
}

#[test]
fn svg_of_a_layout() {
    let layout = Layout::row_major(IntTuple::tuple([4, 8])).unwrap();
    let (texts, fills) = read(&svg(&layout).unwrap());
    assert_eq!((texts.len(), fills.len()), (4 + 8 + 32, 32));
    for i in 0..32 {
        assert!(texts[12..].contains(&i.to_string()));
    }
    // All cells in a column of a row-major layout of 8 columns have one shade.
    assert!((0..32).all(|i| fills[i] == fills[i % 8]));
    assert_eq!(fills[0], "#ffffff");
    assert_eq!(fills[7], "#505050");
    // The title contains < and >.
    read(&value("Sw<2,0,3> o 0 o (8,8):(8,1)").svg().unwrap());
    read(&value("(3):(-5)").svg().unwrap());
    read(&value("8").svg().unwrap());
}

#[test]
fn svg_of_threads_and_values() {
    let (texts, fills) = read(&value("make_tiled_copy((4,8):(8,1),(2,2):(2,1))").svg().unwrap());
    assert_eq!(fills.len(), 8 * 16);
    assert_eq!(texts.iter().filter(|t| *t == "T31").count(), 4);
    assert_eq!(texts.iter().filter(|t| *t == "V3").count(), 32);
    // There is a hue for each thread modulo 8, and a lightness for each value.
    assert_eq!(fills.iter().collect::<std::collections::BTreeSet<_>>().len(), 8 * 4);
    // Elements without an owner have no colour.
    let tv = Layout::new(IntTuple::tuple([2, 2]), IntTuple::tuple([1, 2])).unwrap();
    let (_, fills) = read(&svg_tv(&tv, &IntTuple::tuple([4, 2])).unwrap());
    assert_eq!(fills.iter().filter(|f| *f == "none").count(), 4);
}
