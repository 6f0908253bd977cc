//! Tests that compile kernels at the machine level to PTX and check the PTX by its text and by
//! ptxas.
//!
//! Without ptxas the second check is skipped with a message. `WEFT_REQUIRE_PTXAS=1` turns its
//! absence into a failure.
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
