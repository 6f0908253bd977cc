//! Every error code, with its title, its explanation and an example, for `weft explain E0011` and
//! docs/errors.md.

pub use weft_ir::codes::{Example, Info};
use weft_ir::diag::Code;

pub mod meaning;
pub mod remote;
pub mod syntax;
pub mod tile;
pub mod verify;

/// The tables of the families of codes, in ascending order.
const FAMILIES: &[&[Info]] = &[syntax::SYNTAX, meaning::MEANING, verify::VERIFY, remote::REMOTE, tile::TILE];

/// Every code, in ascending order.
pub fn all() -> impl Iterator<Item = &'static Info> {
    FAMILIES.iter().copied().flatten()
}

/// The explanation of a code, or `None` if there is no such code.
pub fn explain(code: Code) -> Option<&'static Info> {
    all().find(|info| info.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_have_explanations() {
        let codes: Vec<_> = all().map(|info| info.code).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
        for info in all() {
            assert!(!info.title.ends_with('.') && info.title.len() < 90, "{}", info.title);
            assert!(info.explanation.ends_with('.') && info.explanation.len() > 40, "{}", info.explanation);
            assert_eq!(explain(info.code), Some(info));
        }
        assert_eq!(explain(Code(9999)), None);
    }
}
