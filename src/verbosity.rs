//! The amount of text that the command prints in addition to its results.

use clap::Args;
use std::sync::atomic::{AtomicBool, Ordering};

static QUIET: AtomicBool = AtomicBool::new(false);
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// The options of every command.
#[derive(Args)]
pub(super) struct Verbosity {
    /// Print no progress, no notes and no warnings. A run or a check without errors prints no
    /// report.
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 1000)]
    quiet: bool,
    /// Also print the time of each stage of the compiler and of the whole command to standard
    /// error. `weft doctor` also lists every location that was searched.
    #[arg(short, long, global = true, display_order = 1001)]
    verbose: bool,
}

impl Verbosity {
    /// Applies this choice to the whole process.
    pub(super) fn choose(&self) {
        QUIET.store(self.quiet, Ordering::Relaxed);
        VERBOSE.store(self.verbose, Ordering::Relaxed);
    }
}

/// Whether to print only results and errors.
pub(super) fn quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Whether to print times and searched locations.
pub(super) fn verbose() -> bool {
    VERBOSE.load(Ordering::Relaxed)
}
