//! The thread that finds the records of waits while the host waits outside of this library.
//!
//! A host that waits here reports when its wait exceeds the limit. A host that is blocked elsewhere,
//! such as in `torch.cuda.synchronize()`, does not. So a process that has launched a watched kernel
//! on a GPU has one thread that reads the rings every second. The rings are in the host's memory, so
//! neither kernels nor the driver take part.

use super::{Counts, Records, Watch, goes_on, is_told, limit, live, on_gpus, rest};
use crate::{cuda, job};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time between two looks at the rings.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether the thread exists.
static RUNS: AtomicBool = AtomicBool::new(false);

/// Starts the thread, unless it exists.
pub(super) fn start() {
    if RUNS.load(Ordering::Relaxed) || RUNS.swap(true, Ordering::SeqCst) {
        return;
    }
    // Without the thread, reports come only from the host's own waits.
    if std::thread::Builder::new().name("weft-watch-reader".into()).spawn(run).is_err() {
        RUNS.store(false, Ordering::SeqCst);
    }
}

/// Looks at the rings until the job is over, or no watched kernel is left.
fn run() {
    let mut reader = Reader::new(rest());
    let mut drained = Vec::new();
    loop {
        std::thread::sleep(PAUSE);
        let kernels = on_gpus();
        if kernels.is_empty() || job::is_over() {
            RUNS.store(false, Ordering::SeqCst);
            // A kernel may have been launched meanwhile.
            if job::is_over() || live().is_empty() || RUNS.swap(true, Ordering::SeqCst) {
                return;
            }
            continue;
        }
        match reader.look(Counts::of(&kernels), cuda::is_waiting(), Instant::now()) {
            Step::Sleep => {}
            Step::Report => {
                drained = devices(&kernels);
                if !is_told(&reader.known) {
                    let seconds = limit().unwrap_or_default().as_secs_f32();
                    let (pe, report) = (job::rank(), job::report());
                    eprintln!("weft: PE {pe}: a kernel has waited for more than {seconds} s:\n{report}");
                }
            }
            Step::End if !goes_on() && !drained.iter().all(|done| done.load(Ordering::SeqCst)) => end(),
            Step::End => {}
        }
    }
}

/// For each GPU with watched kernels, a flag that is set when its present work is done.
fn devices(kernels: &[(Arc<Watch>, Records)]) -> Vec<Arc<AtomicBool>> {
    let mut devices: Vec<_> = kernels.iter().filter_map(|(watch, _)| watch.device()).collect();
    devices.sort_by_key(|device| device.ordinal());
    devices.dedup_by_key(|device| device.ordinal());
    devices.into_iter().map(cuda::drained).collect()
}

/// Ends the job. A process whose host is blocked elsewhere is ended after the grace period, as
/// after the death of a PE. The next call of a PE that is alone fails.
fn end() {
    cuda::give_up();
    let seconds = job::Options::from_env().unwrap_or_default().timeout.as_secs_f32();
    job::fail(&format!("a kernel has waited for more than {seconds} s; its waits were reported before"));
}

/// The reaction to a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Sleep,
    /// There are new records, and none has come since the last look.
    Report,
    /// The time for the reported waits is over.
    End,
}

/// The records that the thread has found.
#[derive(Debug)]
struct Reader {
    /// The time from a record to the limit on the host's waits.
    rest: Duration,
    /// The records at the last look.
    last: Counts,
    /// The records that were reported.
    known: Counts,
    /// The time at which records were reported last, until the end is due.
    since: Option<Instant>,
}

impl Reader {
    fn new(rest: Duration) -> Reader {
        Reader { rest, last: Counts::default(), known: Counts::default(), since: None }
    }

    /// Looks at the records. If the host waits here, its own wait reports them.
    fn look(&mut self, counts: Counts, host_waits: bool, now: Instant) -> Step {
        if host_waits {
            (self.known, self.since) = (counts, None);
            return Step::Sleep;
        }
        let settled = counts == self.last;
        self.last = counts;
        if settled && self.last.exceed(&self.known) {
            (self.known, self.since) = (self.last.clone(), Some(now));
            return Step::Report;
        }
        match self.since {
            Some(since) if now.duration_since(since) >= self.rest => {
                self.since = None;
                Step::End
            }
            _ => Step::Sleep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at one-second intervals at numbers of records of one kernel.
    fn steps(rest: u64, looks: &[(u64, bool)]) -> Vec<Step> {
        let mut reader = Reader::new(Duration::from_secs(rest));
        let began = Instant::now();
        let look = |(n, (records, waits)): (u64, &(u64, bool))| {
            reader.look(Counts([(64, *records)].into()), *waits, began + Duration::from_secs(n))
        };
        (0..).zip(looks).map(look).collect()
    }

    #[test]
    fn records_are_reported_once_when_no_more_come() {
        use Step::{End, Report, Sleep};
        let looks = [0, 2, 5, 5, 5, 5, 5, 5].map(|n| (n, false));
        assert_eq!(steps(3, &looks), [Sleep, Sleep, Sleep, Report, Sleep, Sleep, End, Sleep]);
        // A later launch writes more records.
        let looks = [1, 1, 1, 4, 4, 4].map(|n| (n, false));
        assert_eq!(steps(9, &looks), [Sleep, Report, Sleep, Sleep, Report, Sleep]);
        // Fewer records belong to a kernel that was unloaded.
        let looks = [3, 3, 0, 0].map(|n| (n, false));
        assert_eq!(steps(9, &looks), [Sleep, Report, Sleep, Sleep]);
    }

    #[test]
    fn a_wait_of_the_host_reports_itself() {
        use Step::{Report, Sleep};
        let looks = [(2, true), (2, true), (2, false), (2, false), (3, false), (3, false)];
        assert_eq!(steps(0, &looks), [Sleep, Sleep, Sleep, Sleep, Sleep, Report]);
    }
}
