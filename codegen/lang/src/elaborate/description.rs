//! Properties of a file's kernels: their parameters, the values of compile-time parameters, and
//! what the kernels compute.

use crate::evaluate::ReferenceFn;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use weft_ir::verify::Verified;
use weft_ir::{RedOp, Scalar};

/// The value of a compile-time parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Define {
    /// An integer: `-D N=4096`
    Int(i64),
    /// A floating-point number: `-D EPS=1e-5`
    Float(f64),
    /// A truth value: `-D CAUSAL=true`
    Bool(bool),
    /// An element type: `-D T=bf16`
    Dtype(Scalar),
    /// A reduction: `-D OP=min`
    Reduction(RedOp),
}

impl Define {
    /// Reads `4096`, `1e-5`, `true`, `bf16` or `min`.
    pub fn parse(text: &str) -> Option<Define> {
        let digits = text.replace('_', "");
        if let Some(s) = Scalar::parse(text) {
            Some(Define::Dtype(s))
        } else if let Some(op) = RedOp::parse(text) {
            Some(Define::Reduction(op))
        } else if let Ok(b) = text.parse() {
            Some(Define::Bool(b))
        } else if let Ok(n) = digits.parse() {
            Some(Define::Int(n))
        } else {
            // An integer that does not fit 64 bits would become another number as a float.
            let is_integer = digits.trim_start_matches(['-', '+']).bytes().all(|b| b.is_ascii_digit());
            digits.parse().ok().filter(|_| !is_integer).map(Define::Float)
        }
    }
}

impl fmt::Display for Define {
    /// Writes the text that [`parse`](Define::parse) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Define::Int(n) => write!(f, "{n}"),
            Define::Float(x) => write!(f, "{x:?}"),
            Define::Bool(b) => write!(f, "{b}"),
            Define::Dtype(dtype) => write!(f, "{dtype}"),
            Define::Reduction(op) => write!(f, "{op}"),
        }
    }
}

macro_rules! from {
    ($($ty:ty: $variant:ident;)*) => {$(
        impl From<$ty> for Define {
            fn from(value: $ty) -> Define {
                Define::$variant(value.into())
            }
        }
    )*};
}

from! {
    i64: Int;
    i32: Int;
    u32: Int;
    f64: Float;
    bool: Bool;
    Scalar: Dtype;
    RedOp: Reduction;
}

/// The values of compile-time parameters, by name.
pub type Defines = BTreeMap<String, Define>;

/// The head of a kernel before it is compiled, for launchers that derive parameters from data.
#[derive(Clone, Debug)]
pub struct Head {
    /// The name of the kernel.
    pub name: Arc<str>,
    /// The compile-time parameters: name, bound (`int`, `float`, ...), and whether there is a
    /// default.
    pub generics: Vec<(Arc<str>, Arc<str>, bool)>,
    /// The run-time parameters of the kernel.
    pub params: Vec<HeadParam>,
}

/// A run-time parameter as it is written.
#[derive(Clone, Debug)]
pub struct HeadParam {
    /// The name of the parameter.
    pub name: Arc<str>,
    /// The name of its type: `symm`, `global`, `barrier`, `team`, `int`, `f32`, ...
    pub ty: Arc<str>,
    /// The name of its element type, if the text has one.
    pub elem: Option<Arc<str>>,
    /// For each mode of its shape, the name that is the whole extent, if the extent is a name.
    pub extents: Vec<Option<Arc<str>>>,
}

/// The function that a kernel computes, for launchers that check it: `computes(allreduce<add>(x))`.
#[derive(Clone, PartialEq, Debug)]
pub struct Reference {
    /// The name of the function: `allreduce`, `reduce_scatter`, ..., or the name of a `reference
    /// fn`.
    pub name: Arc<str>,
    /// The words in angle brackets, such as `add`.
    pub words: Vec<Arc<str>>,
    /// The names of parameters. Those of a `reference fn` can be compile-time parameters.
    pub args: Vec<Arc<str>>,
    /// The function of the text, if it is a `reference fn`.
    pub function: Option<ReferenceFn>,
}

impl Reference {
    /// Whether it has a result of that name which is not also an operand. A function that works in
    /// place, with one name or the same name twice, has a result that is its operand.
    pub fn has_result(&self, name: &str) -> bool {
        match &self.function {
            Some(f) => f.assigned().iter().zip(&self.args).any(|(assigned, arg)| *assigned && **arg == *name),
            None => match &self.args[..] {
                [from @ .., to] => **to == *name && !from.is_empty() && !from.contains(to),
                [] => false,
            },
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words =
            if self.words.is_empty() { String::new() } else { format!("<{}>", self.words.join(", ")) };
        write!(f, "{}{words}({})", self.name, self.args.join(", "))
    }
}

/// The functions that `computes(...)` can name.
pub const REFERENCES: [&str; 11] = [
    "allreduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "alltoall",
    "rotate",
    "copy",
    "matmul",
    "matmul_allreduce",
    "matmul_reduce_scatter",
    "all_gather_matmul",
];

/// The kernels of a compiled file as IR, with what the file says about each.
#[derive(Debug)]
pub struct Compiled {
    /// Kernels as verified IR, before any pass.
    pub module: Verified,
    /// For each kernel, what it computes, if the text states it.
    pub references: Vec<Option<Reference>>,
    /// For each kernel, the values of its compile-time parameters.
    pub defines: Vec<Defines>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_kind_of_their_text() {
        for text in ["4096", "-7", "0.5", "true", "bf16", "min", "9223372036854775807"] {
            assert_eq!(Define::parse(text).map(|v| v.to_string()).as_deref(), Some(text));
        }
        assert_eq!(Define::parse("1_000"), Some(Define::Int(1000)));
        assert_eq!(Define::parse("1e3"), Some(Define::Float(1000.0)));
        // These texts are neither numbers of 64 bits nor types.
        for text in ["9223372036854775808", "-99999999999999999999", "float32", ""] {
            assert_eq!(Define::parse(text), None, "{text}");
        }
    }
}
