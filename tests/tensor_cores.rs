//! Checks the GEMM of the examples in SASS: matrix instructions are consecutive, accumulators stay
//! in their registers, and tiles are moved by TMA.
//!
//! It needs ptxas and nvdisasm. Without them the test prints a message and passes, unless
//! `WEFT_REQUIRE_PTXAS=1`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "sass/listing.rs"]
#[allow(dead_code, reason = "shared with the test of multimem loops")]
mod listing;

use listing::{Inst, Kernel, kernels, registers};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use weft::tools::{Tool, assemble, disassemble};
use weft::{Define, KernelFile, Options};
use weft_abi::RemarkKind;
use weft_isa::{Product, Target};

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The longest kernel of a file, for a target.
fn compiled(path: &str, target: &str, defines: &[(&str, &str)]) -> Kernel {
    of_text(path, &read(path), target, defines)
}

fn of_text(path: &str, text: &str, target: &str, defines: &[(&str, &str)]) -> Kernel {
    let target: Target = target.parse().unwrap();
    let file = KernelFile::parse(path, text).unwrap();
    let mut options = Options::new(target);
    for (name, value) in defines {
        options.defines.insert((*name).into(), Define::parse(value).unwrap());
    }
    let compiled = file.compile(&options).unwrap();
    let made = assemble(&compiled.ptx, target).unwrap();
    // Products by warps need more registers, and one of the kernels spills four bytes to memory.
    let by_warps = target.name() != "sm_90a";
    let remarks = made.remarks.into_iter().filter(|r| !(by_warps && r.kind == RemarkKind::Spills));
    assert_eq!(remarks.collect::<Vec<_>>(), [], "{defines:?} for {target}: ptxas has nothing to say");
    let listing = disassemble(&made.cubin).unwrap();
    kernels(&listing).into_values().max_by_key(|kernel| kernel.insts.len()).unwrap()
}

/// Whether the tools are missing, with a message.
fn skipped() -> bool {
    let missing = [Tool::Ptxas, Tool::Nvdisasm].into_iter().find_map(|t| t.find().err());
    if let Some(missing) = &missing {
        assert!(std::env::var_os("WEFT_REQUIRE_PTXAS").is_none_or(|v| v != "1"), "{missing}");
        writeln!(std::io::stdout().lock(), "skipped: {missing}").unwrap();
    }
    missing.is_some()
}

