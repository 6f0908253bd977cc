//! Tests of elaboration, from text to verified IR.

use weft_ir::level::Tensor;
use weft_ir::text::{parse_module, print_module};
use weft_lang::elaborate::{Define, Defines, Loader, Program};
use weft_lang::source::SourceMap;

struct Library;

impl Loader for Library {
    fn file(&self, _from: &str, path: &str) -> Result<(String, String), String> {
        Err(format!("no {path}"))
    }
    fn builtin(&self, path: &str) -> Option<&str> {
        (path == "collectives").then_some(include_str!("../../../warpweft/src/library/collectives.weft"))
    }
}

fn compile(text: &str, defines: &[(&str, Define)]) -> Result<String, String> {
    let mut sources = SourceMap::new();
    let root = sources.add("test.weft", text);
    let defines: Defines = defines.iter().map(|(n, d)| (n.to_string(), *d)).collect();
    let show = |e: Vec<weft_ir::diag::Diagnostic>| e.iter().map(|d| format!("{d}\n")).collect::<String>();
    let program = Program::load(&mut sources, root, &Library).map_err(show)?;
    let compiled = program.compile(None, &defines).map_err(show)?;
    let text = print_module(&compiled.module);
    let again = parse_module::<Tensor>(&text).map_err(|e| format!("{e}\n{text}"))?;
    assert_eq!(print_module(&again), text, "the text form does not read back");
    Ok(text)
}

#[test]
fn examples_become_ir() {
    for name in ["allreduce_two_shot", "allreduce_one_shot", "all_gather", "reduce_scatter", "broadcast"] {
        let path = format!("{}/../../examples/{name}.weft", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let ir = compile(&text, &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
        println!("{ir}");
    }
}
