//! Tests of the tables that name their own columns: matrix products and bulk copies.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;

use proptest::prelude::*;
use weft_isa::*;

fn target(name: &str) -> Target {
    name.parse().unwrap()
}

/// Random words of an instruction's columns in any combination, and words that no column has.
fn any_choice() -> impl Strategy<Value = Choice> {
    let all: Vec<&'static Instruction> = instructions().collect();
    prop::sample::select(all).prop_flat_map(|instruction| {
        let columns: Vec<_> = (0..instruction.columns.len())
            .map(|i| {
                let mut words: Vec<String> = instruction.words(i).iter().map(ToString::to_string).collect();
                words.push("none such".into());
                prop::sample::select(words)
            })
            .collect();
        columns.prop_map(move |words| Choice { instruction, words })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Checks that nothing panics, that each error has a text, and that each expected word makes
    /// the form legal or leaves an error of a later column.
    #[test]
    fn every_check_returns_an_explanation(choice in any_choice(), at in prop::sample::select(Target::all().collect::<Vec<_>>())) {
        match choice.check(at) {
            Ok(spelling) => {
                prop_assert!(spelling.min_ptx() >= at.min_ptx());
                let text = spelling.ptx(|name| format!("%{name}"));
                prop_assert!(text.starts_with(&choice.to_string()) && !text.contains(['{', '}']), "{text}");
            }
            Err(no) => {
                prop_assert!(!no.expected.is_empty() && !no.to_string().is_empty(), "{choice:?}");
                let column = |name| choice.instruction.columns.iter().position(|c| *c == name).unwrap();
                match no.reason {
                    Reason::Word(name) => for word in &no.expected {
                        match choice.clone().with(column(name), word).check(at) {
                            Ok(_) => {}
                            Err(next) => match next.reason {
                                Reason::Word(later) => prop_assert_ne!(later, name),
                                Reason::Target | Reason::Refused => {}
                            }
                        }
                    },
                    Reason::Target => for name in &no.expected {
                        prop_assert!(target(name).min_ptx() >= PtxVersion::new(7, 8));
                    },
                    Reason::Refused => prop_assert_eq!(no.code(), 708),
                }
            }
        }
    }
}

#[test]
fn no_form_occurs_twice_and_each_has_a_target() {
    for instruction in instructions() {
        let mut seen = HashSet::new();
        for choice in choices(instruction) {
            assert!(seen.insert(choice.words.clone()), "twice: {choice:?}");
            assert!(Target::all().any(|t| choice.check(t).is_ok()), "no target: {choice:?}");
        }
    }
}

#[test]
fn words_without_a_column_are_no_form() {
    let short = Choice::new(Instruction::named("ldmatrix").unwrap(), &["b16"]);
    assert!(short.check(target("sm_90a")).is_err());
    let long = Choice::new(Instruction::named("ldmatrix").unwrap(), &["b16", "x4", "-", "b16"]);
    assert!(long.check(target("sm_90a")).is_err());
}

#[test]
fn products_are_written_as_in_ptx() {
    let spelled = |choice: Choice, at: &str| choice.check(target(at)).unwrap().ptx(str::to_lowercase);
    let bf16 = Product::new("bf16", "bf16", "f32").unwrap();
    assert_eq!(
        spelled(bf16.of_warpgroup(256, false, [false, true]).unwrap(), "sm_90a"),
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 d, a, b, scale, 1, 1, 0, 1;"
    );
    assert_eq!(
        spelled(bf16.of_warpgroup(8, true, [false, true]).unwrap(), "sm_90a"),
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 d, a, b, scale, 1, 1, 1;"
    );
    let bytes = Product::new("i8", "u8", "i32").unwrap();
    assert_eq!(
        spelled(bytes.of_warpgroup(48, false, [false; 2]).unwrap(), "sm_90a"),
        "wgmma.mma_async.sync.aligned.m64n48k32.s32.s8.u8 d, a, b, scale;"
    );
    assert_eq!(
        spelled(bytes.of_warp().unwrap(), "sm_120"),
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 d, a, b, c;"
    );
    let tf32 = Product::new("f32", "f32", "f32").unwrap();
    assert_eq!(tf32.depth(), 8);
    assert_eq!(
        spelled(fragments("ldmatrix", 4, true).unwrap(), "sm_90"),
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 d, [s];"
    );
    assert_eq!(Product::new("f64", "f64", "f64"), None);
}

#[test]
fn errors_name_the_column_and_the_expected_words() {
    let says = |choice: Option<Choice>, at: &str| {
        let no = choice.unwrap().check(target(at)).unwrap_err();
        (no.code(), no.to_string())
    };
    let bytes = Product::new("i8", "i8", "i32").unwrap();
    let (code, text) = says(bytes.of_warpgroup(40, false, [false; 2]), "sm_90a");
    assert_eq!(code, 709);
    assert!(
        text.contains("m64n40k32.s32.s8.s8` does not exist: n is 40, expected 8, 16, 24, 32, 48"),
        "{text}"
    );
    let (_, text) = says(bytes.of_warpgroup(48, false, [true, false]), "sm_90a");
    assert!(text.ends_with("a-major is mn, expected k"), "{text}");
    let (code, text) = says(bytes.of_warpgroup(48, false, [false; 2]), "sm_120");
    assert_eq!((code, text.ends_with("does not exist on sm_120, expected sm_90a")), (707, true), "{text}");
    let mixed = Product::new("bf16", "f16", "f32").unwrap();
    assert!(says(mixed.of_warp(), "sm_90").1.ends_with("b is f16, expected bf16"));
    let reduce = Instruction::named("cp.reduce.async.bulk").unwrap();
    let words = ["f32", "global", "shared::cta", "bulk_group", "add.noftz"];
    assert_eq!(Choice::new(reduce, &words).check(target("sm_90")).unwrap_err().reason, Reason::Refused);
}

/// Checks that the depth which `Product` reports is the greatest that a row has.
#[test]
fn depths_are_those_of_the_tables() {
    for instruction in ["wgmma.mma_async", "mma.sync"].map(|name| Instruction::named(name).unwrap()) {
        for choice in choices(instruction) {
            let named = |i: usize| instruction.words(i).into_iter().find(|w| *w == choice.words[i]).unwrap();
            let product = Product { a: named(0), b: named(1), sum: named(2) };
            assert!(choice.words[3].parse::<u32>().unwrap() <= product.depth(), "{choice:?}");
        }
    }
}
