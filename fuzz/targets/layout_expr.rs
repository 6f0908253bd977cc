//! A layout expression has a value or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(value) = weft_layout::eval(text) {
        let _ = value.to_string();
    }
});
