//! Frames between the PEs of a job, and from strangers, are read or rejected. A frame that was read
//! is written unchanged.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weft_runtime::job::fuzz_frames(bytes));
