//! warpweft: codegen/isa.
