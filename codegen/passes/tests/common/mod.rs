//! Kernels to lower, and a reference to compare with.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

pub mod kernels;
pub mod machine;
pub mod num;

use weft_ir::tensor::Verified;
use weft_ir::verify::verify;
use weft_ir::{IntTuple, Kernel, Layout, Module};
use weft_passes::{Lowered, Lowering, Options, run};

/// The options for sm_90a.
pub fn options(lowering: Lowering) -> Options {
    Options::new(lowering, "sm_90a".parse().unwrap())
}

/// A verified module of one kernel.
pub fn module(kernel: Kernel) -> Verified {
    verify(Module { kernels: vec![kernel], ..Module::default() }).unwrap_or_else(|e| panic!("{e:#?}"))
}

/// Runs all passes on one kernel.
pub fn lower(kernel: Kernel, lowering: Lowering) -> Lowered {
    run(module(kernel), &options(lowering)).unwrap_or_else(|e| panic!("{e:#?}"))
}

/// A static layout.
pub fn layout(shape: &[i64], stride: &[i64]) -> Layout {
    let tuple = |t: &[i64]| IntTuple::tuple(t.iter().copied());
    Layout::new(tuple(shape), tuple(stride)).unwrap()
}
