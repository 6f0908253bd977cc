//! The check for races, deadlocks and wrong results.

use crate::error::{Fault, interrupted, take_raised};
use crate::kernel::Request;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use weft::lang::render::Color;
use weft_check::{CheckOptions, Report, check_file};
use weft_run::Arg;

/// The options of a check besides those of compilation.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct CheckRequest {
    pes: Vec<usize>,
    nodes: Vec<u32>,
    seed: u64,
    seeds: u64,
    sizes: Vec<i64>,
    args: Vec<(String, String)>,
    grid: Option<[u32; 3]>,
    launches: u32,
    overlap: bool,
    max_steps: Option<u64>,
    time_limit: Option<f64>,
    fail_fast: bool,
}

/// The interval at which a wait polls for signals.
pub const PAUSE: Duration = Duration::from_millis(50);

/// Runs `work` in another thread while this one polls for signals, and sets `stop` when one
/// arrives. The work always ends before this function returns.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send,
    stop: impl Fn() + Sync,
) -> PyResult<T> {
    let (result, signal) = py.detach(|| {
        std::thread::scope(|scope| {
            let (tell, told) = channel::<()>();
            let worker = scope.spawn(move || {
                // Dropped when the work ends, including by a panic.
                let _tell = tell;
                work()
            });
            let mut signal = None;
            while told.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                if signal.is_none() && interrupted() {
                    signal = take_raised();
                    stop();
                }
            }
            (worker.join(), signal)
        })
    });
    match (signal, result) {
        (Some(signal), _) => Err(signal),
        (None, Ok(result)) => Ok(result),
        (None, Err(_)) => Err(Fault::new("", "a thread of warpweft panicked; please report this", "").into()),
    }
}

/// Checks a kernel file. Returns the report as JSON, the report as text, and each finding as text.
#[pyfunction]
pub fn check(
    py: Python<'_>,
    request: Request,
    defines: &Bound<'_, PyDict>,
    settings: CheckRequest,
) -> PyResult<(String, String, Vec<String>)> {
    let compile = request.options(defines)?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut options = CheckOptions::new(compile.target).compile(compile.clone());
    options.stop = Some(stop.clone());
    settings.apply(&mut options)?;
    let work = || -> Result<Report, Fault> { Ok(check_file(&request.parse()?, &options)?) };
    let report = interruptible(py, work, || stop.store(true, Ordering::Relaxed))??;
    let findings = report.findings.iter().map(|f| report.finding_text(f, Color::Never)).collect();
    Ok((report.json(), report.text(Color::Never), findings))
}

impl CheckRequest {
    fn apply(self, options: &mut CheckOptions) -> Result<(), Fault> {
        (options.pes, options.nodes) = (self.pes, self.nodes);
        (options.seed, options.seeds, options.sizes) = (self.seed, self.seeds, self.sizes);
        for (name, text) in self.args {
            let value = Arg::parse(&text).ok_or_else(|| {
                let help = "pass a number, a truth value, or text such as \"1+2\", which is 1 in the first launch and grows by 2 in each launch";
                Fault::usage(format!("the argument {name} is {text:?}"), help)
            })?;
            options.args.insert(name, value);
        }
        (options.grid, options.launches, options.overlap) = (self.grid, self.launches, self.overlap);
        options.step_limit = self.max_steps;
        options.fail_fast = self.fail_fast;
        options.time_limit = match self.time_limit {
            None => None,
            Some(seconds) => Some(Duration::try_from_secs_f64(seconds).map_err(|e| {
                Fault::usage(format!("time_limit is {seconds}: {e}"), "pass a number of seconds")
            })?),
        };
        Ok(())
    }
}
