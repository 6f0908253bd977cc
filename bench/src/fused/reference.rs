//! The result of `weft::allreduce_rms_norm` in float64, and the error that a result may have.
//!
//! Separate kernels round the sum over PEs to T, the new residual to T, the norm to T, and the
//! quantised norm; so does the fused kernel. The residual is compared with the exact sum. The norm
//! is compared with the exact norm of the residual that the kernel wrote, so that earlier rounding
//! does not widen its bound.

use std::fmt;
use weft::fused::Form;
use weft_ir::Scalar;
use weft_lang::evaluate::unit_roundoff;
use weft_run::reference::min_step;

/// The least scale of a token, as inference engines have it.
pub const MIN_SCALE: f64 = 1.0 / (448.0 * 512.0);

/// The greatest finite number of e4m3.
const MAX_E4M3: f64 = 448.0;

/// The inputs of the operation. Elements are indexed in C order over (token, hidden).
pub struct Inputs<'a> {
    /// The element types and the outputs.
    pub form: Form,
    /// The number of PEs whose parts are added.
    pub n_pes: u32,
    /// The number of tokens, one for each row.
    pub tokens: usize,
    /// The number of elements of a row.
    pub hidden: usize,
    /// The epsilon that is added to the mean of squares.
    pub eps: f64,
    /// The scale of a result that is quantised without `per_token`.
    pub scale: f64,
    /// The type in which the sum over PEs is accumulated: f32 in warpweft's kernels.
    pub acc: Scalar,
    /// An element of a PE's part.
    pub x: &'a dyn Fn(u32, usize) -> f64,
    /// The residual before the call.
    pub residual: &'a dyn Fn(usize) -> f64,
    /// The weight of a column.
    pub weight: &'a dyn Fn(usize) -> f64,
    /// The bias of a column, for LayerNorm only.
    pub bias: &'a dyn Fn(usize) -> f64,
}

/// The outputs of a PE after a call.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outputs {
    /// The residual after the call.
    pub residual: Vec<f64>,
    /// The result in its type, not scaled back.
    pub out: Vec<f64>,
    /// The scale of each token, if there are such scales.
    pub scale: Vec<f64>,
    /// The norm, if it is written besides the quantised result.
    pub norm: Vec<f64>,
}

/// The wrong elements of a PE's outputs.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Wrong {
    /// The number of wrong elements, over all outputs.
    pub elements: u64,
    /// The output that has the first wrong element.
    pub tensor: String,
    /// The index of the first wrong element.
    pub index: usize,
    /// The value that was found there.
    #[serde(deserialize_with = "number")]
    pub found: f64,
    /// The value that was expected.
    pub expected: f64,
    /// The allowed difference from that value.
    pub bound: f64,
}

/// Reads a number. JSON has `null` for one that is not finite.
fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(<Option<f64> as serde::Deserialize>::deserialize(from)?.unwrap_or(f64::NAN))
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wrong { elements, tensor, index, found, expected, bound } = self;
        write!(
            f,
            "{elements} wrong elements; the first, {tensor}[{index}], is {found}, expected {expected}"
        )?;
        write!(f, " within {bound:e}")
    }
}

