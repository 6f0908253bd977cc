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

fn gemm(defines: &[(&str, &str)]) -> Kernel {
    sass("examples/gemm.weft", defines)
}

/// The longest kernel of a file.
fn sass(path: &str, defines: &[(&str, &str)]) -> Kernel {
    let target = "sm_90a".parse().unwrap();
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let file = KernelFile::parse(path, &text).unwrap();
    let mut options = Options::new(target);
    for (name, value) in defines {
        options.defines.insert((*name).into(), Define::parse(value).unwrap());
    }
    let compiled = file.compile(&options).unwrap();
    let made = assemble(&compiled.ptx, target).unwrap();
    assert_eq!(made.remarks, [], "{path} {defines:?}: ptxas has nothing to say");
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
    let fp8 = sass("examples/gemm_fp8.weft", &[]);
    let attention = sass("examples/attention.weft", &[]);
    // Of groups of rows, tiles are looked for and their ends are stored in other ways.
    let grouped = sass("examples/gemm_grouped.weft", &[]);
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
        let kernel = gemm(&[("BN", bn), ("BK", bk), ("STAGES", stages)]);
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
