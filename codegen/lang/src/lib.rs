//! The `.weft` text: parser, resolution, diagnostics.

pub mod ast;
pub mod codes;
mod lexer;
mod parser;
pub mod print;
pub mod render;
pub mod source;

pub use parser::{MAX_DEPTH, MAX_ERRORS, parse, parse_bytes, parse_expr};
