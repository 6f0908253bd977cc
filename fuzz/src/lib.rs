//! What the targets share.

use weft_lang::elaborate::{Define, Defines, Loader, Program};

/// The built-in library, and no files.
#[derive(Clone, Copy, Debug)]
pub struct Library;

impl Loader for Library {
    fn file(&self, _from: &str, path: &str) -> Result<(String, String), String> {
        Err(format!("no files here, so no {path}"))
    }

    fn builtin(&self, path: &str) -> Option<&str> {
        (path == "collectives").then_some(include_str!("../../src/library/collectives.weft"))
    }
}

/// Values for compile-time parameters that have no default: odd, so that tails come up.
pub fn defines(program: &Program) -> Defines {
    let heads = program.heads();
    let without = heads.iter().flat_map(|head| &head.generics).filter(|(_, _, default)| !default);
    let value = |bound: &str| Define::parse(match bound {
        "int" => "1003",
        "dtype" | "float" => "f16",
        "integer" => "i32",
        "bool" => "true",
        _ => "0.5",
    });
    without.filter_map(|(name, bound, _)| Some((name.to_string(), value(bound)?))).collect()
}

/// What a rejected text is told must say something, with a code.
///
/// # Panics
/// If it does not.
pub fn reject(rendered: &str) {
    assert!(rendered.contains("[E0"), "an error without a code:\n{rendered}");
    assert!(!rendered.contains("bug of warpweft"), "{rendered}");
}
