//! The `.weft` text: parser, resolution, diagnostics.

pub mod ast;
pub mod codes;
pub mod elaborate;
pub mod evaluate;
mod lexer;
mod parser;
pub mod print;
pub mod render;
pub mod source;

pub use parser::{MAX_ERRORS, MAX_HEIGHT, MAX_NESTING, parse, parse_bytes, parse_expr};