/// The expected SASS of a kernel with two roles that multiply.
struct Expected {
    path: &'static str,
    defines: &'static [(&'static str, &'static str)],
    /// The number of matrix instructions of the kernel and of the innermost loop of each role, and
    /// their name.
    products: (&'static str, usize, usize),
    /// The number of their groups in the kernel and in the loop. Each group has one arrival.
    groups: (usize, usize),
    /// For each role and loop, the number of instructions that replace their registers: always, and
    /// in one round.
    fresh: (usize, usize),
    /// The number of boxes that are loaded (to several CTAs) and stored, and of stores of four
    /// matrices.
    copies: (usize, usize, usize, usize),
}

const KERNELS: [Expected; 7] = [
    // A role stores strips of 64 columns of its 64 x 256 results. Each strip is a box, and a warp
    // stores four matrices for 16 columns.
    Expected {
        path: "gemm",
        defines: &[],
        products: ("HGMMA", 8, 4),
        groups: (2, 1),
        fresh: (0, 1),
        copies: (2, 0, 8, 32),
    },
    Expected {
        path: "gemm",
        defines: &[("CTAS", "2")],
        products: ("HGMMA", 8, 4),
        groups: (2, 1),
        fresh: (0, 1),
        copies: (2, 1, 8, 32),
    },
    // Sums of 128 fp8 elements along K start again for each block. A round has two blocks, and the
    // last block of an odd number follows the loop.
    Expected {
        path: "gemm_fp8",
        defines: &[],
        products: ("QGMMA", 24, 8),
        groups: (6, 2),
        fresh: (2, 0),
        copies: (2, 0, 4, 16),
    },
    // Wider tiles have one accumulator, and its products are added before the next ones begin.
    Expected {
        path: "gemm_fp8",
        defines: &[("BN", "160"), ("STAGES", "4")],
        products: ("QGMMA", 8, 4),
        groups: (2, 1),
        fresh: (1, 0),
        copies: (2, 0, 10, 20),
    },
    Expected {
        path: "gemm_fp8",
        defines: &[("BN", "192"), ("STAGES", "4")],
        products: ("QGMMA", 8, 4),
        groups: (2, 1),
        fresh: (1, 0),
        copies: (2, 0, 6, 24),
    },
    // Tiles of groups of rows are searched for, and threads store those that an end cuts.
    Expected {
        path: "gemm_grouped",
        defines: &[],
        products: ("HGMMA", 8, 4),
        groups: (2, 1),
        fresh: (0, 1),
        copies: (2, 0, 8, 32),
    },
    // Products with K start again in each round, and those with V add to the sums of previous
    // rounds.
    Expected {
        path: "attention",
        defines: &[],
        products: ("HGMMA", 64, 16),
        groups: (8, 2),
        fresh: (1, 1),
        copies: (6, 0, 4, 16),
    },
];

/// Each width of a tile has a loop: eight with two instructions of 64 rows for each slice of K, and
/// eight with one. Accumulators of all these loops share registers, although one loop is around
/// them.
#[test]
fn loops_of_many_widths_do_not_spill() {
    let kernel = compiled("examples/gemm_many_groups.weft", "sm_90a", &[]);
    assert_eq!(kernel.count("HGMMA"), 2 * (8 * 8 + 8 * 4), "two roles");
    assert_eq!(kernel.count("WARPGROUP.ARRIVE"), 2 * (8 * 2 + 8), "one a group");
    assert_eq!((kernel.count("STL"), kernel.count("LDL")), (0, 0), "no spills");
}

/// The registers of the accumulators to which matrix instructions add from round to round.
/// Registers of sums that start again in each round hold other values in between.
fn accumulators(insts: &[Inst]) -> BTreeSet<u32> {
    let of = |inst: &Inst| {
        let columns: u32 = inst.opcode.split('x').nth(1)?.parse().ok()?;
        let first = *registers(&inst.operands).first()?;
        Some(first..first + columns / 2)
    };
    let all = || insts.iter().filter(|i| i.opcode.contains("GMMA"));
    let begin: BTreeSet<u32> =
        all().filter(|i| i.operands.contains(REPLACES)).filter_map(of).flatten().collect();
    all().filter_map(of).flatten().filter(|register| !begin.contains(register)).collect()
}

/// The end of the operands of a matrix instruction that replaces the contents of its registers.
const REPLACES: &str = "RZ, !UPT";

/// Checks that matrix instructions are consecutive and that their registers do not move, start
/// without zeros, and are stored to shared memory as matrices.
#[test]
fn accumulators_stay_in_registers() {
    if skipped() {
        return;
    }
    for expected in KERNELS {
        let what = format!("{} {:?}", expected.path, expected.defines);
        let kernel = compiled(&format!("examples/{}.weft", expected.path), "sm_90a", expected.defines);
        let (name, products, of_loop) = expected.products;
        assert_eq!(kernel.count(name), products, "{what}");
        // ptxas puts an arrival before each instruction of a group that it serialises (C7510 to
        // C7519).
        assert_eq!(kernel.count("WARPGROUP.ARRIVE"), expected.groups.0, "{what}: one a group");
        assert_eq!((kernel.count("STL"), kernel.count("LDL")), (0, 0), "{what}: no spills");
        let multicast =
            kernel.insts.iter().filter(|i| i.is("UTMALDG") && i.opcode.contains("MULTICAST")).count();
        let copies = (kernel.count("UTMALDG"), multicast, kernel.count("UTMASTG"), kernel.count("STSM"));
        assert_eq!(copies, expected.copies, "{what}: boxes in, to several CTAs, out, and matrices");
        let mut loops = kernel.loops_with(name);
        loops.retain(|one| one.count(name) == of_loop);
        assert_eq!(loops.len(), 2, "{what}: one a role");
        for one in loops {
            assert_eq!(one.count("WARPGROUP.ARRIVE"), expected.groups.1, "{what}");
            // Descriptors are uniform in the warp. Values that each thread computed would need one
            // R2UR each.
            assert!(one.count("R2UR") <= 1, "{what}: {} R2UR", one.count("R2UR"));
            let held = accumulators(&one.insts);
            let moved = |i: &&Inst| {
                let all = registers(&i.operands);
                ["MOV", "IMAD.MOV", "IMAD.U32", "CS2R"].iter().any(|op| i.is(op))
                    && all.iter().any(|r| held.contains(r))
            };
            let moves: Vec<_> = one.insts.iter().filter(moved).collect();
            assert!(moves.is_empty(), "{what}: moves of accumulators: {moves:?}");
            let scaled =
                |end: &str| one.insts.iter().filter(|i| i.is(name) && i.operands.contains(end)).count();
            assert_eq!((scaled(REPLACES), scaled(", UP")), expected.fresh, "{what}: sums that begin");
        }
    }
}

/// Checks that sums of two blocks of 64 rows start again in each round. ptxas serialises their
/// instructions (C7517) if zeros are written to the registers before.
#[test]
fn fresh_sums_of_two_blocks_follow_each_other() {
    if skipped() {
        return;
    }
    let kernel =
        compiled("examples/gemm_fp8.weft", "sm_90a", &[("BM", "256"), ("BN", "64"), ("STAGES", "3")]);
    // A round has two products of four slices of both blocks. The last product follows the loop.
    let mut loops = kernel.loops_with("QGMMA");
    loops.retain(|one| one.count("QGMMA") == 16);
    assert_eq!(loops.len(), 2, "one a role");
    for one in loops {
        let replace = one.insts.iter().filter(|i| i.is("QGMMA") && i.operands.contains(REPLACES)).count();
        assert_eq!((one.count("WARPGROUP.ARRIVE"), replace), (2, 4), "each product begins both blocks anew");
    }
}

/// The kernel that is measured with scales of blocks has registers for all widths of tiles.
#[test]
fn measured_sums_of_blocks_do_not_spill() {
    if skipped() {
        return;
    }
    let products =
        [("64", "bf16", 24), ("128", "bf16", 24), ("160", "bf16", 8), ("160", "f32", 8), ("192", "bf16", 8)];
    for (bn, out, products) in products {
        let defines = [("SCALES", "3"), ("BN", bn), ("OUT", out)];
        let kernel = compiled("bench/src/gemm/scaled.weft", "sm_90a", &defines);
        assert_eq!(kernel.count("QGMMA"), products, "{defines:?}");
        assert_eq!((kernel.count("STL"), kernel.count("LDL")), (0, 0), "{defines:?}");
    }
}

/// Products of sequences with wide tiles have registers for all operations of an epilogue.
#[test]
fn epilogues_of_sums_of_blocks_do_not_spill() {
    if skipped() {
        return;
    }
    let epilogue = ["BIAS", "RESIDUAL", "DIVIDE"].map(|name| (name, "1"));
    for (bn, out, act) in
        [("160", "f32", "3"), ("192", "bf16", "0"), ("192", "bf16", "2"), ("192", "e4m3", "4")]
    {
        let mut defines =
            vec![("T", "e4m3"), ("OUT", out), ("BN", bn), ("BK", "128"), ("SCALES", "3"), ("ACT", act)];
        defines.extend(epilogue);
        let kernel = compiled("warpweft/src/library/gemm_finished.weft", "sm_90a", &defines);
        assert_eq!((kernel.count("STL"), kernel.count("LDL")), (0, 0), "{defines:?}");
    }
}

#[test]
fn the_loops_of_matrix_instructions_are_tight() {
    if skipped() {
        return;
    }
    // Two roles multiply slices of 16 along K, and store 64 columns at a time.
    for (bn, bk, slices, stores) in [("256", "64", 4, 4), ("128", "64", 4, 2), ("64", "128", 8, 1)] {
        let stages = if bk == "128" { "3" } else { "4" };
        let defines = [("BN", bn), ("BK", bk), ("STAGES", stages)];
        let kernel = compiled("examples/gemm.weft", "sm_90a", &defines);
        let what = format!("BN = {bn}, BK = {bk}");
        assert_eq!(kernel.count("HGMMA"), 2 * slices, "{what}: one instruction a slice, in each role");
        // ptxas puts an arrival before each instruction of a group that it serialises (C7510 to
        // C7519).
        assert_eq!(kernel.count("WARPGROUP.ARRIVE"), 2, "{what}: one a group");
        assert_eq!((kernel.count("STL"), kernel.count("LDL")), (0, 0), "{what}: no spills");
        assert_eq!(kernel.count("USETMAXREG"), 3, "{what}: one a role");
        // The loading role would poll more slowly if one of its lanes yielded to the others.
        assert_eq!(kernel.count("YIELD"), 0, "{what}: all lanes of a warp poll");
        let boxes = if bk == "128" { 4 } else { 2 };
        assert_eq!(kernel.count("UTMALDG"), boxes, "{what}: one a box of a stage");
        assert_eq!(kernel.count("UTMASTG"), 2 * stores, "{what}: one a box of the result");
    }
}

/// Checks products with few rows: one role multiplies, or each of two CTAs of a cluster has a part
/// of K. No 64-bit division delays the first copy, and no lane that polls yields to the others.
#[test]
fn products_with_few_rows_begin_at_once() {
    if skipped() {
        return;
    }
    let few = [("BM", "64"), ("BN", "16"), ("BK", "128"), ("STAGES", "8"), ("SWAP", "1")];
    let shared = [("BM", "64"), ("BN", "16"), ("BK", "128"), ("STAGES", "8"), ("SWAP", "1"), ("CTAS", "2")];
    let split = [("BM", "128"), ("BN", "64"), ("BK", "64"), ("STAGES", "4"), ("SPLIT", "4")];
    for (defines, instructions, roles, boxes) in [(&few[..], 8, 1, 4), (&shared, 8, 1, 4), (&split, 8, 2, 2)]
    {
        let defines = [defines, &[("EARLY", "1")]].concat();
        let kernel = compiled("warpweft/src/library/gemm_kernel.weft", "sm_90a", &defines);
        let names = ["HGMMA", "WARPGROUP.ARRIVE", "USETMAXREG", "UTMALDG", "STL"];
        let found = names.map(|name| kernel.count(name));
        assert_eq!(found, [instructions, roles, roles + 1, boxes, 0], "{names:?} with {defines:?}");
        let slow = ["CALL.REL.NOINC", "YIELD"].map(|name| kernel.count(name));
        assert_eq!(slow, [0, 0], "{defines:?}");
        let begins = ["ACQBULK", "PREEXIT"].map(|name| kernel.count(name));
        assert_eq!(begins, [1, 1], "{defines:?}: waits for other launches, and lets the next one begin");
    }
}

/// Checks tiles of the transpose whose columns are another multiple of 8. Some are stored at once, and others in
/// strips of equal width.
#[test]
fn tiles_of_all_widths_have_tight_loops() {
    if skipped() {
        return;
    }
    for (bn, strips) in [("88", 1), ("136", 1), ("176", 2), ("200", 5), ("248", 1)] {
        let defines = [("BN", bn), ("STAGES", "3"), ("SWAP", "1")];
        let kernel = compiled("warpweft/src/library/gemm_kernel.weft", "sm_90a", &defines);
        let names = ["HGMMA", "WARPGROUP.ARRIVE", "UTMALDG", "UTMASTG", "STL", "LDL"];
        assert_eq!(names.map(|name| kernel.count(name)), [8, 2, 2, 2 * strips, 0, 0], "{names:?}, BN = {bn}");
    }
}

/// Checks that roles whose last tiles are cut along K have a loop for partial tiles and one for
/// whole tiles, without spills. Roles that take turns have one loop each.
#[test]
fn cut_tiles_and_turns_have_tight_loops() {
    if skipped() {
        return;
    }
    let stream = [("BN", "128"), ("W", "64"), ("STAGES", "4"), ("G", "132")];
    let widest = [("BN", "168"), ("W", "24"), ("STAGES", "4"), ("G", "132")];
    let turns = [("BN", "128"), ("W", "64"), ("STAGES", "4")];
    let (cut, in_turn) = ("tests/filetests/gemm/stream.weft", "tests/filetests/gemm/turns.weft");
    let names = ["HGMMA", "WARPGROUP.ARRIVE", "UTMALDG", "UTMASTG", "STL"];
    for (path, defines, expected) in [
        (cut, &stream[..], [16, 4, 4, 8, 0]),
        (cut, &widest, [16, 4, 4, 28, 0]),
        (in_turn, &turns, [16, 2, 2, 4, 0]),
    ] {
        let kernel = compiled(path, "sm_90a", defines);
        assert_eq!(names.map(|name| kernel.count(name)), expected, "{names:?} in {path} with {defines:?}");
        assert!(path != cut || kernel.count("CALL.REL.NOINC") == 0, "{path} divides numbers of 64 bits");
    }
}

/// Checks that copies of consecutive elements are bulk copies, and that tiles of peers' tensors are
/// moved by TMA.
#[test]
fn copies_from_and_to_peers_are_asynchronous() {
    if skipped() {
        return;
    }
    let names = ["UBLKCP.S.G", "UBLKCP.G.S", "UBLKRED", "UTMALDG", "UTMASTG"];
    for (file, expected) in [
        ("bulk_copy", [1, 2, 0, 0, 0]),
        ("bulk_peers", [4, 2, 2, 0, 0]),
        ("peer_copy", [0, 0, 0, 1, 0]),
        ("peer_push", [0, 0, 0, 1, 1]),
    ] {
        let kernel = compiled(&format!("tests/filetests/tile/{file}.weft"), "sm_90a", &[]);
        assert_eq!(names.map(|name| kernel.count(name)), expected, "{names:?} in {file}");
    }
}

/// Compiles a kernel that multiplies two element types and accumulates in a third.
fn product(a: &str, b: &str, sum: &str, target: Target) -> Result<(), String> {
    let text = format!(
        "kernel k(d: global<{sum}, (64, 16):(16, 1)>) block(128) {{
            let a = shared<{a}>(swizzled<{a}>((64, 32)));
            let b = shared<{b}>(swizzled<{b}>((16, 32)));
            let acc = mma_wait<0>(mma(a, b, accumulator<{sum}>((64, 16))));
            d[_, _] = acc[_, _];
        }}"
    );
    let file = KernelFile::parse("product", &text).map_err(|e| e.to_string())?;
    file.compile(&Options::new(target)).map(drop).map_err(|e| e.to_string())
}

