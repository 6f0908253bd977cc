//! The command `weft bench moe`.

use super::bench::dtype;
use super::bench::output::{Table, writable_all};
use super::bench::timing::Timing;
use super::run::gpus;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use weft::moe::Problem;
use weft::runtime::World;
use weft::runtime::job::{Started, start};
use weft_bench::moe::{Contender, Report, Request, Variant, predict, run};

#[derive(Args)]
pub struct BenchMoe {
    /// The number of PEs. The default is all GPUs of this host.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pes: Option<u32>,
    /// A list of numbers of experts, summed over all PEs.
    #[arg(long, value_delimiter = ',', default_value = "8,64", value_parser = clap::value_parser!(u32).range(1..=65536))]
    experts: Vec<u32>,
    /// A list of numbers of experts for each token.
    #[arg(long, value_delimiter = ',', default_value = "2,8", value_parser = clap::value_parser!(u32).range(1..=1024))]
    top_k: Vec<u32>,
    /// The number of tokens of a PE.
    #[arg(long, default_value = "4096")]
    tokens: u64,
    /// The number of elements of a token.
    #[arg(long, default_value = "4096")]
    hidden: u64,
    /// The number of elements of a result. The default is that of a token.
    #[arg(long)]
    columns: Option<u64>,
    /// The element type of tokens, matrices and results: bf16 or f16.
    #[arg(long, default_value = "bf16")]
    dtype: String,
    /// The parameters of warpweft's kernels, such as form=many,bn=256,stages=3,piece=8. The form is auto,
    /// many, few, or apart; dispatch and exchange are the transfers alone; products and even are the
    /// products alone, of uneven and of equal groups of rows. Give the option again for each further
    /// plan.
    #[arg(long, value_name = "NAME=N,...", default_value = "")]
    plan: Vec<String>,
    /// The peers to measure in the same run: nccl+cublas, cublas (one product with as many rows as
    /// all experts of a PE have), or none.
    #[arg(long, value_name = "PEER,...", default_value = "nccl+cublas")]
    against: String,
    #[command(flatten)]
    timing: Timing,
    /// Compare samples of warpweft's results with float64, and fail if they differ.
    #[arg(long)]
    check: bool,
    /// Print the times that the model predicts for --pes H200s, and measure nothing.
    #[arg(long, conflicts_with_all = ["graph", "check", "json"])]
    predict: bool,
    /// The file for all measurements as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl BenchMoe {
    pub fn run(&self) -> Result<ExitCode> {
        let request = self.request()?;
        if self.predict {
            let pes = self.pes.context("--predict needs --pes, the number of GPUs to predict times for")?;
            super::write_out(None, predict(&request, pes)?.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        writable_all([&self.json])?;
        match start(gpus(self.pes)?)? {
            Started::Done(code) => Ok(code),
            Started::Pe(place) => {
                let measured = |world: &World| Ok(self.report(&request, world)?.first_wrong().is_none());
                super::bench::measured(&place, measured)
            }
        }
    }

    /// The requested benchmark.
    fn request(&self) -> Result<Request> {
        let mut contenders: Vec<Contender> = Vec::new();
        for text in &self.plan {
            let variant: Variant = text.parse().map_err(|e| anyhow!("--plan {text}: {e}"))?;
            contenders.push(Contender::Ours(variant));
        }
        if self.against != "none" {
            let peers = Contender::peers(&self.against);
            contenders.extend(peers.map_err(|e| anyhow!("--against {}: {e}", self.against))?);
        }
        let dtype = dtype(&self.dtype)?;
        let mut problems = Vec::new();
        for &experts in &self.experts {
            for &choices in self.top_k.iter().filter(|choices| **choices <= experts) {
                let problem = Problem::new(self.tokens, self.hidden, experts, choices, dtype);
                problems.push(Problem { columns: self.columns.unwrap_or(self.hidden), ..problem });
            }
        }
        let Timing { iters, warmup, repeats, graph } = self.timing;
        Ok(Request { problems, contenders, iters, warmup, repeats, graph, check: self.check })
    }

    fn report(&self, request: &Request, world: &World) -> Result<Report> {
        let mut table = Table::new(world, request.problems.len());
        let outcome =
            run(world, request, &mut |report, rows| table.add(|| report.head(), || Report::lines(rows)));
        table.end("")?;
        let report = outcome?;
        let json = Box::new(|| Ok(serde_json::to_string_pretty(&report)?));
        table.write(&[(&self.json, json)], report.first_wrong())?;
        Ok(report)
    }
}
