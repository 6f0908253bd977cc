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
    let target = "sm_90a".parse().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/gemm.weft");
    let file = KernelFile::parse("gemm", &std::fs::read_to_string(path).unwrap()).unwrap();
    let mut options = Options::new(target);
    for (name, value) in defines {
        options.defines.insert((*name).into(), Define::parse(value).unwrap());
    }
    let compiled = file.compile(&options).unwrap();
    let made = assemble(&compiled.ptx, target).unwrap();
    assert_eq!(made.remarks, [], "{defines:?}: ptxas has nothing to say");
    let listing = disassemble(&made.cubin).unwrap();
    kernels(&listing).into_values().next().unwrap()
}

#[test]
fn the_loops_of_matrix_instructions_are_tight() {
    if let Some(missing) = [Tool::Ptxas, Tool::Nvdisasm].into_iter().find_map(|t| t.find().err()) {
        assert!(std::env::var_os("WEFT_REQUIRE_PTXAS").is_none_or(|v| v != "1"), "{missing}");
        writeln!(std::io::stdout().lock(), "skipped: {missing}").unwrap();
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
