//! What was measured, as data: what JSON has.

use super::Bench;
use super::Placement;
use super::measure::Result;
use super::operation::Operation;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;
use weft_runtime::{DType, World, cuda, machine};

/// Microseconds of a call over PEs and blocks of calls.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// On the fastest PE in its fastest block.
    pub min: f64,
    /// The median over the blocks. A block takes the time of its slowest PE.
    pub median: f64,
    /// On the slowest PE in its slowest block.
    pub max: f64,
}

impl Spread {
    /// The spread of blocks, from one time for each PE and block. It is NaN if there are none.
    pub fn over(all: &[Vec<f64>]) -> Spread {
        let blocks = all.iter().map(Vec::len).max().unwrap_or(0);
        let slowest = |block| all.iter().filter_map(|pe| pe.get(block)).copied().fold(f64::NAN, f64::max);
        let mut slowest: Vec<f64> = (0..blocks).map(slowest).collect();
        slowest.sort_by(f64::total_cmp);
        let at = |i: usize| slowest.get(i).copied().unwrap_or(f64::NAN);
        let median = (at(blocks.saturating_sub(1) / 2) + at(blocks / 2)) / 2.0;
        let min = all.iter().flatten().copied().fold(f64::NAN, f64::min);
        Spread { min, median, max: at(blocks.saturating_sub(1)) }
    }
}

/// What a contender takes with a size.
pub struct Times {
    /// The time of a call among calls that follow each other.
    pub warm: Spread,
    /// The time of a single call whose data is not in the L2 cache.
    pub cold: Spread,
    /// The time of the very first call, on the host and the slowest PE, until its work ends.
    pub first_us: f64,
    /// Calls of a block.
    pub iters: u32,
    /// The number of blocks of calls.
    pub repeats: u32,
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
    /// The index of the element.
    pub index: u64,
    /// The value that was found there.
    pub found: String,
    /// What it should be.
    pub expected: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wrong { elements, of, pe, round, index, found, expected } = self;
        write!(
            f,
            "{elements} of {of} elements are wrong; first: PE {pe}, element {index} of round {round} is {found}, \
             expected {expected}"
        )
    }
}

/// A size with an algorithm.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Bytes of the larger side of a PE.
    pub size: u64,
    /// Elements of the smaller side.
    pub count: u64,
    /// The type of the elements.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// Reduction, where there is one.
    pub redop: Option<String>,
    /// The name of the algorithm, or of the peer.
    pub algorithm: String,
    /// Where the results are.
    pub place: Placement,
    /// CTAs of a kernel of ours.
    pub ctas: Option<u32>,
    /// How a kernel of ours was carried out: the algorithm, which `auto` chooses, its CTAs, threads and steps at once; the
    /// function of PyTorch's.
    pub plan: Option<String>,
    /// Calls in a block; fewer than asked for where they take long.
    pub iters: u32,
    /// Blocks; fewer than asked for where they take long.
    pub repeats: u32,
    /// Time of a call among others, one behind the other.
    pub time_us: Spread,
    /// Time of a call by itself, nothing of whose data is in the second-level cache.
    pub cold_us: Spread,
    /// Time of the first call of all, on the host and the slowest PE, to the end of its work: with what is loaded or
    /// connected only then. (Our kernels are compiled before.)
    pub first_us: f64,
    /// Size by median time, in 10^9 bytes a second.
    pub algbw: f64,
    /// The algorithm bandwidth times the factor of the collective ([`Collective::bus_factor`](weft::collective::Collective::bus_factor)).
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

/// Bandwidth of one kernel.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bandwidth {
    /// CTAs of 1024 threads.
    pub ctas: u32,
    /// Bytes that each PE moves.
    pub bytes: u64,
    /// 10^9 bytes a second and PE, one way.
    pub gbps: f64,
}

/// Milliseconds until the driver has loaded a two-shot allreduce, on PE 0.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Loading {
    /// The time to load PTX, which the driver compiles.
    pub ptx_ms: f64,
    /// The time to load a cubin.
    pub cubin_ms: f64,
}

