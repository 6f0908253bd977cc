//! Kernels at machine level, compiled to PTX, and the PTX checked: by what stands in it, and by ptxas.
//!
//! Without ptxas that check is skipped and says so; `WEFT_REQUIRE_PTXAS=1` makes its absence a failure.

mod harness;

mod arith;
mod control;
mod convert;
mod errors;
mod memory;
mod print;
mod switch;
mod threads;
mod versions;
