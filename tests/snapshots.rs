//! Every stage of the examples, as files in `tests/snapshots/`: a change of any of them is seen, and so is its effect
//! on the stages after it. `WEFT_BLESS=1` writes them anew.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/bless.rs"]
mod bless;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use weft::{Define, KernelFile, Lowering, Options};

/// The examples, with an N: no multiple of a tile, and of a vector where rows do not follow each other.
const EXAMPLES: [(&str, i64); 5] = [
    ("all_gather", 1000),
    ("allreduce_one_shot", 1003),
    ("allreduce_two_shot", 1003),
    ("broadcast", 1003),
    ("reduce_scatter", 1000),
];

/// The text of each stage, and the file that has it.
fn stages((name, n): (&str, i64), lowering: Lowering) -> Vec<(String, String)> {
    let path = format!("examples/{name}.weft");
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&path)).unwrap();
    let file = KernelFile::parse(&path, &text).unwrap();
    let mut options = Options::new("sm_90a".parse().unwrap());
    options.defines = [("N".into(), Define::Int(n)), ("T".into(), Define::parse("f16").unwrap())].into();
    options.lowering = lowering;
    (options.keep_ir, options.keep_llvm) = (true, true);
    let compiled = file.compile(&options).unwrap();
    if lowering == Lowering::Unicast {
        return vec![(format!("{name}/unicast.ptx"), compiled.ptx)];
    }
    let mut stages = vec![(format!("{name}/0-lang.ir"), compiled.ir.unwrap())];
    for (number, pass) in weft_passes::PASSES.iter().enumerate() {
        options.keep_after = Some(pass.name.to_owned());
        let after = file.compile(&options).unwrap().after.unwrap();
        stages.push((format!("{name}/{}-{}.ir", number + 1, pass.name), after));
    }
    stages.push((format!("{name}/llvm.ll"), compiled.llvm.unwrap()));
    stages.push((format!("{name}/multimem.ptx"), compiled.ptx));
    stages
}

#[test]
fn each_stage_of_each_example() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let mut wrong = Vec::new();
    let mut written = BTreeSet::new();
    for example in EXAMPLES {
        for lowering in [Lowering::Multimem, Lowering::Unicast] {
            for (file, text) in stages(example, lowering) {
                wrong.extend(bless::check(&folder.join(&file), &format!("{}\n", text.trim_end())).err());
                written.insert(file);
            }
        }
    }
    for example in fs::read_dir(&folder).unwrap() {
        let example = example.unwrap();
        // Of tests/bench.rs.
        if example.file_name() == "bench" {
            continue;
        }
        for file in fs::read_dir(example.path()).unwrap() {
            let name = format!("{}/{}", example.file_name().display(), file.unwrap().file_name().display());
            if !written.contains(&name) {
                wrong.push(format!("{name} is no stage of an example: remove it"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Compiling twice gives the same text, so that PTX can be cached by what it is made of.
#[test]
fn compiling_is_deterministic() {
    for lowering in [Lowering::Multimem, Lowering::Unicast] {
        assert_eq!(stages(EXAMPLES[2], lowering), stages(EXAMPLES[2], lowering));
    }
}
