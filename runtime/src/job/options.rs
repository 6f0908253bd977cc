//! The limits on the time to wait for other PEs, and what happens after them.

use crate::error::{Error, LAUNCHER, Result};
use crate::watch;
use std::time::Duration;

/// The limits on the time to wait for other PEs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The limit for the PEs to find each other, and for the last member of an exchange after the
    /// first. PE 0's value applies.
    pub timeout: Duration,
    /// The time that this process has to end by itself after the death of a PE. Then it is ended
    /// with status [`ENDED_WITH_PEER`](super::ENDED_WITH_PEER), since it may be stuck in a kernel
    /// that waits for that PE. With none it is never ended.
    pub grace: Option<Duration>,
    /// Whether a PE that waits for longer than the limit in an exchange only prints the state of
    /// all PEs, and goes on waiting.
    pub reports: bool,
}

weft_sim::setters!(
    Options {
        timeout: Duration,
        grace: Option<Duration>,
        reports: bool,
    }
);

impl Default for Options {
    /// The defaults are 60 s and 3 s, and an exchange fails after the limit.
    fn default() -> Options {
        Options { timeout: Duration::from_secs(60), grace: Some(Duration::from_secs(3)), reports: false }
    }
}

impl Options {
    /// Returns the default options, with the timeout of `WEFT_TIMEOUT` (seconds). With
    /// `WEFT_WATCH=report`, late exchanges only report.
    ///
    /// # Errors
    /// Fails if the timeout is not a positive number (R0201).
    pub fn from_env() -> Result<Options> {
        let options = Options::default().reports(watch::goes_on());
        let Ok(text) = std::env::var("WEFT_TIMEOUT") else { return Ok(options) };
        let seconds =
            text.parse().ok().filter(|&s: &f64| s > 0.0).and_then(|s| Duration::try_from_secs_f64(s).ok());
        match seconds {
            Some(timeout) => Ok(options.timeout(timeout)),
            None => {
                let message = format!("WEFT_TIMEOUT is {text:?}; expected a number of seconds above 0");
                Err(Error::new(LAUNCHER, message))
            }
        }
    }
}
