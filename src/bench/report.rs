//! What was measured, for people and for programs.

use crate::collective::Collective;
use crate::collective::Place;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use weft_runtime::DType;

/// Microseconds of a call: over the blocks of calls, each of which took as long as on its slowest PE.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// Of the fastest block.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Of the slowest block.
    pub max: f64,
}

impl Spread {
    /// Of so many times; of none it is not a number.
    pub fn of(mut times: Vec<f64>) -> Spread {
        times.sort_by(f64::total_cmp);
        let n = times.len();
        let at = |i: usize| times.get(i).copied().unwrap_or(f64::NAN);
        let median =
            if n.is_multiple_of(2) { (at((n / 2).wrapping_sub(1)) + at(n / 2)) / 2.0 } else { at(n / 2) };
        Spread { min: at(0), median, max: at(n.wrapping_sub(1)) }
    }
}

/// Elements that are not what they should be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wrong {
    /// How many, over all PEs and rounds of the check.
    pub elements: u64,
    /// How many were compared.
    pub of: u64,
    /// PE of the first.
    pub pe: u32,
    /// Round of the check, from 1: calls follow each other, each with new data.
    pub round: u32,
    /// Its place.
    pub index: u64,
    /// What it is.
    pub found: String,
    /// What it should be.
    pub expected: String,
}

/// A size with an algorithm.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Bytes of the larger side of a PE.
    pub size: u64,
    /// Elements of the smaller side.
    pub count: u64,
    /// Element type.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// Reduction, where there is one.
    pub redop: Option<String>,
    /// Algorithm, or peer.
    pub algorithm: String,
    /// Where results are.
    pub place: Place,
    /// CTAs of a kernel of ours.
    pub ctas: Option<u32>,
    /// Time of a call.
    pub time_us: Spread,
    /// Size by median time, in 10^9 bytes a second.
    pub algbw: f64,
    /// That by the collective's factor ([`Collective::bus_factor`]).
    pub busbw: f64,
    /// Wrong elements; none without a check.
    pub wrong: Option<u64>,
    /// The first of them.
    pub first_wrong: Option<Wrong>,
}

impl Row {
    /// Sets both bandwidths.
    pub(super) fn with_bandwidth(mut self, factor: f64) -> Row {
        self.algbw = self.size as f64 / self.time_us.median / 1e3;
        self.busbw = self.algbw * factor;
        self
    }
}

/// All that was measured, and where.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Version of warpweft.
    pub warpweft: String,
    /// The collective.
    pub collective: Collective,
    /// PEs, one a GPU.
    pub n_pes: u32,
    /// PE 0's GPU.
    pub gpu: String,
    /// Version of CUDA that the driver has.
    pub cuda: String,
    /// Version of NVSHMEM.
    pub nvshmem: String,
    /// `multimem` or `unicast`: how our kernels ran.
    pub lowering: String,
    /// Why the team has no multicast address.
    pub no_multicast: Option<String>,
    /// Calls in a block.
    pub iters: u32,
    /// Calls before.
    pub warmup: u32,
    /// Blocks.
    pub repeats: u32,
    /// Whether blocks were CUDA graphs.
    pub graph: bool,
    /// A row for each size, algorithm and place.
    pub rows: Vec<Row>,
}

/// The columns of one place.
const HALF: &str = "    time   algbw   busbw  #wrong";
const HALF_UNITS: &str = "    (us)  (GB/s)  (GB/s)        ";

