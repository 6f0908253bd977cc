//! Every error code of every room, for `weft explain E0212` and docs/errors.md.

use weft_ir::codes::{Example, Info};
use weft_ir::diag::Code;

/// Every code, ascending.
pub fn all() -> impl Iterator<Item = &'static Info> {
    use weft_llvm::codes::LLVM;
    use weft_passes::codes::{ISA, PASSES};
    weft_lang::codes::all().chain(PASSES).chain(LLVM).chain(ISA)
}

/// What a code means.
pub fn explain(code: Code) -> Option<&'static Info> {
    all().find(|i| i.code == code)
}

/// The list for docs/errors.md.
pub fn markdown() -> String {
    let mut out = String::new();
    for i in all() {
        out.push_str(&format!("### {}: {}\n\n{}\n\n", i.code, i.title, i.explanation));
        match i.example {
            Example::Text("") => {}
            Example::Text(text) => out.push_str(&format!("```text\n{}\n```\n\n", text.trim_end())),
            Example::Words(words) => out.push_str(&format!("For example: {words}.\n\n")),
        }
    }
    out
}
