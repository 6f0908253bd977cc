//! A line on a terminal that says how far a long command is. There is none with `--quiet`, and none in a pipe.

use super::verbosity::quiet;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weft::runtime::job::attended;

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
            if quiet() || self.start.elapsed() < PATIENCE {
                return;
            }
            // Draws nothing where standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(total);
        self.bar.set_message(remark);
        self.bar.set_position(done);
    }

    /// Takes the bar off the terminal.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// A line on standard error with the time that something takes, which has no steps to count.
pub(super) struct Spinner {
    bar: ProgressBar,
    /// Ends the thread that waits for the time after which the line is shown.
    waiting: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Spinner {
    /// Begins to measure the time. The line appears later, and goes when the value is dropped.
    pub fn new(what: &str) -> Spinner {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        let waiting = (!quiet()).then(|| {
            let (end, ended) = mpsc::channel();
            let shown = bar.clone();
            let thread = thread::spawn(move || {
                if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    shown.set_draw_target(ProgressDrawTarget::stderr());
                    shown.enable_steady_tick(Duration::from_millis(200));
                }
            });
            (end, thread)
        });
        Spinner { bar, waiting }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.waiting.take() {
            drop(end);
            // It cannot panic, and if it did the line would only be missing.
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

/// A line below what PE 0 of a job prints. The job's output passes line by line through the process that started it, so
/// it is a line as well, which the next one takes the place of.
pub(super) struct Below {
    unit: &'static str,
    attended: bool,
    shown: bool,
    start: Instant,
}

impl Below {
    /// A bar that counts these, where somebody sees it.
    pub fn new(unit: &'static str) -> Below {
        Below { unit, attended: attended() && !quiet(), shown: false, start: Instant::now() }
    }

    /// Lines to print, with the bar below them as long as not all is done.
    pub fn over(&mut self, lines: &str, done: usize, total: usize) -> String {
        const WIDTH: usize = 40;
        // Up a line, and that one gone.
        let mut out = String::from(if std::mem::take(&mut self.shown) { "\x1b[1A\x1b[2K" } else { "" });
        out.push_str(lines);
        if self.attended && done < total {
            let filled = WIDTH * done / total;
            let left = self.start.elapsed().as_secs_f64() * (total - done) as f64 / done.max(1) as f64;
            let left = if done == 0 { String::new() } else { format!(", {left:.0} s left") };
            let (bar, rest, unit) = ("#".repeat(filled), ".".repeat(WIDTH - filled), self.unit);
            out.push_str(&format!("[{bar}{rest}] {done}/{total} {unit}{left}\n"));
            self.shown = true;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_below_what_is_printed() {
        let mut bar = Below { attended: true, ..Below::new("sizes") };
        let dots = |n| ".".repeat(n);
        assert_eq!(bar.over("head\n", 0, 4), format!("head\n[{}] 0/4 sizes\n", dots(40)));
        let second = bar.over("one\n", 1, 4);
        assert!(
            second.starts_with(&format!("\x1b[1A\x1b[2Kone\n[##########{}] 1/4 sizes, ", dots(30))),
            "{second:?}"
        );
        assert!(second.ends_with(" s left\n"));
        assert_eq!(bar.over("last\n", 4, 4), "\x1b[1A\x1b[2Klast\n");
        assert_eq!(bar.over("note\n", 4, 4), "note\n");
        let mut none = Below { attended: false, ..Below::new("sizes") };
        assert_eq!(none.over("one\n", 1, 4), "one\n");
        assert_eq!(none.over("", 0, 0), "");
    }
}