impl Report {
    /// What stands over the table.
    pub fn head(&self) -> String {
        let mut out = format!(
            "# weft bench {}: {} x {}, CUDA {}, NVSHMEM {}\n",
            self.collective, self.n_pes, self.gpu, self.cuda, self.nvshmem
        );
        let graph = if self.graph { "in a CUDA graph" } else { "back to back" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "# {} lowering; a time is the median of {} blocks on their slowest PEs, {} calls each, {graph}; {} calls before",
            self.lowering, self.repeats, self.iters, self.warmup
        );
        if let Some(why) = &self.no_multicast {
            let _ = writeln!(out, "# no multicast: {why}");
        }
        let _ = writeln!(out, "#\n# {:61}{:^34}{:^34}", "", "out of place", "in place");
        let names = ["size", "count", "type", "redop", "algorithm"];
        let units = ["(B)", "(elements)", "", "", ""];
        for (columns, half) in [(names, HALF), (units, HALF_UNITS)] {
            let _ = writeln!(out, "# {}  {half}  {half}", left(columns));
        }
        out
    }

    /// The line of the rows of one size and algorithm: one for each place.
    pub fn line(rows: &[Row]) -> String {
        let Some(row) = rows.first() else { return String::new() };
        let (size, count) = (row.size.to_string(), row.count.to_string());
        let redop = row.redop.as_deref().unwrap_or("none");
        let mut out = format!("  {}", left([&size, &count, row.dtype.name(), redop, &row.algorithm]));
        for place in [Place::OutOfPlace, Place::InPlace] {
            out.push_str("  ");
            match rows.iter().find(|r| r.place == place) {
                None => out.push_str(&format!("{:>8}{:>8}{:>8}{:>8}", "-", "-", "-", "-")),
                Some(r) => {
                    let wrong = r.wrong.map_or("N/A".into(), |n| n.to_string());
                    let us = r.time_us.median;
                    let digits = if us < 1000.0 { 2 } else { 1 };
                    out.push_str(&format!("{us:>8.digits$}{:>8.2}{:>8.2}{wrong:>8}", r.algbw, r.busbw));
                }
            }
        }
        out.push('\n');
        out
    }

    /// One line for each row, and one of names.
    pub fn csv(&self) -> String {
        let mut out = String::from(
            "collective,n_pes,size,count,type,redop,algorithm,place,ctas,graph,time_min_us,time_median_us,time_max_us,algbw,busbw,wrong\n",
        );
        for r in &self.rows {
            let place = if r.place == Place::InPlace { "in-place" } else { "out-of-place" };
            let or_nothing = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
            let _ = writeln!(
                out,
                "{},{},{},{},{},{},{},{place},{},{},{},{},{},{},{},{}",
                self.collective,
                self.n_pes,
                r.size,
                r.count,
                r.dtype,
                r.redop.as_deref().unwrap_or("none"),
                r.algorithm,
                or_nothing(r.ctas.map(u64::from)),
                self.graph,
                r.time_us.min,
                r.time_us.median,
                r.time_us.max,
                r.algbw,
                r.busbw,
                or_nothing(r.wrong),
            );
        }
        out
    }

    /// As JSON.
    ///
    /// # Errors
    /// None that is known: every field is a name or a number.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// What the check found first, as a sentence.
    pub fn first_wrong(&self) -> Option<String> {
        let (row, wrong) = self.rows.iter().find_map(|r| Some((r, r.first_wrong.as_ref()?)))?;
        let place = if row.place == Place::InPlace { "in place" } else { "out of place" };
        Some(format!(
            "{} by {} {place}, {} bytes of {}: {} of {} elements are wrong; first: PE {}, element {} of round {} is {}, expected {}",
            self.collective,
            row.algorithm,
            row.size,
            row.dtype,
            wrong.elements,
            wrong.of,
            wrong.pe,
            wrong.index,
            wrong.round,
            wrong.found,
            wrong.expected
        ))
    }
}

