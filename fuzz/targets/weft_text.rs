//! A kernel file is parsed, elaborated, verified and lowered by every pass, or rejected with codes.
#![no_main]

use weft_fuzz::{defines, reject, Library};
use weft_lang::elaborate::Program;
use weft_lang::render::{Color, render};
use weft_lang::source::SourceMap;
use weft_passes::{Lowering, Options};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut sources = SourceMap::new();
    let root = sources.add("k.weft", text);
    let program = match Program::load(&mut sources, root, &Library) {
        Ok(program) => program,
        Err(found) => return reject(&render(&found, &sources, Color::Never)),
    };
    let compiled = match program.compile(None, &defines(&program)) {
        Ok(compiled) => compiled,
        Err(found) => return reject(&render(&found, &sources, Color::Never)),
    };
    for lowering in [Lowering::Multimem, Lowering::Unicast] {
        let options = Options::new(lowering, "sm_90a".parse().expect("a target"));
        if let Err(found) = weft_passes::run(compiled.module.clone(), &options) {
            reject(&render(&found, &sources, Color::Never));
        }
    }
});
