//! Tests of the text form: a parsed text prints unchanged at every level, and no text makes the
//! reader or the verifier panic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Complete, codes, read};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use std::collections::BTreeSet;
use weft_ir::level::{Level, Machine, Mixed, Tensor};
use weft_ir::op::{self, Operation};
use weft_ir::text::print_module;
use weft_ir::verify::verify;

/// The mnemonics of the families of a level.
type Table = &'static [(&'static str, bool)];
const BOTH: [Table; 5] =
    [op::Arith::TABLE, op::Thread::TABLE, op::Var::TABLE, op::Control::TABLE, op::Debug::TABLE];
const OF_TENSORS: [Table; 6] = [
    op::View::TABLE,
    op::Team::TABLE,
    op::Access::TABLE,
    op::Together::TABLE,
    op::Tile::TABLE,
    op::Remote::TABLE,
];
const OF_ADDRESSES: [Table; 4] = [op::Address::TABLE, op::Memory::TABLE, op::Async::TABLE, op::Call::TABLE];

fn round_trip<L: Complete>(families: &[&[Table]]) {
    let text = L::text();
    let module = read::<L>(&text);
    assert_eq!(print_module(&module), text, "the texts are as they print");
    assert_eq!(read::<L>(&print_module(&module)), module);
    assert_eq!(codes(module.clone()), [], "{} level", L::NAME);
    let insts = module.kernels.iter().flat_map(|k| k.insts.iter());
    let have: BTreeSet<_> = insts.map(|(_, inst)| (inst.op.mnemonic(), inst.op.is_pure())).collect();
    let want: BTreeSet<_> = families.iter().copied().flatten().copied().flatten().copied().collect();
    assert_eq!(have, want, "{} level", L::NAME);
}

#[test]
fn every_op_of_every_level_reads_back() {
    round_trip::<Tensor>(&[&BOTH, &OF_TENSORS]);
    round_trip::<Machine>(&[&BOTH, &OF_ADDRESSES]);
    round_trip::<Mixed>(&[&BOTH, &OF_TENSORS, &OF_ADDRESSES, &[op::Bridge::TABLE]]);
}

#[test]
fn a_mnemonic_is_of_one_family() {
    let all = [&BOTH[..], &OF_TENSORS, &OF_ADDRESSES, &[op::Bridge::TABLE]].concat().concat();
    let names: BTreeSet<_> = all.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), all.len());
}

#[test]
fn numbers_keep_their_bits() {
    for bits in [0, 1 << 63, f64::NAN.to_bits() | 1, f64::INFINITY.to_bits(), 1, u64::MAX] {
        let text = format!("kernel @k block(1, 1, 1) {{\n  %0 = const float {bits:#018x} \"x\" : f64\n}}\n");
        let printed = print_module(&read::<Machine>(&text));
        assert!(printed.contains(&format!("{bits:#018x}")), "{printed}");
    }
}

/// Checks that a text of one level is rejected at a level without its ops.
#[test]
fn ops_of_another_level_are_rejected() {
    fn says<L: Level>(body: &str) -> String {
        let text = format!("kernel @k block(1, 1, 1) {{\n{body}\n}}\n");
        common::parse::<L>(&text).unwrap_err().message
    }
    let load = "  %0 = load %1, weak, sys : f32";
    assert_eq!(says::<Machine>(load), "there is no op `load` at the machine level");
    assert_eq!(says::<Tensor>("  %0 = ld %1, weak, sys : f32"), "there is no op `ld` at the tensor level");
    assert_eq!(says::<Tensor>("  %0 = address_of %1"), "there is no op `address_of` at the tensor level");
    assert_eq!(says::<Tensor>("  param 0 p : ptr<global>"), "there is no ptr<global> at the tensor level");
    assert_eq!(says::<Machine>("  param 0 t : team"), "there is no team at the machine level");
    assert_eq!(says::<Machine>("  local $0 b : barrier"), "there is no barrier at the machine level");
    let tensor = "tensor<f32, global, {1:0}, align 4>";
    assert_eq!(
        says::<Machine>(&format!("  param 0 x : {tensor}")),
        format!("there is no {tensor} at the machine level")
    );
    assert!(common::parse::<Mixed>(&format!("kernel @k block(1, 1, 1) {{\n{load}\n}}\n")).is_ok());
}

