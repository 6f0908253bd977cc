//! The option `weft bench --from`, which reads existing reports.

use super::output::{writable_all, write};
use super::{BenchCommand, report};
use anyhow::{Result, anyhow, bail};
use std::io::Write;
use std::process::ExitCode;
use weft_bench::{Contender, Report};

/// Prints and writes a report. The exit status is 1 if the report has a wrong result, as in the
/// measurement.
pub(super) fn run(command: &BenchCommand) -> Result<ExitCode> {
    let mut all: Option<Report> = None;
    for file in &command.from {
        let next = report(file)?;
        if next.operation.name() != command.operation {
            bail!(
                "{} has results of {}, but the command is for {}",
                file.display(),
                next.operation,
                command.operation
            );
        }
        all = Some(match all {
            None => next,
            Some(all) => all.joined(next).map_err(|why| anyhow!("{}: {why}", file.display()))?,
        });
    }
    let Some(mut all) = all else { bail!("--from needs at least one file") };
    if command.algo != "all" || command.against.is_some() {
        keep(&mut all, &command.algo, command.against.as_deref())?;
    }
    writable_all([&command.json, &command.csv, &command.markdown, &command.plot])?;
    std::io::stdout().lock().write_all((all.table(command.wide) + &all.foot()).as_bytes())?;
    let wrong = all.first_wrong();
    let code = if wrong.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    write(&command.files(&all), wrong)?;
    Ok(code)
}

/// Keeps the rows of the named algorithms (all, none, or some) and peers (none, or some).
fn keep(all: &mut Report, algorithms: &str, peers: Option<&str>) -> Result<()> {
    let mut known: Vec<String> = Vec::new();
    for row in &all.rows {
        if !known.contains(&row.algorithm) {
            known.push(row.algorithm.clone());
        }
    }
    let mut named: Vec<&str> = peers.into_iter().flat_map(|names| names.split(',')).collect();
    if !["all", "none"].contains(&algorithms) {
        named.extend(algorithms.split(','));
    }
    if let Some(name) = named.iter().find(|n| !known.iter().any(|k| k == *n)) {
        bail!("`{name}` was not measured: the report has {}", known.join(", "));
    }
    all.rows.retain(|row| {
        named.contains(&&*row.algorithm) || algorithms == "all" && !Contender::is_peer(&row.algorithm)
    });
    Ok(())
}
