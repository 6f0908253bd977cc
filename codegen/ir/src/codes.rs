//! What there is to say about an error code: one table a family, declared where the errors are made.

use crate::diag::Code;

/// An error code explained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// The code that the texts explain.
    pub code: Code,
    /// One line, no full stop.
    pub title: &'static str,
    /// One paragraph: what is wrong and what to do.
    pub explanation: &'static str,
    /// Something rejected with this code; an empty text where no short one can be.
    pub example: Example,
}

/// An example of what the compiler rejects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Example {
    /// A small `.weft` text.
    Text(&'static str),
    /// A description of what a rejected kernel or request does.
    Words(&'static str),
}

impl Example {
    /// The `.weft` text, if it is one.
    pub fn text(self) -> Option<&'static str> {
        match self {
            Example::Text("") | Example::Words(_) => None,
            Example::Text(text) => Some(text),
        }
    }
}

/// Declares a family of codes once: a constant for each, and the table of all, ascending.
/// `Text` or `Words` says what the family's examples are.
#[macro_export]
macro_rules! codes {
    ($(#[$doc:meta])* $table:ident $kind:ident: $($name:ident = $number:literal, $title:literal, $example:expr, $explanation:literal;)*) => {
        $(#[doc = $title] pub const $name: $crate::diag::Code = $crate::diag::Code($number);)*
        $(#[$doc])*
        pub const $table: &[$crate::codes::Info] = &[$($crate::codes::Info {
            code: $name,
            title: $title,
            explanation: $explanation,
            example: $crate::codes::Example::$kind($example),
        }),*];
    };
}
