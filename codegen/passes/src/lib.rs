//! warpweft: codegen/passes.
