//! Tests every code that the crate declares: for each there is a module with exactly that error, at
//! each level that can have it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::At::{self, Machine, Mixed, Tensor};
use common::{codes, read};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use weft_ir::abi::BAD_PARAM;
use weft_ir::diag::{Code, Span};
use weft_ir::flight::IN_FLIGHT;
use weft_ir::kernel::Module;
use weft_ir::level::Level;
use weft_ir::ordering::{BEFORE_QUIET, UNORDERED_SIGNAL};
use weft_ir::remote::{BAD_SIGNAL, NOT_SAME, NOT_SYMMETRIC, OTHER_DTYPE, OTHER_SHAPE};
use weft_ir::reuse::{OVERWRITTEN, RELEASED_EARLY};
use weft_ir::roles::BAD_ROLES;
use weft_ir::signals::{NOBODY_SIGNALS, SHARED_COUNTER};
use weft_ir::stuck::STUCK;
use weft_ir::tile::BAD_MAP;
use weft_ir::trips::UNEVEN;
use weft_ir::typing::{LITERAL, MISMATCH, NO_SUCH_OP, NOT_STATIC, WRONG_SPACE};
use weft_ir::verify::{
    BAD_FORMAT, BAD_FUNCTION, BAD_LAUNCH, BAD_ORDER, DIVERGENT, MISPLACED, NO_TEAM, UNDEFINED,
};
use weft_ir::{Memory, Scope, Sem, Space, Var, level, machine};

const ALL: &[At] = &[Tensor, Machine, Mixed];
const TENSORS: &[At] = &[Tensor, Mixed];
const ADDRESSES: &[At] = &[Machine, Mixed];

/// The parameters of the kernels with tensors: `%1` and `%2` are symmetric, `%3` is not, and `%4`
/// is a signal.
const PARAMS: &str = "\
  param 0 n : i32
  param 1 x : tensor<f32, symm, {(64):(1)}, align 16>
  param 2 v : tensor<i32, symm, {(64):(1)}, align 16>
  param 3 y : tensor<f32, global, {(64):(1)}, align 16>
  param 4 sig : tensor<u64, symm, {1:0}, align 8>
  param 5 team : team
  %0 = param 0 : i32
  %1 = param 1 : tensor<f32, symm, {(64):(1)}, align 16>
  %2 = param 2 : tensor<i32, symm, {(64):(1)}, align 16>
  %3 = param 3 : tensor<f32, global, {(64):(1)}, align 16>
  %4 = param 4 : tensor<u64, symm, {1:0}, align 8>
  %5 = const 5 : u64
  %6 = const 1 : i32
  %7 = const 1 : i64
";

/// The parameters of the kernels with addresses.
const POINTERS: &str = "\
  param 0 a : i64
  %0 = param 0 : i64
  %1 = int_to_ptr %0 : ptr<global>
  %2 = int_to_ptr %0 : ptr<multicast>
";

