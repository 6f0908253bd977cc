//! Compares the output of the compiler for two examples with files in `tests/snapshots/`: the IR of
//! the text, the IR after the pass that lowers tensors to addresses, and PTX. It also compares the
//! output of `weft explain` for a product of matrices. `WEFT_BLESS=1` writes the files. The file
//! tests check the other examples by a few lines each, and `cargo xtask replay` shows every change
//! of PTX.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/bless.rs"]
mod bless;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use weft::{Define, KernelFile, Lowering, Options};

/// The examples with values of N: one that vectors divide evenly, and one that they do not.
const EXAMPLES: [(&str, i64); 2] = [("all_gather", 1000), ("allreduce_two_shot", 1003)];

/// The pass whose result is stored.
const PASS: &str = "memory";

/// An example with its options.
fn example((name, n): (&str, i64), lowering: Lowering) -> (KernelFile, Options) {
    let path = format!("examples/{name}.weft");
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&path)).unwrap();
    let mut options = Options::new("sm_90a".parse().unwrap());
    options.defines = [("N".into(), Define::Int(n)), ("T".into(), Define::parse("f16").unwrap())].into();
    options.lowering = lowering;
    (KernelFile::parse(&path, &text).unwrap(), options)
}

/// The text of each stored stage, and the name of its file.
fn stages(named: (&str, i64)) -> Vec<(String, String)> {
    let (file, mut options) = example(named, Lowering::Multimem);
    options.keep_ir = true;
    options.keep_after = Some(PASS.to_owned());
    let compiled = file.compile(&options).unwrap();
    let number = weft_passes::PASSES.iter().position(|pass| pass.name == PASS).unwrap() + 1;
    let name = named.0;
    vec![
        (format!("{name}/0-lang.ir"), compiled.ir.unwrap()),
        (format!("{name}/{number}-{PASS}.ir"), compiled.after.unwrap()),
        (format!("{name}/multimem.ptx"), compiled.ptx),
    ]
}

/// The output of `weft explain` for the products and copies of an example, without their places in
/// the library.
fn explained() -> (String, String) {
    let path = "examples/gemm.weft";
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let options = Options::new("sm_90a".parse().unwrap());
    let compiled = KernelFile::parse(path, &text).unwrap().compile(&options).unwrap();
    let said = compiled.report.tiles.iter().map(|tiled| format!("{}\n", tiled.fact));
    ("gemm/explain.txt".into(), said.collect())
}

/// The pictures of `weft layout --svg`: the offsets of a layout, and the threads and values of a
/// tile.
fn drawn() -> [(String, String); 2] {
    let svg = |expression: &str| weft_layout::eval(expression).unwrap().svg().unwrap();
    [
        ("layout/offsets.svg".into(), svg("composition(Sw<1,0,2>, (4,4):(4,1))")),
        ("layout/threads.svg".into(), svg("make_tiled_copy((4,2):(2,1),(2,2):(2,1))")),
    ]
}

#[test]
fn the_stages_that_are_kept() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let mut wrong = Vec::new();
    let mut written = BTreeSet::new();
    for (file, text) in EXAMPLES.into_iter().flat_map(stages).chain([explained()]).chain(drawn()) {
        wrong.extend(bless::check(&folder.join(&file), &format!("{}\n", text.trim_end())).err());
        written.insert(file);
    }
    for example in fs::read_dir(&folder).unwrap() {
        let example = example.unwrap();
        // These belong to tests/bench.rs.
        if example.file_name() == "bench" {
            continue;
        }
        for file in fs::read_dir(example.path()).unwrap() {
            let name = format!("{}/{}", example.file_name().display(), file.unwrap().file_name().display());
            if !written.contains(&name) {
                wrong.push(format!("{name} is no stage that is kept: remove it"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Checks that compiling twice gives the same texts, so that PTX can be cached by its inputs.
#[test]
fn compiling_is_deterministic() {
    for lowering in [Lowering::Multimem, Lowering::Unicast] {
        let texts = || {
            let (file, mut options) = example(EXAMPLES[1], lowering);
            (options.keep_ir, options.keep_llvm) = (true, true);
            let compiled = file.compile(&options).unwrap();
            (compiled.ir, compiled.llvm, compiled.ptx)
        };
        assert_eq!(texts(), texts());
    }
}
