//! Tests of the typing rules: what each family accepts, and what it rejects with which code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::At::{self, Machine, Mixed, Tensor};
use weft_ir::diag::Code;
use weft_ir::remote::{BAD_SIGNAL, NOT_SYMMETRIC, OTHER_DTYPE, OTHER_SHAPE};
use weft_ir::typing::{LITERAL, MISMATCH, NO_SUCH_OP, NOT_STATIC, WRONG_SPACE};

/// Values of each kind that every level has.
const NUMBERS: &str = "\
  local $0 i : i32
  %0 = const 1 : i32
  %1 = const 1 : i64
  %2 = const float 0x3ff0000000000000 \"1\" : f32
  %3 = const true : bool
  %4 = const 1 : u64
  %5 = const float 0x3ff0000000000000 \"1\" : e4m3
  %6 = splat %2 : vector<f32, 4>
  %7 = splat %3 : vector<bool, 4>
  %8 = special grid_dim, x : i32
";

/// Tensors: of 4 elements in each space, with a run-time size, with strides, and of single
/// elements.
const TENSORS: &str = "\
  param 0 x : tensor<f32, symm, {(4):(1)}, align 16>
  param 1 g : tensor<f32, global, {(4):(1)}, align 16>
  param 2 v : tensor<i32, symm, {(4):(1)}, align 16>
  param 3 found : tensor<u64, symm, {(4):(1)}, align 16>
  param 4 sig : tensor<u64, symm, {1:0}, align 8>
  param 5 team : team
  param 6 sync : barrier
  %10 = param 0 : tensor<f32, symm, {(4):(1)}, align 16>
  %11 = param 1 : tensor<f32, global, {(4):(1)}, align 16>
  %12 = param 2 : tensor<i32, symm, {(4):(1)}, align 16>
  %13 = param 3 : tensor<u64, symm, {(4):(1)}, align 16>
  %14 = param 4 : tensor<u64, symm, {1:0}, align 8>
  %15 = param 6 : barrier
  %16 = multicast %10, team 5 : tensor<f32, multicast, {(4):(1)}, align 16>
  %17 = view %12, {0} : tensor<i32, symm, {1:0}, align 16>
  %18 = view %10, {0} : tensor<f32, symm, {(2):(2)}, align 4>
  %19 = view %10, {0} : tensor<f32, symm, {(%8*2):(1)}, align 4>
  %20 = shared_alloc \"\" : tensor<f32, shared, {(4):(1)}, align 16>
";

/// Addresses in three spaces.
const ADDRESSES: &str = "\
  %10 = int_to_ptr %1 : ptr<global>
  %11 = int_to_ptr %1 : ptr<multicast>
  %12 = shared \"\", 64, 16 : ptr<shared>
";

const OK: Option<Code> = None;