/// The columns that both places share.
fn left([size, count, dtype, redop, algorithm]: [&str; 5]) -> String {
    format!("{size:>12}{count:>14}{dtype:>8}{redop:>8}{algorithm:>17}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(place: Place, wrong: Option<u64>) -> Row {
        let time_us = Spread { min: 3.5, median: 4.0, max: 9.25 };
        Row {
            size: 1 << 20,
            count: 1 << 18,
            dtype: DType::BF16,
            redop: Some("sum".into()),
            algorithm: "two_shot".into(),
            place,
            ctas: Some(32),
            time_us,
            algbw: 0.0,
            busbw: 0.0,
            wrong,
            first_wrong: None,
        }
        .with_bandwidth(1.75)
    }

    fn report(rows: Vec<Row>) -> Report {
        Report {
            warpweft: "0.1.0".into(),
            collective: Collective::AllReduce,
            n_pes: 8,
            gpu: "NVIDIA H200".into(),
            cuda: "13.0".into(),
            nvshmem: "3.4.5".into(),
            lowering: "unicast".into(),
            no_multicast: Some("NVSHMEM_DISABLE_NVLS is set".into()),
            iters: 20,
            warmup: 5,
            repeats: 10,
            graph: true,
            rows,
        }
    }

    #[test]
    fn medians() {
        let of = |times: &[f64]| Spread::of(times.to_vec());
        assert_eq!(of(&[3.0, 1.0, 2.0]), Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Spread { min: 1.0, median: 2.5, max: 4.0 });
        assert_eq!(of(&[7.0]), Spread { min: 7.0, median: 7.0, max: 7.0 });
        assert!(of(&[]).median.is_nan());
    }

    #[test]
    fn a_line_has_both_places() {
        let both = Report::line(&[row(Place::OutOfPlace, Some(0)), row(Place::InPlace, Some(3))]);
        let words: Vec<_> = both.split_whitespace().collect();
        let left = ["1048576", "262144", "bf16", "sum", "two_shot"];
        assert_eq!(words[..5], left);
        assert_eq!(words[5..], ["4.00", "262.14", "458.75", "0", "4.00", "262.14", "458.75", "3"]);
        let one = Report::line(&[row(Place::InPlace, None)]);
        let words: Vec<_> = one.split_whitespace().collect();
        assert_eq!(words[5..], ["-", "-", "-", "-", "4.00", "262.14", "458.75", "N/A"]);
        // The head's columns end where the line's do.
        let head = report(Vec::new()).head();
        let names = head.lines().find(|l| l.contains("algorithm")).unwrap();
        assert_eq!(names.len(), one.trim_end().len());
        assert_eq!(names.find("algorithm").map(|at| at + 9), one.find("two_shot").map(|at| at + 8));
        assert!(
            head.contains("# no multicast: NVSHMEM_DISABLE_NVLS is set\n") && head.contains("CUDA graph")
        );
    }

    #[test]
    fn json_reads_back() {
        let wrong = Wrong {
            elements: 3,
            of: 6_291_456,
            pe: 2,
            round: 1,
            index: 17,
            found: "3".into(),
            expected: "5".into(),
        };
        let bad = Row { first_wrong: Some(wrong), ..row(Place::InPlace, Some(3)) };
        let report = report(vec![row(Place::OutOfPlace, None), bad]);
        let text = report.json().unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["collective"], "allreduce");
        assert_eq!(value["rows"][0]["type"], "bf16");
        assert_eq!(value["rows"][0]["place"], "out-of-place");
        assert_eq!(value["rows"][1]["time_us"]["max"], 9.25);
        assert_eq!(
            report.first_wrong().unwrap(),
            "allreduce by two_shot in place, 1048576 bytes of bf16: 3 of 6291456 elements are wrong; \
             first: PE 2, element 17 of round 1 is 3, expected 5"
        );
    }

    #[test]
    fn csv_has_a_line_a_row() {
        let text = report(vec![row(Place::OutOfPlace, None), row(Place::InPlace, Some(0))]).csv();
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split(',').collect()).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|l| l.len() == lines[0].len()));
        let at = |name: &str| lines[0].iter().position(|n| *n == name).unwrap();
        assert_eq!((lines[1][at("place")], lines[1][at("wrong")]), ("out-of-place", ""));
        assert_eq!((lines[2][at("place")], lines[2][at("wrong")]), ("in-place", "0"));
        assert_eq!((lines[2][at("time_median_us")], lines[2][at("ctas")]), ("4", "32"));
    }
}
