//! warpweft: codegen/layout.