impl Inputs<'_> {
    /// The wrong elements of a PE's outputs, if there are any.
    pub fn wrong(&self, got: &Outputs) -> Option<Wrong> {
        let (form, elements) = (self.form, self.tokens * self.hidden);
        let mut found = Findings(None);
        let unit = unit_roundoff(form.dtype);
        // Errors in f32: the mean of squares, with the additions of a thread and then of a tree;
        // 1/sqrt, which is approximate within 2 units (PTX ISA, rsqrt.approx.f32); and two
        // products.
        let f32s = 16.0 * unit_roundoff(Scalar::F32);
        for i in 0..elements {
            let (want, bound) = self.residual(i);
            found.compare("residual", i, got.residual.get(i), want, bound);
        }
        for token in 0..self.tokens {
            let row = token * self.hidden..(token + 1) * self.hidden;
            let v: Vec<f64> = row.clone().map(|i| got.residual.get(i).copied().unwrap_or(f64::NAN)).collect();
            let norm = self.norm(&v);
            // LayerNorm subtracts the mean and adds the bias, which can cancel most of large
            // numbers.
            let max = v.iter().fold(0.0f64, |max, v| max.max(v.abs()));
            let lost = if form.layer { f32s * (1.0 + max * self.factor(&v)) * 2.0 } else { 0.0 };
            let near = |w: f64| w.abs() * (unit + f32s) + lost + min_step(form.dtype);
            if form.both {
                row.clone()
                    .zip(&norm)
                    .for_each(|(i, w)| found.compare("norm", i, got.norm.get(i), *w, near(*w)));
            }
            if form.out == form.dtype {
                row.zip(&norm).for_each(|(i, w)| found.compare("out", i, got.out.get(i), *w, near(*w)));
                continue;
            }
            let group = self.hidden / form.scales(self.hidden).max(1);
            for (g, norms) in norm.chunks(group).enumerate() {
                let first = token * self.hidden + g * group;
                let scale = match form.scales(self.hidden) {
                    0 => self.scale,
                    scales => {
                        let at = token * scales + g;
                        let max = norms.iter().fold(0.0f64, |m, w| m.max(w.abs()));
                        let want = (max / MAX_E4M3).max(MIN_SCALE);
                        let bound = near(max) / MAX_E4M3 + want * f32s;
                        found.compare("scale", at, got.scale.get(at), want, bound);
                        got.scale.get(at).copied().unwrap_or(f64::NAN)
                    }
                };
                for (i, w) in (first..).zip(norms) {
                    // The clamp comes after the scale: a norm with a small error may saturate
                    // although the exact one does not.
                    let want = (w / scale).clamp(-MAX_E4M3, MAX_E4M3);
                    let bound = near(*w) / scale + want.abs() * unit_roundoff(Scalar::E4M3) * (1.0 + unit);
                    found.compare("out", i, got.out.get(i), want, bound + min_step(Scalar::E4M3));
                }
            }
        }
        found.0
    }

    /// The factor of the elements of a row, after LayerNorm has subtracted their mean.
    fn factor(&self, row: &[f64]) -> f64 {
        let mean = self.mean(row);
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / self.hidden as f64;
        1.0 / (variance + self.eps).sqrt()
    }

    /// The mean that LayerNorm subtracts; 0 for RMSNorm.
    fn mean(&self, row: &[f64]) -> f64 {
        if self.form.layer { row.iter().sum::<f64>() / self.hidden as f64 } else { 0.0 }
    }

    /// The exact norm of a row.
    fn norm(&self, row: &[f64]) -> Vec<f64> {
        let (mean, factor) = (self.mean(row), self.factor(row));
        let bias = |c| if self.form.layer { (self.bias)(c) } else { 0.0 };
        row.iter().enumerate().map(|(c, v)| (v - mean) * factor * (self.weight)(c) + bias(c)).collect()
    }

    /// The exact new residual of an element, and the allowed difference.
    fn residual(&self, i: usize) -> (f64, f64) {
        let unit = unit_roundoff(self.form.dtype);
        let parts = (0..self.n_pes).map(|pe| (self.x)(pe, i));
        let (sum, magnitude) = parts.fold((0.0, 0.0), |(s, m), x| (s + x, m + x.abs()));
        let want = sum + (self.residual)(i);
        let additions = f64::from(self.n_pes.saturating_sub(1)) * unit_roundoff(self.acc) * magnitude * 1.01;
        let add = unit_roundoff(Scalar::F32) * want.abs();
        (
            want,
            sum.abs() * unit * 1.01 + additions + want.abs() * unit * 1.01 + add + min_step(self.form.dtype),
        )
    }
}

struct Findings(Option<Wrong>);

