//! The shapes and element types of products.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use weft_lang::elaborate::Define;
use weft_runtime::{DType, Error, error};

/// The largest extent of a product. Coordinates of tiles are 32-bit integers.
const MAX_EXTENT: u64 = i32::MAX as u64;
/// Strides in memory must be multiples of this number of bytes (CUDA Driver API,
/// `cuTensorMapEncodeTiled`).
const UNIT: u64 = 16;

/// Extents of a product: A is (m, k), B is (n, k), D is (m, n). As text, `4096x8192x1024` is m, n and k.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Shape {
    /// Rows of A and D.
    pub m: u64,
    /// Rows of B, and columns of D.
    pub n: u64,
    /// Columns of A and B, over which products are added up.
    pub k: u64,
}

impl Shape {
    /// A shape of these extents.
    pub fn new(m: u64, n: u64, k: u64) -> Shape {
        Shape { m, n, k }
    }

    /// The number of floating-point operations: a multiplication and an addition for each product.
    pub fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.n, self.k)
    }
}

weft_abi::stored_as_text!(Shape);

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let extents: Result<Vec<u64>, _> = text.split('x').map(str::parse).collect();
        match extents.as_deref() {
            Ok(&[m, n, k]) => Ok(Shape { m, n, k }),
            _ => Err(format!("`{text}` is not a shape: expected MxNxK, such as 4096x8192x1024")),
        }
    }
}

/// The mode of a matrix that is contiguous.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Major {
    /// The rows are contiguous: `(n, k):(k, 1)`.
    #[default]
    Row,
    /// The columns are contiguous: `(n, k):(1, n)`.
    Column,
}

/// A product D = A * transpose(B), with the rows of A and D contiguous.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Problem {
    /// The extents of the matrices.
    pub shape: Shape,
    /// Element type of A and B.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// Element type of D. Products are added up in f32 and rounded to it once.
    pub out: DType,
    /// The mode of B that is contiguous.
    pub b: Major,
}

impl Problem {
    /// A product of matrices with elements of `dtype`, and with contiguous rows of B. Results have
    /// the operands' type, or bf16 if operands have 8 bits.
    pub fn new(shape: Shape, dtype: DType) -> Problem {
        let out = if dtype.bytes() == 1 { DType::BF16 } else { dtype };
        Problem { shape, dtype, out, b: Major::Row }
    }

    /// Checks that the kernel computes the problem, with some plan.
    ///
    /// # Errors
    /// Fails for an empty shape, for an extent that is too large, for rows that TMA cannot copy,
    /// and for element types that the kernel does not multiply (R0505).
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |message: String, help: &str| Err(Error::new(error::GEMM, message).help(help));
        let Problem { shape, dtype, out, b } = self;
        let floats = [DType::BF16, DType::F16, DType::F32, DType::E4M3, DType::E5M2];
        if !floats.contains(dtype) {
            return refuse(
                format!("A and B are of {dtype}"),
                "the types of A and B can be f32 (as tf32), f16, bf16, e4m3 or e5m2",
            );
        }
        if !floats.contains(out) {
            return refuse(format!("D is of {out}"), "the type of D can be f32, f16, bf16, e4m3 or e5m2");
        }
        if *b == Major::Column && dtype.bytes() != 2 {
            let message = format!("matrix instructions do not read B of {dtype} with contiguous columns");
            return refuse(message, "they support that only for f16 and bf16: transpose B first");
        }
        let Shape { m, n, k } = *shape;
        for (name, extent) in [("m", m), ("n", n), ("k", k)] {
            if extent == 0 || extent > MAX_EXTENT {
                return refuse(
                    format!("{name} is {extent} in {shape}"),
                    "extents must be from 1 to 2147483647",
                );
            }
        }
        let rows_of_b = if *b == Major::Row { ("B", "k", k, dtype) } else { ("B", "n", n, dtype) };
        for (matrix, name, extent, dtype) in [("A", "k", k, dtype), rows_of_b, ("D", "n", n, out)] {
            let unit = UNIT / u64::from(dtype.bytes());
            if extent % unit != 0 {
                let message = format!(
                    "{name} is {extent} in {shape}, so {matrix} of {dtype} has a stride of {} bytes, and TMA copies \
                     tiles of strides that are multiples of {UNIT}",
                    extent * u64::from(dtype.bytes())
                );
                return refuse(
                    message,
                    &format!("pad {name} to a multiple of {unit}: {}", extent.next_multiple_of(unit)),
                );
            }
        }
        Ok(())
    }

    /// The problem as compile-time parameters of the kernel.
    pub fn defines(&self) -> [(String, Define); 3] {
        let major = i64::from(self.b == Major::Row);
        [
            ("T".into(), self.dtype.into()),
            ("OUT".into(), self.out.into()),
            ("B_MAJOR".into(), Define::Int(major)),
        ]
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { shape, dtype, out, b } = self;
        write!(f, "{shape} of {dtype}")?;
        if out != dtype {
            write!(f, " to {out}")?;
        }
        match b {
            Major::Row => Ok(()),
            Major::Column => f.write_str(", columns of B contiguous"),
        }
    }
}
