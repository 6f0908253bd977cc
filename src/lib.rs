//! warpweft.

pub mod tools;