/// Checks that the language multiplies the combinations of types that the tables have.
#[test]
fn products_of_the_language_are_those_of_the_tables() {
    let types = ["bf16", "f16", "f32", "e4m3", "e5m2", "i8", "u8", "i32"];
    for target in ["sm_90a", "sm_120"].map(|name| name.parse::<Target>().unwrap()) {
        let mut legal = 0;
        for (a, b) in types.iter().flat_map(|a| types.iter().map(move |b| (*a, *b))) {
            for sum in ["f32", "f16", "i32"] {
                let choice = Product::new(a, b, sum).and_then(|p| match target.name() {
                    "sm_90a" => p.of_warpgroup(16, false, [false; 2]),
                    _ => p.of_warp(),
                });
                let has = choice.is_some_and(|choice| choice.check(target).is_ok());
                let compiles = product(a, b, sum, target);
                assert_eq!(compiles.is_ok(), has, "{a} {b} {sum} on {target}: {compiles:?}");
                legal += usize::from(has);
            }
        }
        assert_eq!(legal, 16, "{target}");
    }
}

/// Checks that products whose first factor is in registers are also consecutive, and that the
/// factor is not moved.
#[test]
fn first_factors_stay_in_registers() {
    if skipped() {
        return;
    }
    let kernel = compiled("tests/filetests/tile/gemm_registers.weft", "sm_90a", &[]);
    let counts = ["HGMMA", "WARPGROUP.ARRIVE", "STL"].map(|name| kernel.count(name));
    assert_eq!(
        counts,
        [8, 2, 0],
        "four products of shared memory and four of registers, one arrival a group"
    );
    // The lanes of a row exchange elements of 8 and 32 bits: one shuffle for each register of A.
    for (define, instruction, shuffles) in [("e4m3", "QGMMA", 8), ("f32", "HGMMA", 32)] {
        let defines = [("T", define)];
        let kernel = compiled("tests/filetests/tile/gemm_registers_types.weft", "sm_90a", &defines);
        let counts = [instruction, "WARPGROUP.ARRIVE", "STL", "SHFL.IDX"].map(|name| kernel.count(name));
        let slices = shuffles / 4;
        assert_eq!(counts, [2 * slices, 2, 0, shuffles], "{define}");
    }
}

