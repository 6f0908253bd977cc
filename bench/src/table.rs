//! The measurements as text: the table with its head, and CSV.

use super::report::{Bandwidth, Calibration, Report, Row};
use super::{Contender, Placement};
use std::fmt::Write;

/// A column for one placement: its name, its unit, its width, whether only the wide table has it,
/// and its text.
type Column = (&'static str, &'static str, usize, bool, fn(&Row) -> String);

const COLUMNS: [Column; 7] = [
    ("time", "(us)", 9, false, |r| micros(r.time_us.median)),
    ("min", "(us)", 9, true, |r| micros(r.time_us.min)),
    ("max", "(us)", 9, true, |r| micros(r.time_us.max)),
    ("cold", "(us)", 9, true, |r| micros(r.cold_us.median)),
    ("algbw", "(GB/s)", 8, false, |r| format!("{:.2}", r.algbw)),
    ("busbw", "(GB/s)", 8, false, |r| format!("{:.2}", r.busbw)),
    ("#wrong", "", 8, false, |r| r.wrong.map_or("N/A".into(), |n| n.to_string())),
];

const PLACES: [(Placement, &str); 2] =
    [(Placement::OutOfPlace, "out of place"), (Placement::InPlace, "in place")];

/// A time with four digits, or more if its whole part has more.
fn micros(us: f64) -> String {
    let digits = if us < 1000.0 { 2 } else { 1 };
    format!("{us:.digits$}")
}

/// A number of bytes in the largest unit that it is a multiple of.
fn binary(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

fn columns(wide: bool) -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(move |(.., only_wide, _)| wide || !only_wide)
}

/// Half of a line: a text for each column of one placement.
fn half(wide: bool, text: impl Fn(&Column) -> String) -> String {
    columns(wide).map(|c| format!("{:>width$}", text(c), width = c.2)).collect()
}

/// The columns that both placements share.
fn left([size, count, dtype, redop, algorithm]: [&str; 5]) -> String {
    format!("{size:>12}{count:>14}{dtype:>8}{redop:>8}{algorithm:>17}")
}

impl Report {
    /// The versions of the libraries in the measurement: `CUDA 13.0, NVSHMEM 3.4.5`.
    pub(super) fn versions(&self) -> String {
        let all = [
            ("driver", self.driver.as_deref()),
            ("CUDA", Some(&*self.cuda)),
            ("NVSHMEM", Some(&*self.nvshmem)),
            ("NCCL", self.nccl.as_deref()),
            ("PyTorch", self.torch.as_deref()),
            ("FlashInfer", self.flashinfer.as_deref()),
            ("warpweft", Some(&*self.warpweft)),
        ];
        let there = all.into_iter().filter_map(|(name, version)| Some(format!("{name} {}", version?)));
        there.collect::<Vec<_>>().join(", ")
    }

    /// The lines above the table; `wide` as in [`line`](Report::line).
    pub fn head(&self, wide: bool) -> String {
        let (operation, n_pes, gpu) = (self.operation, self.n_pes, &self.gpu);
        let mut out =
            format!("# weft bench {operation}: {n_pes} x {gpu}, {}; {}\n", self.versions(), self.date);
        let graph = if self.graph { "in a CUDA graph" } else { "back to back" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "# {} lowering; a time is the median of {} blocks of {} calls (fewer for long calls), {graph}, on the slowest PE of each block",
            self.lowering, self.repeats, self.iters
        );
        if let Some(why) = &self.no_multicast {
            let _ = writeln!(out, "# no multicast: {why}");
        }
        if let Some(auto) = &self.auto {
            let _ = writeln!(out, "# auto chooses by {auto}");
        }
        if let Some(nvlink) = self.nvlink {
            let _ = writeln!(
                out,
                "# {} NVLinks per GPU, {:.0} GB/s per direction as specified",
                nvlink.links, nvlink.gbps
            );
        }
        for note in &self.notes {
            let _ = writeln!(out, "# {note}");
        }
        if let Some(calibration) = &self.calibration {
            out.push_str(&calibration.text());
        }
        let width = columns(wide).map(|c| c.2).sum::<usize>() + 2;
        let blank = left([""; 5]);
        let _ = write!(out, "#\n# {blank}");
        for (_, name) in PLACES {
            let _ = write!(out, "{name:^width$}");
        }
        let names = ["size", "count", "type", "redop", "algorithm"];
        let units = ["(B)", "(elements)", "", "", ""];
        let (of_names, of_units) = (half(wide, |c| c.0.into()), half(wide, |c| c.1.into()));
        for (columns, half) in [(names, of_names), (units, of_units)] {
            let _ = write!(out, "\n# {}  {half}  {half}", left(columns));
        }
        out.push('\n');
        out
    }

    /// The line for the rows of one size and contender: one row for each placement. `wide` adds the
    /// least and greatest times, the cold time and, at the end, the plan of a kernel of warpweft.
    pub fn line(rows: &[Row], wide: bool) -> String {
        let Some(row) = rows.first() else { return String::new() };
        let (size, count) = (row.size.to_string(), row.count.to_string());
        let redop = row.redop.as_deref().unwrap_or("none");
        let mut out = format!("  {}", left([&size, &count, row.dtype.name(), redop, &row.algorithm]));
        for (place, _) in PLACES {
            out.push_str("  ");
            match rows.iter().find(|r| r.place == place) {
                None => out.push_str(&half(wide, |_| "-".into())),
                Some(row) => out.push_str(&half(wide, |c| c.4(row))),
            }
        }
        let mut plans: Vec<_> = rows.iter().filter_map(|r| r.plan.as_deref()).collect();
        plans.dedup();
        if wide && !plans.is_empty() {
            out.push_str(&format!("  {}", plans.join("; in place ")));
        }
        out.push('\n');
        out
    }

