//! The measurements, as data and as a table.

use super::Wrong;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weft::gemm::tuning::By;
use weft::gemm::{Plan, Problem};

/// The names of the contenders.
pub(super) const OURS: &str = "weft";
pub(super) const CUBLAS: &str = "cublas";
pub(super) const CUBLAS_MATRICES: &str = "cublas-matrices";

/// Quartiles of the microseconds of a call, over blocks of calls.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Quartiles {
    /// The time of the fastest block.
    pub min: f64,
    /// The time that a quarter of the blocks did not exceed.
    pub q1: f64,
    /// The time that half of the blocks did not exceed.
    pub median: f64,
    /// The time that three quarters of the blocks did not exceed.
    pub q3: f64,
}

impl Quartiles {
    /// The quartiles of the times, which are NaN if there are none.
    pub fn of(times: &[f64]) -> Quartiles {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        // A quartile between two times is interpolated linearly.
        let at = |part: f64| {
            let place = part * sorted.len().saturating_sub(1) as f64;
            let time = |i: f64| sorted.get(i as usize).copied().unwrap_or(f64::NAN);
            time(place.floor()) + (time(place.ceil()) - time(place.floor())) * place.fract()
        };
        Quartiles { min: at(0.0), q1: at(0.25), median: at(0.5), q3: at(0.75) }
    }
}

/// The measurement of one problem with one contender.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The problem that was solved.
    #[serde(flatten)]
    pub problem: Problem,
    /// The name of the contender.
    pub contender: String,
    /// The plan, if the kernel is warpweft's.
    pub plan: Option<Plan>,
    /// The source of the plan.
    pub by: Option<By>,
    /// The compile-time parameters that were given to a file's kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defines: Option<String>,
    /// The place of cuBLASLt's algorithm in the heuristic's order, from 0, and how many were tried.
    pub algorithm: Option<(u32, u32)>,
    /// The number of calls in a block.
    pub iters: u32,
    /// The number of blocks.
    pub repeats: u32,
    /// The number of sets of operands that calls alternated between.
    pub sets: u32,
    /// The time of a call in a block of back-to-back calls.
    pub time_us: Quartiles,
    /// 10^12 floating-point operations a second, by the median time.
    pub tflops: f64,
    /// The median time of cuBLASLt divided by that of this contender, if cuBLASLt was measured.
    /// Above 1, this contender is faster.
    pub of_cublas: Option<f64>,
    /// The same ratio for cuBLASLt with one scale for each matrix, if that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_matrices: Option<f64>,
    /// The number of wrong samples and of all samples; none without a check.
    pub wrong: Option<(u64, u64)>,
    /// The first wrong sample.
    pub first_wrong: Option<Wrong>,
    /// The number of elements that differ from the first contender's, for whole numbers whose sums
    /// are exact; none without a check.
    pub differ: Option<u64>,
}

/// The report of a run of the benchmark.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The version of warpweft.
    pub warpweft: String,
    /// The time at which the benchmark began, in UTC.
    pub date: String,
    /// The words of the command; none if a program measured.
    pub command: Vec<String>,
    /// The name of the GPU.
    pub gpu: String,
    /// The number of multiprocessors of the GPU.
    pub sms: u32,
    /// The version of the driver.
    pub driver: String,
    /// The version of cuBLASLt, if it was measured.
    pub cublas: Option<String>,
    /// The source of automatically chosen plans.
    pub auto: Option<String>,
    /// The scales of the operands: none, matrices, rows or blocks.
    #[serde(default = "unscaled")]
    pub scales: String,
    /// Whether blocks were CUDA graphs.
    pub graph: bool,
    /// Whether calls alternated between sets of operands, so that the L2 cache did not hold them.
    pub cold: bool,
    /// The contenders that were left out, with reasons.
    pub left_out: Vec<String>,
    /// The measurements, one for each problem and contender.
    pub rows: Vec<Row>,
}

/// The scales of a report that does not name any.
fn unscaled() -> String {
    "none".into()
}

