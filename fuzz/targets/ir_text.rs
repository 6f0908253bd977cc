//! IR as text is read at each level and verified, or rejected. A verified module prints as text
//! that reads back as the same module.
#![no_main]

use weft_ir::level::{Level, Machine, Mixed, Tensor};
use weft_ir::text::{parse_module, print_module};
use weft_ir::verify::verify;

fn read<L: Level>(text: &str) {
    let Ok(module) = parse_module::<L>(text) else { return };
    let Ok(verified) = verify(module) else { return };
    let printed = print_module(&verified);
    let again = parse_module::<L>(&printed).unwrap_or_else(|e| panic!("{e:?}\n{printed}"));
    assert_eq!(print_module(&again), printed);
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    read::<Tensor>(text);
    read::<Machine>(text);
    read::<Mixed>(text);
});
