//! The measurements as data, in the form of the JSON report.

use super::Bench;
use super::Placement;
use super::measure::Result;
use super::operation::Operation;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;
use weft_runtime::machine::{self, Driver};
use weft_runtime::{DType, Device, World, cuda};

/// The spread of the microseconds of a call, over PEs and blocks of calls.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// The time on the fastest PE in its fastest block.
    pub min: f64,
    /// The median over the blocks. The time of a block is that of its slowest PE.
    pub median: f64,
    /// The time on the slowest PE in its slowest block.
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

/// The times of a contender with a size.
pub struct Times {
    /// The time of a call in a block of back-to-back calls.
    pub warm: Spread,
    /// The time of a single call whose data is not in the L2 cache.
    pub cold: Spread,
    /// The time of the very first call, from the call on the host to the end of its work on the
    /// slowest PE.
    pub first_us: f64,
    /// The number of calls in a block.
    pub iters: u32,
    /// The number of blocks of calls.
    pub repeats: u32,
}

/// Elements that are not what they should be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wrong {
    /// The number of wrong elements, over all PEs and rounds of the check.
    pub elements: u64,
    /// The number of elements that were compared.
    pub of: u64,
    /// The PE of the first wrong element.
    pub pe: u32,
    /// The round of the check, from 1. Calls follow each other, each with new data.
    pub round: u32,
    /// The index of the element.
    pub index: u64,
    /// The value that was found there.
    pub found: String,
    /// The value that was expected.
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

/// The measurement of one size with one algorithm.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The bytes of the larger buffer of a PE.
    pub size: u64,
    /// The elements of the smaller buffer.
    pub count: u64,
    /// The type of the elements.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// The reduction, if there is one.
    pub redop: Option<String>,
    /// The name of the algorithm, or of the peer.
    pub algorithm: String,
    /// The placement of the results.
    pub place: Placement,
    /// The number of CTAs, if the kernel is warpweft's.
    pub ctas: Option<u32>,
    /// How a kernel of warpweft was carried out (the algorithm, which `auto` chooses, its CTAs,
    /// threads and steps in flight), or the function of PyTorch.
    pub plan: Option<String>,
    /// The number of calls in a block; fewer than requested if they take long.
    pub iters: u32,
    /// The number of blocks; fewer than requested if they take long.
    pub repeats: u32,
    /// The time of a call in a block of back-to-back calls.
    pub time_us: Spread,
    /// The time of a single call whose data is not in the L2 cache.
    pub cold_us: Spread,
    /// The time of the very first call, from the call on the host to the end of its work on the
    /// slowest PE. It includes code that is loaded and connections that are made only then. (The
    /// kernels of warpweft are compiled earlier.)
    pub first_us: f64,
    /// The size divided by the median time, in 10^9 bytes a second.
    pub algbw: f64,
    /// The algorithm bandwidth times the factor of the collective ([`Collective::bus_factor`](weft::collective::Collective::bus_factor)).
    pub busbw: f64,
    /// The number of wrong elements; none without a check.
    pub wrong: Option<u64>,
    /// The first wrong element.
    pub first_wrong: Option<Wrong>,
}

impl Row {
    /// Returns the row with both bandwidths.
    pub(super) fn with_bandwidth(mut self, factor: f64) -> Row {
        self.algbw = self.size as f64 / self.time_us.median / 1e3;
        self.busbw = self.algbw * factor;
        self
    }
}

/// The bandwidth of one kernel.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bandwidth {
    /// The number of CTAs, each of 1024 threads.
    pub ctas: u32,
    /// Bytes that each PE moves.
    pub bytes: u64,
    /// The bandwidth of each PE in one direction, in 10^9 bytes a second.
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

/// The calibration of the machine: medians of the times of the slowest PEs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Calibration {
    /// The time of an empty kernel, in a graph of many.
    pub empty_kernel_us: f64,
    /// The time of a block without calls, in a graph. Every block of calls has this overhead, which
    /// its calls share.
    #[serde(default)]
    pub empty_block_us: Option<f64>,
    /// The time of a kernel with a barrier of all PEs, in a graph of many.
    pub barrier_us: f64,
    /// The time of a word, a fence and a signal from PE 0 to PE 1, or back; none with a single PE.
    pub flight_us: Option<f64>,
    /// The bandwidth when each PE stores to the next one, all at the same time.
    pub push: Vec<Bandwidth>,
    /// The bandwidth when each PE loads from the previous one, all at the same time.
    pub pull: Vec<Bandwidth>,
    /// The times to load code.
    pub loading: Loading,
}

/// The report of a run of the benchmark.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The version of warpweft.
    pub warpweft: String,
    /// The time at which the benchmark began: `2026-11-21T18:00:00Z`.
    pub date: String,
    /// The command and its arguments; none if a program measured.
    pub command: Vec<String>,
    /// The operation that was measured.
    pub operation: Operation,
    /// The number of PEs, one for each GPU.
    pub n_pes: u32,
    /// The GPU of PE 0.
    pub gpu: String,
    /// The number of active NVLinks of that GPU, and their total bandwidth in one direction, in
    /// 10^9 bytes a second.
    pub nvlink: Option<NvLink>,
    /// The version of the driver, if NVML reports it.
    pub driver: Option<String>,
    /// The version of CUDA that the driver supports.
    pub cuda: String,
    /// The version of NVSHMEM.
    pub nvshmem: String,
    /// The version of NCCL, if it was measured.
    pub nccl: Option<String>,
    /// The version of PyTorch, if it was measured.
    #[serde(default)]
    pub torch: Option<String>,
    /// The version of FlashInfer, if kernels of inference engines were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flashinfer: Option<String>,
    /// The lowering of warpweft's kernels: `multimem` or `unicast`.
    pub lowering: String,
    /// The reason why the team has no multicast address.
    pub no_multicast: Option<String>,
    /// The requested number of calls in a block.
    pub iters: u32,
    /// The number of calls before the measurement.
    pub warmup: u32,
    /// The requested number of blocks.
    pub repeats: u32,
    /// Whether blocks were captured into CUDA graphs.
    pub graph: bool,
    /// The source of the plans of `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<String>,
    /// The calibration of the machine, if it was measured.
    pub calibration: Option<Calibration>,
    /// Known problems of contenders' results: the name of the contender, and the problem.
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
    /// The number of links that are active.
    pub links: u32,
    /// The total specified bandwidth in one direction, in 10^9 bytes a second.
    pub gbps: f64,
}

