//! Turns ptxas's remarks on accepted code into warnings at lines of the kernel's text.

use crate::lang::source::{LineColumn, SourceMap};
use weft_abi::{Remark, RemarkKind};
use weft_ir::diag::{Code, Diagnostic, Span};
use weft_llvm::codes::{REGISTERS_KEPT, SERIAL, SPILLS};

/// The code of a remark, and advice.
fn meaning(kind: RemarkKind) -> (Code, &'static str) {
    match kind {
        RemarkKind::Serial => (
            SERIAL,
            "reduce the accumulator registers of a thread: use a smaller tile, or more warpgroups for the tile",
        ),
        RemarkKind::Spills => (SPILLS, "give the roles more registers with `regs`, or use a smaller tile"),
        RemarkKind::Registers => (REGISTERS_KEPT, "leave `regs` out, or give all roles registers"),
    }
}

/// The warning for a remark.
pub fn warning(remark: &Remark, sources: &SourceMap) -> Diagnostic {
    let (code, help) = meaning(remark.kind);
    let span = remark.source.as_ref().and_then(|(file, line, column)| {
        sources.span_at(sources.find(file)?, LineColumn { line: *line, column: *column })
    });
    Diagnostic::warning(code, span.unwrap_or(Span::NONE), remark.text.clone()).help(help)
}
