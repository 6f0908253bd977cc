//! Parses PTX text into a syntax tree with nom. The reader knows the grammar; [`crate::isa`]
//! defines the meaning of instructions.
//!
//! It accepts any bytes without panicking: nesting is bounded, repetition is linear in the text,
//! and declared sizes are only numbers here.

pub(crate) mod ast;
mod body;
mod lex;
mod toplevel;

use crate::codes;
use crate::error::PtxError;
use ast::{Ast, Offset};

/// The largest depth of nested blocks and of braces in initialisers.
pub(crate) const MAX_NESTING: usize = 64;

/// Reads a module's text into its syntax tree.
pub(crate) fn parse(text: &str) -> Result<Ast<'_>, PtxError> {
    if u32::try_from(text.len()).is_err() {
        return Err(error_at(text, 0, codes::TOO_LARGE, "PTX text of 4 GiB or more", "split the module"));
    }
    toplevel::module(text, text).map_err(|snag| {
        let at = (text.len() - snag.rest.len()) as Offset;
        error_at(text, at, snag.code, snag.message, snag.help)
    })
}

/// Makes an error at a byte offset of the text.
pub(crate) fn error_at(
    text: &str,
    at: Offset,
    code: codes::Code,
    message: impl Into<String>,
    help: impl Into<String>,
) -> PtxError {
    let at = (at as usize).min(text.len());
    let before = &text[..at];
    let line = before.bytes().filter(|&b| b == b'\n').count() as u32 + 1;
    let start = before.rfind('\n').map_or(0, |n| n + 1);
    let column = before[start..].chars().count() as u32 + 1;
    let shown: String = text[start..].lines().next().unwrap_or("").trim().chars().take(160).collect();
    PtxError { code, line, column, message: message.into(), help: help.into(), text: shown }
}
