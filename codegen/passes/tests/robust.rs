//! Tests that everything that passes the verifier is lowered or rejected, without panics and
//! without malformed output.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::kernels::two_shot;
use common::options;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use weft_ir::level::Tensor;
use weft_ir::text::{parse_module, print_module};
use weft_ir::verify::verify;
use weft_ir::{Module, RedOp, Scalar};
use weft_passes::{Lowering, Transport, run};

/// A change of a text at a position (in thousandths of it), which replaces the number, word or line
/// there.
#[derive(Clone, Debug)]
enum Change {
    Number(usize, &'static str),
    Word(usize, &'static str),
    Drop(usize),
    Swap(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let numbers =
        vec!["0", "1", "2", "3", "7", "8", "16", "33", "255", "1024", "4294967295", "9223372036854775807"];
    let words = vec![
        "f32",
        "f16",
        "bf16",
        "i64",
        "u8",
        "e4m3",
        "bool",
        "add",
        "mul",
        "min",
        "xor",
        "weak",
        "relaxed",
        "acquire",
        "release",
        "gpu",
        "global",
        "symm",
        "multicast",
        "shared",
        "block",
        "warp",
        "div",
        "rem",
        "load",
        "view",
        "world",
        "thread",
        "some",
        "true",
        "put",
        "get",
    ];
    prop_oneof![
        4 => (0usize..1000, prop::sample::select(numbers)).prop_map(|(at, n)| Change::Number(at, n)),
        4 => (0usize..1000, prop::sample::select(words)).prop_map(|(at, w)| Change::Word(at, w)),
        1 => (0usize..1000).prop_map(Change::Drop),
        1 => (0usize..1000, 0usize..1000).prop_map(|(a, b)| Change::Swap(a, b)),
    ]
}

impl Change {
    fn apply(&self, text: &str) -> String {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let line = |at: usize| at * text.lines().count() / 1000;
        match self {
            Change::Number(at, new) => replace(text, *at, new, |c| c.is_ascii_digit()),
            Change::Word(at, new) => replace(text, *at, new, |c| c.is_ascii_alphabetic()),
            Change::Drop(at) => {
                lines.remove(line(*at));
                lines.join("\n")
            }
            Change::Swap(a, b) => {
                lines.swap(line(*a), line(*b));
                lines.join("\n")
            }
        }
    }
}

/// Replaces the run of such characters at or after a position.
fn replace(text: &str, at: usize, new: &str, is: impl Fn(char) -> bool) -> String {
    let from = at * text.len() / 1000;
    let Some(start) = text[from..].find(&is).map(|i| from + i) else { return text.to_owned() };
    let end = text[start..].find(|c| !is(c)).map_or(text.len(), |i| start + i);
    format!("{}{new}{}", &text[..start], &text[end..])
}

static LOWERED: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

fn sources() -> Vec<String> {
    let text = |k| print_module(&Module { kernels: vec![k], ..Module::default() });
    vec![
        text(two_shot(Scalar::F32, 64, 4, RedOp::Add).unwrap()),
        text(two_shot(Scalar::BF16, 512, 1, RedOp::Max).unwrap()),
        include_str!("mixed.ir").to_owned(),
        include_str!("remote.ir").to_owned(),
    ]
}

#[test]
fn the_texts_lower() {
    for text in sources() {
        let module = verify(parse_module::<Tensor>(&text).unwrap()).unwrap_or_else(|e| panic!("{e:#?}"));
        for lowering in [Lowering::Multimem, Lowering::Unicast] {
            run(module.clone(), &options(lowering)).unwrap_or_else(|e| panic!("{e:#?}"));
        }
    }
}

#[test]
fn nothing_panics() {
    let transport = prop::sample::select(vec![Transport::Nvshmem, Transport::P2p, Transport::Auto]);
    let case = (0usize..4, prop::collection::vec(change(), 1..4), any::<bool>(), transport);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(20_000));
    let sources = sources();
    runner
        .run(&case, |(which, changes, unicast, transport)| {
            let text = changes.iter().fold(sources[which].clone(), |text, change| change.apply(&text));
            let Ok(module) = parse_module::<Tensor>(&text) else { return Ok(()) };
            let Ok(module) = verify(module) else { return Ok(()) };
            let lowering = if unicast { Lowering::Unicast } else { Lowering::Multimem };
            let mut o = options(lowering);
            o.debug_waits = unicast.then_some(9);
            o.transport = transport;
            o.library_pointers = unicast && transport == Transport::Nvshmem;
            match run(module, &o) {
                Ok(_) => LOWERED.fetch_add(1, Ordering::Relaxed),
                Err(found) => {
                    prop_assert!(
                        found.iter().all(|d| !d.message.contains("after pass")),
                        "{found:#?}\n{text}"
                    );
                    REFUSED.fetch_add(1, Ordering::Relaxed)
                }
            };
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
    let (lowered, refused) = (LOWERED.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed));
    assert!(lowered > 500 && refused > 20, "{lowered} lowered, {refused} refused");
}
