//! Checks `computes(matmul(a, b, d))` and similar declarations: matrix products, and their
//! combination over PEs, in float64.

use super::array::{Number, read_number, write_number};
use super::reference::{Checked, Values};
use weft_ir::Scalar;
use weft_lang::elaborate::Reference;
use weft_lang::evaluate::unit_roundoff;

/// The way in which rows and columns of the PEs form the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    /// Each PE's own product: A (m, k), B (n, k), D (m, n).
    Own,
    /// The sum of all PEs' products, on every PE.
    AllReduce,
    /// The sum of all PEs' products, of which each PE has its part of the rows: D (m / PEs, n).
    ReduceScatter,
    /// The rows of all PEs times the PE's own B: A (m / PEs, k), or (m / PEs, k, PEs) with a PE's
    /// own rows at its rank; D (m, n).
    AllGather,
}

/// The references that have two matrices and their product.
pub(super) const PRODUCTS: [(&str, Product); 4] = [
    ("matmul", Product::Own),
    ("matmul_allreduce", Product::AllReduce),
    ("matmul_reduce_scatter", Product::ReduceScatter),
    ("all_gather_matmul", Product::AllGather),
];

/// The extents of a product: the PEs whose rows A has in a separate mode, the rows of all PEs
/// together and those of D on a PE, the columns of D, and the elements of a row of A.
struct Extents {
    parts: usize,
    all: usize,
    d: usize,
    n: usize,
    k: usize,
}

/// An exact element: the sum, the sum of the magnitudes of its products, and that of the magnitudes
/// that PEs add.
#[derive(Clone, Copy, Default)]
struct Element {
    sum: f64,
    products: f64,
    addends: f64,
}

impl Product {
    /// Returns the extents, if the three shapes match.
    fn extents(self, a: &[u64], b: &[u64], d: &[u64], pes: usize) -> Option<Extents> {
        let two = |shape: &[u64]| match shape {
            [r, c] => usize::try_from(*r).ok().zip(usize::try_from(*c).ok()),
            _ => None,
        };
        let parts = if self == Product::AllGather && a.len() == 3 { a.get(2).copied()? } else { 1 };
        let ((a, k), (n, l), (d, c)) = (two(a.get(..2)?)?, two(b)?, two(d)?);
        let all = if self == Product::AllGather { d } else { a };
        let fits = match self {
            Product::Own | Product::AllReduce => a == d,
            Product::ReduceScatter => d == a.div_ceil(pes),
            Product::AllGather => a == d.div_ceil(pes) && (parts == 1 || parts == pes as u64),
        };
        let parts = usize::try_from(parts).ok()?;
        (fits && k == l && n == c).then_some(Extents { parts, all, d, n, k })
    }

    /// The rows whose products with B add up to row `i` of D on a PE, as the PE of the row and of
    /// B, and the row there; none if the row is not defined.
    fn rows(self, x: &Extents, pes: usize, pe: usize, i: usize) -> Vec<(usize, usize, usize)> {
        let each = x.all.div_ceil(pes).max(1);
        match self {
            Product::Own => vec![(pe, pe, i)],
            Product::AllReduce => (0..pes).map(|p| (p, p, i)).collect(),
            Product::ReduceScatter if pe * each + i < x.all => {
                (0..pes).map(|p| (p, p, pe * each + i)).collect()
            }
            Product::ReduceScatter => Vec::new(),
            Product::AllGather => vec![(i / each, pe, i % each)],
        }
    }
}

