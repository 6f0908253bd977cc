//! The progress of a long command on standard error: a line that changes on a terminal, and notes
//! elsewhere, such as in a log. It is not shown with `--quiet`.

use super::verbosity::quiet;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weft::runtime::job::attended;

/// Commands that end sooner show no bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// The time before the first note. Commands that end sooner print none.
const FIRST_NOTE: Duration = Duration::from_secs(2);

/// The time between two notes.
const NEXT_NOTE: Duration = Duration::from_secs(10);

/// A progress bar on standard error, or a note from time to time if standard error is not a
/// terminal.
pub(super) struct Bar {
    bar: ProgressBar,
    unit: String,
    start: Instant,
    /// The time of the next note.
    note: Mutex<Instant>,
}

impl Bar {
    /// A bar that counts these units.
    pub fn new(unit: &str) -> Bar {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let template = format!("{{wide_bar}} {{pos}}/{{len}} {unit}, {{eta}} left {{msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        let start = Instant::now();
        Bar { bar, unit: unit.to_owned(), start, note: Mutex::new(start + FIRST_NOTE) }
    }

    /// Shows that `done` of `total` steps are complete, with a remark.
    pub fn at(&self, done: u64, total: u64, remark: String) {
        if self.bar.is_hidden() {
            if quiet() || self.start.elapsed() < PATIENCE {
                return;
            }
            if !stderr().is_terminal() {
                return self.note(done, total, &remark);
            }
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(total);
        self.bar.set_message(remark);
        self.bar.set_position(done);
    }

    /// Prints a note if the last one is old enough.
    fn note(&self, done: u64, total: u64, remark: &str) {
        let Ok(mut at) = self.note.lock() else { return };
        if Instant::now() >= *at {
            *at = Instant::now() + NEXT_NOTE;
            let steps = if total == 0 { String::new() } else { format!("{done} of {total} {}", self.unit) };
            let parts = [steps, remark.to_owned(), so_far(self.start)];
            let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            super::note(&parts.join(", "));
        }
    }

    /// Removes the bar from the terminal.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// A line on standard error that shows the elapsed time of work without steps to count.
pub(super) struct Spinner {
    bar: ProgressBar,
    /// Stops the thread that shows the line after some time.
    waiting: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Spinner {
    /// Starts to measure the time. The line appears later, and disappears when the value is
    /// dropped.
    pub fn new(what: &str) -> Spinner {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        let waiting = (!quiet()).then(|| {
            let (end, ended) = mpsc::channel();
            let (shown, what) = (bar.clone(), what.to_owned());
            let thread = thread::spawn(move || match stderr().is_terminal() {
                true if waited(&ended, PATIENCE) => {
                    shown.set_draw_target(ProgressDrawTarget::stderr());
                    shown.enable_steady_tick(Duration::from_millis(200));
                }
                true => {}
                false => notes(&what, &ended),
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
            // The thread cannot panic, and if it did only the line would be missing.
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

/// Prints notes until the work ends.
fn notes(what: &str, ended: &Receiver<()>) {
    let start = Instant::now();
    let mut pause = FIRST_NOTE;
    while waited(ended, pause) {
        super::note(&format!("{what}, {}", so_far(start)));
        pause = NEXT_NOTE;
    }
}

/// Whether the work still goes on after some time.
fn waited(ended: &Receiver<()>, time: Duration) -> bool {
    ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
}

fn so_far(start: Instant) -> String {
    format!("{} s so far", start.elapsed().as_secs())
}

/// A bar below the output of PE 0 of a job. The job's output passes line by line through the
/// process that started it, so the bar is also a line, which the next one replaces.
pub(super) struct Below {
    unit: &'static str,
    attended: bool,
    shown: bool,
    start: Instant,
}

impl Below {
    /// A bar that counts these units, if the output goes to a terminal.
    pub fn new(unit: &'static str) -> Below {
        Below { unit, attended: attended() && !quiet(), shown: false, start: Instant::now() }
    }

    /// Returns lines to print, with the bar below them until all parts are done.
    pub fn over(&mut self, lines: &str, done: usize, total: usize) -> String {
        const WIDTH: usize = 40;
        // Move up a line and erase it.
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