/// An instruction, and the code with which it is rejected, if it is.
type Row = (&'static str, Option<Code>);
/// The text before the instructions, the levels, and the tables.
type Families<'a> = (&'a str, &'a [At], &'a [&'static [Row]]);

const ARITH: &[Row] = &[
    ("const -128 : i8", OK),
    ("const 128 : u8", OK),
    ("const -129 : i8", Some(LITERAL)),
    ("const 1 : vector<i32, 4>", Some(MISMATCH)),
    ("unary neg, %6 : vector<f32, 4>", OK),
    ("unary neg, %4 : u64", Some(NO_SUCH_OP)),
    ("unary exp, %0 : i32", Some(NO_SUCH_OP)),
    ("unary abs, %5 : e4m3", Some(NO_SUCH_OP)),
    ("binary shl, %0, %0 : i32", OK),
    ("binary and, %3, %3 : bool", OK),
    ("binary add, %0, %1 : i32", Some(MISMATCH)),
    ("binary add, %5, %5 : e4m3", Some(NO_SUCH_OP)),
    ("binary rem, %2, %2 : f32", Some(NO_SUCH_OP)),
    ("fma %2, %2, %2 : f32", OK),
    ("fma %0, %0, %0 : i32", Some(NO_SUCH_OP)),
    ("compare le, %6, %6 : vector<bool, 4>", OK),
    ("compare le, %6, %6 : bool", Some(MISMATCH)),
    ("compare eq, %5, %5 : bool", Some(NO_SUCH_OP)),
    ("select %7, %6, %6 : vector<f32, 4>", OK),
    ("select %3, %6, %6 : vector<f32, 4>", OK),
    ("select %7, %2, %2 : f32", Some(MISMATCH)),
    ("convert %6 : vector<bf16, 4>", OK),
    ("convert %6 : bf16", Some(MISMATCH)),
    ("bitcast %6 : vector<u64, 2>", OK),
    ("bitcast %6 : u64", Some(MISMATCH)),
    ("bitcast %3 : u8", Some(MISMATCH)),
    ("splat %2 : vector<f32, 1024>", OK),
    ("splat %2 : vector<f64, 4>", Some(MISMATCH)),
    ("concat [%6 %2] : vector<f32, 5>", OK),
    ("concat [%6 %2] : vector<f32, 4>", Some(MISMATCH)),
    ("slice %6, 2 : vector<f32, 2>", OK),
    ("slice %6, 3 : vector<f32, 2>", Some(MISMATCH)),
    ("slice %6, 4294967295 : vector<f32, 2>", Some(MISMATCH)),
    ("extract %6, %1 : f32", OK),
    ("extract %6, %4 : f32", Some(MISMATCH)),
    ("insert %6, %0, %2 : vector<f32, 4>", OK),
    ("insert %6, %0, %6 : vector<f32, 4>", Some(MISMATCH)),
];

const THREAD: &[Row] = &[
    ("special block_dim, z : i32", OK),
    ("special block_dim, z : i64", Some(MISMATCH)),
    ("shuffle %6, down, %0 : vector<f32, 4>", OK),
    ("shuffle %6, down, %1 : vector<f32, 4>", Some(MISMATCH)),
    ("vote or, %3 : bool", OK),
    ("vote add, %3 : bool", Some(MISMATCH)),
    ("vote and, %0 : bool", Some(MISMATCH)),
    ("vote and, %7 : vector<bool, 4>", Some(MISMATCH)),
    ("group_barrier warp", OK),
    ("group_barrier warp : i32", Some(MISMATCH)),
];

const VAR: &[Row] = &[
    ("local_get $0 : i32", OK),
    ("local_get $0 : i64", Some(MISMATCH)),
    ("local_set $0, %0", OK),
    ("local_set $0, %1", Some(MISMATCH)),
    ("local_set $1, %0", Some(MISMATCH)),
    ("param 99 : i32", Some(MISMATCH)),
];

const CONTROL: &[Row] = &[
    ("if %3, {\n }, {\n }", OK),
    ("if %7, {\n }, {\n }", Some(MISMATCH)),
    ("for %98 (0 1 1), %1, %1, %1, 1, {\n }", OK),
    ("for %98 (0 1 1), %1, %0, %1, 1, {\n }", Some(MISMATCH)),
    ("while {\n }, %3, {\n }", OK),
    ("while {\n }, %0, {\n }", Some(MISMATCH)),
];

const DEBUG: &[Row] = &[
    ("print \"%f\", [%5]", OK),
    ("print \"%f\", [%6]", Some(MISMATCH)),
    ("trap", OK),
    ("trap : i32", Some(MISMATCH)),
    ("assert %3, \"text\"", OK),
    ("assert %3, \"text\" : i32", Some(MISMATCH)),
    ("assert %7, \"text\"", Some(MISMATCH)),
    ("assert %0, \"text\"", Some(MISMATCH)),
];

const VIEW: &[Row] = &[
    ("index {%0*7+%1} : i64", OK),
    ("index {%0} : i32", Some(MISMATCH)),
    ("view %10, {2} : tensor<f32, symm, {(2):(1)}, align 8>", OK),
    ("view %10, {2} : tensor<f32, global, {(2):(1)}, align 8>", Some(MISMATCH)),
    ("view %10, {2} : tensor<i32, symm, {(2):(1)}, align 8>", Some(MISMATCH)),
    ("multicast %11, team 5 : tensor<f32, multicast, {(4):(1)}, align 16>", Some(WRONG_SPACE)),
    ("multicast %10, team 5 : tensor<f32, multicast, {(2):(1)}, align 16>", Some(MISMATCH)),
    ("peer %10, team 5, %0 : tensor<f32, peer, {(4):(1)}, align 16>", OK),
    ("peer %10, team 5, %1 : tensor<f32, peer, {(4):(1)}, align 16>", Some(MISMATCH)),
    ("shared_alloc \"a\" : tensor<f32, global, {(4):(1)}, align 16>", Some(NOT_STATIC)),
];

const TEAM: &[Row] = &[
    ("my_pe world : i32", OK),
    ("n_pes team 5 : i64", Some(MISMATCH)),
    ("team_barrier %15, team 5, relaxed, sys", OK),
    ("team_barrier %10, team 5, relaxed, sys", Some(MISMATCH)),
];

const ACCESS: &[Row] = &[
    ("load %11, weak, sys : vector<f32, 4>", OK),
    ("load %11, weak, sys : f32", Some(MISMATCH)),
    ("load %16, weak, sys : vector<f32, 4>", Some(WRONG_SPACE)),
    ("load %19, weak, sys : f32", Some(NOT_STATIC)),
    ("store %20, %6, weak, sys", OK),
    ("store %20, %2, weak, sys", Some(MISMATCH)),
    ("ld_reduce %16, max, f64, weak, sys : vector<f32, 4>", OK),
    ("ld_reduce %16, max, f16, weak, sys : vector<f32, 4>", Some(NO_SUCH_OP)),
    ("ld_reduce %16, and, f32, weak, sys : vector<f32, 4>", Some(NO_SUCH_OP)),
    ("mc_store %16, %6, weak, sys", OK),
    ("mc_store %10, %6, weak, sys", Some(WRONG_SPACE)),
    ("mc_red %16, %6, mul, relaxed, sys", OK),
    ("mc_red %16, %6, xor, relaxed, sys", Some(NO_SUCH_OP)),
    ("red %20, %6, add, relaxed, sys", OK),
    ("red %16, %6, add, relaxed, sys", Some(WRONG_SPACE)),
    ("atomic %17, %0, exch, relaxed, sys : i32", OK),
    ("atomic %17, %1, add, relaxed, sys : i64", Some(MISMATCH)),
    ("atomic_cas %17, %0, %0, relaxed, sys : i32", OK),
    ("atomic_cas %17, %1, %0, relaxed, sys : i32", Some(MISMATCH)),
];

const TOGETHER: &[Row] = &[
    ("converge block", OK),
    ("reduce %6, min, warp : vector<f32, 4>", OK),
    ("reduce %3, and, block : bool", OK),
    ("reduce %2, or, block : f32", Some(NO_SUCH_OP)),
    ("reduce %15, add, block : f32", Some(MISMATCH)),
];

const REMOTE: &[Row] = &[
    ("put %10, %11, %0, team 5, false, block", OK),
    ("put %11, %10, %0, team 5, false, block", Some(NOT_SYMMETRIC)),
    ("put %10, %20, %0, team 5, false, block", Some(WRONG_SPACE)),
    ("put %10, %12, %0, team 5, false, block", Some(OTHER_DTYPE)),
    ("put %10, %18, %0, team 5, false, block", Some(OTHER_SHAPE)),
    ("put %10, %11, %1, team 5, false, block", Some(MISMATCH)),
    ("get %11, %10, %0, world, true, warp", OK),
    ("get %10, %11, %0, world, true, warp", Some(NOT_SYMMETRIC)),
    ("put_signal %10, %11, %14, set, %4, %0, world, false, thread", OK),
    ("put_signal %10, %11, %13, set, %4, %0, world, false, thread", Some(BAD_SIGNAL)),
    ("p %17, %0, %0, team 5", OK),
    ("p %12, %0, %0, team 5", Some(OTHER_SHAPE)),
    ("p %17, %1, %0, team 5", Some(MISMATCH)),
    ("g %17, %0, team 5 : i32", OK),
    ("g %11, %0, team 5 : f32", Some(NOT_SYMMETRIC)),
    ("signal_op %14, add, %4, %0, team 5", OK),
    ("signal_op %14, add, %1, %0, team 5", Some(MISMATCH)),
    ("signal_wait_until %17, ge, %4 : u64", Some(BAD_SIGNAL)),
    ("signal_fetch %14 : u64", OK),
    ("wait %17, eq, %0, one, true, [], [] : bool", OK),
    ("wait %12, eq, %12, some, true, [%12], [%13] : i64", OK),
    ("wait %12, eq, %0, some, true, [], [] : i64", Some(MISMATCH)),
    ("wait %12, eq, %0, one, true, [], [] : bool", Some(OTHER_SHAPE)),
    ("wait %12, eq, %13, all, false, [], []", Some(OTHER_DTYPE)),
    ("wait %10, eq, %2, all, false, [], []", Some(NO_SUCH_OP)),
    ("amo %17, fetch_add, [%0], %0, team 5 : i32", OK),
    ("amo %17, fetch_add, [%0 %0], %0, team 5 : i32", Some(MISMATCH)),
    ("rma_fence", OK),
    ("quiet : i32", Some(MISMATCH)),
    ("team_sync world, false, warp", OK),
    ("team_reduce %10, %10, add, false, team 5, block", OK),
    ("team_reduce %10, %10, and, false, team 5, block", Some(NO_SUCH_OP)),
    ("team_reduce %10, %18, add, false, team 5, block", Some(OTHER_SHAPE)),
    ("team_move broadcast, %10, %10, [%0], team 5, block", OK),
    ("team_move broadcast, %10, %10, [%1], team 5, block", Some(MISMATCH)),
    ("translate_pe %0, team 5, world : i32", OK),
    ("translate_pe %1, team 5, world : i32", Some(MISMATCH)),
];

const ADDRESS: &[Row] = &[
    ("ptr_add %10, %1 : ptr<global>", OK),
    ("ptr_add %10, %1 : ptr<peer>", Some(MISMATCH)),
    ("ptr_add %10, %0 : ptr<global>", Some(MISMATCH)),
    ("ptr_add %1, %1 : ptr<global>", Some(MISMATCH)),
    ("int_to_ptr %1 : ptr<peer>", OK),
    ("int_to_ptr %4 : ptr<peer>", Some(MISMATCH)),
    ("int_to_ptr %1 : i64", Some(MISMATCH)),
    ("int_to_ptr %1 : ptr<register>", Some(MISMATCH)),
    ("ptr_to_int %12 : i64", OK),
    ("ptr_to_int %12 : u64", Some(MISMATCH)),
    ("shared \"\", 0, 1 : ptr<shared>", OK),
    ("shared \"\", 16, 0 : ptr<shared>", Some(MISMATCH)),
    ("shared \"\", 16, 16 : ptr<global>", Some(MISMATCH)),
    ("bitcast %10 : i64", Some(MISMATCH)),
];

const MEMORY: &[Row] = &[
    ("ld %10, weak, sys : bool", OK),
    ("ld %10, weak, sys : vector<e4m3, 16>", OK),
    ("ld %10, weak, sys : vector<f32, 3>", Some(MISMATCH)),
    ("ld %10, weak, sys : vector<f32, 8>", Some(MISMATCH)),
    ("ld %10, weak, sys : ptr<global>", Some(MISMATCH)),
    ("ld %10, weak, sys", Some(MISMATCH)),
    ("ld %11, weak, sys : f32", Some(WRONG_SPACE)),
    ("st %12, %6, weak, sys", OK),
    ("st %12, %6, weak, sys : f32", Some(MISMATCH)),
    ("multimem_ld_reduce %11, add, f32, weak, sys : vector<bf16, 8>", OK),
    ("multimem_ld_reduce %11, add, bf16, weak, sys : vector<f32, 4>", Some(NO_SUCH_OP)),
    ("multimem_ld_reduce %10, add, f32, weak, sys : vector<bf16, 8>", Some(WRONG_SPACE)),
    ("multimem_st %11, %6, weak, sys", OK),
    ("multimem_st %12, %6, weak, sys", Some(WRONG_SPACE)),
    ("multimem_red %11, %6, add, relaxed, sys", OK),
    ("multimem_red %11, %3, add, relaxed, sys", Some(NO_SUCH_OP)),
    ("atom_red %10, %4, xor, relaxed, sys", OK),
    ("atom_red %10, %2, xor, relaxed, sys", Some(NO_SUCH_OP)),
    ("atom %12, %0, exch, relaxed, sys : i32", OK),
    ("atom %12, %0, exch, relaxed, sys : i64", Some(MISMATCH)),
    ("atom_cas %10, %4, %4, relaxed, sys : u64", OK),
    ("atom_cas %10, %1, %4, relaxed, sys : u64", Some(MISMATCH)),
];

const CALL: &[Row] = &[
    ("call \"f\", [%0 %1 %2 %4 %10] : ptr<peer>", OK),
    ("call \"f\", []", OK),
    ("call \"f\", [%3]", Some(MISMATCH)),
    ("call \"f\", [%6]", Some(MISMATCH)),
    ("call \"f\", [] : f16", Some(MISMATCH)),
];

const BRIDGE: &[Row] = &[
    ("address_of %10 : ptr<symm>", OK),
    ("address_of %16 : ptr<multicast>", OK),
    ("address_of %15 : ptr<symm>", OK),
    ("address_of %10 : ptr<global>", Some(MISMATCH)),
    ("address_of %1 : ptr<global>", Some(MISMATCH)),
];

#[test]
fn each_family_accepts_and_rejects() {
    let before = |parts: &[&str]| {
        // Parameters and variables come first.
        let lines = parts.iter().flat_map(|part| part.lines().map(str::trim));
        let (head, code): (Vec<_>, Vec<_>) = lines.partition(|l| !l.starts_with('%'));
        let params = head.iter().filter(|l| l.starts_with("param"));
        let locals = head.iter().filter(|l| l.starts_with("local"));
        params.chain(locals).chain(&code).map(|l| format!("  {l}\n")).collect::<String>()
    };
    let numbers = before(&[NUMBERS]);
    let (tensors, addresses) = (before(&[NUMBERS, TENSORS]), before(&[NUMBERS, ADDRESSES]));
    let shared: &[At] = &[Tensor, Machine, Mixed];
    let families: [Families<'_>; 4] = [
        (&numbers, shared, &[ARITH, THREAD, VAR, CONTROL, DEBUG]),
        (&tensors, &[Tensor, Mixed], &[VIEW, TEAM, ACCESS, TOGETHER, REMOTE]),
        (&addresses, &[Machine, Mixed], &[ADDRESS, MEMORY, CALL]),
        (&tensors, &[Mixed], &[BRIDGE]),
    ];
    for (before, levels, tables) in families {
        for (inst, code) in tables.iter().copied().flatten() {
            let text = format!("kernel @k block(32, 1, 1) {{\n{before}  %99 = {inst}\n}}\n");
            for level in levels {
                let expected: Vec<Code> = code.iter().copied().collect();
                assert_eq!(level.codes(&text), expected, "{level:?} level: {inst}");
            }
        }
    }
}