/// Sets the ratios of the rows of one problem to cuBLASLt's rows.
pub(super) fn compare(rows: &mut [Row]) {
    let time = |name: &str| rows.iter().find(|r| r.contender == name).map(|r| r.time_us.median);
    let [cublas, matrices] = [CUBLAS, CUBLAS_MATRICES].map(time);
    for row in rows {
        row.of_cublas = cublas.map(|t| t / row.time_us.median);
        row.of_matrices = matrices.map(|t| t / row.time_us.median);
    }
}

impl Report {
    /// The lines above the table.
    pub fn head(&self) -> String {
        let Report { gpu, sms, driver, warpweft, date, .. } = self;
        let cublas = self.cublas.as_ref().map_or(String::new(), |v| format!(", cuBLASLt {v}"));
        let mut text = format!(
            "# weft bench gemm: {gpu} ({sms} multiprocessors), driver {driver}{cublas}, warpweft {warpweft}; {date}\n"
        );
        if let Some(auto) = &self.auto {
            text += &format!("# plans chosen by {auto}\n");
        }
        if self.scales != unscaled() {
            text += &format!("# operands have scales of {}\n", self.scales);
        }
        let how = if self.graph { "in a CUDA graph" } else { "back to back" };
        let cold = if self.cold {
            "; calls alternate between copies of the operands, so that these are not in the L2 cache"
        } else {
            ""
        };
        text += &format!("# microseconds per call, {how}, in blocks of contenders in random order{cold}\n");
        text + &format!(
            "# {:>18}{:>6}  {:<16}{:>9}{:>9}{:>9}{:>9}{:>10}{:>7}  plan\n",
            "shape", "type", "by", "q1", "median", "q3", "TFLOP/s", "of cublas", "#wrong"
        )
    }

    /// The rows of the table.
    pub fn lines(rows: &[Row]) -> String {
        let line = |r: &Row| {
            let Quartiles { q1, median, q3, .. } = r.time_us;
            let ratio = r.of_cublas.map_or("-".into(), |x| format!("{x:.3}"));
            let wrong = r.wrong.map_or("N/A".into(), |(n, _)| (n + r.differ.unwrap_or(0)).to_string());
            let how = match (&r.plan, r.algorithm) {
                (Some(plan), _) => plan.to_string(),
                (None, Some((i, of))) => format!("algorithm {} of {of}", i + 1),
                (None, None) => r.defines.clone().unwrap_or_default(),
            };
            let (shape, dtype) = (r.problem.shape.to_string(), r.problem.dtype.name());
            format!(
                "{shape:>20}{dtype:>6}  {:<16}{q1:>9.2}{median:>9.2}{q3:>9.2}{:>9.1}{ratio:>10}{wrong:>7}  {how}\n",
                r.contender, r.tflops
            )
        };
        rows.iter().map(line).collect()
    }

    /// The lines below the table: the contenders that were left out and, for each of warpweft's,
    /// the geometric mean over problems of its speed relative to cuBLASLt. If a problem was
    /// measured with several plans, the first one counts.
    pub fn foot(&self) -> String {
        let mut text: String = self.left_out.iter().map(|why| format!("# left out: {why}\n")).collect();
        text += &self.speeds("cuBLASLt", |row| row.of_cublas);
        text + &self.speeds("cuBLASLt with one scale for each matrix", |row| row.of_matrices)
    }

    /// A line with the mean of a ratio for each of warpweft's contenders that has it.
    fn speeds(&self, peer: &str, ratio: impl Fn(&Row) -> Option<f64>) -> String {
        let mut speeds: BTreeMap<&str, Vec<(Problem, f64)>> = BTreeMap::new();
        for row in self.ours() {
            let own = speeds.entry(&row.contender).or_default();
            if let Some(speed) = ratio(row).filter(|_| own.iter().all(|(p, _)| *p != row.problem)) {
                own.push((row.problem, speed));
            }
        }
        let mut text = String::new();
        for (name, own) in speeds.iter().filter(|(_, own)| !own.is_empty()) {
            let least = own.iter().map(|(_, speed)| *speed).fold(f64::INFINITY, f64::min);
            let mean = (own.iter().map(|(_, speed)| speed.ln()).sum::<f64>() / own.len() as f64).exp();
            text += &format!(
                "# speed of {name} relative to {peer}: geometric mean {mean:.3} over {} shapes, minimum {least:.3}\n",
                own.len()
            );
        }
        text
    }

