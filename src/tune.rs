//! The command `weft tune`.

use super::LoweringArg;
use super::bench::output::{self, writable};
use super::bench::{dtype, list, measured, op};
use super::run::gpus;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use weft::collective::tuning::{Table, Tables};
use weft::collective::{Collective, Sums};
use weft::runtime::World;
use weft::runtime::job::{ProcessRank, Started, start};
use weft_bench::{Cell, Timed, Tune, parse_sizes, tune};

/// The help text below the options.
const ABOUT: &str = "Results are compared with a reference. Wrong results end the command, and nothing is stored. \
                     `weft bench --algo auto` shows the plans that collectives then use.";

#[derive(Args)]
#[command(after_help = ABOUT)]
pub struct TuneCommand {
    /// A list of allreduce, allgather, reducescatter, broadcast, alltoall, or all
    #[arg(default_value = "all", value_name = "COLLECTIVE,...|all")]
    collectives: String,
    /// The number of PEs. The default is all GPUs of this host. A table applies to teams of this
    /// size.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=4096))]
    pes: Option<u32>,
    /// A list of element types. Other types use the results for a type of the same width.
    #[arg(long, default_value = "f32,bf16", value_delimiter = ',')]
    dtype: Vec<String>,
    /// The reduction: sum, min or max. The other reductions use its results.
    #[arg(long, default_value = "sum")]
    op: String,
    /// How calls may compute sums: deterministic, ordinary or quantised. Each kind has its own
    /// results.
    #[arg(long, default_value = "ordinary", value_parser = Sums::parse)]
    sums: Sums,
    /// The size of the larger buffer of a PE in bytes, as for `weft bench`. The default is
    /// 1K:64M:x4, and 1K:16M:x16 with --quick
    #[arg(long)]
    sizes: Option<String>,
    /// How in-switch operations of warpweft's kernels are compiled.
    #[arg(long, value_enum, default_value = "auto")]
    lowering: LoweringArg,
    /// Measure only few sizes, with the default plan of each algorithm.
    #[arg(long)]
    quick: bool,
    /// The file for the results, to store or to show. The default is WEFT_TUNING, or tuning.json in
    /// your data folder.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the stored results without measuring.
    #[arg(long)]
    show: bool,
}

impl TuneCommand {
    pub fn run(&self) -> Result<ExitCode> {
        let file = self.out.clone().or_else(Tables::path).context(
            "there is no file for the table: give --out FILE (WEFT_TUNING is off, or neither XDG_DATA_HOME nor HOME is set)",
        )?;
        if self.show {
            return self.show(&file);
        }
        let what = self.what()?;
        what.examine(self.pes.unwrap_or(2))?;
        if ProcessRank::detect()?.is_none_or(|place| place.rank == 0) {
            // Existing entries stay in the file, so it must be readable.
            read(&file)?;
            if let Some(folder) = file.parent().filter(|f| !f.as_os_str().is_empty()) {
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("cannot write {}", file.display()))?;
            }
            writable(&file)?;
        }
        let pes = gpus(self.pes)?;
        if pes < 2 {
            bail!("tuning collectives needs at least two PEs, but the number of PEs is {pes}");
        }
        what.examine(pes)?;
        match start(pes)? {
            Started::Done(code) => Ok(code),
            Started::Pe(place) => measured(&place, |world| self.measure(&what, world, &file).map(|()| true)),
        }
    }

    /// The requested tuning.
    fn what(&self) -> Result<Tune> {
        let default = if self.quick { "1K:16M:x16" } else { "1K:64M:x4" };
        let sizes = self.sizes.as_deref().unwrap_or(default);
        let mut what = Tune::new(parse_sizes(sizes).map_err(|e| anyhow!("--sizes {sizes}: {e}"))?);
        if self.collectives != "all" {
            let known = || list(Collective::ALL.map(Collective::name));
            let of = |name: &str| {
                let unknown =
                    || format!("`{name}` is not a collective: expected all, or some of {}", known());
                Collective::parse(name).with_context(unknown)
            };
            what.collectives = self.collectives.split(',').map(of).collect::<Result<_>>()?;
        }
        what.dtypes = self.dtype.iter().map(|name| dtype(name)).collect::<Result<_>>()?;
        (what.op, what.lowering, what.quick) = (op(&self.op)?, self.lowering.into(), self.quick);
        what.sums = self.sums;
        once(&mut what.collectives);
        once(&mut what.dtypes);
        Ok(what)
    }

    fn show(&self, file: &std::path::Path) -> Result<ExitCode> {
        let tables = read(file)?.tables;
        let mut text = format!("# {}\n", file.display());
        if tables.is_empty() {
            text.push_str("# there is no stored table: `weft tune` measures one\n");
        }
        for table in tables {
            let (table, void) = table.usable();
            text.push_str(&table.text());
            void.iter().for_each(|why| {
                text.push_str(&format!("# left out: {why}; `weft tune` measures it again\n"))
            });
        }
        super::write_out(None, text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }

    /// Measures as one PE of a job. PE 0 reports and stores.
    fn measure(&self, what: &Tune, world: &World, file: &std::path::Path) -> Result<()> {
        let mut shown = output::Table::new(world, what.cells(world.n_pes()));
        shown.add(head, String::new)?;
        let outcome = tune(world, what, &mut |cell| shown.add(String::new, || line(cell)));
        shown.end("")?;
        let table = Table { command: std::env::args().collect(), ..outcome? };
        if world.my_pe() == 0 {
            let setting = table.setting.clone();
            let mut tables = read(file)?;
            tables.add(table);
            tables.write(file)?;
            super::write_out(
                None,
                format!("# the table for {setting} was stored in {}\n", file.display()).as_bytes(),
            )?;
        }
        Ok(())
    }
}

fn read(file: &std::path::Path) -> Result<Tables> {
    Ok(if file.exists() { Tables::read(file)? } else { Tables::new() })
}

/// Removes repeated elements and keeps the order.
fn once<T: PartialEq + Copy>(all: &mut Vec<T>) {
    let mut seen = Vec::new();
    all.retain(|x| {
        !seen.contains(x) && {
            seen.push(*x);
            true
        }
    });
}

fn head() -> String {
    let names = ["collective", "place", "type", "bytes"];
    let [collective, place, dtype, bytes] = names;
    format!(
        "# {collective:>12}{place:>14}{dtype:>6}{bytes:>12}  {:<34}{:>9}  {:<34}{:>9}{:>10}{:>7}\n",
        "symmetric: CTAs, threads, unroll", "us", "any memory", "us", "model us", "plans"
    )
}

fn line(cell: &Cell) -> String {
    let plan = |t: &Option<Timed>| match t {
        None => ["-".into(), "-".into()],
        Some(t) => {
            let plan = t.plan;
            let how = format!("{} {} {} {}", plan.algorithm.name, plan.ctas, plan.threads, plan.unroll);
            [how, format!("{:.2}", t.us)]
        }
    };
    let [[symmetric, us], [any, any_us]] = [&cell.found.symmetric, &cell.found.any].map(plan);
    let model = cell.found.model.map_or("-".into(), |t| format!("{:.2}", t.us));
    let (collective, place, dtype) = (cell.collective.name(), cell.place.name(), cell.dtype.name());
    let (bytes, plans) = (cell.bytes, cell.found.plans);
    format!(
        "  {collective:>12}{place:>14}{dtype:>6}{bytes:>12}  {symmetric:<34}{us:>9}  {any:<34}{any_us:>9}{model:>10}{plans:>7}\n"
    )
}
