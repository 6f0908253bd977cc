//! PTX is read, or rejected with its line.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = weft_sim::Module::parse(text);
});
