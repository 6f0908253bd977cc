//! A kernel file is parsed, elaborated, verified and lowered by every pass, or rejected with codes.
#![no_main]

use weft::ir::diag::Diagnostic;
use weft::lang::elaborate::Program;
use weft::lang::render::{Color, render};
use weft::lang::source::SourceMap;
use weft_fuzz::{Library, defines, reject};
use weft_passes::{Lowering, Options};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut sources = SourceMap::new();
    let root = sources.add("k.weft", text);
    let program = Program::load(&mut sources, root, &Library);
    let rejected = |found: Vec<Diagnostic>| reject(&render(&found, &sources, Color::Never));
    let program = match program {
        Ok(program) => program,
        Err(found) => return rejected(found),
    };
    let compiled = match program.compile(None, &defines(&program.heads())) {
        Ok(compiled) => compiled,
        Err(found) => return rejected(found),
    };
    for lowering in [Lowering::Multimem, Lowering::Unicast] {
        let options = Options::new(lowering, "sm_90a".parse().expect("a target"));
        if let Err(found) = weft_passes::run(compiled.module.clone(), &options) {
            rejected(found);
        }
    }
});
