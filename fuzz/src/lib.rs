//! What the targets share.

use weft::lang::elaborate::{Define, Defines, Head, Loader};

/// The built-in library, and no files.
#[derive(Clone, Copy, Debug)]
pub struct Library;

impl Loader for Library {
    fn file(&self, _from: &str, path: &str) -> Result<(String, String), String> {
        Err(format!("no files here, so no {path}"))
    }

    fn builtin(&self, path: &str) -> Option<&str> {
        weft::library::part(path)
    }
}

/// Values for compile-time parameters that have no default: odd, so that tails come up. P are PEs over which the library
/// takes loops apart: a thousand would be one block of code on which LLVM's sinking takes quadratic time.
pub fn defines(heads: &[Head]) -> Defines {
    let without = heads.iter().flat_map(|head| &head.generics).filter(|(_, _, default)| !default);
    let value = |name: &str, bound: &str| {
        Define::parse(match bound {
            "int" if name == "P" => "5",
            "int" => "1003",
            "dtype" | "float" => "f16",
            "integer" => "i32",
            "bool" => "true",
            _ => "0.5",
        })
    };
    without.filter_map(|(name, bound, _)| Some((name.to_string(), value(name, bound)?))).collect()
}

/// What a rejected text is told must have a code, and be no fault of ours.
///
/// # Panics
/// If it is not so.
pub fn reject(rendered: &str) {
    assert!(rendered.contains("error[E0"), "an error without a code:\n{rendered}");
    assert!(!rendered.contains("bug of warpweft"), "{rendered}");
}
