//! IR as text is read and verified, or rejected; what is verified prints as text that reads back to the same text.
#![no_main]

use weft_ir::text::{parse_module, print_module};
use weft_ir::verify::verify;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(module) = parse_module(text) else { return };
    let Ok(verified) = verify(module) else { return };
    let printed = print_module(&verified);
    let again = parse_module(&printed).unwrap_or_else(|e| panic!("{e:?}\n{printed}"));
    assert_eq!(print_module(&again), printed);
});
