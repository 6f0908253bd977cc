//! Helpers that the fuzz targets share.

use weft::lang::elaborate::{Define, Defines, Head, Loader};

/// A loader that has the built-in library and no files.
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

/// Values for compile-time parameters that have no default. They are odd, so that there are tails.
/// P is a number of PEs over which the library unrolls loops: a thousand would make one block of
/// code on which LLVM's sinking takes quadratic time.
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

/// Checks that the error for a rejected text has a code and is not an internal fault.
///
/// # Panics
/// Panics if the error has no code or is an internal fault.
pub fn reject(rendered: &str) {
    assert!(rendered.contains("error[E0"), "an error without a code:\n{rendered}");
    assert!(!rendered.contains("bug of warpweft"), "{rendered}");
}
