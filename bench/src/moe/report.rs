//! The measurements, as data and as a table.

use crate::Spread;
use crate::rounds::Wrong;
use serde::{Deserialize, Serialize};

/// The measurement of one problem with one contender.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The problem that was computed.
    pub problem: String,
    /// The name of the contender.
    pub name: String,
    /// The plan, if the kernels are warpweft's.
    pub plan: String,
    /// The time of a call.
    pub time_us: Spread,
    /// Floating-point operations of a PE in a second, by the median time.
    pub tflops: f64,
    /// Bytes that a PE sends to others in both all-to-alls in a second, by the median time. If only transfers are timed, a
    /// token counts once for each PE that it goes to.
    pub gb_per_s: f64,
    /// The rate relative to the specified bandwidth of the GPU's links. It is there if only transfers are timed.
    #[serde(default)]
    pub of_link: Option<f64>,
    /// The time relative to that of the first peer.
    pub of_peer: Option<f64>,
    /// The result of a check of samples.
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
    /// The number of PEs.
    pub n_pes: u32,
    /// The name of the PEs' GPUs.
    pub gpu: String,
    /// The version of NCCL, if it was measured.
    pub nccl: Option<String>,
    /// Whether calls were captured into a CUDA graph.
    pub graph: bool,
    /// The number of blocks of each contender.
    pub repeats: u32,
    /// The measurements, one for each problem and contender.
    pub rows: Vec<Row>,
}

impl Report {
    /// The lines above the table.
    pub fn head(&self) -> String {
        let Report { n_pes, gpu, repeats, warpweft, date, .. } = self;
        let nccl = self.nccl.as_ref().map_or(String::new(), |v| format!(", NCCL {v}"));
        let how = if self.graph { "in a CUDA graph" } else { "back to back" };
        format!(
            "# weft bench: dispatch, experts and combine on {n_pes} x {gpu}{nccl}, warpweft {warpweft}; {date}\n\
             # medians of {repeats} blocks of calls {how}, in an order drawn anew each round, on the slowest PE\n\
             #        who       us      min      max  TFLOP/s     GB/s  of link  of peer   #wrong  problem\n"
        )
    }

    /// The rows of the table.
    pub fn lines(rows: &[Row]) -> String {
        let line = |r: &Row| {
            let Row { problem, name, plan, time_us: t, tflops, gb_per_s, .. } = r;
            let wrong = Wrong::counts(r.checked.as_ref());
            let ratio = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.3}"));
            let (of_link, of_peer) = (ratio(r.of_link), ratio(r.of_peer));
            format!(
                "{name:>12}{:>9.2}{:>9.2}{:>9.2}{tflops:>9.1}{gb_per_s:>9.1}{of_link:>9}{of_peer:>9}{wrong:>9}  {problem} {plan}\n",
                t.median, t.min, t.max,
            )
        };
        rows.iter().map(line).collect()
    }

    /// The first wrong element, as a sentence.
    pub fn first_wrong(&self) -> Option<String> {
        let shown = |r: &Row| Some(format!("{}, {}: {}", r.problem, r.name, r.checked.as_ref()?.shown()?));
        self.rows.iter().find_map(shown)
    }
}
