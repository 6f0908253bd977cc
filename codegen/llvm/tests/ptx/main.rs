//! Kernels at machine level, compiled to PTX, and the PTX checked: by what stands in it, and by ptxas.
//!
//! Without ptxas that check is skipped and says so; `WEFT_REQUIRE_PTXAS=1` makes its absence a failure.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod harness;

mod arith;
mod calls;
mod control;
mod convert;
mod errors;
mod memory;
mod print;
mod random;
mod switch;
mod threads;
mod versions;
