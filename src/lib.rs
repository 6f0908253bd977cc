//! warpweft.
