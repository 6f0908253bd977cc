//! A time limit for tests that can hang.

use std::sync::mpsc;
use std::time::Duration;

/// Runs a test in a thread of its own with a limit in seconds, so that a test that hangs fails
/// alone.
pub fn within(
    seconds: u64,
    test: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(test()));
    match wait.recv_timeout(Duration::from_secs(seconds)) {
        Ok(verdict) => verdict,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(format!("not done after {seconds} s")),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err("panicked: see standard error".into()),
    }
}