    /// Returns the whole table: its head, and the lines of all rows.
    pub fn table(&self, wide: bool) -> String {
        let same = |a: &Row, b: &Row| (a.size, &a.algorithm) == (b.size, &b.algorithm);
        let lines = self.rows.chunk_by(same).map(|rows| Report::line(rows, wide));
        self.head(wide) + &lines.collect::<String>()
    }

    /// The lines below the table.
    pub fn foot(&self) -> String {
        self.left_out.iter().map(|why| format!("# left out: {why}\n")).collect()
    }

    /// The median times in microseconds as Markdown: a table for each placement, with a line for
    /// each size and a column for each contender, warpweft's first, and the ratio of warpweft's
    /// best time to the best peer's.
    pub fn markdown(&self) -> String {
        let mut out = format!("{} x {}, {}; {}\n", self.n_pes, self.gpu, self.versions(), self.date);
        for (place, name) in PLACES {
            let rows: Vec<&Row> = self.rows.iter().filter(|r| r.place == place).collect();
            let mut names: Vec<&str> = Vec::new();
            for row in &rows {
                if !names.contains(&&*row.algorithm) {
                    names.push(&row.algorithm);
                }
            }
            if names.is_empty() {
                continue;
            }
            names.sort_by_key(|name| Contender::is_peer(name));
            let cells = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
            let head = [&["bytes"], &names[..], &["best of ours / best peer"]].concat();
            let _ = write!(out, "\n{} {name}, us\n\n", self.operation);
            out.push_str(&cells(&head.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()));
            out.push_str(&cells(&vec!["---".to_owned(); head.len()]));
            for rows in rows.chunk_by(|a, b| a.size == b.size) {
                let time = |name: &str| rows.iter().find(|r| r.algorithm == name).map(|r| r.time_us.median);
                let best = |peers: bool| {
                    let of = names.iter().filter(|n| Contender::is_peer(n) == peers);
                    of.filter_map(|n| time(n)).reduce(f64::min)
                };
                let ratio = best(false).zip(best(true)).map(|(ours, peer)| format!("**{:.2}**", ours / peer));
                let mut line = vec![binary(rows[0].size)];
                line.extend(names.iter().map(|n| time(n).map_or(String::new(), micros)));
                line.push(ratio.unwrap_or_default());
                out.push_str(&cells(&line));
            }
        }
        out
    }

    /// The report as CSV: a line of column names, and a line for each row.
    pub fn csv(&self) -> String {
        let mut out = String::from(
            "operation,n_pes,size,count,type,redop,algorithm,place,ctas,graph,iters,repeats,time_min_us,time_median_us,time_max_us,\
             cold_min_us,cold_median_us,cold_max_us,first_us,algbw,busbw,wrong\n",
        );
        for r in &self.rows {
            let place = if r.place == Placement::InPlace { "in-place" } else { "out-of-place" };
            let or_nothing = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
            let (t, c) = (r.time_us, r.cold_us);
            let fields = [
                self.operation.to_string(),
                self.n_pes.to_string(),
                r.size.to_string(),
                r.count.to_string(),
                r.dtype.to_string(),
                r.redop.clone().unwrap_or("none".into()),
                r.algorithm.clone(),
                place.into(),
                or_nothing(r.ctas.map(u64::from)),
                self.graph.to_string(),
                r.iters.to_string(),
                r.repeats.to_string(),
            ];
            let times = [t.min, t.median, t.max, c.min, c.median, c.max, r.first_us, r.algbw, r.busbw];
            let fields = fields.into_iter().chain(times.map(|t| t.to_string())).chain([or_nothing(r.wrong)]);
            out.push_str(&fields.collect::<Vec<_>>().join(","));
            out.push('\n');
        }
        out
    }
}

impl Calibration {
    /// The calibration in a few lines of the table's head.
    fn text(&self) -> String {
        let flight = self
            .flight_us
            .map_or(String::new(), |us| format!(", one-way time of a word and a signal {us:.2} us"));
        let block = self.empty_block_us.map_or(String::new(), |us| format!("empty block {us:.2} us, "));
        let mut out = format!(
            "# calibration: {block}empty kernel in a graph {:.2} us, barrier kernel {:.2} us{flight}; loading PTX {:.1} ms, \
             a cubin {:.2} ms\n",
            self.empty_kernel_us, self.barrier_us, self.loading.ptx_ms, self.loading.cubin_ms
        );
        for (name, all) in [("push to the next PE", &self.push), ("pull from the previous PE", &self.pull)] {
            let each: Vec<_> = all.iter().map(|b| format!("{} {:.0}", b.ctas, b.gbps)).collect();
            if !each.is_empty() {
                let _ = writeln!(out, "# {name}, GB/s by number of CTAs: {}", each.join(", "));
            }
        }
        out
    }

    /// The greatest bandwidth of stores, in 10^9 bytes a second for each PE.
    pub fn best_push(&self) -> Option<&Bandwidth> {
        self.push.iter().max_by(|a, b| a.gbps.total_cmp(&b.gbps))
    }
}
