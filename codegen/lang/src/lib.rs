//! The `.weft` language: parser, formatter, name resolution, elaboration and diagnostics.

pub mod ast;
pub mod codes;
pub mod elaborate;
pub mod evaluate;
pub mod format;
mod lexer;
mod parser;
pub mod print;
pub mod render;
pub mod source;

pub use lexer::{PLACED_WORDS, keywords};
pub use parser::{MAX_ERRORS, MAX_HEIGHT, MAX_NESTING, parse, parse_bytes, parse_expr};
