//! `weft bench fused-allreduce-rmsnorm`

use super::LoweringArg;
use super::bench::output::{Table, writable_all};
use super::run::gpus;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use weft::ir::Scalar;
use weft::runtime::World;
use weft::runtime::job::{ProcessRank, Started, start};
use weft_bench::fused::{Contender, OUTPUTS, Report, Request, run};

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
    /// The type of results: that of --dtype, e4m3 or e4m3-per-token.
    #[arg(long)]
    out: Option<String>,
    /// Write the norm in --dtype beside quantised results.
    #[arg(long)]
    both: bool,
    /// The peers whose allreduce, with our kernel behind it, runs beside: nccl, nccl-symm (over
    /// registered windows).
    #[arg(long, value_name = "PEER,...")]
    against: Option<String>,
    /// The calls back to back in a timed block.
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    iters: u32,
    /// The number of calls before the first block.
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    warmup: u32,
    /// The number of timed blocks.
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// The CTAs that share a row in low_latency: 1, 2, 4 or 8. The default follows from the number
    /// of tokens.
    #[arg(long)]
    split: Option<u32>,
    /// How in-switch operations of our kernels are compiled.
    #[arg(long, value_enum, default_value = "auto")]
    lowering: LoweringArg,
    /// Capture a block into a CUDA graph and replay it.
    #[arg(long)]
    graph: bool,
    /// Compare results with a reference in float64, and fail if they differ.
    #[arg(long)]
    check: bool,
    /// The file for all measurements as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Fused {
    pub fn run(&self) -> Result<ExitCode> {
        let request = self.request()?;
        request.examine()?;
        writable_all([&self.json])?;
        match start(gpus(self.pes)?)? {
            Started::Done(code) => Ok(code),
            Started::Pe(place) => self.measure(&request, &place),
        }
    }

    /// What is asked for.
    fn request(&self) -> Result<Request> {
        let mut request = Request::new(self.tokens.clone(), self.hidden);
        let form = &mut request.form;
        form.dtype = Scalar::parse(&self.dtype)
            .filter(|s| [Scalar::BF16, Scalar::F16].contains(s))
            .with_context(|| format!("--dtype {}: expected bf16 or f16", self.dtype))?;
        let out = self.out.as_deref().unwrap_or(&self.dtype);
        let (_, quantised, per_token) = OUTPUTS
            .into_iter()
            .find(|(name, quantised, _)| *name == out && (*quantised || *name == self.dtype))
            .with_context(|| format!("--out {out}: expected {}, e4m3 or e4m3-per-token", self.dtype))?;
        form.out = if quantised { Scalar::E4M3 } else { form.dtype };
        (form.per_token, form.both) = (per_token, self.both && quantised);
        if let Some(names) = &self.against {
            let peers = Contender::peers(names).map_err(|e| anyhow!("--against {names}: {e}"))?;
            request.contenders.extend(peers);
        }
        (request.iters, request.warmup, request.repeats) = (self.iters, self.warmup, self.repeats);
        (request.graph, request.check, request.split) = (self.graph, self.check, self.split);
        request.lowering = self.lowering.into();
        Ok(request)
    }

    /// One PE of a job. PE 0 reports.
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
