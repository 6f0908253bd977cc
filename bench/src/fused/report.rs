//! The measurements, as data and as a table.

use super::Wrong;
use crate::Spread;
use serde::{Deserialize, Serialize};

/// The measurement of one number of tokens with one contender.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The number of tokens.
    pub tokens: u32,
    /// The bytes of a PE's hidden states.
    pub size: u64,
    /// The name of the contender.
    pub name: String,
    /// The number of CTAs of a fused kernel, and how many of them share a row.
    pub ctas: Option<(u32, u32)>,
    /// The time of a call in a block of back-to-back calls.
    pub time_us: Spread,
    /// The time that the model states for a fused kernel.
    #[serde(default)]
    pub model_us: Option<f64>,
    /// The time divided by that of NCCL's best measured allreduce followed by our norm kernel.
    pub of_nccl: Option<f64>,
    /// The time divided by that of our allreduce followed by our norm kernel.
    pub of_separate: Option<f64>,
    /// The time divided by that of FlashInfer's kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_flashinfer: Option<f64>,
    /// The number of wrong elements over all PEs; none without a check.
    pub wrong: Option<u64>,
    /// The first PE with wrong elements, and what is wrong there.
    pub first_wrong: Option<(u32, Wrong)>,
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
    /// The version of CUDA that the driver supports.
    pub cuda: String,
    /// The version of NVSHMEM.
    pub nvshmem: String,
    /// The version of NCCL, if it was measured.
    pub nccl: Option<String>,
    /// The version of FlashInfer, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flashinfer: Option<String>,
    /// The lowering of in-switch operations.
    pub lowering: String,
    /// The number of elements of a row.
    pub hidden: u32,
    /// The element type of hidden states.
    pub dtype: String,
    /// The element type of the result.
    pub out: String,
    /// Whether calls were captured into a CUDA graph.
    pub graph: bool,
    /// The number of calls in a block.
    pub iters: u32,
    /// The number of blocks.
    pub repeats: u32,
    /// The measurements, one for each shape and contender.
    pub rows: Vec<Row>,
}

/// Sets the ratios between the rows of one number of tokens.
pub(super) fn compare(rows: &mut [Row]) {
    let time = |names: &[&str]| {
        let times = rows.iter().filter(|r| names.contains(&&*r.name)).map(|r| r.time_us.median);
        times.reduce(f64::min)
    };
    let (nccl, separate) = (time(&["nccl+norm", "nccl-symm+norm"]), time(&["allreduce+norm"]));
    let flashinfer = time(&["flashinfer"]);
    for row in rows {
        let by = |time: Option<f64>| time.map(|t| row.time_us.median / t);
        (row.of_nccl, row.of_separate, row.of_flashinfer) = (by(nccl), by(separate), by(flashinfer));
    }
}

impl Report {
    /// The lines above the table.
    pub fn head(&self) -> String {
        let Report { n_pes, gpu, cuda, nvshmem, hidden, dtype, out, lowering, .. } = self;
        let version =
            |name, of: &Option<String>| of.as_ref().map_or(String::new(), |v| format!(", {name} {v}"));
        let peers = version("NCCL", &self.nccl) + &version("FlashInfer", &self.flashinfer);
        let how = if self.graph { "in a CUDA graph" } else { "back to back" };
        let mut text = format!(
            "# weft bench fused-allreduce-rmsnorm: {n_pes} x {gpu}, CUDA {cuda}, NVSHMEM {nvshmem}{peers}, warpweft {}; {}\n",
            self.warpweft, self.date
        );
        text += &format!("# hidden {hidden} of {dtype}, results in {out}; {lowering} lowering; ");
        text += &format!(
            "each time is the median of {} blocks of {} calls, {how}, on the slowest PE of each block\n",
            self.repeats, self.iters
        );
        text + "#  tokens      size                  kernel      CTAs     time      min      max    model  of nccl  of separate  of flashinfer   #wrong\n"
    }

    /// The rows of the table.
    pub fn lines(rows: &[Row]) -> String {
        let ratio = |r: Option<f64>| r.map_or("-".into(), |r| format!("{r:.2}"));
        let line = |r: &Row| {
            let ctas = r.ctas.map_or("-".into(), |(ctas, split)| match split {
                1 => ctas.to_string(),
                _ => format!("{ctas} ({split})"),
            });
            let model = ratio(r.model_us);
            let wrong = r.wrong.map_or("N/A".into(), |n| n.to_string());
            let Row { tokens, size, name, time_us: t, .. } = r;
            format!(
                "{tokens:>9}{size:>10}{name:>24}{ctas:>10}{:>9.2}{:>9.2}{:>9.2}{model:>9}{:>9}{:>13}{:>15}{wrong:>9}\n",
                t.median,
                t.min,
                t.max,
                ratio(r.of_nccl),
                ratio(r.of_separate),
                ratio(r.of_flashinfer)
            )
        };
        rows.iter().map(line).collect()
    }

    /// The first wrong element, as a sentence.
    pub fn first_wrong(&self) -> Option<String> {
        self.rows.iter().find_map(|r| {
            let (pe, wrong) = r.first_wrong.as_ref()?;
            Some(format!("{} tokens, {}: PE {pe} has {wrong}", r.tokens, r.name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_within_their_tokens() {
        let row = |name: &str, us: f64| Row {
            tokens: 1,
            size: 16384,
            name: name.into(),
            ctas: (name == "low_latency").then_some((8, 8)),
            time_us: Spread { min: us, median: us, max: us },
            model_us: (name == "low_latency").then_some(5.5),
            of_nccl: None,
            of_separate: None,
            of_flashinfer: None,
            wrong: None,
            first_wrong: None,
        };
        // The times are invented.
        let mut rows = [row("low_latency", 6.0), row("nccl+norm", 24.0), row("nccl-symm+norm", 12.0)];
        compare(&mut rows);
        let of: Vec<_> = rows.iter().map(|r| (r.of_nccl, r.of_separate)).collect();
        assert_eq!(of, [(Some(0.5), None), (Some(2.0), None), (Some(1.0), None)]);
        let text = Report::lines(&rows);
        let line = text.lines().next().unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "1",
                "16384",
                "low_latency",
                "8",
                "(8)",
                "6.00",
                "6.00",
                "6.00",
                "5.50",
                "0.50",
                "-",
                "-",
                "N/A"
            ]
        );
    }
}