/// The code, the levels that can have the error, the text before the error, and the text with the
/// error.
type Row = (Code, &'static [At], &'static str, &'static str);

const TABLE: &[Row] = &[
    (
        IN_FLIGHT,
        &[Tensor],
        "",
        "%0 = shared_alloc \"t\" : tensor<f16, shared, {(64,16):(16,1)}, align 16>\n %1 = accumulator : accumulator<f32, 64, 64, 1, 1>\n %2 = mma %0, %0, %1 : accumulator<f32, 64, 64, 1, 1>\n %3 = accumulator_read %2, 0, 64 : vector<f32, 32>",
    ),
    (
        RELEASED_EARLY,
        &[Tensor],
        "",
        "%0 = shared_alloc \"t\" : tensor<f16, shared, {(64,16,2):(16,1,1024)}, align 16>\n %1 = pipeline 2 : pipeline<2>\n %2 = producer_acquire %1 : i32\n %3 = consumer_wait %1 : i32\n %4 = view %0, {%3*1024} : tensor<f16, shared, {(64,16):(16,1)}, align 16>\n %5 = accumulator : accumulator<f32, 64, 64, 1, 1>\n %6 = mma %4, %4, %5 : accumulator<f32, 64, 64, 1, 1>\n %7 = consumer_release %1",
    ),
    (UNEVEN, &[Tensor], "", "%0 = pipeline 2 : pipeline<2>\n %1 = consumer_wait %0 : i32"),
    (
        STUCK,
        &[Tensor],
        "",
        "%0 = pipeline 2 : pipeline<2>\n %1 = consumer_wait %0 : i32\n %2 = producer_acquire %0 : i32",
    ),
    (
        UNEVEN,
        &[Tensor],
        "",
        "%0 = pipeline 2 : pipeline<2>\n %1 = producer_acquire %0 : i32\n %2 = producer_acquire %0 : i32\n %3 = consumer_wait %0 : i32",
    ),
    (
        OVERWRITTEN,
        &[Tensor],
        "param 0 x : tensor<i32, global, {(4):(1)}, align 16>",
        "%0 = param 0 : tensor<i32, global, {(4):(1)}, align 16>\n %1 = shared_alloc \"t\" : tensor<i32, shared, {(4):(1)}, align 16>\n %2 = index {0} : i64\n %3 = tma_store %0, %1, exch, [%2], [1]\n %4 = const 1 : i32\n %5 = splat %4 : vector<i32, 4>\n %6 = store %1, %5, weak, sys",
    ),
    (BAD_ROLES, ALL, "", "%0 = role \"a\", 0, 33, 0, {\n}"),
    (BAD_ROLES, ALL, "", "%0 = role \"a\", 0, 32, 0, {\n}\n %1 = fence acquire, cta"),
    (BAD_MAP, ADDRESSES, POINTERS, "%3 = int_to_ptr %0 : ptr<shared>\n %4 = tma_ld %3, %1, [], %3, []"),
    (MISMATCH, ALL, "", "%0 = const 1 : i32\n %1 = unary neg, %0 : i64"),
    (MISMATCH, ALL, "", "%0 = const 1 : i32\n %1 = splat %0 : vector<i32, 0>"),
    (MISMATCH, ALL, "", "%0 = param 0 : i32"),
    (MISMATCH, ALL, "", "%0 = local_get $0 : i32"),
    (MISMATCH, ALL, "local $0 v : vector<f32, 1025>", ""),
    (MISMATCH, ALL, "local $0 v : unit", ""),
    (MISMATCH, TENSORS, "local $0 v : tensor<f32, global, {(4):(1)}, align 3>", ""),
    (MISMATCH, TENSORS, PARAMS, "%8 = view %1, {0} : tensor<f32, symm, {(4):(1)}, align 0>"),
    (MISMATCH, TENSORS, PARAMS, "%8 = load %0, weak, sys : i32"),
    (MISMATCH, ADDRESSES, POINTERS, "%3 = ld %1, weak, sys : vector<f32, 6>"),
    (MISMATCH, ADDRESSES, POINTERS, "%3 = ld %0, weak, sys : f32"),
    (MISMATCH, ADDRESSES, POINTERS, "%3 = int_to_ptr %0 : ptr<register>"),
    (MISMATCH, ADDRESSES, "local $0 at : ptr<register>", ""),
    (MISMATCH, ADDRESSES, "", "%0 = shared \"\", 4, 3 : ptr<shared>"),
    (MISPLACED, ALL, "", "%0 = break 0"),
    (MISPLACED, ALL, "", "%1 = once {\n %0 = break 1\n}"),
    (MISPLACED, ALL, "", "%1 = once {\n %0 = continue 0\n}"),
    (MISPLACED, ALL, "", "%0 = return\n %1 = return"),
    (NO_SUCH_OP, ALL, "", "%0 = const true : bool\n %1 = unary sqrt, %0 : bool"),
    (NO_SUCH_OP, TENSORS, "", "%0 = const true : bool\n %1 = reduce %0, add, warp : bool"),
    (NO_SUCH_OP, ADDRESSES, POINTERS, "%3 = multimem_ld_reduce %2, add, i32, relaxed, sys : f32"),
    (
        WRONG_SPACE,
        TENSORS,
        PARAMS,
        "%8 = multicast %3, team 5 : tensor<f32, multicast, {(64):(1)}, align 16>",
    ),
    (WRONG_SPACE, TENSORS, PARAMS, "%8 = ld_reduce %1, add, f32, relaxed, sys : vector<f32, 64>"),
    (WRONG_SPACE, ADDRESSES, POINTERS, "%3 = multimem_st %1, %0, relaxed, sys"),
    (WRONG_SPACE, ADDRESSES, POINTERS, "%3 = ld %2, weak, sys : f32"),
    (
        NOT_STATIC,
        TENSORS,
        PARAMS,
        "%8 = view %1, {0} : tensor<f32, symm, {(%0):(1)}, align 4>\n %9 = load %8, weak, sys : f32",
    ),
    (NOT_STATIC, TENSORS, PARAMS, "%8 = shared_alloc \"\" : tensor<f32, shared, {(%0):(1)}, align 4>"),
    (LITERAL, ALL, "", "%0 = const 256 : u8"),
    (LITERAL, ALL, "", "%0 = const 1 : f32"),
    (UNDEFINED, ALL, "", "%0 = unary neg, %1 : i32"),
    (
        UNDEFINED,
        ALL,
        "",
        "%0 = const true : bool\n %2 = if %0, {\n %1 = const 1 : i32\n }, {\n }\n %3 = unary neg, %1 : i32",
    ),
    (UNDEFINED, TENSORS, "local $0 n : i64\n", "%0 = index {%1} : i64"),
    (
        DIVERGENT,
        ALL,
        "",
        "%0 = special lane_idx, x : i32\n %1 = const 3 : i32\n %2 = compare lt, %0, %1 : bool\n %4 = if %2, {\n %3 = group_barrier block\n }, {\n }",
    ),
    (
        DIVERGENT,
        TENSORS,
        "",
        "%0 = special lane_idx, x : i32\n %1 = const 3 : i32\n %2 = compare lt, %0, %1 : bool\n %4 = if %2, {\n %3 = converge warp\n }, {\n }",
    ),
    // Threads access their elements of a tile that warpgroups divide together.
    (
        DIVERGENT,
        TENSORS,
        "",
        "%0 = special lane_idx, x : i32\n %1 = const 3 : i32\n %2 = compare lt, %0, %1 : bool\n %3 = shared_alloc \"t\" : tensor<f16, shared, {(64,16):(16,1)}, align 256>\n %4 = distributed %3, {0}, [1 1] : tensor<f16, shared, {(2,2,2,1):(1,128,8,1024)}, align 256>\n %5 = if %2, {\n %6 = load %4, weak, cta : vector<f16, 8>\n }, {\n }",
    ),
    (
        MISMATCH,
        TENSORS,
        "",
        "%3 = shared_alloc \"t\" : tensor<f16, shared, {(64,16):(16,1)}, align 256>\n %4 = distributed %3, {0}, [0 1] : tensor<f16, shared, {(2,2,2,1):(1,128,8,1024)}, align 256>",
    ),
    (
        MISMATCH,
        ADDRESSES,
        "",
        "%0 = wgmma_unset : vector<f32, 32>\n %1 = const 0 : i64\n %2 = wgmma %0, 0, %1, %1, 64, f16, f16, f16, false, false, [] : vector<f32, 32>",
    ),
    (BAD_ORDER, ALL, "", "%0 = fence relaxed, gpu"),
    (BAD_ORDER, TENSORS, PARAMS, "%8 = load %4, release, sys : u64"),
    (BAD_ORDER, ADDRESSES, POINTERS, "%3 = st %1, %0, acquire, sys"),
    (BAD_ORDER, ADDRESSES, POINTERS, "%3 = atom %1, %0, add, weak, sys : i64"),
    (NO_TEAM, TENSORS, PARAMS, "%8 = my_pe team 1 : i32"),
    (NO_TEAM, TENSORS, PARAMS, "%8 = translate_pe %6, team 5, team 99 : i32"),
    (BAD_FORMAT, ALL, "", "%0 = print \"%d\", []"),
    (BAD_FORMAT, ALL, "", "%0 = const 1 : i32\n %1 = print \"%f\", [%0]"),
    (BAD_PARAM, &[Machine], "param 0 p : vector<f32, 4>", ""),
    (BAD_PARAM, &[Machine], "param 0 p : ptr<shared>", ""),
    (BAD_PARAM, &[Machine], "param 0 p : ptr<global>, align 12", ""),
    (BAD_PARAM, &[Tensor], "param 0 me : i32 = my_pe(4294967295)", ""),
    (BAD_FUNCTION, ADDRESSES, "", "%0 = call \"no name\", []"),
    (BAD_FUNCTION, ADDRESSES, "", "%0 = call \"k\", []"),
    (BAD_FUNCTION, ADDRESSES, POINTERS, "%3 = call \"f\", [%0]\n %4 = call \"f\", [%1]"),
    (NOT_SYMMETRIC, TENSORS, PARAMS, "%8 = put %3, %1, %6, team 5, false, block"),
    (OTHER_DTYPE, TENSORS, PARAMS, "%8 = put %1, %2, %6, team 5, false, block"),
    (OTHER_SHAPE, TENSORS, PARAMS, "%8 = g %1, %6, team 5 : f32"),
    (
        OTHER_SHAPE,
        TENSORS,
        PARAMS,
        "%8 = view %1, {0} : tensor<f32, symm, {(4):(2)}, align 4>\n %9 = team_move fcollect, %1, %8, [], team 5, block",
    ),
    (BAD_SIGNAL, TENSORS, PARAMS, "%8 = signal_op %2, set, %5, %6, team 5"),
    (
        NOT_SAME,
        TENSORS,
        PARAMS,
        "%8 = special thread_idx, x : i32\n %9 = put %1, %3, %8, team 5, false, block",
    ),
    (NOBODY_SIGNALS, &[Tensor], PARAMS, "%8 = signal_wait_until %4, ge, %5 : u64"),
    (
        SHARED_COUNTER,
        &[Tensor],
        PARAMS,
        "%8 = put_signal %1, %3, %4, add, %5, %6, team 5, true, block\n %9 = put_signal %1, %3, %4, add, %5, %6, team 5, true, block\n %10 = signal_wait_until %4, ge, %5 : u64",
    ),
    (
        BEFORE_QUIET,
        &[Tensor],
        PARAMS,
        "%8 = get %3, %1, %6, team 5, true, block\n %9 = view %3, {0} : tensor<f32, global, {1:0}, align 4>\n %10 = load %9, weak, sys : f32",
    ),
    (
        UNORDERED_SIGNAL,
        &[Tensor],
        PARAMS,
        "%8 = put %1, %3, %6, team 5, false, block\n %9 = signal_op %4, set, %5, %6, team 5",
    ),
];

/// The text of a kernel of 64 threads.
fn text(head: &str, before: &str, body: &str) -> String {
    format!("kernel @{head} {{\n{before}\n{body}\n}}\n")
}

#[test]
fn each_error_is_found_and_no_other() {
    for (code, levels, before, body) in TABLE {
        let text = text("k block(64, 1, 1)", before, body);
        for level in *levels {
            assert_eq!(level.codes(&text), [*code], "{level:?} level:\n{text}");
        }
    }
}

#[test]
fn the_texts_before_the_errors_are_valid() {
    for (levels, before) in [(ALL, ""), (TENSORS, PARAMS), (ADDRESSES, POINTERS)] {
        for level in levels {
            assert_eq!(level.codes(&text("k block(64, 1, 1)", before, "")), [], "{level:?} level");
        }
    }
}

#[test]
fn launch_shapes_and_names() {
    for head in [
        "k block(0, 1, 1)",
        "k block(1025, 1, 1)",
        "k block(1, 1, 65)",
        "k block(65536, 65536, 2)",
        "1k block(1, 1, 1)",
        "k.a block(1, 1, 1)",
        "é block(1, 1, 1)",
    ] {
        for level in ALL {
            assert_eq!(level.codes(&text(head, "", "")), [BAD_LAUNCH], "{level:?} level: {head}");
        }
    }
}

/// Tests modules that no text can express: the reader rejects values that are defined twice, and a
/// loop defines its own variable.
fn misplaced<L: Level>() {
    let source =
        text("k block(64, 1, 1)", "", "%0 = const 1 : i64\n %2 = for %1 (0 1 1), %0, %0, %0, 1, {\n }");
    let sound = || read::<L>(&source);
    assert_eq!(codes(sound()), []);
    let with = |change: &dyn Fn(&mut Module<L>)| {
        let mut module = sound();
        change(&mut module);
        codes(module)
    };
    let twice = with(&|m| {
        let body = &mut m.kernels[0].body.0;
        body.push(body[0]);
    });
    assert_eq!(twice, [MISPLACED], "{} level: an instruction in two places", L::NAME);
    let again = with(&|m| {
        let k = &mut m.kernels[0];
        let inst = k.insts[k.body.0[1]].clone();
        let v = k.insts.push(inst);
        k.body.0.push(v);
    });
    assert_eq!(again, [MISPLACED], "{} level: one variable of two loops", L::NAME);
    let variable = with(&|m| {
        let k = &mut m.kernels[0];
        let var =
            k.insts.iter().find(|(_, i)| matches!(weft_ir::Operation::var(&i.op), Some(Var::LoopVar { .. })));
        let var = var.unwrap().0;
        k.insts[var].ty = weft_ir::ValueType::scalar(weft_ir::Scalar::F32);
    });
    assert_eq!(variable, [MISPLACED], "{} level: a loop variable of f32", L::NAME);
}

#[test]
fn instructions_in_two_places() {
    misplaced::<level::Tensor>();
    misplaced::<level::Machine>();
    misplaced::<level::Mixed>();
}

/// Checks that a builder rejects at once what the verifier would find.
#[test]
fn the_builder_reports_the_same_errors() {
    let mut b = machine::Builder::new("k", [1, 1, 1]);
    let x = b.pointer_param("x", Space::Global, 16).unwrap();
    b.at(Span { file: 3, start: 4, end: 5 });
    let e = b.load(x, machine::Type::Vector(weft_ir::Scalar::F32, 6)).unwrap_err();
    assert_eq!((e.code, e.span), (MISMATCH, Span { file: 3, start: 4, end: 5 }));
    let op = Memory::McStore { ptr: x, value: x, sem: Sem::Relaxed, scope: Scope::Sys };
    assert_eq!(b.emit(op).unwrap_err().code, WRONG_SPACE);
    assert_eq!(b.kernel().insts.len(), 1);
}

/// Checks that the errors of all kernels are found, and that a module without errors keeps its
/// warnings.
#[test]
fn errors_of_all_kernels_are_found() {
    let bad = |name: &str| {
        text(&format!("{name} block(1, 1, 1)"), "", "%0 = const 256 : u8\n %1 = fence weak, sys")
    };
    assert_eq!(Machine.codes(&(bad("a") + &bad("b"))), [LITERAL, BAD_ORDER, LITERAL, BAD_ORDER]);
}

fn declared(folder: &Path, out: &mut BTreeSet<u16>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            declared(&path, out);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let numbers = text.split(": Code = Code(").skip(1).map(|rest| rest.split(')').next().unwrap());
        out.extend(numbers.map(|n| n.parse::<u16>().unwrap()));
    }
}

#[test]
fn no_code_is_without_a_row() {
    let mut all = BTreeSet::new();
    declared(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
    assert!(all.len() >= 23 && all.iter().all(|code| (200..260).contains(code)), "{all:?}");
    // These codes have tests of their own.
    let mut shown = BTreeSet::from([BAD_LAUNCH.0, MISPLACED.0]);
    shown.extend(TABLE.iter().map(|(code, ..)| code.0));
    assert_eq!(shown, all);
}
