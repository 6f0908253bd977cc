//! A line on a terminal that says how far a long command is.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// What ends sooner needs no bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// A bar on standard error; none where that is no terminal.
pub(super) struct Bar {
    bar: ProgressBar,
    start: Instant,
}

impl Bar {
    /// A bar that counts these.
    pub fn new(unit: &str) -> Bar {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let template = format!("{{wide_bar}} {{pos}}/{{len}} {unit}, {{eta}} left {{msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Bar { bar, start: Instant::now() }
    }

    /// So many are done, with a remark.
    pub fn at(&self, done: u64, total: u64, remark: String) {
        if self.bar.is_hidden() {
            if self.start.elapsed() < PATIENCE {
                return;
            }
            // Draws nothing where standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(total);
        self.bar.set_message(remark);
        self.bar.set_position(done);
    }

    /// Writes something else while it is out of the way.
    pub fn aside<R>(&self, write: impl FnOnce() -> R) -> R {
        self.bar.suspend(write)
    }

    /// Takes it away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