impl NvLink {
    /// The bandwidth of `links` links of a GPU of this compute capability.
    pub fn of(links: u32, capability: (u32, u32)) -> NvLink {
        NvLink { links, gbps: machine::nvlink_gbps(links, capability) }
    }

    /// The links of a device, if the driver's library for management says how many are active.
    pub(crate) fn of_device(driver: &Driver, device: &Device) -> Option<NvLink> {
        let links = driver.gpus.get(device.ordinal() as usize)?.nvlinks.filter(|n| *n > 0)?;
        Some(NvLink::of(links, device.compute_capability().ok()?))
    }
}

impl Report {
    /// The report of this run, without the parts that only measurements can fill in.
    pub(super) fn of(world: &World, bench: &Bench) -> Result<Report> {
        let (major, minor) = cuda::driver_version()?;
        let driver = machine::driver().ok();
        let device = world.device();
        Ok(Report {
            warpweft: env!("CARGO_PKG_VERSION").into(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: Vec::new(),
            operation: bench.operation,
            n_pes: world.n_pes(),
            gpu: device.name()?,
            nvlink: driver.as_ref().and_then(|driver| NvLink::of_device(driver, device)),
            driver: driver.and_then(|d| d.version),
            cuda: format!("{major}.{minor}"),
            nvshmem: world.nvshmem_version().map_or_else(|| "none".into(), |v| v.to_string()),
            nccl: None,
            torch: None,
            flashinfer: None,
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

    /// Joins two reports of the same operation and machine. Their rows are sorted by size; if both
    /// have the same row, the other report's is kept.
    ///
    /// # Errors
    ///
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
            return Err(format!("this report has {}, but the first report has {}", what(&more), what(&self)));
        }
        let versions =
            |r: &Report| [r.nccl.clone(), r.torch.clone(), r.flashinfer.clone(), Some(r.nvshmem.clone())];
        let other = |(a, b): (Option<String>, Option<String>)| a.zip(b).is_some_and(|(a, b)| a != b);
        if versions(&self).into_iter().zip(versions(&more)).any(other) {
            return Err("this report and the first were measured with different versions".into());
        }
        let key = |r: &Row| (r.size, r.algorithm.clone(), r.place);
        self.rows.retain(|r| more.rows.iter().all(|m| key(m) != key(r)));
        self.rows.extend(more.rows);
        // Rows of the same size keep their order.
        self.rows.sort_by_key(|r| r.size);
        let new = more.left_out.into_iter().filter(|why| !self.left_out.contains(why));
        self.left_out.extend(new.collect::<Vec<_>>());
        self.calibration = self.calibration.or(more.calibration);
        (self.nccl, self.torch) = (self.nccl.or(more.nccl), self.torch.or(more.torch));
        self.flashinfer = self.flashinfer.or(more.flashinfer);
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

    /// The first wrong element that the check found, as a sentence.
    pub fn first_wrong(&self) -> Option<String> {
        let (row, wrong) = self.rows.iter().find_map(|r| Some((r, r.first_wrong.as_ref()?)))?;
        let (operation, place) = (self.operation, row.place.name());
        let Row { algorithm, size, dtype, .. } = row;
        let note = self.notes.iter().find(|n| n.starts_with(&format!("{algorithm}: ")));
        let note = note.map_or(String::new(), |note| format!("; {note}"));
        Some(format!("{operation} with {algorithm} {place}, {size} bytes of {dtype}: {wrong}{note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_over_pes_and_blocks() {
        let of = |all: &[&[f64]]| Spread::over(&all.iter().map(|pe| pe.to_vec()).collect::<Vec<_>>());
        // The time of a block is that of its slowest PE.
        assert_eq!(of(&[&[1.0, 5.0, 2.0], &[4.0, 3.0, 2.5]]), Spread { min: 1.0, median: 4.0, max: 5.0 });
        assert_eq!(of(&[&[4.0, 1.0, 2.0, 3.0]]), Spread { min: 1.0, median: 2.5, max: 4.0 });
        assert_eq!(of(&[&[7.0], &[]]), Spread { min: 7.0, median: 7.0, max: 7.0 });
        assert!(of(&[]).median.is_nan() && of(&[&[]]).max.is_nan());
    }

    #[test]
    fn links_of_generations() {
        let gbps = |links, cc| NvLink::of(links, cc).gbps;
        // Bandwidths in both directions: H100 and H200 have 900 GB/s, A100 has 600, and B200 has
        // 1800.
        assert_eq!([gbps(18, (9, 0)), gbps(12, (8, 0)), gbps(18, (10, 0))], [450.0, 300.0, 900.0]);
    }
}
