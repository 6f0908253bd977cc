//! The `.weft` text: parser, resolution, diagnostics.

pub mod ast;