/// What the machine itself takes: medians on their slowest PEs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Calibration {
    /// A kernel that does nothing, in a graph of many.
    pub empty_kernel_us: f64,
    /// A block without calls, in a graph: what every block of calls has besides them, shared by as many as it has.
    #[serde(default)]
    pub empty_block_us: Option<f64>,
    /// A kernel in which all PEs wait for each other, in a graph of many.
    pub barrier_us: f64,
    /// A word, a fence and a signal from PE 0 to PE 1, or back; none of one PE.
    pub flight_us: Option<f64>,
    /// Each PE stores to the next, all at once.
    pub push: Vec<Bandwidth>,
    /// Each PE loads from the one before, all at once.
    pub pull: Vec<Bandwidth>,
    /// The times to load code.
    pub loading: Loading,
}

/// All that was measured, and where.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The version of warpweft.
    pub warpweft: String,
    /// The time at which the benchmark began: `2026-11-21T18:00:00Z`.
    pub date: String,
    /// The command and its arguments; none where a program measured.
    pub command: Vec<String>,
    /// The operation that was measured.
    pub operation: Operation,
    /// PEs, one a GPU.
    pub n_pes: u32,
    /// The GPU of PE 0.
    pub gpu: String,
    /// NVLinks of that GPU that are up, and what they have together, in 10^9 bytes a second and direction.
    pub nvlink: Option<NvLink>,
    /// Version of the driver, where NVML tells.
    pub driver: Option<String>,
    /// Version of CUDA that the driver has.
    pub cuda: String,
    /// The version of NVSHMEM.
    pub nvshmem: String,
    /// Version of NCCL, where it was measured.
    pub nccl: Option<String>,
    /// Version of PyTorch, where it was measured.
    #[serde(default)]
    pub torch: Option<String>,
    /// `multimem` or `unicast`: how our kernels ran.
    pub lowering: String,
    /// Why the team has no multicast address.
    pub no_multicast: Option<String>,
    /// Calls in a block, as asked for.
    pub iters: u32,
    /// The number of calls before the measurement.
    pub warmup: u32,
    /// Blocks, as asked for.
    pub repeats: u32,
    /// Whether blocks were CUDA graphs.
    pub graph: bool,
    /// Where `auto` has its plans from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<String>,
    /// What the machine itself takes, where that was measured.
    pub calibration: Option<Calibration>,
    /// What is known of a contender's results: its name, and what is wrong with them.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The contenders that were left out, with reasons.
    pub left_out: Vec<String>,
    /// A row for each size, contender and place.
    pub rows: Vec<Row>,
}

/// The NVLinks of a GPU.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct NvLink {
    /// How many are up.
    pub links: u32,
    /// 10^9 bytes a second and direction of all, as specified.
    pub gbps: f64,
}

impl NvLink {
    /// The bandwidth of `links` links of a GPU of this compute capability.
    pub fn of(links: u32, capability: (u32, u32)) -> NvLink {
        NvLink { links, gbps: machine::nvlink_gbps(links, capability) }
    }
}