    /// The rows of warpweft's kernels and of files.
    fn ours(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|r| ![CUBLAS, CUBLAS_MATRICES].contains(&r.contender.as_str()))
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// Fails if a field cannot be written as JSON, which no field is known to do.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// The report as CSV: a line of column names, and a line for each row.
    pub fn csv(&self) -> String {
        let mut text = "gpu,m,n,k,type,out,b,contender,plan,iters,repeats,sets,min_us,q1_us,median_us,q3_us,tflops,of_cublas,wrong,differ,scales,of_matrices\n".to_owned();
        for r in &self.rows {
            let Problem { shape, dtype, out, b } = r.problem;
            let Quartiles { min, q1, median, q3 } = r.time_us;
            let plan =
                r.plan.map(|p| p.to_string()).or(r.defines.clone()).unwrap_or_default().replace(',', " ");
            let number = |n: Option<String>| n.unwrap_or_default();
            text += &format!(
                "{},{},{},{},{dtype},{out},{},{},{plan},{},{},{},{min:.3},{q1:.3},{median:.3},{q3:.3},{:.2},{},{},{},{},{}\n",
                self.gpu.replace(',', " "),
                shape.m,
                shape.n,
                shape.k,
                format!("{b:?}").to_ascii_lowercase(),
                r.contender,
                r.iters,
                r.repeats,
                r.sets,
                r.tflops,
                number(r.of_cublas.map(|x| format!("{x:.4}"))),
                number(r.wrong.map(|(n, _)| n.to_string())),
                number(r.differ.map(|n| n.to_string())),
                self.scales,
                number(r.of_matrices.map(|x| format!("{x:.4}"))),
            );
        }
        text
    }