/// Checks that the same kernels assemble for targets without matrix instructions of warpgroups.
/// Fragments are loaded four matrices at a time, and each product of 16 x 8 elements and 32 bytes
/// along K is one instruction. fp8 is an exception, because only sm_120 multiplies it directly.
#[test]
fn warps_multiply_on_other_targets() {
    if skipped() {
        return;
    }
    let tile = |name: &str| format!("tests/filetests/tile/{name}.weft");
    let (bytes, majors) = (tile("gemm_bytes"), tile("gemm_majors"));
    let cases = [
        // Each of two roles has 64 x 128 elements, and four slices along K.
        ("examples/gemm.weft", &[("BN", "128"), ("STAGES", "2")][..], "HMMA", [128, 128], 72),
        (&majors, &[("T", "f16")][..], "HMMA", [64, 64], 36),
        (&bytes, &[("T", "f32")][..], "HMMA", [128, 128], 80),
        (&bytes, &[("T", "i8"), ("S", "i32")][..], "IMMA", [32, 32], 20),
        (&bytes, &[][..], "", [64, 32], 20),
    ];
    for target in ["sm_90", "sm_100", "sm_103", "sm_120"] {
        let newest = usize::from(target == "sm_120");
        for (path, defines, product, products, loads) in &cases {
            let kernel = compiled(path, target, defines);
            let product = if product.is_empty() { ["HMMA", "QMMA"][newest] } else { product };
            let found = (kernel.count(product), kernel.count("LDSM"));
            assert_eq!(found, (products[newest], *loads), "{path} for {target}");
            assert_eq!(kernel.count("USETMAXREG"), 0, "{path} for {target}");
        }
    }
    // Registers are reassigned between roles if the target supports it. No copy is a call, which
    // would prevent that in ptxas.
    for target in ["sm_100a", "sm_120a"] {
        let kernel = compiled("examples/gemm.weft", target, cases[0].1);
        let counts = ["USETMAXREG", "UTMALDG", "CALL.ABS", "STL"].map(|name| kernel.count(name));
        assert_eq!(counts, [3, 2, 0, 0], "{target}");
    }
}
