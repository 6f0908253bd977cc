//! How much the command prints beside its results.

use clap::Args;
use std::sync::atomic::{AtomicBool, Ordering};

static QUIET: AtomicBool = AtomicBool::new(false);
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Options of every command.
#[derive(Args)]
pub(super) struct Verbosity {
    /// Print no progress, no notes and no warnings. A run or a check in which nothing is wrong
    /// prints no report.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Also print the time of each stage of the compiler and of the whole command to standard
    /// error. `weft doctor` also lists every location that was searched.
    #[arg(short, long, global = true)]
    verbose: bool,
}

impl Verbosity {
    /// Makes this the choice for the whole process.
    pub(super) fn choose(&self) {
        QUIET.store(self.quiet, Ordering::Relaxed);
        VERBOSE.store(self.verbose, Ordering::Relaxed);
    }
}

/// Whether only results and errors are wanted.
pub(super) fn quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Whether times and searched locations are wanted.
pub(super) fn verbose() -> bool {
    VERBOSE.load(Ordering::Relaxed)
}
