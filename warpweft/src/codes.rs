//! The error codes of the compiler, the runtime, the simulator and the checks, each with an explanation.

use weft_ir::codes::{Example, Info};
use weft_runtime::error::CODES;

/// Every code of the compiler (E), ascending.
fn of_compiler() -> impl Iterator<Item = &'static Info> {
    use weft_llvm::codes::LLVM;
    use weft_passes::codes::{ISA, PASSES};
    weft_lang::codes::all().chain(PASSES).chain(LLVM).chain(ISA)
}

/// The explanation of an error code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The code, such as `E0212` or `R0104`.
    pub code: String,
    /// One line, no full stop.
    pub title: &'static str,
    /// One paragraph that explains the code.
    pub explanation: &'static str,
    /// A text that is rejected with this code.
    pub example: Example,
}

/// The code of a result that differs from `computes(...)`. Checks report it, and no part of the
/// compiler does.
pub const WRONG_RESULT: &str = "C001";

const WRONG: Page = Page {
    code: String::new(),
    title: "a result that differs from computes(...)",
    explanation: "The kernel ended on every PE, but a tensor differs from what `computes(...)` states by more than \
         rounding explains. If a race or a read of memory that nobody has written is reported too, it is the \
         likely cause. Otherwise the arithmetic is wrong, an element is left out, or PEs disagree on the \
         distribution of work. The data is made from the seed, so the command in the report reproduces the \
         result.",
    example: Example::Text(
        "kernel twice<N: int>(x: global<f32, (N):(1)>, out: global<f32, (N):(1)>) block(128) computes(copy(x, out)) {\n    let from = partition(x, threads());\n    let to = partition(out, threads());\n    for i in 0..size<1>(to) { to[_, i] = from[_, i] * 2; }\n}",
    ),
};

impl Page {
    /// Lists every page: the codes of the compiler (E), of GPUs and their libraries (R), of the PTX reader (P), of the
    /// simulator (S), of layout algebra (L) and of `weft check` (C). The codes of each group ascend.
    pub fn all() -> impl Iterator<Item = Page> {
        let compiler = of_compiler().map(|i| Page {
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

    /// Finds the page of a code as a person writes it: `E0212`, `r203`.
    pub fn find(name: &str) -> Option<Page> {
        let (room, number) = split(name)?;
        Page::all().find(|page| split(&page.code) == Some((room, number)))
    }

    /// Whether a word has the form of a code: a letter and two to four digits.
    pub fn is_code(name: &str) -> bool {
        split(name).is_some()
    }
}

fn split(name: &str) -> Option<(char, u16)> {
    let room = name.chars().next().filter(char::is_ascii_alphabetic)?;
    let digits = &name[1..];
    let fits = (2..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    Some((room.to_ascii_uppercase(), digits.parse().ok().filter(|_| fits)?))
}
