//! Every error code of every room, for `weft explain E0212` and docs/errors.md.

use std::fmt::Write;

use weft_ir::codes::{Example, Info};
use weft_ir::diag::Code;
use weft_runtime::error::CODES;

/// Every code of the compiler (E), ascending.
pub fn all() -> impl Iterator<Item = &'static Info> {
    use weft_llvm::codes::LLVM;
    use weft_passes::codes::{ISA, PASSES};
    weft_lang::codes::all().chain(PASSES).chain(LLVM).chain(ISA)
}

/// What a code of the compiler means.
pub fn explain(code: Code) -> Option<&'static Info> {
    all().find(|i| i.code == code)
}

/// What there is to say about a code, whichever room's it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The code, such as `E0212` or `R0104`.
    pub code: String,
    /// One line, no full stop.
    pub title: &'static str,
    /// One paragraph that explains the code.
    pub explanation: &'static str,
    /// Something that is rejected so.
    pub example: Example,
}

/// The code of `weft check` alone: a run ended, and its result is not what the kernel says.
/// The code of a result that is not what `computes(...)` says. The checks find it, and no part of the compiler.
pub const WRONG_RESULT: &str = "C001";

const WRONG: Page = Page {
    code: String::new(),
    title: "a result that is not what computes(...) says",
    explanation: "The kernel ended on every PE, but a tensor does not hold what `computes(...)` states, beyond what rounding explains. If a race or a read of memory that nobody has written is found too, that is the cause. Otherwise the arithmetic is wrong, an element is left out, or PEs disagree on the distribution of work. The data is made from the seed, so the command in the report reproduces the result.",
    example: Example::Text(
        "kernel twice<N: int>(x: global<f32, (N):(1)>, out: global<f32, (N):(1)>) block(128) computes(copy(x, out)) {\n    let from = partition(x, threads());\n    let to = partition(out, threads());\n    for i in 0..size<1>(to) { to[_, i] = from[_, i] * 2; }\n}",
    ),
};

/// Every page: the compiler's (E), real GPUs' (R), the PTX reader's (P), the simulator's (S), those of layout algebra (L)
/// and those of `weft check` (C), each ascending.
pub fn pages() -> impl Iterator<Item = Page> {
    let compiler = all().map(|i| Page {
        code: i.code.to_string(),
        title: i.title,
        explanation: i.explanation,
        example: i.example,
    });
    let compiler = compiler.chain(CODES.iter().map(|i| Page {
        code: i.code.to_string(),
        title: i.title,
        explanation: i.explanation,
        example: Example::Words(""),
    }));
    let simulator = weft_sim::codes::CODES.iter().map(|i| Page {
        code: i.code.to_string(),
        title: i.title,
        explanation: i.explanation,
        example: Example::Text(i.example),
    });
    let layouts = weft_layout::codes::CODES.iter().map(|i| Page {
        code: i.code.to_owned(),
        title: i.title,
        explanation: i.explanation,
        example: Example::Text(i.example),
    });
    let check = Page { code: WRONG_RESULT.to_owned(), ..WRONG };
    compiler.chain(simulator).chain(layouts).chain([check])
}

/// The page of a code as a person writes it: `E0212`, `r203`.
pub fn page(name: &str) -> Option<Page> {
    let (room, number) = split(name)?;
    pages().find(|page| split(&page.code) == Some((room, number)))
}

/// Whether a word has the form of a code: a letter and two to four digits.
pub fn is_code(name: &str) -> bool {
    split(name).is_some()
}

fn split(name: &str) -> Option<(char, u16)> {
    let room = name.chars().next().filter(char::is_ascii_alphabetic)?;
    let digits = &name[1..];
    let fits = (2..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    Some((room.to_ascii_uppercase(), digits.parse().ok().filter(|_| fits)?))
}

/// The text in lines of at most 100 columns.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        let fits = column + 1 + width <= 100;
        out.push_str(match (column, fits) {
            (0, _) => "",
            (_, true) => " ",
            (_, false) => "\n",
        });
        column = if column > 0 && fits { column + 1 + width } else { width };
        out.push_str(word);
    }
    out
}

/// The list for docs/errors.md.
pub fn markdown() -> String {
    let mut out = String::new();
    for Page { code, title, explanation, example } in pages() {
        // Writing to a string does not fail.
        let _ = write!(out, "### {code}: {title}\n\n{}\n\n", wrapped(explanation));
        let _ = match example {
            Example::Text("") | Example::Words("") => Ok(()),
            Example::Text(text) => write!(out, "```text\n{}\n```\n\n", text.trim_end()),
            Example::Words(words) => write!(out, "{}\n\n", wrapped(&format!("An example is {words}."))),
        };
    }
    out
}