/// Compares `d` on each PE with the product of `a` and `b`: the sum over k of `a[i, k] * b[j, k]`,
/// over the PEs' rows that `product` selects.
///
/// A float can be off by half a unit of its own type, and by a unit of the accumulator's for each
/// addition, relative to the sum of magnitudes. The terms that PEs add up can be rounded before, to
/// the type of `d` or to one of 16 bits. Matrix instructions multiply f32 as tf32, and add fp8 up
/// with at least 13 bits (Hopper).
///
/// # Errors
/// Fails if the arguments are not matrices that match each other.
pub(super) fn check(
    reference: &Reference,
    product: Product,
    before: &dyn Fn(&str) -> Option<Values>,
    after: &dyn Fn(&str) -> Option<Values>,
) -> Result<Checked, String> {
    let what = &reference.name;
    let [a, b, d] = &reference.args[..] else {
        return Err(format!("computes({what}): expected two matrices and their product, `{what}(a, b, d)`"));
    };
    let missing = |n: &str| format!("computes({what}): `{n}` is not a tensor parameter");
    let x = before(a).ok_or_else(|| missing(a))?;
    let y = before(b).ok_or_else(|| missing(b))?;
    let got = after(d).ok_or_else(|| missing(d))?;
    let pes = got.data.len();
    let Some(extents) = product.extents(&x.shape, &y.shape, &got.shape, pes) else {
        return Err(format!(
            "computes({what}): {:?} times {:?} is not {:?} on {pes} PEs: without PEs they are (m, k), (n, k) and (m, n)",
            x.shape, y.shape, got.shape
        ));
    };
    let unit = extents.k as f64
        * match x.dtype {
            s if s.is_fp8() => 2f64.powi(-13),
            _ => 2.0 * unit_roundoff(Scalar::F32),
        }
        + if x.dtype == Scalar::F32 { 2f64.powi(-9) } else { 0.0 };
    let summed = matches!(product, Product::AllReduce | Product::ReduceScatter) && got.dtype.is_float();
    let rounded = if summed { unit_roundoff(got.dtype).min(unit_roundoff(Scalar::BF16)) } else { 0.0 };
    let numbers = |v: &Values| -> Vec<Vec<f64>> {
        (0..pes).map(|pe| (0..v.len()).map(|i| v.get(pe, i).as_f64()).collect()).collect()
    };
    let (x, y) = (numbers(&x), numbers(&y));
    let element = |rows: &[(usize, usize, usize)], j: usize| {
        rows.iter().fold(Element::default(), |all, &(from, by, i)| {
            let (k, parts) = (extents.k, extents.parts);
            let own = from.min(parts - 1);
            let row = x[from][i * k * parts..(i + 1) * k * parts].iter().skip(own).step_by(parts);
            let pairs = row.zip(&y[by][j * k..(j + 1) * k]);
            let (sum, products) = pairs.fold((0.0, 0.0), |(s, m), (p, q)| (s + p * q, m + (p * q).abs()));
            Element {
                sum: all.sum + sum,
                products: all.products + products,
                addends: all.addends + f64::abs(sum),
            }
        })
    };
    let mut out = Checked { tensor: d.to_string(), ..Checked::default() };
    let mut bytes = Vec::new();
    // All PEs have the same elements of an allreduce.
    let alike = product == Product::AllReduce;
    for first in 0..if alike { 1 } else { pes } {
        for i in 0..extents.d {
            let rows = product.rows(&extents, pes, first, i);
            for j in (0..extents.n).filter(|_| !rows.is_empty()) {
                let exact = element(&rows, j);
                // Sums of products of 8 bits are exact in f64.
                let want = match got.dtype.is_float() {
                    true => Number::Float(exact.sum),
                    false => Number::Int(exact.sum as i128),
                };
                bytes.clear();
                write_number(got.dtype, want, &mut bytes);
                let nearest = read_number(got.dtype, &bytes);
                let error = unit * exact.products + rounded * (1.0 + unit) * exact.addends;
                for pe in if alike { 0..pes } else { first..first + 1 } {
                    let at = i * extents.n + j;
                    let have = got.get(pe, at);
                    if !out.compare(have, want, nearest, error, got.dtype) {
                        out.add_wrong(d, pe, at, have, want);
                    }
                }
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(shape: &[u64], by_pe: &[&[f32]]) -> Values {
        let bytes = |xs: &&[f32]| xs.iter().flat_map(|x| x.to_le_bytes()).collect();
        Values { dtype: Scalar::F32, shape: shape.to_vec(), data: by_pe.iter().map(bytes).collect() }
    }

    /// The number of wrong elements of `d`, on 2 PEs with 3 rows of 2 elements and a B of one row.
    fn wrong(name: &str, a: &Values, d: &Values) -> Result<u64, String> {
        let product = PRODUCTS.iter().find(|(n, _)| *n == name).unwrap().1;
        let args = ["a", "b", "d"].map(std::sync::Arc::from).to_vec();
        let reference = Reference { name: name.into(), words: Vec::new(), args, function: None };
        let b = values(&[1, 2], &[&[1.0, 1.0], &[1.0, -1.0]]);
        let before = |name: &str| Some(if name == "a" { a.clone() } else { b.clone() });
        check(&reference, product, &before, &|_| Some(d.clone())).map(|found| found.wrong)
    }

    #[test]
    fn by_hand() {
        // PE 0 has the products 3, 7, 11; PE 1 has 10 - 1, 20 - 2, 30 - 3.
        let a = values(&[3, 2], &[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[10.0, 1.0, 20.0, 2.0, 30.0, 3.0]]);
        let own = values(&[3, 1], &[&[3.0, 7.0, 11.0], &[9.0, 18.0, 27.0]]);
        let sum = values(&[3, 1], &[&[12.0, 25.0, 38.0], &[12.0, 25.0, 38.0]]);
        // The second row of PE 1 is beyond the end and is not checked.
        let parts = values(&[2, 1], &[&[12.0, 25.0], &[38.0, f32::NAN]]);
        assert_eq!(wrong("matmul", &a, &own), Ok(0));
        assert_eq!(wrong("matmul_allreduce", &a, &sum), Ok(0));
        assert_eq!(wrong("matmul_allreduce", &a, &own), Ok(6));
        assert_eq!(wrong("matmul_reduce_scatter", &a, &parts), Ok(0));
        let swapped = values(&[2, 1], &[&[38.0, 0.0], &[12.0, 25.0]]);
        assert_eq!(wrong("matmul_reduce_scatter", &a, &swapped), Ok(3));
        assert!(wrong("matmul_reduce_scatter", &a, &sum).unwrap_err().contains("on 2 PEs"));
    }

    #[test]
    fn rows_of_all_pes_times_the_own_factor() {
        // Two rows of PE 0, and one of PE 1: 3, 7, 11 by the B of PE 0, and -1, -1, -1 by that of PE 1.
        let d = values(&[3, 1], &[&[3.0, 7.0, 11.0], &[-1.0, -1.0, -1.0]]);
        let rows = values(&[2, 2], &[&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 0.0, 0.0]]);
        assert_eq!(wrong("all_gather_matmul", &rows, &d), Ok(0));
        // With elements at (row, column, PE), the contents of another PE's position before the
        // launch do not count.
        let x = 99.0;
        let placed =
            values(&[2, 2, 2], &[&[1.0, x, 2.0, x, 3.0, x, 4.0, x], &[x, 5.0, x, 6.0, x, 0.0, x, 0.0]]);
        assert_eq!(wrong("all_gather_matmul", &placed, &d), Ok(0));
        let other = values(&[3, 1], &[&[3.0, 7.0, -1.0], &[-1.0, -1.0, -1.0]]);
        assert_eq!(wrong("all_gather_matmul", &placed, &other), Ok(1));
    }
}
