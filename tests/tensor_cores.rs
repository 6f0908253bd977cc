//! The GEMM of the examples in SASS: matrix instructions follow each other, accumulators stay in their registers, and
//! tiles move by TMA.
//!
//! Needs ptxas and nvdisasm; without them the test says so and passes, unless `WEFT_REQUIRE_PTXAS=1`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "sass/listing.rs"]
#[allow(dead_code, reason = "shared with the test of multimem loops")]
mod listing;

use listing::{Kernel, kernels};
use std::io::Write;
use std::path::Path;
use weft::tools::{Tool, assemble, disassemble};
use weft::{Define, KernelFile, Options};
use weft_abi::RemarkKind;
use weft_isa::{Product, Target};

/// The longest kernel of a file, for a target.
fn compiled(path: &str, target: &str, defines: &[(&str, &str)]) -> Kernel {
    let target: Target = target.parse().unwrap();
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let file = KernelFile::parse(path, &text).unwrap();
    let mut options = Options::new(target);
    for (name, value) in defines {
        options.defines.insert((*name).into(), Define::parse(value).unwrap());
    }
    let compiled = file.compile(&options).unwrap();
    let made = assemble(&compiled.ptx, target).unwrap();
    // Products by warps need more registers, and one of the kernels keeps four bytes in memory.
    let by_warps = target.name() != "sm_90a";
    let remarks = made.remarks.into_iter().filter(|r| !(by_warps && r.kind == RemarkKind::Spills));
    assert_eq!(remarks.collect::<Vec<_>>(), [], "{defines:?} for {target}: ptxas has nothing to say");
    let listing = disassemble(&made.cubin).unwrap();
    kernels(&listing).into_values().max_by_key(|kernel| kernel.insts.len()).unwrap()
}

/// Whether the tools are missing; says so.
fn skipped() -> bool {
    let missing = [Tool::Ptxas, Tool::Nvdisasm].into_iter().find_map(|t| t.find().err());
    if let Some(missing) = &missing {
        assert!(std::env::var_os("WEFT_REQUIRE_PTXAS").is_none_or(|v| v != "1"), "{missing}");
        writeln!(std::io::stdout().lock(), "skipped: {missing}").unwrap();
    }
    missing.is_some()
}

/// Accumulators that are read and scaled in the loop stay in registers, and their instructions follow each other.
#[test]
fn scaled_accumulators_stay_in_registers() {
    if skipped() {
        return;
    }
    // Two roles multiply, in groups: of 128 elements of fp8 along K, and for attention four of 128 elements of each product.
    let fp8 = compiled("examples/gemm_fp8.weft", "sm_90a", &[]);
    let attention = compiled("examples/attention.weft", "sm_90a", &[]);
    // Of groups of rows, tiles are looked for and their ends are stored in other ways.
    let grouped = compiled("examples/gemm_grouped.weft", "sm_90a", &[]);
    for (kernel, what, (name, instructions, groups)) in [
        (fp8, "fp8", ("QGMMA", 8, 2)),
        (grouped, "groups", ("HGMMA", 8, 2)),
        (attention, "attention", ("HGMMA", 64, 8)),
    ] {
        assert_eq!(kernel.count(name), instructions, "{what}");
        assert_eq!(kernel.count("WARPGROUP.ARRIVE"), groups, "{what}: one a group");
        assert_eq!((kernel.count("STL"), kernel.count("LDL")), (0, 0), "{what}: no spills");
    }
}

#[test]
fn the_loops_of_matrix_instructions_are_tight() {
    if skipped() {
        return;
    }
    // Two roles multiply: slices of 16 along K, and columns out 64 at a time.
    for (bn, bk, slices, stores) in [("256", "64", 4, 4), ("128", "64", 4, 2), ("64", "128", 8, 1)] {
        let stages = if bk == "128" { "3" } else { "4" };
        let defines = [("BN", bn), ("BK", bk), ("STAGES", stages)];
        let kernel = compiled("examples/gemm.weft", "sm_90a", &defines);
        let what = format!("BN = {bn}, BK = {bk}");
        assert_eq!(kernel.count("HGMMA"), 2 * slices, "{what}: one instruction a slice, in each role");
        // ptxas puts one before each instruction of a group that it runs alone (C7510 to C7519).
        assert_eq!(kernel.count("WARPGROUP.ARRIVE"), 2, "{what}: one a group");
        assert_eq!((kernel.count("STL"), kernel.count("LDL")), (0, 0), "{what}: no spills");
        assert_eq!(kernel.count("USETMAXREG"), 3, "{what}: one a role");
        let boxes = if bk == "128" { 4 } else { 2 };
        assert_eq!(kernel.count("UTMALDG"), boxes, "{what}: one a box of a stage");
        assert_eq!(kernel.count("UTMASTG"), 2 * stores, "{what}: one a box of the result");
    }
}

/// Products with few rows: one role multiplies, or two of which each CTA of a cluster has a part of K, and no division of
/// 64 bits keeps the first copy waiting.
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
        let kernel = compiled("src/library/gemm_kernel.weft", "sm_90a", defines);
        let names = ["HGMMA", "WARPGROUP.ARRIVE", "USETMAXREG", "UTMALDG", "STL", "CALL.REL.NOINC"];
        let found = names.map(|name| kernel.count(name));
        assert_eq!(found, [instructions, roles, roles + 1, boxes, 0, 0], "{names:?} with {defines:?}");
    }
}

/// A kernel that multiplies two element types and adds up in a third, if it is one.
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

/// What the language multiplies is what the tables have, but for sums in f16.
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
                let has = sum != "f16" && choice.is_some_and(|choice| choice.check(target).is_ok());
                let compiles = product(a, b, sum, target);
                assert_eq!(compiles.is_ok(), has, "{a} {b} {sum} on {target}: {compiles:?}");
                legal += usize::from(has);
            }
        }
        assert_eq!(legal, 11, "{target}");
    }
}

/// Products whose first factor is in registers follow each other, too, and need no moves of it.
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
}

/// Where warpgroups have no matrix instructions, the same kernels assemble: fragments are loaded four matrices at a time,
/// and each product of 16 x 8 elements and 32 bytes along K is one instruction, but for fp8, which only sm_120 multiplies
/// as it is.
#[test]
fn warps_multiply_on_other_targets() {
    if skipped() {
        return;
    }
    let tile = |name: &str| format!("tests/filetests/tile/{name}.weft");
    let (bytes, majors) = (tile("gemm_bytes"), tile("gemm_majors"));
    let cases = [
        // Two roles of 64 x 128, four slices along K.
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
    // Registers move between roles where the target can, and no copy is a call, beside which ptxas would not let them.
    for target in ["sm_100a", "sm_120a"] {
        let kernel = compiled("examples/gemm.weft", target, cases[0].1);
        let counts = ["USETMAXREG", "UTMALDG", "CALL.ABS", "STL"].map(|name| kernel.count(name));
        assert_eq!(counts, [3, 2, 0, 0], "{target}");
    }
}
