//! The intermediate representation of a kernel: types, ops, builder, printer, verifier.
//! It knows layouts and nothing of LLVM, CUDA or text files.

pub mod diag;
