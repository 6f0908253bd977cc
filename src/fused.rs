//! The command `weft bench fused-allreduce-rmsnorm`.

use super::LoweringArg;
use super::bench::output::{Table, writable_all};
use super::run::gpus;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::fused::tuning::Tables;
use weft::ir::Scalar;
use weft::runtime::World;
use weft::runtime::job::{ProcessRank, Started, start};
use weft_bench::fused::{Contender, Form, OUTPUTS, Report, Request, predict, run, tune};

#[derive(Args)]
pub struct Fused {
    /// The number of PEs. The default is all GPUs of this host.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pes: Option<u32>,
    /// The numbers of tokens.
    #[arg(long, default_value = "1,8,64,512", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    tokens: Vec<u32>,
    /// The number of elements of a token's hidden state.
    #[arg(long, default_value = "8192", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    hidden: u32,
    /// The type of hidden states, residual and weights: bf16 or f16.
    #[arg(long, default_value = "bf16")]
    dtype: String,
    /// The type of results: that of --dtype, e4m3, e4m3-per-token, or e4m3-groups, which has a
    /// scale for each 128 elements.
    #[arg(long)]
    out: Option<String>,
    /// Compute LayerNorm with a bias instead of RMSNorm.
    #[arg(long)]
    layer: bool,
    /// Write the norm in --dtype in addition to quantised results.
    #[arg(long)]
    both: bool,
    /// The variants of warpweft: all, or a list of kernels, auto and separate (an allreduce
    /// followed by a kernel). one_flight:8x128 is one_flight with 8 CTAs of 128 threads for each
    /// token. one_flight:8x128:late begins only after the previous launch has ended, and the packets
    /// of one_flight:8x128:flags carry flags.
    #[arg(long, default_value = "all", value_name = "all|NAME,...")]
    algo: String,
    /// The peers to measure as well: nccl and nccl-symm (with registered windows), whose allreduce
    /// is followed by warpweft's kernel, and flashinfer, which has one kernel for all.
    #[arg(long, value_name = "PEER,...")]
    against: Option<String>,
    /// The number of back-to-back calls in a timed block.
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    iters: u32,
    /// The number of calls before the first block.
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    warmup: u32,
    /// The number of timed blocks.
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// The number of CTAs that share a row in low_latency: 1, 2, 4 or 8. The default depends on the
    /// number of tokens.
    #[arg(long)]
    split: Option<u32>,
    /// How in-switch operations of warpweft's kernels are compiled.
    #[arg(long, value_enum, default_value = "auto")]
    lowering: LoweringArg,
    /// Capture a block into a CUDA graph and replay it.
    #[arg(long)]
    graph: bool,
    /// Compare results with a reference in float64, and fail if they differ.
    #[arg(long)]
    check: bool,
    /// Print the times that the model predicts for --pes H200s, without and with the switch, and
    /// measure nothing. The lines of `auto` have the kernel that the model chooses.
    #[arg(long, conflicts_with_all = ["graph", "check", "json", "against", "lowering"])]
    predict: bool,
    /// The file for all measurements as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The options of `weft tune fused-allreduce-rmsnorm`.
#[derive(Args)]
pub struct TuneFused {
    /// The number of PEs. The default is all GPUs of this host.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pes: Option<u32>,
    /// The numbers of tokens.
    #[arg(long, default_value = "1,2,4,8,16,32,64,128,256,512", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    tokens: Vec<u32>,
    /// The number of elements of a token's hidden state.
    #[arg(long, default_value = "8192", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    hidden: u32,
    /// The type of hidden states: bf16 or f16. Both use the same results.
    #[arg(long, default_value = "bf16")]
    dtype: String,
    /// Measure LayerNorm with a bias instead of RMSNorm.
    #[arg(long)]
    layer: bool,
    /// Measure results in e4m3 with a scale for each 128 elements.
    #[arg(long)]
    groups: bool,
    /// The file for the results, to store or to show. The default is WEFT_FUSED_TUNING, or
    /// fused.json in your data folder.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the stored results without measuring.
    #[arg(long)]
    show: bool,
}

impl TuneFused {
    pub fn run(&self) -> Result<ExitCode> {
        let file = self.out.clone().or_else(Tables::path).context(
            "there is no file for the table: give --out FILE (WEFT_FUSED_TUNING is off, or neither XDG_DATA_HOME nor HOME is set)",
        )?;
        // Existing entries stay in the file, so it must be readable.
        let tables = Tables::read(&file)?;
        if self.show {
            let mut text = format!("# {}\n", file.display());
            tables.tables.iter().for_each(|table| text.push_str(&table.text()));
            super::write_out(None, text.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut request = Request::new(self.tokens.clone(), self.hidden);
        let plain = Form::plain(dtype(&self.dtype)?);
        let (out, group) = if self.groups { (Scalar::E4M3, 128) } else { (plain.out, 0) };
        request.form = Form { out, group, layer: self.layer, ..plain };
        // The choice is not measured, but it can compute all forms.
        request.contenders = vec![Contender::Auto];
        request.graph = true;
        request.examine()?;
        match start(gpus(self.pes)?)? {
            Started::Done(code) => Ok(code),
            Started::Pe(place) => super::bench::measured(&place, |world| self.store(&request, world, &file)),
        }
    }

    /// Measures, and stores the results of PE 0.
    fn store(&self, request: &Request, world: &World, file: &Path) -> Result<bool> {
        let mut table = Table::new(world, request.tokens.len());
        let outcome =
            tune(world, request, &mut |report, rows| table.add(|| report.head(), || Report::lines(rows)));
        let (report, found) = outcome?;
        table.end(&format!("# the table for {} was stored in {}\n", found.setting, file.display()))?;
        if world.my_pe() == 0 {
            let mut tables = Tables::read(file)?;
            tables.add(found);
            tables.write(file)?;
        }
        Ok(report.first_wrong().is_none())
    }
}

fn dtype(name: &str) -> Result<Scalar> {
    Scalar::parse(name)
        .filter(|s| [Scalar::BF16, Scalar::F16].contains(s))
        .with_context(|| format!("--dtype {name}: expected bf16 or f16"))
}

impl Fused {
    pub fn run(&self) -> Result<ExitCode> {
        let request = self.request()?;
        request.examine()?;
        if self.predict {
            let pes = self.pes.context("--predict needs --pes, the number of GPUs to predict times for")?;
            super::write_out(None, predict(&request, pes)?.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        writable_all([&self.json])?;
        match start(gpus(self.pes)?)? {
            Started::Done(code) => Ok(code),
            Started::Pe(place) => self.measure(&request, &place),
        }
    }

    /// The requested benchmark.
    fn request(&self) -> Result<Request> {
        let mut request = Request::new(self.tokens.clone(), self.hidden);
        let form = &mut request.form;
        form.dtype = dtype(&self.dtype)?;
        let out = self.out.as_deref().unwrap_or(&self.dtype);
        let output = OUTPUTS
            .into_iter()
            .find(|o| o.name == out && (o.quantised || o.name == self.dtype))
            .with_context(|| {
                format!("--out {out}: expected {}, e4m3, e4m3-per-token or e4m3-groups", self.dtype)
            })?;
        form.out = if output.quantised { Scalar::E4M3 } else { form.dtype };
        (form.per_token, form.group) = (output.per_token, output.group);
        (form.both, form.layer) = (self.both && output.quantised, self.layer);
        let form = request.form;
        request.contenders.retain(|c| c.computes(&form));
        if self.algo != "all" {
            request.contenders = Contender::ours(&self.algo).map_err(|e| anyhow!("--algo: {e}"))?;
        }
        if let Some(names) = &self.against {
            let peers = Contender::peers(names).map_err(|e| anyhow!("--against {names}: {e}"))?;
            request.contenders.extend(peers);
        }
        (request.iters, request.warmup, request.repeats) = (self.iters, self.warmup, self.repeats);
        (request.graph, request.check, request.split) = (self.graph, self.check, self.split);
        request.lowering = self.lowering.into();
        Ok(request)
    }

    /// Measures as one PE of a job. PE 0 reports.
    fn measure(&self, request: &Request, place: &ProcessRank) -> Result<ExitCode> {
        super::bench::measured(place, |world| Ok(self.report(request, world)?.first_wrong().is_none()))
    }

    fn report(&self, request: &Request, world: &World) -> Result<Report> {
        let mut table = Table::new(world, request.tokens.len());
        let outcome =
            run(world, request, &mut |report, rows| table.add(|| report.head(), || Report::lines(rows)));
        table.end("")?;
        let report = outcome?;
        let json = Box::new(|| Ok(serde_json::to_string_pretty(&report)?));
        table.write(&[(&self.json, json)], report.first_wrong())?;
        Ok(report)
    }
}
