//! The measurements, as data and as a table.

use crate::Spread;
use crate::rounds::Wrong;
use serde::{Deserialize, Serialize};
use weft::gemm::{Form, Shape};

/// The measurement of one shape with one contender.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The product as it would be on one PE.
    pub shape: Shape,
    /// The name of the contender.
    pub name: String,
    /// The plan, if the kernel is warpweft's.
    pub plan: String,
    /// The time of a call.
    pub time_us: Spread,
    /// Floating-point operations of a PE in a second, by the median time.
    pub tflops: f64,
    /// The time relative to the GEMM alone.
    pub of_product: Option<f64>,
    /// The time relative to that of the product and NCCL's collective.
    pub of_nccl: Option<f64>,
    /// The time relative to that of the product and warpweft's collective.
    pub of_ours: Option<f64>,
    /// The time relative to that of PyTorch's fused product.
    #[serde(default)]
    pub of_torch: Option<f64>,
    /// The result of the check.
    pub checked: Option<Wrong>,
}

/// The report of a run of the benchmark.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The version of warpweft.
    pub warpweft: String,
    /// The date and time in UTC.
    pub date: String,
    /// The words of the command line.
    pub command: Vec<String>,
    /// The operation that was computed.
    pub form: Form,
    /// The rows of each PE, if PEs do not have equal parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows_of_pes: Vec<u64>,
    /// The number of PEs.
    pub n_pes: u32,
    /// The name of the PEs' GPUs.
    pub gpu: String,
    /// The version of cuBLASLt, if it was measured.
    pub cublas: Option<String>,
    /// The version of NCCL, if it was measured.
    pub nccl: Option<String>,
    /// The version of PyTorch, if it was measured.
    #[serde(default)]
    pub torch: Option<String>,
    /// Whether calls were captured into a CUDA graph.
    pub graph: bool,
    /// The number of blocks of each contender.
    pub repeats: u32,
    /// The measurements, one for each shape and contender.
    pub rows: Vec<Row>,
}

/// Sets the ratios between the rows of one shape.
pub(super) fn compare(rows: &mut [Row]) {
    let time = |name: &str| rows.iter().find(|r| r.name == name).map(|r| r.time_us.median);
    let [product, nccl, ours, torch] = ["cublas alone", "cublas+nccl", "cublas+ours", "torch"].map(time);
    for row in rows {
        let by = |time: Option<f64>| time.map(|t| row.time_us.median / t);
        (row.of_product, row.of_nccl, row.of_ours) = (by(product), by(nccl), by(ours));
        row.of_torch = by(torch);
    }
}

impl Report {
    /// The lines above the table.
    pub fn head(&self) -> String {
        let Report { form, n_pes, gpu, repeats, warpweft, date, rows_of_pes, .. } = self;
        let of =
            |name: &str, v: &Option<String>| v.as_ref().map_or(String::new(), |v| format!(", {name} {v}"));
        let how = if self.graph { "in a CUDA graph" } else { "back to back" };
        let rows = if rows_of_pes.is_empty() { String::new() } else { format!(", rows {rows_of_pes:?}") };
        format!(
            "# weft bench: {form:?} and GEMM on {n_pes} x {gpu}{rows}{}{}{}, warpweft {warpweft}; {date}\n\
             # medians of {repeats} blocks of calls {how}, in an order drawn anew each round, on the slowest PE\n\
             #           shape          who       us      min      max  TFLOP/s  of gemm  of +nccl  of +ours  of torch   #wrong  plan\n",
            of("cuBLASLt", &self.cublas),
            of("NCCL", &self.nccl),
            of("PyTorch", &self.torch)
        )
    }

    /// The rows of the table.
    pub fn lines(rows: &[Row]) -> String {
        let ratio = |r: Option<f64>| r.map_or("-".into(), |r| format!("{r:.3}"));
        let line = |r: &Row| {
            let Row { shape, name, plan, time_us: t, tflops, .. } = r;
            let wrong = Wrong::counts(r.checked.as_ref());
            format!(
                "{:>17}{name:>13}{:>9.2}{:>9.2}{:>9.2}{tflops:>9.1}{:>9}{:>10}{:>10}{:>10}{wrong:>9}  {plan}\n",
                shape.to_string(),
                t.median,
                t.min,
                t.max,
                ratio(r.of_product),
                ratio(r.of_nccl),
                ratio(r.of_ours),
                ratio(r.of_torch),
            )
        };
        rows.iter().map(line).collect()
    }

    /// The first wrong element, as a sentence.
    pub fn first_wrong(&self) -> Option<String> {
        let shown = |r: &Row| Some(format!("{}, {}: {}", r.shape, r.name, r.checked.as_ref()?.shown()?));
        self.rows.iter().find_map(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_within_their_shape() {
        let row = |name: &str, us: f64| Row {
            shape: Shape::new(8, 16, 32),
            name: name.into(),
            plan: String::new(),
            time_us: Spread { min: us, median: us, max: us },
            tflops: 1.0,
            of_product: None,
            of_nccl: None,
            of_ours: None,
            of_torch: None,
            checked: None,
        };
        // The times are invented.
        let mut rows = [row("fused", 6.0), row("cublas alone", 5.0), row("cublas+nccl", 12.0)];
        compare(&mut rows);
        assert_eq!((rows[0].of_product, rows[0].of_nccl, rows[0].of_ours), (Some(1.2), Some(0.5), None));
        assert!(Report::lines(&rows).lines().next().is_some_and(|line| line.contains("8x16x32")));
        let report = Report {
            warpweft: "0".into(),
            date: String::new(),
            command: Vec::new(),
            form: Form::AllReduce,
            rows_of_pes: Vec::new(),
            n_pes: 2,
            gpu: "a GPU".into(),
            cublas: None,
            nccl: None,
            torch: None,
            graph: true,
            repeats: 1,
            rows: rows.to_vec(),
        };
        let svg = report.plot().unwrap();
        assert!(svg.contains("8x16x32") && svg.contains("cublas alone"), "{svg}");
        assert!(Report { rows: Vec::new(), ..report }.plot().is_err());
    }
}
