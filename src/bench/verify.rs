//! The command `weft bench verify-switch`.

use super::output::writable;
use super::{BenchCommand, On, gpus};
use anyhow::{Context, Result, anyhow, bail};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use weft::runtime::job::{ProcessRank, Started, start};
use weft::runtime::{Config, DType, World};
use weft_bench::{Pair, Verify, parse_sizes, verify, why_no_switch};

/// The exit status if multicast is not available and nothing was run.
const NO_SWITCH: u8 = 3;

/// The default file for the report.
const REPORT: &str = "verify-switch.json";

/// Runs the command. The exit status is 0 if all results are right, 1 if some are wrong, and 3 if
/// multicast is not available.
pub(super) fn run(command: &BenchCommand) -> Result<ExitCode> {
    if command.on == On::Sim {
        bail!(
            "verify-switch needs GPUs with multicast; to count the traffic of a collective on the simulator, use weft bench allreduce --on sim"
        );
    }
    let sizes = parse_sizes(&command.sizes).map_err(|e| anyhow!("--sizes {}: {e}", command.sizes))?;
    let dtypes = match &*command.dtype {
        "all" => DType::ALL.iter().copied().filter(|d| *d != DType::Bool).collect(),
        name => {
            let dtype = DType::parse(name).filter(|d| *d != DType::Bool);
            vec![dtype.with_context(|| format!("--dtype {name}: expected all, or a number type"))?]
        }
    };
    let what = Verify { sizes, dtypes, iters: command.iters, repeats: command.repeats };
    let file = command.json.clone().unwrap_or_else(|| PathBuf::from(REPORT));
    let pes = gpus(command.pes)?;
    match start(pes)? {
        Started::Done(code) => Ok(code),
        Started::Pe(place) => on_pe(&what, &place, &file),
    }
}

/// Measures as one PE of a job. PE 0 reports.
fn on_pe(what: &Verify, place: &ProcessRank, file: &std::path::Path) -> Result<ExitCode> {
    let world = World::join(place, &Config::default().checks(Some(false)))?;
    let mut found = ExitCode::SUCCESS;
    let reports = world.my_pe() == 0;
    let print = |text: &str| match reports {
        true => std::io::stdout().lock().write_all(text.as_bytes()),
        false => Ok(()),
    };
    let status = world.run(|world| -> Result<(), String> {
        let mut work = || -> Result<()> {
            if let Some(why) = why_no_switch(world)? {
                print(&format!("multicast is not available, so nothing was run: {why}\n"))?;
                found = ExitCode::from(NO_SWITCH);
                return Ok(());
            }
            if reports {
                writable(file)?;
            }
            print(&format!(
                "# weft bench verify-switch: {} x {}\n{}",
                world.n_pes(),
                world.device().name()?,
                Pair::head()
            ))?;
            let all = verify(world, what, &mut |pair| print(&pair.line()))?;
            print(&all.summary())?;
            for why in &all.left_out {
                print(&format!("# left out: {why}\n"))?;
            }
            if reports {
                crate::write_out(Some(file), all.json()?.as_bytes())?;
                print(&format!("# written: {}\n", file.display()))?;
            }
            if all.wrong().next().is_some() {
                found = ExitCode::FAILURE;
            }
            Ok(())
        };
        work().map_err(|e| crate::message(&e))
    });
    Ok(if found == ExitCode::SUCCESS { status } else { found })
}
