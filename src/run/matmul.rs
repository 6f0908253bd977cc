//! `computes(matmul(a, b, d))`: the product of matrices, in float64.

use super::array::{Number, read_number, write_number};
use super::reference::{Checked, Values};
use weft_ir::Scalar;
use weft_lang::elaborate::Reference;
use weft_lang::evaluate::unit_roundoff;

/// Compares `d` of shape (m, n) on each PE with the products of `a` (m, k) and `b` (n, k): the sum over k of
/// `a[i, k] * b[j, k]`.
///
/// A float may be off by half a unit of its own type, and by a unit of the accumulator's for each addition, relative to
/// the sum of magnitudes. Matrix instructions multiply f32 as tf32, and add fp8 up with 13 bits at least (Hopper).
///
/// # Errors
/// The arguments are no matrices that fit.
pub(super) fn check(
    reference: &Reference,
    before: &dyn Fn(&str) -> Option<Values>,
    after: &dyn Fn(&str) -> Option<Values>,
) -> Result<Checked, String> {
    let [a, b, d] = &reference.args[..] else {
        return Err("computes(matmul): takes two matrices and their product, `matmul(a, b, d)`".into());
    };
    let missing = |n: &str| format!("computes(matmul): `{n}` is no tensor parameter");
    let x = before(a).ok_or_else(|| missing(a))?;
    let y = before(b).ok_or_else(|| missing(b))?;
    let got = after(d).ok_or_else(|| missing(d))?;
    let extents = |v: &Values| match v.shape[..] {
        [r, c] => usize::try_from(r).ok().zip(usize::try_from(c).ok()),
        _ => None,
    };
    let shapes = extents(&x).zip(extents(&y)).zip(extents(&got));
    let Some((((m, k), (n, _)), _)) = shapes.filter(|(((m, k), (n, l)), out)| k == l && (*m, *n) == *out)
    else {
        return Err(format!(
            "computes(matmul): {:?} times {:?} is not {:?}: they are (m, k), (n, k) and (m, n)",
            x.shape, y.shape, got.shape
        ));
    };
    let unit = k as f64
        * match x.dtype {
            s if s.is_fp8() => 2f64.powi(-13),
            _ => 2.0 * unit_roundoff(Scalar::F32),
        }
        + if x.dtype == Scalar::F32 { 2f64.powi(-9) } else { 0.0 };
    let mut out = Checked { tensor: d.to_string(), ..Checked::default() };
    let mut bytes = Vec::new();
    for pe in 0..got.data.len() {
        let numbers = |v: &Values| (0..v.len()).map(|i| v.get(pe, i).as_f64()).collect::<Vec<_>>();
        let (x, y) = (numbers(&x), numbers(&y));
        for i in 0..m {
            for j in 0..n {
                let pairs = x[i * k..(i + 1) * k].iter().zip(&y[j * k..(j + 1) * k]);
                let (mut sum, mut scale) = (0.0, 0.0);
                for (p, q) in pairs {
                    sum += p * q;
                    scale += (p * q).abs();
                }
                let want = if got.dtype.is_float() {
                    Number::Float(sum)
                } else {
                    // Sums of products of 8 bits are exact in f64.
                    Number::Int(sum as i128)
                };
                bytes.clear();
                write_number(got.dtype, want, &mut bytes);
                let have = got.get(pe, i * n + j);
                let rounded = read_number(got.dtype, &bytes);
                if !out.compare(have, want, rounded, unit * scale, got.dtype) {
                    out.add_wrong(d, pe, i * n + j, have, want);
                }
            }
        }
    }
    Ok(out)
}
