//! A kernel file is compiled to PTX that the simulator can read, or is rejected with codes.
#![no_main]

use weft::{KernelFile, Lowering, Options, sim::Module};
use weft_fuzz::{Library, defines, reject};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let file = match KernelFile::parse_with("k.weft", text, &Library) {
        Ok(file) => file,
        Err(error) => return reject(&error.to_string()),
    };
    let mut options = Options::new("sm_90a".parse().expect("a target"));
    options.defines = defines(&file.heads());
    for lowering in [Lowering::Multimem, Lowering::Unicast] {
        options.lowering = lowering;
        match file.compile(&options) {
            Ok(compiled) => {
                if let Err(error) = Module::parse(&compiled.ptx) {
                    panic!("{error}\n{}", compiled.ptx);
                }
            }
            Err(error) => reject(&error.to_string()),
        }
    }
});
