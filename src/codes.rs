//! Every error code of every room, for `weft explain E0212` and docs/errors.md.

use weft_ir::diag::Code;

/// What there is to say about a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// The code.
    pub code: Code,
    /// One line, no full stop.
    pub title: &'static str,
    /// One paragraph: what is wrong and what to do.
    pub explanation: &'static str,
    /// A small rejected `.weft` text, or for codes of the passes and the way to PTX what a rejected kernel does.
    pub example: &'static str,
    /// Whether the example is a text.
    pub is_text: bool,
}

/// Every code, ascending.
pub fn all() -> Vec<Info> {
    let lang = weft_lang::codes::all().map(|i| Info {
        code: i.code,
        title: i.title,
        explanation: i.explanation,
        example: i.example,
        is_text: true,
    });
    let passes = weft_passes::codes::PASSES.iter().map(|i| Info {
        code: i.code,
        title: i.title,
        explanation: i.explanation,
        example: i.example,
        is_text: false,
    });
    let llvm = weft_llvm::codes::LLVM.iter().map(|i| Info {
        code: i.code,
        title: i.title,
        explanation: i.explanation,
        example: i.example,
        is_text: false,
    });
    lang.chain(passes).chain(llvm).collect()
}

/// What a code means.
pub fn explain(code: Code) -> Option<Info> {
    all().into_iter().find(|i| i.code == code)
}

/// The list for docs/errors.md.
pub fn markdown() -> String {
    let mut out = String::new();
    for i in all() {
        out.push_str(&format!("### {}: {}\n\n{}\n\n", i.code, i.title, i.explanation));
        match (i.example, i.is_text) {
            ("", _) => {}
            (text, true) => out.push_str(&format!("```text\n{}\n```\n\n", text.trim_end())),
            (words, false) => out.push_str(&format!("For example: {words}.\n\n")),
        }
    }
    out
}