impl Findings {
    fn compare(&mut self, tensor: &str, index: usize, found: Option<&f64>, expected: f64, bound: f64) {
        let found = found.copied().unwrap_or(f64::NAN);
        if (found - expected).abs() <= bound {
            return;
        }
        let first = || Wrong { elements: 0, tensor: tensor.into(), index, found, expected, bound };
        self.0.get_or_insert_with(first).elements += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BF16: Form = Form::plain(Scalar::BF16);

    fn given(form: Form) -> Inputs<'static> {
        Inputs {
            form,
            n_pes: 2,
            tokens: 1,
            hidden: 2,
            eps: 0.0,
            scale: 0.5,
            acc: Scalar::F32,
            x: &|pe, i| f64::from(pe + 1) * (i as f64 + 1.0),
            residual: &|i| if i == 0 { 0.0 } else { -2.0 },
            weight: &|c| [2.0, 1.0][c],
            bias: &|_| 0.5,
        }
    }

    /// Sums are 3 and 6; residuals 3 and 4; the mean of squares 12.5; norms 3 / sqrt(12.5) * 2 and
    /// 4 / sqrt(12.5).
    #[test]
    fn by_hand() {
        let norm = [6.0 / 12.5f64.sqrt(), 4.0 / 12.5f64.sqrt()];
        let right = Outputs { residual: vec![3.0, 4.0], out: norm.to_vec(), ..Outputs::default() };
        assert_eq!(given(BF16).wrong(&right), None);
        // An error of one unit of bf16, which is two half units.
        let off = Outputs { out: vec![norm[0], norm[1] * (1.0 + 1.0 / 128.0)], ..right.clone() };
        let wrong = given(BF16).wrong(&off).unwrap();
        assert_eq!((wrong.elements, wrong.tensor.as_str(), wrong.index), (1, "out", 1));
        let off = Outputs { residual: vec![3.0, 4.0625], ..right.clone() };
        assert_eq!(given(BF16).wrong(&off).unwrap().tensor, "residual");
        assert_eq!(given(BF16).wrong(&Outputs::default()).unwrap().elements, 4);
    }

    /// Residuals are 3 and 4, the mean 3.5 and the variance 1/4, so the norms are -1 and 1 before
    /// weights and bias.
    #[test]
    fn layer_norm() {
        let form = Form { layer: true, ..BF16 };
        let right = Outputs { residual: vec![3.0, 4.0], out: vec![-1.5, 1.5], ..Outputs::default() };
        assert_eq!(given(form).wrong(&right), None);
        let off = Outputs { out: vec![-1.5, 1.0], ..right };
        assert_eq!(given(form).wrong(&off).unwrap().elements, 1);
    }

    #[test]
    fn scales_of_groups() {
        let form = Form { out: Scalar::E4M3, group: 1, ..BF16 };
        let norm = [6.0 / 12.5f64.sqrt(), 4.0 / 12.5f64.sqrt()];
        let scale = norm.map(|n| n / 448.0).to_vec();
        let right =
            Outputs { residual: vec![3.0, 4.0], out: vec![448.0, 448.0], scale, ..Outputs::default() };
        assert_eq!(given(form).wrong(&right), None);
        let off = Outputs { scale: vec![right.scale[1], right.scale[0]], ..right };
        assert_eq!(given(form).wrong(&off).unwrap().tensor, "scale");
    }

    #[test]
    fn quantised() {
        let form = Form { out: Scalar::E4M3, both: true, ..BF16 };
        let norm = vec![6.0 / 12.5f64.sqrt(), 4.0 / 12.5f64.sqrt()];
        // Divided by the scale, the norms are 3.394 and 2.263; e4m3 has steps of 0.25 there.
        let right = Outputs { residual: vec![3.0, 4.0], out: vec![3.5, 2.25], norm, ..Outputs::default() };
        assert_eq!(given(form).wrong(&right), None);
        let off = Outputs { out: vec![3.0, 2.25], ..right.clone() };
        assert_eq!(given(form).wrong(&off).unwrap().elements, 1);

        let own = Form { per_token: true, ..form };
        let scale = 6.0 / 12.5f64.sqrt() / 448.0;
        let right = Outputs { out: vec![448.0, 288.0], scale: vec![scale], ..right };
        assert_eq!(given(own).wrong(&right), None);
        assert_eq!(
            given(own).wrong(&Outputs { scale: vec![scale * 1.01], ..right }).unwrap().tensor,
            "scale"
        );
    }
}
