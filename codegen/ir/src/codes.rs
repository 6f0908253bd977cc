//! Explanations of error codes. Each family has a table, which is declared where its errors are
//! reported.

use crate::diag::Code;

/// An error code with its explanation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// The code that the texts explain.
    pub code: Code,
    /// The title: one line without a full stop.
    pub title: &'static str,
    /// One paragraph that says what is wrong and what to do.
    pub explanation: &'static str,
    /// A text that is rejected with this code. It is empty if there is no short example.
    pub example: Example,
}

/// An example of a text or request that the compiler rejects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Example {
    /// A small `.weft` text.
    Text(&'static str),
    /// A description of a rejected kernel or request in words.
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

/// Declares a family of codes once: a constant for each, and a table of all in ascending order.
/// `Text` or `Words` states the kind of the family's examples.
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
