//! warpweft: codegen/llvm.