impl Report {
    /// Of this run, without what only its measurements tell.
    pub(super) fn of(world: &World, bench: &Bench) -> Result<Report> {
        let (major, minor) = cuda::driver_version()?;
        let driver = machine::driver().ok();
        let device = world.device();
        let gpu = driver.as_ref().and_then(|d| d.gpus.get(device.ordinal() as usize));
        let links = gpu.and_then(|g| g.nvlinks).filter(|n| *n > 0);
        Ok(Report {
            warpweft: env!("CARGO_PKG_VERSION").into(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: Vec::new(),
            operation: bench.operation,
            n_pes: world.n_pes(),
            gpu: device.name()?,
            nvlink: links.zip(device.compute_capability().ok()).map(|(n, cc)| NvLink::of(n, cc)),
            driver: driver.and_then(|d| d.version),
            cuda: format!("{major}.{minor}"),
            nvshmem: world.nvshmem_version().map_or_else(|| "none".into(), |v| v.to_string()),
            nccl: None,
            torch: None,
            lowering: String::new(),
            no_multicast: None,
            iters: bench.iters,
            warmup: bench.warmup,
            repeats: bench.repeats,
            graph: bench.graph,
            auto: None,
            calibration: None,
            notes: Vec::new(),
            left_out: Vec::new(),
            rows: Vec::new(),
        })
    }

    /// This and more of the same: its rows, or the other's where both have one, by size.
    ///
    /// # Errors
    /// Fails for another operation, machine, or way of measuring.
    pub fn joined(mut self, more: Report) -> std::result::Result<Report, String> {
        let what = |r: &Report| {
            let Report { operation, n_pes, gpu, lowering, graph, .. } = r;
            format!(
                "{operation} on {n_pes} x {gpu}, {lowering}, {}",
                if *graph { "in graphs" } else { "no graphs" }
            )
        };
        if what(&self) != what(&more) {
            return Err(format!("it has {}, the first has {}", what(&more), what(&self)));
        }
        let versions = |r: &Report| [r.nccl.clone(), r.torch.clone(), Some(r.nvshmem.clone())];
        let other = |(a, b): (Option<String>, Option<String>)| a.zip(b).is_some_and(|(a, b)| a != b);
        if versions(&self).into_iter().zip(versions(&more)).any(other) {
            return Err("it was measured with other versions than the first".into());
        }
        let key = |r: &Row| (r.size, r.algorithm.clone(), r.place);
        self.rows.retain(|r| more.rows.iter().all(|m| key(m) != key(r)));
        self.rows.extend(more.rows);
        // The rows of a size stay as they were.
        self.rows.sort_by_key(|r| r.size);
        let new = more.left_out.into_iter().filter(|why| !self.left_out.contains(why));
        self.left_out.extend(new.collect::<Vec<_>>());
        self.calibration = self.calibration.or(more.calibration);
        (self.nccl, self.torch) = (self.nccl.or(more.nccl), self.torch.or(more.torch));
        if self.date != more.date {
            self.date = format!("{} and {}", self.date, more.date);
        }
        Ok(self)
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// Fails if a field cannot be written as JSON, which no field is known to do.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// What the check found first, as a sentence.
    pub fn first_wrong(&self) -> Option<String> {
        let (row, wrong) = self.rows.iter().find_map(|r| Some((r, r.first_wrong.as_ref()?)))?;
        let (operation, place) = (self.operation, row.place.name());
        let Row { algorithm, size, dtype, .. } = row;
        let note = self.notes.iter().find(|n| n.starts_with(&format!("{algorithm}: ")));
        let note = note.map_or(String::new(), |note| format!("; {note}"));
        Some(format!("{operation} by {algorithm} {place}, {size} bytes of {dtype}: {wrong}{note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_over_pes_and_blocks() {
        let of = |all: &[&[f64]]| Spread::over(&all.iter().map(|pe| pe.to_vec()).collect::<Vec<_>>());
        // A block takes as long as on its slowest PE.
        assert_eq!(of(&[&[1.0, 5.0, 2.0], &[4.0, 3.0, 2.5]]), Spread { min: 1.0, median: 4.0, max: 5.0 });
        assert_eq!(of(&[&[4.0, 1.0, 2.0, 3.0]]), Spread { min: 1.0, median: 2.5, max: 4.0 });
        assert_eq!(of(&[&[7.0], &[]]), Spread { min: 7.0, median: 7.0, max: 7.0 });
        assert!(of(&[]).median.is_nan() && of(&[&[]]).max.is_nan());
    }

    #[test]
    fn links_of_generations() {
        let gbps = |links, cc| NvLink::of(links, cc).gbps;
        // H100 and H200: 900 GB/s both ways; A100: 600; B200: 1800.
        assert_eq!([gbps(18, (9, 0)), gbps(12, (8, 0)), gbps(18, (10, 0))], [450.0, 300.0, 900.0]);
    }
}