    /// The first wrong result of warpweft that the check found, as a sentence.
    pub fn first_wrong(&self) -> Option<String> {
        self.ours().find_map(|r| {
            let (n, of) = r.wrong.unwrap_or_default();
            let what = match (&r.first_wrong, r.differ.unwrap_or(0)) {
                (Some(wrong), _) => format!("{n} of {of} samples are wrong; the first: {wrong}"),
                (None, 0) => return None,
                (None, n) => {
                    format!("{n} elements differ from the first contender's, where all sums are exact")
                }
            };
            let plan = r.plan.map_or_else(|| format!(" by {}", r.contender), |p| format!(" by {p}"));
            Some(format!("{}{plan}: {what}", r.problem))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::gemm::Shape;
    use weft_runtime::DType;

    /// A row with invented numbers.
    fn row(shape: &str, contender: &str, us: f64) -> Row {
        let problem = Problem::new(shape.parse::<Shape>().unwrap(), DType::BF16);
        let ours = contender == "weft";
        Row {
            problem,
            contender: contender.into(),
            plan: ours.then(Plan::default),
            by: ours.then_some(By::Model),
            defines: None,
            algorithm: (!ours).then_some((2, 8)),
            iters: 20,
            repeats: 1,
            sets: 1,
            time_us: Quartiles::of(&[us]),
            tflops: problem.shape.flops() / us / 1e6,
            of_cublas: None,
            of_matrices: None,
            wrong: Some((0, 108)),
            first_wrong: None,
            differ: Some(0),
        }
    }

    fn report(rows: Vec<Row>) -> Report {
        Report {
            warpweft: "0.1.0".into(),
            date: "2026-11-25T00:00:00Z".into(),
            command: vec!["weft".into()],
            gpu: "NVIDIA H200".into(),
            sms: 132,
            driver: "580.1".into(),
            cublas: Some("13.1.0".into()),
            auto: None,
            scales: "none".into(),
            graph: true,
            cold: false,
            left_out: vec!["cublas, 8x8x8 of bf16: why".into()],
            rows,
        }
    }

    #[test]
    fn quartiles_are_between_times() {
        let of = |times: &[f64]| Quartiles::of(times);
        assert_eq!(of(&[4.0, 2.0, 3.0, 1.0, 5.0]), Quartiles { min: 1.0, q1: 2.0, median: 3.0, q3: 4.0 });
        assert_eq!(of(&[1.0, 2.0]), Quartiles { min: 1.0, q1: 1.25, median: 1.5, q3: 1.75 });
        assert_eq!(of(&[7.0]).q3, 7.0);
        assert!(of(&[]).median.is_nan());
    }

    #[test]
    fn rows_are_compared_within_their_problem() {
        let mut first = [row("4096x4096x4096", "weft", 200.0), row("4096x4096x4096", "cublas", 220.0)];
        let mut second = [row("64x4096x4096", "weft", 25.0), row("64x4096x4096", "cublas", 20.0)];
        compare(&mut first);
        compare(&mut second);
        assert_eq!(first[0].of_cublas, Some(1.1));
        assert_eq!(second.iter().map(|r| r.of_cublas).collect::<Vec<_>>(), [Some(0.8), Some(1.0)]);
        let report = report([first, second].concat());
        let lines = Report::lines(&report.rows);
        let words: Vec<_> = lines.lines().next().unwrap().split_whitespace().collect();
        let plan = Plan::default().to_string();
        assert_eq!(
            words,
            ["4096x4096x4096", "bf16", "weft", "200.00", "200.00", "200.00", "687.2", "1.100", "0", &plan]
        );
        assert!(lines.lines().nth(1).unwrap().ends_with("1.000      0  algorithm 3 of 8"), "{lines}");
        // Columns end where their headings end.
        let head = report.head();
        let names = head.lines().last().unwrap();
        let end = names.find("of cublas").unwrap() + "of cublas".len();
        assert!(lines.lines().all(|l| &l[end - 1..end] == "0" && &l[end..=end] == " "), "{head}{lines}");
        let foot = report.foot();
        assert!(foot.contains("# left out: cublas, 8x8x8 of bf16: why\n"), "{foot}");
        assert!(foot.ends_with("geometric mean 0.938 over 2 shapes, minimum 0.800\n"), "{foot}");
        assert_eq!(report.first_wrong(), None);
    }

    #[test]
    fn scales_are_compared_with_one_for_each_matrix() {
        let mut rows = [
            row("4096x4096x4096", "weft", 250.0),
            row("4096x4096x4096", "cublas", 300.0),
            row("4096x4096x4096", "cublas-matrices", 200.0),
        ];
        compare(&mut rows);
        assert_eq!((rows[0].of_cublas, rows[0].of_matrices), (Some(1.2), Some(0.8)));
        let report = Report { scales: "blocks".into(), ..report(rows.to_vec()) };
        assert!(report.head().contains("# operands have scales of blocks\n"));
        let foot = report.foot();
        assert!(foot.contains("of weft relative to cuBLASLt: geometric mean 1.200"), "{foot}");
        assert!(foot.contains("one scale for each matrix: geometric mean 0.800"), "{foot}");
        assert!(!foot.contains("of cublas"), "{foot}");
        assert_eq!(serde_json::from_str::<Report>(&report.json().unwrap()).unwrap(), report);
        assert!(report.csv().lines().nth(1).unwrap().ends_with(",blocks,0.8000"));
    }

    #[test]
    fn reports_read_back() {
        let report = report(vec![row("16x8192x4096", "weft", 30.0)]);
        assert_eq!(serde_json::from_str::<Report>(&report.json().unwrap()).unwrap(), report);
        let csv = report.csv();
        let counts: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(counts, [22, 22], "{csv}");
    }

    #[test]
    fn wrong_results_of_ours_are_said() {
        let wrong = Wrong { row: 3, column: 5, found: 1.0, expected: 2.0 };
        let bad = Row { wrong: Some((7, 108)), first_wrong: Some(wrong), ..row("8x8x8", "weft", 1.0) };
        let said = report(vec![row("8x8x8", "weft", 1.0), bad]).first_wrong().unwrap();
        assert!(said.contains("8x8x8 of bf16") && said.contains("7 of 108 samples are wrong"), "{said}");
        assert!(said.ends_with("element (3, 5) is 1, expected 2"), "{said}");
        let differ = Row { differ: Some(9), ..row("8x8x8", "weft", 1.0) };
        assert!(report(vec![differ]).first_wrong().unwrap().contains("9 elements differ"));
    }
}
