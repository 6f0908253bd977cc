//! warpweft: codegen/lang.
