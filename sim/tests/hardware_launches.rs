//! Whole launches have the results of an H200.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/gpu/mod.rs"]
mod gpu;

#[test]
fn same_results_as_an_h200() {
    let jobs = gpu::jobs();
    if let Ok(dir) = std::env::var("WEFT_CORPUS") {
        gpu::dump(std::path::Path::new(&dir), &jobs).unwrap();
    }
}
