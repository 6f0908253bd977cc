//! warpweft: codegen/ir.