/// Reads and verifies a text. If both succeed, prints it and reads it again.
fn survives<L: Level>(text: &str) -> bool {
    let Ok(module) = common::parse::<L>(text) else { return false };
    let printed = print_module(&module);
    let Ok(module) = verify(module) else { return false };
    let again = common::parse::<L>(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert_eq!(print_module(&again), print_module(&module));
    true
}

/// Words that occur in texts, and numbers at limits.
const WORDS: &[&str] = &[
    "f32",
    "i64",
    "u8",
    "e4m3",
    "bool",
    "unit",
    "team",
    "barrier",
    "ptr<register>",
    "vector<f32, 0>",
    "world",
    "add",
    "neg",
    "weak",
    "acquire",
    "sc",
    "sys",
    "block",
    "warp",
    "thread",
    "some",
    "one",
    "multicast",
    "symm",
    "shared",
    "true",
    "float",
    "%0",
    "%99",
    "%4294967295",
    "$0",
    "$9",
    "0",
    "1",
    "3",
    "-1",
    "1024",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "é",
    "",
];

/// Replaces the word at or after a position, which is in thousandths of the text.
fn replaced(text: &str, at: usize, new: &str) -> String {
    let words: Vec<_> =
        text.match_indices(|c: char| c.is_alphanumeric() || "%$(){}[]\",:".contains(c)).collect();
    let (start, _) = words[at * words.len() / 1000];
    let len = text[start..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len() - start);
    let end = start + len.max(text[start..].chars().next().map_or(0, char::len_utf8));
    format!("{}{new}{}", &text[..start], &text[end..])
}

fn mutated(text: &str, changes: &[(usize, usize)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (at, word)| replaced(&text, *at, WORDS[word % WORDS.len()]))
}

fn swapped(text: &str, (a, b): (usize, usize)) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let n = lines.len();
    lines.swap(a * n / 1000, b * n / 1000);
    lines.join("\n")
}

/// Checks that every case is read or rejected at every level, and that there are cases of both
/// kinds.
fn all_survive<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>, change: impl Fn(&str, &T) -> String) {
    let config = ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() };
    let (sound, refused) = (Cell::new(0), Cell::new(0));
    TestRunner::new(config)
        .run(&strategy, |case| {
            for fine in [
                survives::<Tensor>(&change(&Tensor::text(), &case)),
                survives::<Machine>(&change(&Machine::text(), &case)),
                survives::<Mixed>(&change(&Mixed::text(), &case)),
            ] {
                let count = if fine { &sound } else { &refused };
                count.set(count.get() + 1);
            }
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(sound.get() > 4 && refused.get() > 20, "{} sound, {} refused", sound.get(), refused.get());
}

#[test]
fn mutated_texts_are_read_or_rejected() {
    let changes = prop::collection::vec((0usize..1000, 0usize..1000), 1..4);
    all_survive(changes, |text, changes| mutated(text, changes));
}

#[test]
fn texts_with_swapped_lines_are_read_or_rejected() {
    all_survive((0usize..1000, 0usize..1000), |text, lines| swapped(text, *lines));
}

/// Checks that a text that ends within a kernel is rejected.
#[test]
fn truncated_texts_are_rejected() {
    fn truncated<L: Complete>() {
        let text = L::text();
        let ends = |at: &usize| text.is_char_boundary(*at);
        let complete = |text: &str| text.trim_end().is_empty() || text.trim_end().ends_with("\n}");
        for at in (0..text.len()).filter(ends).filter(|at| !complete(&text[..*at])) {
            assert!(common::parse::<L>(&text[..at]).is_err(), "{} level, {at}:\n{}", L::NAME, &text[..at]);
        }
    }
    truncated::<Tensor>();
    truncated::<Machine>();
    truncated::<Mixed>();
}

#[test]
fn a_value_is_defined_once() {
    for body in [
        "  %0 = const 1 : i32\n  %0 = const 2 : i32",
        "  %0 = const true : bool\n  %1 = if %0, {\n    %1 = trap\n  }, {\n  }",
        "  %0 = const 1 : i64\n  %1 = for %0 (0 1 1), %0, %0, %0, 1, {\n  }",
        "  %0 = const 1 : i64\n  %1 = for %1 (0 1 1), %0, %0, %0, 1, {\n  }",
    ] {
        let e = common::parse::<Machine>(&format!("kernel @k block(1, 1, 1) {{\n{body}\n}}\n")).unwrap_err();
        assert!(e.message.ends_with("is defined twice"), "{e}\n{body}");
    }
}

#[test]
fn blocks_that_nest_too_deep_are_rejected() {
    let mut text = "kernel @k block(1, 1, 1) {\n  %0 = const true : bool\n".to_owned();
    for i in 0..5000 {
        text.push_str(&format!("%{} = if %0, {{\n", i + 1));
    }
    let e = common::parse::<Machine>(&text).unwrap_err();
    assert!(e.message.contains("nest deeper"), "{e}");
}
